//! A damaged superblock is not written over its backups.

use blockdev::BlockDevice;
use ext4_format::features::{Incompat, RoCompat};
use ext4_format::superblock::RawSuperblock;
use extant_testing::common::load_image;
use extant_tune::{Error, TuneOptions};
use std::process::Command;

#[test]
fn a_superblock_that_no_backup_agrees_with_is_not_copied() {
    needs::tools!("mke2fs");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let args = [
        "-q",
        "-F",
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^metadata_csum,^metadata_csum_seed",
    ];
    let out = Command::new("mke2fs")
        .args(args)
        .arg(&path)
        .arg("64M")
        .output();
    assert!(out.unwrap().status.success());
    let device = load_image(&path);
    let options = TuneOptions {
        label: Some(b"new".to_vec()),
        ..TuneOptions::default()
    };
    extant_tune::plan(&device, &options).unwrap();
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    let sound = RawSuperblock::parse(&bytes).unwrap();
    let mut fewer = sound;
    fewer.set_blocks_count(sound.blocks_count() - 8);
    let mut smaller = sound;
    smaller.inode_size.set(128);
    // More groups would have backups, in blocks of files.
    let mut everywhere = sound;
    let bit = RoCompat::SPARSE_SUPER.bits();
    everywhere
        .feature_ro_compat
        .set(sound.feature_ro_compat.get() & !bit);
    let mut narrow = sound;
    let bit = Incompat::SIXTY_FOUR_BIT.bits();
    narrow
        .feature_incompat
        .set(sound.feature_incompat.get() ^ bit);
    for damaged in [fewer, smaller, everywhere, narrow] {
        device.write_at(1024, damaged.bytes()).unwrap();
        let refused = extant_tune::plan(&device, &options).map(|_| ());
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    }
    // If only the backups are of other features, a clean volume is changed.
    device.write_at(1024, sound.bytes()).unwrap();
    for group in [1, 3, 5, 7] {
        let at = (group * 8192 + 1) * 1024;
        device.write_at(at, everywhere.bytes()).unwrap();
    }
    extant_tune::plan(&device, &options).unwrap();
}
