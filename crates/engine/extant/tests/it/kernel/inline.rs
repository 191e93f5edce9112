//! Volumes with data inside inodes (`inline_data`), written by the kernel and by mke2fs: read here as the kernel reads
//! them.

use crate::common::*;
use crate::kernel::contents::pattern;
use crate::kernel::tree::{Entry, Tree, kernel_tree, our_tree, same};
use ext4_format::FileType;
use extant::Error;
use extant_testing::mounted::{Mounted, able, open_file};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

/// Sizes around the 60 bytes in `i_block`, and around what inodes of 256, 512 and 1,024 bytes hold.
const SIZES: [usize; 16] = [
    0, 1, 59, 60, 61, 100, 130, 150, 156, 160, 161, 300, 412, 417, 900, 930,
];

fn xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

/// Makes files, directories and links of many sizes, some with attributes and ACLs in addition to the data.
fn make(root: &Path) {
    let write = |name: String, data: &[u8]| std::fs::write(root.join(name), data).unwrap();
    for (n, size) in SIZES.into_iter().enumerate() {
        write(format!("file{size}"), &pattern(n as u64, size));
    }
    write("cut".into(), &[7; 140]);
    let changed = |name: &str| {
        let path = root.join(name);
        std::fs::File::options().write(true).open(path).unwrap()
    };
    let cut = changed("cut");
    cut.set_len(70).unwrap();
    cut.set_len(90).unwrap();
    write("written twice".into(), &[8; 100]);
    changed("written twice").write_all_at(&[9; 20], 50).unwrap();
    for names in [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20] {
        let dir = root.join(format!("dir{names}"));
        std::fs::create_dir(&dir).unwrap();
        for n in 0..names {
            let name = dir.join(format!("{n:0>width$}", width = 1 + n % 9));
            match n % 3 {
                0 => std::fs::create_dir(name).unwrap(),
                1 => symlink("to", name).unwrap(),
                _ => std::fs::write(name, [n as u8; 10]).unwrap(),
            }
        }
    }
    // Gaps among the names, in both parts.
    for (dir, name) in [("dir5", "01"), ("dir6", "00004"), ("dir8", "002")] {
        let path = root.join(dir).join(name);
        std::fs::remove_file(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    }
    std::fs::rename(root.join("dir6/0"), root.join("dir1/moved")).unwrap();
    for len in [1, 58, 59, 60, 61, 100, 150, 300, 900, 2000] {
        symlink("x".repeat(len), root.join(format!("link{len}"))).unwrap();
    }
    let acl = acl_bytes(&[
        (1, 6, !0),
        (2, 4, 1234),
        (4, 4, !0),
        (16, 6, !0),
        (32, 4, !0),
    ]);
    for len in [0, 20, 60, 75, 110] {
        let path = root.join(format!("attributes{len}"));
        std::fs::write(&path, vec![1; len]).unwrap();
        xattr(&path, "user.short", b"value");
        xattr(&path, "system.posix_acl_access", &acl);
    }
    let dir = root.join("attributes");
    std::fs::create_dir(&dir).unwrap();
    xattr(&dir, "user.short", b"value");
    xattr(&dir, "system.posix_acl_default", &acl);
    for n in 0..4 {
        std::fs::write(dir.join(format!("inherits{n}")), [2; 30]).unwrap();
    }
    std::fs::write(root.join("block of attributes"), [3; 80]).unwrap();
    xattr(&root.join("block of attributes"), "user.long", &[b'v'; 700]);
}

const FEATURES: [&str; 3] = [
    "inline_data",
    "inline_data,^metadata_csum",
    "inline_data,orphan_file",
];

/// An image that the kernel has filled, and one of the same tree by mke2fs.
fn images(dir: &Path, size: &str, features: &str) -> [PathBuf; 2] {
    let args = ["-t", "ext4", "-I", size, "-O", features];
    let by_kernel = dir.join("kernel.img");
    mke2fs(&by_kernel, "32M", &args);
    let mounted = Mounted::new(&by_kernel, "");
    make(mounted.path());
    let by_mke2fs = dir.join("mke2fs.img");
    let tree = mounted.path().to_str().unwrap();
    mke2fs(&by_mke2fs, "32M", &[&args[..], &["-d", tree]].concat());
    mounted.unmount();
    [by_kernel, by_mke2fs]
}

/// mke2fs puts a file that is one hole into its inode, whatever its size: e2fsck finds nothing, and the kernel reads
/// zeros.
#[test]
fn holes_inside_inodes() {
    if !able() {
        return;
    }
    let dir = needs::memory_dir();
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    std::fs::create_dir(&tree).unwrap();
    let sizes = [1u64, 60, 61, 100, 3_000_000];
    for size in sizes {
        let file = std::fs::File::create(tree.join(format!("hole{size}"))).unwrap();
        file.set_len(size).unwrap();
    }
    let args = ["-t", "ext4", "-O", "inline_data", "-d"];
    mke2fs(
        &image,
        "32M",
        &[&args[..], &[tree.to_str().unwrap()]].concat(),
    );
    assert_clean_file(&image, "holes");
    let mounted = Mounted::new(&image, "ro");
    let read = |size| std::fs::read(mounted.path().join(format!("hole{size}"))).unwrap();
    let contents = sizes.map(|size| (size, read(size)));
    mounted.unmount();
    let v = open_file(&image);
    for (size, theirs) in contents {
        let name = format!("hole{size}");
        assert!(v.read(format!("/{name}")).unwrap() == theirs, "{name}");
        assert_eq!(theirs.len() as u64, size);
        let file = v.open_file(format!("/{name}")).unwrap();
        assert_eq!(file.seek_hole(0).unwrap(), size.min(60));
        assert_eq!(file.seek_data(0).unwrap(), 0);
        assert!(size <= 60 || file.seek_data(60).is_err());
        assert_eq!(file.extents().unwrap()[0].len, size.min(60));
        let mut bytes = [1; 50];
        let read = file.read_at(&mut bytes, 40).unwrap();
        assert_eq!(read as u64, size.saturating_sub(40).min(50));
        assert!(bytes[..read].iter().all(|&b| b == 0));
    }
    v.close().unwrap();
}

/// Inodes of a volume whose data are inside, by type.
fn inside(image: &Path, tree: &Tree, file_type: FileType) -> usize {
    let volume = crate::walk::Volume::open(image);
    let inodes = tree.values().map(|entry| {
        let ino = ext4_format::InodeNr(u32::try_from(entry.ino).unwrap());
        volume.inode(ino).core
    });
    inodes
        .filter(|core| core.flags & ext4_format::inode::flags::INLINE_DATA != 0)
        .filter(|core| core.file_type() == Some(file_type))
        .count()
}

#[test]
fn inline_data_as_the_kernel_reads_them() {
    if !able() {
        return;
    }
    for size in ["256", "512", "1024"] {
        for features in FEATURES {
            let dir = needs::memory_dir();
            for image in images(dir.path(), size, features) {
                let what = format!("{size}, {features}, {}", image.display());
                let mounted = Mounted::new(&image, "ro");
                let theirs = kernel_tree(mounted.path());
                mounted.unmount();
                let before = std::fs::read(&image).unwrap();
                let v = open_file(&image);
                let why = v.read_only().expect("read-only");
                let said = "the feature inline_data can be read, not written";
                assert!(why.ends_with(said), "{why}");
                same(&our_tree(&v), &theirs, &what);
                for (file_type, least) in [(FileType::Regular, 30), (FileType::Directory, 20)] {
                    let found = inside(&image, &theirs, file_type);
                    assert!(found >= least, "{what}: {found} {file_type:?}");
                }
                if image.ends_with("kernel.img") {
                    let longer = |entry: &&Entry| (61..1000).contains(&entry.size);
                    let spilled = theirs.values().filter(|e| e.mode & 0o170_000 == 0o040_000);
                    assert!(spilled.filter(longer).count() > 2, "{what}");
                }
                if image.ends_with("mke2fs.img") {
                    assert!(inside(&image, &theirs, FileType::Symlink) > 1, "{what}");
                }
                ranges(&v, &before, &theirs, &what);
                for refused in [
                    v.create_new_file("/new").err(),
                    v.remove_file("/file60").err(),
                    v.set_len("/file60", 3).err(),
                    v.write("/file60", b"x").err(),
                    v.rename("/file60", "/dir1/x").err(),
                ] {
                    assert!(matches!(refused, Some(Error::ReadOnly(_))), "{refused:?}");
                }
                v.close().unwrap();
                assert!(
                    std::fs::read(&image).unwrap() == before,
                    "{what}: unchanged"
                );
            }
        }
    }
}

/// Reads parts of files, and where they lie.
fn ranges(v: &extant::Volume, image: &[u8], tree: &Tree, what: &str) {
    let mut inline = 0;
    for (path, entry) in tree {
        if entry.mode & 0o170_000 != 0o100_000 {
            continue;
        }
        let file = v.open_file(Path::new("/").join(path)).unwrap();
        let content = &entry.content;
        for from in [0, 1, 30, 59, 60, 61, 100, 5000] {
            for len in [0, 1, 30, 60, 1000] {
                let mut bytes = vec![0xEE; len];
                let n = file.read_at(&mut bytes, from as u64).unwrap();
                let end = content.len().min(from + len);
                let found = content.get(from..end).unwrap_or(&[]);
                assert_eq!(&bytes[..n], found, "{what}: {path:?} from {from}");
            }
        }
        let mut bytes = [0; 10];
        assert_eq!(file.read_at(&mut bytes, u64::MAX - 3).unwrap(), 0);
        for extent in file.extents().unwrap().iter().filter(|e| e.inline) {
            inline += 1;
            assert_eq!((extent.offset, extent.len), (0, entry.size));
            let own = content.len().min(60);
            let at = extent.physical as usize;
            assert_eq!(&image[at..at + own], &content[..own], "{what}: {path:?}");
        }
    }
    assert!(inline > 20, "{what}: {inline}");
}

/// An image that is copied while the kernel has it mounted: the contents of the journal count.
#[test]
fn inline_data_in_a_journal() {
    if !able() {
        return;
    }
    let dir = needs::memory_dir();
    let (image, copy) = (dir.path().join("image"), dir.path().join("copy"));
    mke2fs(&image, "32M", &["-t", "ext4", "-O", "inline_data"]);
    let mounted = Mounted::new(&image, "");
    make(mounted.path());
    let fs = std::fs::File::open(mounted.path()).unwrap();
    rustix::fs::syncfs(&fs).unwrap();
    drop(fs);
    copy_image(&image, &copy);
    mounted.unmount();
    let mounted = Mounted::new(&image, "ro");
    let theirs = kernel_tree(mounted.path());
    mounted.unmount();
    let before = data_of(&copy);
    let v = open_file(&copy);
    assert!(v.recovery().transactions > 0, "{:?}", v.recovery());
    same(&our_tree(&v), &theirs, "from the journal");
    v.close().unwrap();
    assert!(data_of(&copy) == before, "unchanged");
}
