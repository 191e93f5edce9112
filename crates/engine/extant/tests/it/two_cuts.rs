//! Two cuts, one after the other. The first loses a commit block of several that were written together, and the log
//! behind it is whole. Recovery continues behind the gap, new transactions are logged over it, and after a second cut
//! no old transaction may be taken for a new one.

use crate::common;
use blockdev::{BlockDevice, Crash, Event, Fate, MemDevice, RecordingDevice};
use common::*;
use extant::{Volume, VolumeOptions};
use std::collections::BTreeSet;
use std::sync::Arc;

fn options() -> VolumeOptions {
    VolumeOptions::new().background(false).cache_bytes(8 << 20)
}

fn open_on(options: &VolumeOptions, device: Arc<dyn BlockDevice>, what: &str) -> Volume {
    options
        .open_device(device)
        .unwrap_or_else(|e| panic!("{what}: {e}"))
}

fn names(volume: &Volume) -> BTreeSet<String> {
    let entries = list(volume, "/").unwrap();
    entries
        .into_iter()
        .map(|e| String::from_utf8(e.name).unwrap())
        .collect()
}

/// The recovered state after a cut: the names, and a copy of the device.
fn recovered(device: &MemDevice, what: &str) -> (BTreeSet<String>, Arc<MemDevice>) {
    let device = Arc::new(device.snapshot());
    let volume = open_on(&options(), Arc::clone(&device) as _, what);
    let found = names(&volume);
    volume.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    (found, device)
}

/// The medium after a sync whose context took several transactions, with one of their commit blocks lost.
fn with_a_commit_block_lost(base: &MemDevice) -> MemDevice {
    let device = Arc::new(RecordingDevice::new(base.snapshot()));
    // A context of more blocks than this is written into the log in parts, whose commit blocks are written together.
    let volume = open_on(
        &options().most_log_blocks(9),
        Arc::clone(&device) as _,
        "first",
    );
    volume.create_dir("/durable").unwrap();
    volume.sync().unwrap();
    for n in 0..24 {
        volume.create_dir(format!("/unsynced{n}")).unwrap();
    }
    volume.sync().unwrap();
    let log = device.log();
    let is_flush = |e: &Event| matches!(e, Event::Flush);
    let last = log.events().iter().rposition(is_flush).unwrap();
    let mut replayer = log.replay(base);
    replayer.advance_to(last).unwrap();
    let pending: Vec<usize> = replayer.pending().map(|(p, _)| p).collect();
    assert!(
        pending.len() >= 4,
        "{} commit blocks at a time",
        pending.len()
    );
    // The second commit block: the first part exists, and several whole ones lie behind it.
    let cut = replayer
        .crash_with(|p, _| {
            if p == pending[1] {
                Fate::Lost
            } else {
                Fate::Kept
            }
        })
        .unwrap();
    drop(volume);
    cut
}

fn no_old_transaction_comes_back(args: &[&str]) {
    needs::tools!("mke2fs", "e2fsck");
    let base = mem_image("8M", &[&["-b", "1024", "-J", "size=1"], args].concat());
    let first = with_a_commit_block_lost(&base);
    let (before, _) = recovered(&first, "the first cut");
    assert!(before.contains("durable"));
    let back = before.iter().filter(|n| n.starts_with("unsynced")).count();
    assert!((1..24).contains(&back), "{back} of what was not synced");
    // New transactions of every length that ends where an old one begins.
    for n in 1..44 {
        let what = format!("{args:?}, {n} directories between the cuts");
        let second = Arc::new(RecordingDevice::new(first.snapshot()));
        let volume = open_on(&options(), Arc::clone(&second) as _, &what);
        let start = second.log().events().len();
        let mut after = before.clone();
        for i in 0..n {
            volume.create_dir(format!("/new{i}")).unwrap();
            after.insert(format!("new{i}"));
        }
        volume.sync().unwrap();
        let log = second.log();
        drop(volume);
        let end = log.events().len();
        let cut = log.image_at(&first, end).unwrap();
        let (found, device) = recovered(&cut, &what);
        assert_eq!(found, after, "{what}: all of it was synced");
        if n % 8 == 0 {
            assert_clean(&device, &what);
        }
        // Cuts before it was durable: the log is partly new, partly old.
        let mut replayer = log.replay(&first);
        replayer.advance_to(start).unwrap();
        while replayer.position() < end {
            replayer.step().unwrap();
            if replayer.pending().len() == 0 {
                continue;
            }
            let seed = n * 1000 + replayer.position() as u64;
            let cut = replayer.crash(&Crash::new(seed)).unwrap();
            let what = format!("{what}, cut at {}, seed {seed}", replayer.position());
            let (found, _) = recovered(&cut, &what);
            assert!(found == before || found == after, "{what}: {found:?}");
        }
    }
}

#[test]
fn no_old_transaction_comes_back_with_checksums() {
    no_old_transaction_comes_back(&["-t", "ext4", "-O", "metadata_csum,64bit"]);
}

#[test]
fn no_old_transaction_comes_back_without_checksums() {
    no_old_transaction_comes_back(&["-t", "ext4", "-O", "^metadata_csum"]);
}

#[test]
fn no_old_transaction_comes_back_in_ext3() {
    no_old_transaction_comes_back(&["-t", "ext3"]);
}
