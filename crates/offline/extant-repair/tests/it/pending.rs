//! Volumes whose journals hold transactions: damage in front of the log does not lose them.

use crate::common::write_image;
use crate::image;
use crate::image::files;
use crate::stages::{mended, told, with_superblock};
use blockdev::{BlockDevice, MemDevice};
use extant_repair::Mend;
use std::process::Command;

/// Returns an image with transactions to replay, and its files after a replay.
fn pending(features: &str) -> (MemDevice, Vec<(String, Vec<u8>)>) {
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", features];
    let device = image::populate_sized("8M", &args, true, 50).snapshot();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    write_image(&device, &path);
    let replayed = Command::new("e2fsck").arg("-fy").arg(&path).output();
    assert!(matches!(replayed.unwrap().status.code(), Some(0 | 1)));
    let replayed = files(&MemDevice::from_bytes(&std::fs::read(path).unwrap()));
    assert!(replayed != files(&device));
    (device, replayed)
}

#[test]
fn a_log_whose_bounds_are_lost_is_replayed() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let first_block_0 = ("first block 0", 0x14, 0u32);
    let all = [
        first_block_0,
        ("first block beyond all", 0x14, 70_000),
        ("no length", 0x10, 0),
        ("a length beyond the inode", 0x10, 2048),
    ];
    for (features, damage) in [
        ("^metadata_csum,^64bit", &all[..]),
        ("metadata_csum,64bit", &[first_block_0]),
    ] {
        let (device, after) = pending(features);
        let home = told(&device, "bmap <8> 0", "") * 1024;
        for (what, field, value) in damage {
            let broken = device.snapshot();
            broken.write_at(home + field, &value.to_be_bytes()).unwrap();
            let plan = mended(&broken);
            let safe = plan.mends.iter().all(Mend::is_safe);
            assert!(safe, "{what}: {:#?}", plan.mends);
            assert!(files(&broken) == after, "{features}, {what}");
        }
    }
}

#[test]
fn a_superblock_that_does_not_fit_its_device_is_taken_from_the_log() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let (device, after) = pending("metadata_csum,64bit");
    let broken = with_superblock(&device, |sb| {
        let count = sb.blocks_count_lo.get();
        sb.blocks_count_lo.set(count + 1);
    });
    let plan = mended(&broken);
    assert_eq!(plan.mends[0].text, "it is taken from the journal");
    assert!(files(&broken) == after);
}
