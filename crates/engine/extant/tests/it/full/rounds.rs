//! Rounds of filling a volume, trying every operation, and emptying it again.

use crate::common::*;
use crate::full::filling::*;
use extant::{Error, Fallocate, FileType, OpenOptions, SetAttributes, SetXattr, Volume};
use std::collections::BTreeMap;

/// Each operation once, on a volume without a free block. Some fail, but none may break anything.
fn every_operation(v: &Volume, kept: &BTreeMap<String, Vec<u8>>) {
    let (some, bytes) = kept
        .iter()
        .find(|(_, b)| b.len() > 5000)
        .expect("a file of two blocks");
    let big = vec![7u8; 1 << 20];
    let file = v
        .open_file_with(some, &OpenOptions::new().append(true))
        .unwrap();
    while fits(file.append(&big), "append") {}
    v.set_len(some, bytes.len() as u64)
        .expect("cutting off what was appended");
    let new = v.create_new_file("/another");
    if fits(new, "create") {
        fits(
            v.open_file_with("/another", &RW)
                .and_then(|f| f.write_at(&big, 0)),
            "write to a new file",
        );
        v.set_len("/another", 0).unwrap();
    }
    fits(v.create_dir("/dir"), "mkdir");
    fits(v.symlink("t", "/fast"), "symlink");
    fits(v.symlink("t".repeat(200), "/slow"), "long symlink");
    fits(v.mknod("/fifo", FileType::Fifo, 0o600, 0), "mknod");
    fits(v.hard_link(some, "/other-name"), "link");
    fits(
        v.rename(some, "/renamed")
            .and_then(|()| v.rename("/renamed", some)),
        "rename",
    );
    if v.metadata(some).is_err() {
        v.rename("/renamed", some)
            .expect_err("the name is still the new one");
        panic!("a rename back failed for lack of space");
    }
    let file = v.open_file_with(some, &RW).unwrap();
    match file.fallocate(Fallocate::Allocate { keep_size: true }, 0, 1 << 30) {
        Err(Error::NoSpace(_) | Error::Unsupported(_)) => {}
        other => panic!("fallocate: {other:?}"),
    }
    fits(
        file.set_xattr("user.big", &[5; 800], SetXattr::Any),
        "set xattr",
    );
    // Calls that need no space succeed.
    file.write_at(&bytes[100..200], 100).expect("overwriting");
    v.set_attributes(
        some,
        &SetAttributes {
            mode: Some(0o640),
            ..Default::default()
        },
    )
    .expect("chmod");
    v.sync().expect("sync of a full volume");
    v.set_len(some, bytes.len() as u64)
        .expect("truncate to the same size");
    for name in ["/another", "/fast", "/slow", "/fifo", "/other-name"] {
        match v.remove_file(name) {
            Ok(()) | Err(Error::NotFound) => {}
            Err(e) => panic!("{name}: {e}"),
        }
    }
    match v.remove_dir("/dir") {
        Ok(()) | Err(Error::NotFound) => {}
        Err(e) => panic!("/dir: {e}"),
    }
}

fn rounds(args: &[&str], size: &str, sizes: &[usize]) {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image(size, args);
    let mut most = 0;
    for round in 0..3 {
        let what = format!("{args:?}, round {round}");
        let v = open(&device);
        let dir = format!("/round{round}");
        v.create_dir(&dir).unwrap();
        let kept = fill(&v, &dir, sizes);
        let bytes: usize = kept.values().map(Vec::len).sum();
        intact(&v, &kept, &what);
        if round != 1 {
            every_operation(&v, &kept);
        }
        v.sync()
            .unwrap_or_else(|e| panic!("{what}: sync when full: {e}"));
        v.drop_caches();
        intact(&v, &kept, &what);
        v.close().unwrap();
        assert_clean(&device, &what);
        let v = open(&device);
        intact(&v, &kept, &what);
        // After everything is removed, about the same number of bytes fits again.
        assert!(
            bytes * 10 >= most * 9,
            "{what}: {bytes} bytes fit, {most} before"
        );
        most = most.max(bytes);
        for (n, path) in kept.keys().enumerate() {
            v.remove_file(path)
                .unwrap_or_else(|e| panic!("{what}: unlink on a full volume: {e}"));
            if n == 0 && kept[path].len() > 20_000 {
                // The blocks of one removed file are enough to write another.
                v.write(format!("{dir}/again"), [1; 4000])
                    .expect("room for another");
                v.remove_file(format!("{dir}/again")).unwrap();
            }
        }
        v.remove_dir(&dir).unwrap();
        v.close().unwrap();
        assert_clean(&device, &what);
    }
}

#[test]
fn large_files() {
    rounds(
        &["-t", "ext4", "-J", "size=4"],
        "24M",
        &[300_000, 70_000, 9_000],
    );
}

#[test]
fn small_files() {
    rounds(
        &["-t", "ext4", "-b", "1024", "-i", "1024", "-J", "size=1"],
        "8M",
        &[6_000, 1_000, 1, 3_000],
    );
}

#[test]
fn empty_files_fill_directories() {
    rounds(
        &["-t", "ext4", "-b", "1024", "-i", "2048", "-J", "size=1"],
        "6M",
        &[6_000, 0, 0, 0, 0, 0],
    );
}

#[test]
fn ext3() {
    rounds(
        &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        "8M",
        &[400_000, 20_000],
    );
}

#[test]
fn ext2() {
    rounds(&["-t", "ext2"], "12M", &[100_000, 5_001]);
}

#[test]
fn no_journal() {
    rounds(
        &["-t", "ext4", "-O", "^has_journal"],
        "12M",
        &[100_000, 5_001],
    );
}
