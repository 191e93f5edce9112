//! Volumes with values of attributes in inodes (`ea_inode`), written by the kernel: read here as the kernel reads them.

use crate::common::*;
use crate::kernel::contents::pattern;
use crate::kernel::tree::{Entry, Tree, kernel_tree, our_tree, same};
use extant::Error;
use extant_testing::mounted::{Mounted, able, open_file};
use std::os::unix::fs::symlink;
use std::path::Path;

/// Lengths of values: in the inode, around a block, and the most that a system call takes.
const LENGTHS: [usize; 10] = [0, 1, 90, 900, 1100, 3900, 4096, 5000, 20_000, 65_536];

fn xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty())
        .unwrap_or_else(|e| panic!("{path:?}: {name}, {} bytes: {e}", value.len()));
}

/// Returns an ACL that takes more than a block.
fn large_acl() -> Vec<u8> {
    let mut entries = vec![(1, 7, !0)];
    entries.extend((0..800).map(|user| (2, 4, 1000 + user)));
    entries.extend([(4, 5, !0), (16, 7, !0), (32, 5, !0)]);
    acl_bytes(&entries)
}

/// Makes files, directories and links with values of all lengths, alone and together, some of them equal.
fn make(root: &Path) {
    for (n, len) in LENGTHS.into_iter().enumerate() {
        let value = pattern(n as u64, len);
        let file = root.join(format!("file{len}"));
        std::fs::write(&file, b"content").unwrap();
        xattr(&file, "user.value", &value);
        xattr(&file, "user.the same value", &value);
        xattr(&file, "user.short", b"short");
        let dir = root.join(format!("dir{len}"));
        std::fs::create_dir(&dir).unwrap();
        xattr(&dir, "user.value", &value);
        xattr(&dir, "trusted.value", &value);
        let link = root.join(format!("link{len}"));
        symlink("to", &link).unwrap();
        xattr(&link, "trusted.value", &value);
    }
    let many = root.join("many");
    std::fs::write(&many, b"").unwrap();
    for n in 0..20 {
        let value = pattern(100 + n, 3000 + 7 * n as usize);
        xattr(&many, &format!("user.value{n}"), &value);
    }
    for n in (0..20).step_by(3) {
        xattr(&many, &format!("user.value{n}"), &pattern(n, 9000));
    }
    for n in (1..20).step_by(3) {
        let name = format!("user.value{n}");
        rustix::fs::lremovexattr(&many, name).unwrap();
    }
    let acl = large_acl();
    let dir = root.join("acl");
    std::fs::create_dir(&dir).unwrap();
    xattr(&dir, "system.posix_acl_default", &acl);
    std::fs::write(dir.join("inherits"), b"x").unwrap();
    xattr(&dir, "system.posix_acl_access", &acl);
}

/// Returns the number of attributes of a tree whose values are in inodes.
fn values(image: &Path, tree: &Tree) -> usize {
    let volume = crate::walk::Volume::open(image);
    let of = |entry: &Entry| {
        let ino = ext4_format::InodeNr(u32::try_from(entry.ino).unwrap());
        let set = volume.xattrs(&volume.inode(ino));
        let names = entry.xattrs.keys();
        names.filter(|name| set.value_inode(name).is_some()).count()
    };
    tree.values().map(of).sum()
}

/// Compares what the volume shows with the kernel's tree, and that nothing is written.
fn compare(image: &Path, theirs: &Tree, what: &str) {
    let before = std::fs::read(image).unwrap();
    let v = open_file(image);
    let why = v.read_only().expect("read-only");
    assert!(why.ends_with("can be read, not written"), "{why}");
    same(&our_tree(&v), theirs, what);
    for refused in [
        v.create_new_file("/new").err(),
        v.remove_file("/many").err(),
        v.set_xattr("/many", "user.x", b"x", Default::default())
            .err(),
        v.remove_xattr("/many", "user.value0").err(),
    ] {
        assert!(matches!(refused, Some(Error::ReadOnly(_))), "{refused:?}");
    }
    v.close().unwrap();
    assert!(
        std::fs::read(image).unwrap() == before,
        "{what}: it changed"
    );
}

fn tree_of(image: &Path) -> Tree {
    let mounted = Mounted::new(image, "ro");
    let tree = kernel_tree(mounted.path());
    mounted.unmount();
    tree
}

#[test]
fn values_in_inodes_as_the_kernel_reads_them() {
    if !able() {
        return;
    }
    for args in [
        &["-t", "ext4", "-O", "ea_inode"][..],
        &["-t", "ext4", "-b", "1024", "-O", "ea_inode"],
        &["-t", "ext4", "-O", "ea_inode,^metadata_csum"],
        &[
            "-t",
            "ext4",
            "-O",
            "ea_inode,metadata_csum_seed,inline_data",
        ],
        &["-t", "ext4", "-I", "128", "-O", "ea_inode,^extents,^64bit"],
    ] {
        let what = format!("{args:?}");
        let dir = needs::memory_dir();
        let image = dir.path().join("image");
        mke2fs(&image, "32M", args);
        let mounted = Mounted::new(&image, "");
        make(mounted.path());
        mounted.unmount();
        let theirs = tree_of(&image);
        let found = values(&image, &theirs);
        assert!(found > 30, "{what}: {found}");
        compare(&image, &theirs, &what);
    }
}

/// An image that is copied while the kernel has it mounted: the values are in the journal alone.
#[test]
fn values_in_a_journal() {
    if !able() {
        return;
    }
    let dir = needs::memory_dir();
    let [image, copy, replayed] = ["image", "copy", "replayed"].map(|name| dir.path().join(name));
    mke2fs(&image, "32M", &["-t", "ext4", "-O", "ea_inode"]);
    let mounted = Mounted::new(&image, "");
    make(mounted.path());
    let last = std::fs::File::create(mounted.path().join("last")).unwrap();
    last.sync_all().unwrap();
    drop(last);
    copy_image(&image, &copy);
    mounted.unmount();
    copy_image(&copy, &replayed);
    Mounted::new(&replayed, "").unmount();
    let v = open_file(&copy);
    assert!(v.recovery().transactions > 0, "{:?}", v.recovery());
    v.close().unwrap();
    compare(&copy, &tree_of(&replayed), "from the journal");
}

/// Callers with entries in an ACL whose value is in an inode have what the ACL gives them.
#[test]
fn an_acl_in_an_inode_decides() {
    if !able() {
        return;
    }
    let dir = needs::memory_dir();
    let image = dir.path().join("image");
    mke2fs(&image, "32M", &["-t", "ext4", "-O", "ea_inode"]);
    let mounted = Mounted::new(&image, "");
    let file = mounted.path().join("file");
    std::fs::write(&file, b"content").unwrap();
    let mut entries = vec![(1, 7, !0)];
    entries.extend((0..800).map(|user| (2, if user % 2 == 0 { 4 } else { 0 }, 1000 + user)));
    entries.extend([(4, 0, !0), (16, 7, !0), (32, 4, !0)]);
    xattr(&file, "system.posix_acl_access", &acl_bytes(&entries));
    mounted.unmount();
    assert_eq!(values(&image, &tree_of(&image)), 1);
    let v = open_file(&image);
    assert_eq!(v.acl("/file").unwrap().entries().len(), 804);
    for (user, reads) in [(1000, true), (1001, false), (1500, true), (1799, false)] {
        let by = v.as_user(extant::Credentials::new(user, 7, &[]));
        assert_eq!(by.read("/file").is_ok(), reads, "user {user}");
    }
    v.close().unwrap();
}
