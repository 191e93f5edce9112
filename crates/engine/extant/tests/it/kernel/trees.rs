//! Trees made by one side and read, changed and read again by the other.

use crate::common::*;
use crate::kernel::contents::{make, make_by_kernel, pattern};
use crate::kernel::tree::{kernel_tree, our_tree, same};
use extant::{Fallocate, OpenOptions, SetXattr};
use extant_testing::mounted::{KINDS, Mounted, able, image, open_file};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[test]
fn made_here_read_by_the_kernel() {
    if !able() {
        return;
    }
    for (what, args) in KINDS {
        let dir = needs::memory_dir();
        let path = image(&dir, args);
        let v = open_file(&path);
        let short = v.geometry().inode_size == 128;
        make(
            &v,
            if args.len() == 2 {
                amount(3_000, 20_000)
            } else {
                amount(800, 3_000)
            },
        );
        v.close().unwrap();
        assert_clean_file(&path, what);
        let v = open_file(&path);
        let ours = our_tree(&v);
        v.close().unwrap();
        let mounted = Mounted::new(&path, "");
        let theirs = kernel_tree(mounted.path());
        // The kernel changes the tree, and everything is still sound.
        std::fs::write(mounted.path().join("big/from the kernel"), b"hello").unwrap();
        std::fs::remove_dir_all(mounted.path().join("attributes")).unwrap();
        mounted.unmount();
        same(&ours, &theirs, what);
        assert!(
            short || ours[Path::new("kinds/file1")].mtime == (1_600_000_000, 123_456_789),
            "{what}"
        );
        assert_clean_file(&path, what);
        let v = open_file(&path);
        assert_eq!(v.read("/big/from the kernel").unwrap(), b"hello");
        v.close().unwrap();
    }
}

#[test]
fn made_by_the_kernel_changed_here() {
    if !able() {
        return;
    }
    for (what, args) in KINDS {
        let dir = needs::memory_dir();
        let path = image(&dir, args);
        let mounted = Mounted::new(&path, "");
        make_by_kernel(mounted.path(), amount(900, 6_000));
        mounted.unmount();
        let mounted = Mounted::new(&path, "ro");
        let theirs = kernel_tree(mounted.path());
        mounted.unmount();
        let v = open_file(&path);
        same(&our_tree(&v), &theirs, what);
        // The tree is changed here.
        let rng = &mut Rng::new(7);
        for n in 0..amount(600, 2_000) as u64 {
            if n % 5 != 0 {
                let name = format!("/big/kernel's name {n}");
                match rng.below(3) {
                    0 => v.remove_file(&name).unwrap(),
                    1 => v.rename(&name, format!("/big/ours {n}")).unwrap(),
                    _ => v.write(&name, pattern(n, 3000)).unwrap(),
                }
            }
        }
        v.set_len("/kinds/file4", 1_234_567).unwrap();
        let sparse = v
            .open_file_with("/kinds/sparse", &OpenOptions::new().write(true))
            .unwrap();
        for n in 0..400 {
            sparse
                .write_at(&pattern(n, 300), n * 18_000 + 4_500)
                .unwrap();
        }
        sparse
            .fallocate(Fallocate::PunchHole, 1_000_000, 1_000_000)
            .unwrap();
        drop(sparse);
        v.set_xattr("/kinds/file3", "user.some", b"new", SetXattr::Replace)
            .unwrap();
        v.remove_xattr("/kinds/file4", "trusted.other").unwrap();
        v.rename("/deep0/deep1", "/kinds/moved").unwrap();
        v.write("/kinds/by us", b"inherits the ACL").unwrap();
        v.remove_file("/kinds/link900").unwrap();
        v.remove_file("/kinds/null").unwrap();
        v.close().unwrap();
        assert_clean_file(&path, what);
        let v = open_file(&path);
        let ours = our_tree(&v);
        v.close().unwrap();
        let mounted = Mounted::new(&path, "ro");
        let theirs = kernel_tree(mounted.path());
        mounted.unmount();
        same(&ours, &theirs, &format!("{what}, changed here"));
        let mounted = Mounted::new(&path, "");
        std::fs::remove_dir_all(mounted.path().join("big")).unwrap();
        std::fs::remove_dir_all(mounted.path().join("kinds")).unwrap();
        mounted.unmount();
        assert_clean_file(&path, &format!("{what}, emptied by the kernel"));
    }
}

/// The space that statfs reports for one image, on both sides.
#[test]
fn statfs_as_the_kernel_counts() {
    if !able() {
        return;
    }
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-b", "1024", "-m", "12"],
        &["-t", "ext4", "-O", "^has_journal", "-m", "0"],
        &[
            "-t",
            "ext4",
            "-J",
            "size=8",
            "-O",
            "metadata_csum_seed,orphan_file",
        ],
    ] {
        let dir = needs::memory_dir();
        let image = image(&dir, args);
        let v = open_file(&image);
        make(&v, 50);
        v.sync().unwrap();
        let ours = v.statfs().unwrap();
        v.close().unwrap();
        let mounted = Mounted::new(&image, "");
        let theirs = rustix::fs::statvfs(mounted.path()).unwrap();
        mounted.unmount();
        let what = format!("{args:?}: blocks, free, available, inodes, free");
        assert_eq!(
            (ours.blocks, ours.free_blocks, ours.available_blocks),
            (theirs.f_blocks, theirs.f_bfree, theirs.f_bavail),
            "{what}"
        );
        assert_eq!(
            (ours.inodes, ours.free_inodes, u64::from(ours.block_size)),
            (theirs.f_files, theirs.f_ffree, theirs.f_bsize),
            "{what}"
        );
    }
}

/// Many links: a directory with more subdirectories than its link count can hold.
#[test]
fn more_subdirectories_than_links() {
    if !able() {
        return;
    }
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    mke2fs(&path, "600M", &["-t", "ext4", "-b", "1024", "-N", "70000"]);
    let v = open_file(&path);
    (0..65_100).for_each(|n| drop(v.create_dir(format!("/{n}")).unwrap()));
    assert_eq!(v.metadata("/").unwrap().nlink(), 1, "not counted any more");
    v.close().unwrap();
    assert_clean_file(&path, "65,100 subdirectories");
    let mounted = Mounted::new(&path, "");
    let meta = std::fs::metadata(mounted.path()).unwrap();
    assert_eq!(meta.nlink(), 1);
    assert_eq!(std::fs::read_dir(mounted.path()).unwrap().count(), 65_101);
    std::fs::remove_dir(mounted.path().join("17")).unwrap();
    mounted.unmount();
    assert_clean_file(&path, "65,100 subdirectories, one removed by the kernel");
}
