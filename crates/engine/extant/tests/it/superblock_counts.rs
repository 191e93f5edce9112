//! The superblock's free counts are written when a volume is closed. With a journal they are not logged in between: a
//! commit that changes nothing else in the superblock does not write it. A program that opens an image after a cut adds
//! up the descriptors.

use crate::common;
use blockdev::MemDevice;
use common::*;
use extant::Volume;
use extant_testing::common::load_image;
use std::sync::Arc;

const KINDS: [&[&str]; 5] = [
    &["-t", "ext4"],
    &["-t", "ext4", "-O", "orphan_file"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext3"],
    &["-t", "ext2"],
];

/// Returns the free blocks and inodes in the superblock of an image, as e2fsprogs read them.
fn counts(device: &MemDevice) -> (u64, u64) {
    let mut bytes = [0; 1024];
    blockdev::BlockDevice::read_at(device, 1024, &mut bytes).unwrap();
    let sb = ext4_format::superblock::RawSuperblock::parse(&bytes).unwrap();
    (sb.free_blocks(), sb.free_inodes_count.get().into())
}

fn work(volume: &Volume) {
    for n in 0..300 {
        let file = volume.create_new_file(format!("/{n}")).unwrap();
        file.write_all_at(&[7; 5000], 0).unwrap();
        if n % 50 == 0 {
            file.sync_all().unwrap();
        }
    }
    (0..100).for_each(|n| volume.remove_file(format!("/{n}")).unwrap());
    volume.sync().unwrap();
}

/// Checks that the counts are right after a cut, both by e2fsck and by the engine.
fn judge(cut: &MemDevice, what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    write_image(cut, &path);
    repair(&path, &format!("{what}, by e2fsck"));
    let mended = load_image(&path);
    let device = Arc::new(cut.snapshot());
    let volume = open(&device);
    let (blocks, inodes) = (
        volume.statfs().unwrap().free_blocks,
        volume.statfs().unwrap().free_inodes,
    );
    volume.close().unwrap();
    assert_clean(&device, &format!("{what}, by the engine"));
    assert_eq!(counts(&mended), (blocks, inodes), "{what}");
    assert_eq!(counts(&device), (blocks, inodes), "{what}");
}

#[test]
fn counts_are_right_after_a_close_and_after_a_cut() {
    needs::tools!("mke2fs", "e2fsck");
    for args in KINDS {
        let what = format!("{args:?}");
        let device = mem_image("32M", args);
        let volume = open(&device);
        work(&volume);
        // The log has been filled.
        judge(&device.snapshot(), &what);
        // The next open replays or empties the log, and marks the volume as open.
        let again = Arc::new(device.snapshot());
        let second = options().force(true).open_device(again.clone()).unwrap();
        second.create_new_file("/after").unwrap();
        let cut = again.snapshot();
        judge(&cut, &format!("{what}, replayed"));
        drop(second);
        let free = volume.statfs().unwrap();
        volume.close().unwrap();
        assert_clean(&device, &what);
        let found = counts(&device);
        assert_eq!(found, (free.free_blocks, free.free_inodes), "{what}");
    }
}

#[test]
fn an_fsync_does_not_log_the_superblock() {
    needs::tools!("mke2fs");
    let device = mem_image("32M", &["-t", "ext4"]);
    let volume = open(&device);
    let file = volume.create_new_file("/file").unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.sync_all().unwrap();
    let before = volume.statistics();
    for n in 1..=10 {
        file.write_all_at(&[1; 4096], n * 4096).unwrap();
        file.sync_all().unwrap();
    }
    let after = volume.statistics();
    let (pushes, bytes) = (
        after.pushes - before.pushes,
        after.log_bytes - before.log_bytes,
    );
    assert_eq!(pushes, 10);
    // A descriptor block, the inode's block, its group's bitmap and descriptor, a commit block.
    assert_eq!(bytes, 10 * 5 * 4096);
    volume.close().unwrap();
}
