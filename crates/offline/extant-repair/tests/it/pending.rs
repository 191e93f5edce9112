//! Volumes whose journals hold transactions: damage in front of the log does not lose them.

use crate::it::common::write_image;
use crate::it::image;
use crate::it::image::files;
use crate::it::stages::{flip, mended, shaped, told, with_superblock};
use blockdev::{BlockDevice, MemDevice};
use ext4_format::superblock::RawSuperblock;
use extant_repair::Mend;
use extant_testing::common::load_image;
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
    let replayed = files(&load_image(path));
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

/// The volume has one group, and so no backup of its superblock. e2fsck replays the journal before it looks at most of these numbers.
#[test]
fn a_superblock_with_impossible_numbers_is_taken_from_the_log() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let (device, after) = pending("metadata_csum,64bit");
    type Change = fn(&mut RawSuperblock);
    let damage: [(&str, Change); 3] = [
        ("blocks", |sb| {
            sb.blocks_count_lo.set(sb.blocks_count_lo.get() + 1);
        }),
        ("first block", |sb| sb.first_data_block.set(0)),
        ("several", |sb| {
            sb.set_reserved_blocks(1 << 40);
            sb.first_ino.set(u32::MAX);
            sb.log_groups_per_flex = 32;
            sb.inodes_count.set(9);
        }),
    ];
    for (what, change) in damage {
        let broken = with_superblock(&device, change);
        let plan = mended(&broken);
        let text = "it is taken from the journal";
        assert_eq!(plan.mends[0].text, text, "{what}");
        assert!(files(&broken) == after, "{what}");
    }
    flip(&device, 1024 + 1020, 1);
    let plan = mended(&device);
    assert!(plan.mends.iter().all(Mend::is_safe), "{:#?}", plan.mends);
    assert!(files(&device) == after);
}

#[test]
fn impossible_numbers_without_a_backup_are_set() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = shaped(&["-t", "ext4"]);
    let before = files(&device);
    let broken = with_superblock(&device, |sb| {
        sb.set_reserved_blocks(8193);
        sb.first_ino.set(3);
    });
    mended(&broken);
    assert!(files(&broken) == before);
}
