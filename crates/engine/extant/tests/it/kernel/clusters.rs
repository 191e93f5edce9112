//! Volumes whose bitmaps count clusters (`bigalloc`), filled by the kernel: read here as the kernel reads them.

use crate::common::*;
use crate::kernel::contents::make_by_kernel;
use crate::kernel::tree::{kernel_tree, our_tree, same};
use extant::Error;
use extant_testing::mounted::{Mounted, able, open_file};
use std::path::Path;

/// Arguments of mke2fs. The last groups are partial.
const SHAPES: [&[&str]; 3] = [
    &[
        "-O",
        "bigalloc,^resize_inode",
        "-b",
        "1024",
        "-C",
        "16384",
        "-g",
        "1024",
    ],
    &["-O", "bigalloc", "-C", "65536", "-g", "512"],
    &["-O", "bigalloc,inline_data", "-C", "16384"],
];

/// Compares the tree and the space of an image with those that the kernel shows.
fn compare(image: &Path, kernels: &Path, what: &str) {
    let mounted = Mounted::new(kernels, "ro");
    let theirs = kernel_tree(mounted.path());
    let space = rustix::fs::statvfs(mounted.path()).unwrap();
    mounted.unmount();
    let before = std::fs::read(image).unwrap();
    let v = open_file(image);
    let why = v.read_only().expect("read-only");
    assert!(why.contains("bigalloc"), "{what}: {why}");
    same(&our_tree(&v), &theirs, what);
    let ours = v.statfs().unwrap();
    let blocks = [ours.blocks, ours.free_blocks, ours.available_blocks];
    assert_eq!(
        blocks,
        [space.f_blocks, space.f_bfree, space.f_bavail],
        "{what}"
    );
    let inodes = [ours.inodes, ours.free_inodes];
    assert_eq!(inodes, [space.f_files, space.f_ffree], "{what}");
    for refused in [
        v.create_new_file("/none").err(),
        v.remove_file("/big").err(),
    ] {
        assert!(
            matches!(refused, Some(Error::ReadOnly(_))),
            "{what}: {refused:?}"
        );
    }
    v.close().unwrap();
    assert!(std::fs::read(image).unwrap() == before, "{what}: unchanged");
}

#[test]
fn clusters_as_the_kernel_reads_them() {
    if !able() {
        return;
    }
    for args in SHAPES {
        let what = format!("{args:?}");
        let dir = needs::memory_dir();
        let [image, cut, replayed] = ["image", "cut", "replayed"].map(|name| dir.path().join(name));
        let args = [&["-t", "ext4", "-N", "4096"][..], args].concat();
        mke2fs(&image, "72M", &args);
        let mounted = Mounted::new(&image, "");
        make_by_kernel(mounted.path(), 200);
        let sync = || {
            let root = std::fs::File::open(mounted.path()).unwrap();
            rustix::fs::syncfs(&root).unwrap();
        };
        sync();
        // The committed blocks wait in the journal.
        std::fs::remove_file(mounted.path().join("big/kernel's name 7")).unwrap();
        std::fs::write(mounted.path().join("new"), vec![7; 50_000]).unwrap();
        sync();
        copy_image(&image, &cut);
        mounted.unmount();
        compare(&image, &image, &what);
        copy_image(&cut, &replayed);
        Mounted::new(&replayed, "").unmount();
        let v = open_file(&cut);
        assert!(v.recovery().transactions > 0, "{what}");
        v.close().unwrap();
        compare(&cut, &replayed, &format!("{what}, with its journal"));
    }
}
