//! Damage is recorded in the superblock, the record survives a replay, and the policy is obeyed.

use crate::common::*;
use crate::damage::image::*;
use blockdev::{BlockDevice, MemDevice};
use ext4_format::superblock::{ERRORS_CONTINUE, ERRORS_PANIC, ERRORS_READ_ONLY, STATE_ERROR};
use extant::{Error, ErrorPolicy, Volume};
use std::sync::Arc;

const KIND: &[&str] = &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", PLAIN];

/// An image in which a name leads to an inode that is not in use.
fn broken(kind: &[&str]) -> (Arc<MemDevice>, u32) {
    let device = base("16M", kind);
    let volume = open(&device);
    let ino = volume.create_new_file("/dir/broken").unwrap().ino();
    volume.close().unwrap();
    let mode = inode_place(&*device, ino);
    device.write_at(mode, &[0; 2]).unwrap();
    (device, ino)
}

fn meet(volume: &Volume) {
    let met = volume.metadata("/dir/broken");
    assert!(matches!(met, Err(Error::Format(_))), "{met:?}");
}

#[test]
fn what_is_found_is_recorded_once_and_kept() {
    needs::tools!("mke2fs", "e2fsck");
    for kind in [KIND, &["-t", "ext2", "-b", "1024"]] {
        let (device, ino) = broken(kind);
        let (volume, found) = open_noting(&device);
        meet(&volume);
        meet(&volume);
        {
            let found = found.lock().unwrap();
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((found[0].function, found[0].ino), ("lookup", ino));
        }
        // The record is on the device at once, and in every later image of the superblock.
        for moment in ["at once", "after a sync", "closed"] {
            match moment {
                "after a sync" => {
                    volume.write("/later", b"x").unwrap();
                    volume.sync().unwrap();
                }
                "closed" => volume.clone().close().unwrap(),
                _ => {}
            }
            let sb = superblock(&*device);
            assert!(sb.state.get() & STATE_ERROR != 0, "{moment}");
            assert_eq!(sb.error_count.get(), 1, "{moment}");
            assert_eq!(
                (sb.first_error_ino.get(), sb.last_error_ino.get()),
                (ino, ino)
            );
            assert!(sb.first_error_time.get() > 1_600_000_000 && sb.first_error_line.get() > 0);
            assert!(sb.last_error_func.starts_with(b"lookup\0"), "{moment}");
            assert_eq!(sb.first_error_errcode, 5, "{moment}");
        }
        drop(volume);
        // The next opening reports the record, and continues its count.
        let (options, _) = noting();
        let volume = options
            .clone()
            .open_device(Arc::clone(&device) as _)
            .unwrap();
        assert!(volume.read_only().unwrap().contains("errors"));
        meet(&volume);
        volume.close().unwrap();
        assert_eq!(
            superblock(&*device).error_count.get(),
            1,
            "read-only: not recorded"
        );
        let volume = options
            .force(true)
            .open_device(Arc::clone(&device) as _)
            .unwrap();
        meet(&volume);
        volume.close().unwrap();
        let sb = superblock(&*device);
        assert_eq!(sb.error_count.get(), 2);
        assert!(sb.first_error_func.starts_with(b"lookup\0"));
        is_kept(&device, "after two findings");
    }
}

/// The record is written in place, and the write may be torn between the two sectors of the superblock.
#[test]
fn a_torn_record_leaves_a_superblock() {
    needs::tools!("mke2fs", "e2fsck");
    for kind in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext4"]] {
        let device = base("16M", kind);
        let volume = open(&device);
        let dir = volume.create_dir("/dir/broken").unwrap();
        let mode = inode_place(&*device, dir.ino());
        drop(dir);
        volume.close().unwrap();
        // The checksum does not fit.
        device.write_at(mode, &[0x55]).unwrap();
        let (volume, found) = open_noting(&device);
        let bytes = |device: &MemDevice| superblock(device).bytes().to_vec();
        let before = bytes(&device);
        meet(&volume);
        assert_eq!(found.lock().unwrap().len(), 1);
        let after = bytes(&device);
        assert_ne!(before[..512], after[..512]);
        assert_ne!(before[512..], after[512..]);
        for (first, second) in [(&before, &after), (&after, &before)] {
            let torn = [&first[..512], &second[512..]].concat();
            let cut = Arc::new(device.snapshot());
            cut.write_at(1024, &torn).unwrap();
            let (volume, _) = open_noting(&cut);
            assert_eq!(volume.read("/dir/keep").unwrap(), [0x5a; 20_000]);
        }
    }
}

/// The log holds an image of the superblock that is older than the finding. A replay does not remove the record.
#[test]
fn a_replay_keeps_what_was_recorded() {
    needs::tools!("mke2fs", "e2fsck");
    let (device, ino) = broken(KIND);
    let (volume, _) = open_noting(&device);
    volume.write("/before", b"x").unwrap();
    volume.sync().unwrap();
    meet(&volume);
    let cut = Arc::new(device.snapshot());
    volume.close().unwrap();
    let (volume, _) = open_noting(&cut);
    assert!(volume.recovery().transactions > 0);
    assert!(volume.metadata("/before").is_ok());
    volume.close().unwrap();
    let sb = superblock(&*cut);
    assert_eq!((sb.error_count.get(), sb.last_error_ino.get()), (1, ino));
    assert!(sb.state.get() & STATE_ERROR != 0);
}

#[test]
fn the_policy_is_obeyed() {
    needs::tools!("mke2fs", "e2fsck");
    let (by_superblock, stops) = (ErrorPolicy::Superblock, true);
    for (errors, policy, stops) in [
        (ERRORS_CONTINUE, by_superblock, !stops),
        (0, by_superblock, !stops),
        (ERRORS_READ_ONLY, by_superblock, stops),
        (ERRORS_PANIC, by_superblock, stops),
        (ERRORS_READ_ONLY, ErrorPolicy::Continue, !stops),
        (ERRORS_CONTINUE, ErrorPolicy::ReadOnly, stops),
        (ERRORS_CONTINUE, ErrorPolicy::Shutdown, stops),
    ] {
        let what = format!("errors={errors}, {policy:?}");
        let (device, _) = broken(KIND);
        change_superblock(&*device, |sb| sb.errors = errors.into());
        let (options, found) = noting();
        let volume = options
            .errors(policy)
            .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
            .unwrap();
        volume.write("/synced", b"x").unwrap();
        volume.sync().unwrap();
        meet(&volume);
        let made = volume.create_new_file("/new").map(drop);
        match (stops, policy) {
            (false, _) => made.unwrap_or_else(|e| panic!("{what}: {e}")),
            (true, ErrorPolicy::Shutdown) => {
                assert!(matches!(made, Err(Error::Stopped(_))), "{what}: {made:?}");
            }
            (true, _) => {
                assert!(matches!(made, Err(Error::ReadOnly(_))), "{what}: {made:?}");
                assert_eq!(volume.read("/dir/keep").unwrap(), [0x5a; 20_000], "{what}");
            }
        }
        assert_eq!(volume.close().is_err(), stops, "{what}");
        assert_eq!(found.lock().unwrap().len(), 1, "{what}");
        let sb = superblock(&*device);
        assert!(
            sb.state.get() & STATE_ERROR != 0 && sb.error_count.get() == 1,
            "{what}"
        );
        let (volume, _) = open_noting(&device);
        assert!(volume.metadata("/synced").is_ok(), "{what}");
        volume.close().unwrap();
    }
}
