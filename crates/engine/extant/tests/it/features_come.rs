//! Features that a volume gets when they are first needed, as the kernel sets them: extended attributes, and files of 2
//! GiB and more.

use crate::common;
use blockdev::{BlockDevice, MemDevice};
use common::*;
use ext4_format::features::Features;
use ext4_format::superblock::RawSuperblock;
use extant::{OpenOptions, SetXattr, Volume};
use std::sync::Arc;

/// Names of the features on disk, and the revision of the superblock.
fn on_disk(device: &MemDevice) -> (Vec<String>, u32) {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    let sb = RawSuperblock::parse(&bytes).unwrap();
    (Features::of(&sb).names(), sb.rev_level.get())
}

/// Changes a volume that lacks a feature. The feature, and no other, is set by the commit that needs it, also after a
/// cut.
fn comes(feature: &str, args: &[&str], change: fn(&Volume)) {
    let what = format!("{feature}, {args:?}");
    let device = mem_image("24M", args);
    let (before, _) = on_disk(&device);
    assert!(!before.iter().any(|f| f == feature), "{what}: {before:?}");
    let v = open(&device);
    v.write("/other", b"needs no feature").unwrap();
    v.create_dir("/d").unwrap();
    v.sync().unwrap();
    let early = Features::of(&v.superblock().unwrap()).names();
    assert!(!early.iter().any(|f| f == feature), "{what}: too early");
    change(&v);
    v.sync().unwrap();
    // The power is cut here.
    let cut = Arc::new(device.snapshot());
    v.close().unwrap();
    assert_clean(&device, &what);
    if before.iter().any(|f| f == "has_journal") {
        let v = open(&cut);
        assert!(v.recovery().transactions > 0, "{what}");
        v.close().unwrap();
        assert_clean(&cut, &format!("{what}, after a cut"));
        assert_eq!(on_disk(&cut), on_disk(&device), "{what}");
    }
    let (after, revision) = on_disk(&device);
    let is_new = |f: &&String| !before.contains(f);
    let new: Vec<&str> = after.iter().filter(is_new).map(String::as_str).collect();
    assert_eq!((new, revision), (vec![feature], 1), "{what}");
    // The feature stays, and the volume can be used.
    let v = open(&device);
    v.write("/more", b"more").unwrap();
    change(&v);
    v.close().unwrap();
    assert_clean(&device, &format!("{what}, again"));
    assert_eq!(on_disk(&device).0, after, "{what}");
}

const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-J", "size=4"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=1",
        "-O",
        "metadata_csum_seed,orphan_file",
    ],
    &["-t", "ext4", "-b", "2048", "-O", "^has_journal"],
    &["-t", "ext4", "-J", "size=4", "-I", "128"],
    &["-t", "ext3", "-b", "1024", "-J", "size=1"],
    &["-t", "ext2"],
];

fn without(feature: &str, change: fn(&Volume)) {
    needs::tools!("mke2fs", "e2fsck");
    // mke2fs sets large_file itself for resize_inode, which holds a large file.
    let off = format!("^resize_inode,^{feature}");
    for kind in KINDS {
        comes(feature, &[*kind, &["-O", &off]].concat(), change);
    }
    // The first revision of the format, which has no features.
    comes(feature, &["-t", "ext2", "-r", "0", "-O", "none"], change);
}

#[test]
fn extended_attributes() {
    without("ext_attr", |v| {
        for (path, len) in [("/other", 10), ("/d", 600)] {
            v.set_xattr(path, "user.some", &vec![7; len], SetXattr::Any)
                .unwrap();
        }
    });
}

#[test]
fn large_files() {
    without("large_file", |v| {
        let options = OpenOptions::new().write(true).create(true);
        let file = v.open_file_with("/large", &options.mode(0o600)).unwrap();
        file.set_len(1 << 31).unwrap();
        file.write_at(b"far out", (1 << 31) + 5000).unwrap();
    });
}
