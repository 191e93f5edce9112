//! Superblocks, descriptors and journals whose places contradict each other.

use crate::common::*;
use crate::damage::image::*;
use blockdev::{BlockDevice, MemDevice};
use extant::{Error, Volume, VolumeOptions};
use std::sync::Arc;

const KIND: &[&str] = &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", PLAIN];

fn try_open(device: &Arc<MemDevice>) -> extant::Result<Volume> {
    noting().0.open_device(Arc::clone(device) as _)
}

/// Returns the error of an opening that must fail and must not change the image.
#[track_caller]
fn refused(device: &Arc<MemDevice>) -> String {
    let before = device.to_bytes().unwrap();
    let error = try_open(device).expect_err("refused");
    assert!(matches!(error, Error::Format(_)), "{error}");
    assert!(before == device.to_bytes().unwrap(), "nothing is written");
    error.to_string()
}

/// Checks that the image can be read without its journal.
#[track_caller]
fn is_read_without_journal(device: &Arc<MemDevice>) {
    let volume = noting()
        .0
        .noload(true)
        .open_device(Arc::clone(device) as _)
        .unwrap();
    assert!(volume.read_only().unwrap().contains("noload"));
    assert_eq!(volume.read("/dir/keep").unwrap(), [0x5a; 20_000]);
    assert!(matches!(
        volume.create_new_file("/x"),
        Err(Error::ReadOnly(_))
    ));
    volume.close().unwrap();
}

/// Big-endian words of the journal's superblock.
fn change_journal(device: &MemDevice, word: u64, value: u32) -> u64 {
    let mut root = [0; 4];
    // The journal inode's first extent holds its first block.
    let inode = inode_place(device, 8);
    device.read_at(inode + 40 + 12 + 8, &mut root).unwrap();
    let block = u64::from(u32::from_le_bytes(root));
    device
        .write_at(block * 1024 + word * 4, &value.to_be_bytes())
        .unwrap();
    block
}

#[test]
fn a_journal_longer_than_its_inode_is_refused() {
    needs::tools!("mke2fs");
    let device = base("16M", KIND);
    change_journal(&device, 4, 1025);
    let why = refused(&device);
    assert!(why.contains("journal longer than its inode"), "{why}");
    is_read_without_journal(&device);
}

#[test]
fn a_journal_over_an_inode_table_is_refused() {
    needs::tools!("mke2fs");
    let device = base("16M", KIND);
    let mut root = [0; 4];
    let place = inode_place(&*device, 8) + 40 + 12 + 8;
    device.read_at(place, &mut root).unwrap();
    let journal = u32::from_le_bytes(root);
    // The descriptor places a group's table in the middle of it.
    change_desc(&*device, 1, |d| d.inode_table.0 = u64::from(journal) + 300);
    let why = refused(&device);
    assert!(why.contains("journal that overlaps"), "{why}");
    is_read_without_journal(&device);
}

#[test]
fn tables_that_overlap_make_a_volume_read_only() {
    needs::tools!("mke2fs");
    let device = base("16M", KIND);
    let table = desc(&*device, 0).inode_table.0;
    change_desc(&*device, 1, |d| d.inode_table.0 = table + 2);
    let before = device.to_bytes().unwrap();
    let (volume, found) = open_noting(&device);
    let why = volume.read_only().expect("read-only");
    assert!(why.contains("overlap") && why.contains("group 1"), "{why}");
    assert_eq!(found.lock().unwrap().len(), 1);
    assert_eq!(volume.read("/dir/keep").unwrap(), [0x5a; 20_000]);
    volume.close().unwrap();
    assert!(before == device.to_bytes().unwrap(), "nothing is written");
}

#[test]
fn clusters_are_blocks_without_bigalloc() {
    needs::tools!("mke2fs");
    let device = base("16M", KIND);
    change_superblock(&*device, |sb| sb.clusters_per_group = 4096.into());
    // No backup overrules the primary: its place breaks a rule, and a backup would only be read.
    match try_open(&device) {
        Err(e) => assert!(e.to_string().contains("clusters per group"), "{e}"),
        Ok(volume) => {
            let why = volume.read_only().expect("read-only");
            assert!(why.contains("clusters per group"), "{why}");
        }
    }
}

#[test]
fn noload_leaves_out_what_the_journal_holds() {
    needs::tools!("mke2fs", "e2fsck");
    let device = base("16M", KIND);
    let volume = open(&device);
    volume.write("/committed", b"only in the log").unwrap();
    volume.sync().unwrap();
    let cut = Arc::new(device.snapshot());
    volume.close().unwrap();
    is_read_without_journal(&cut);
    let before = cut.to_bytes().unwrap();
    let noload = VolumeOptions::new().noload(true);
    let volume = noload.open_device(Arc::clone(&cut) as _).unwrap();
    assert!(matches!(
        volume.metadata("/committed"),
        Err(Error::NotFound)
    ));
    assert_eq!(volume.recovery().transactions, 0);
    volume.close().unwrap();
    assert!(before == cut.to_bytes().unwrap());
    let volume = open(&cut);
    assert!(volume.metadata("/committed").is_ok());
    volume.close().unwrap();
}
