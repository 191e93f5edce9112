//! Reported values are true: space held, space free, generations. And a file that replaces another exists after a cut.

use blockdev::MemDevice;
use extant::mkfs::{self, MkfsOptions};
use extant::unstable::MakeNode;
use extant::unstable::Node;
use extant::{Credentials, Error, Fallocate, OpenOptions, SetAttributes, Volume, VolumeOptions};
use std::collections::HashSet;
use std::sync::Arc;

fn device(size: u64) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(size));
    let options = MkfsOptions {
        size: Some(size),
        ..Default::default()
    };
    mkfs::format(&*device, &options).unwrap();
    device
}

fn open(device: &Arc<MemDevice>) -> Volume {
    let device: Arc<MemDevice> = Arc::clone(device);
    VolumeOptions::new()
        .background(false)
        .open_device(device)
        .unwrap()
}

/// The volume after a cut that only another file's fsync has preceded.
fn after_a_cut(work: impl FnOnce(&Volume)) -> Volume {
    let device = device(32 << 20);
    let volume = open(&device);
    volume.write("/config", b"the old version").unwrap();
    volume.sync().unwrap();
    work(&volume);
    let other = volume.create_new_file("/other").unwrap();
    other.sync_all().unwrap();
    volume.invalidate();
    open(&device)
}

#[test]
fn what_is_renamed_over_a_file_is_there_after_a_cut() {
    let volume = after_a_cut(|volume| {
        volume.write("/config.new", [7; 10_000]).unwrap();
        volume.rename("/config.new", "/config").unwrap();
    });
    assert_eq!(volume.read("/config").unwrap(), [7; 10_000]);
}

#[test]
fn what_is_written_over_a_file_cut_to_nothing_is_there_after_a_cut() {
    let volume = after_a_cut(|volume| {
        let options = OpenOptions::new().write(true).truncate(true);
        let file = volume.open_file_with("/config", &options).unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
    });
    assert_eq!(volume.read("/config").unwrap(), [7; 10_000]);
}

/// However fast a number is used again, NFS and FUSE can distinguish its lives.
#[test]
fn every_life_of_a_number_has_a_generation_of_its_own() {
    let volume = open(&device(16 << 20));
    let who = Credentials::root();
    let root = Node::root(&volume).unwrap();
    let mut seen = HashSet::new();
    let mut numbers = HashSet::new();
    for _ in 0..500 {
        let file = root.make(&who, b"file", MakeNode::File, 0o600).unwrap();
        let life = (file.ino(), file.generation());
        assert!(seen.insert(life), "{life:?} was there before");
        numbers.insert(file.ino());
        root.unlink(&who, b"file").unwrap();
    }
    assert!(numbers.len() < 400, "numbers are used again");
}

fn sectors_before_and_after(work: impl FnOnce(&Volume)) -> (u64, u64) {
    let device = device(512 << 20);
    let volume = open(&device);
    work(&volume);
    let before = volume.metadata("/file").unwrap().blocks();
    volume.close().unwrap();
    let after = open(&device).metadata("/file").unwrap().blocks();
    (before, after)
}

#[test]
fn the_space_of_a_file_counts_its_extent_tree_at_once() {
    // A file of many extents, written back one by one.
    let (before, after) = sectors_before_and_after(|volume| {
        let file = volume.create_new_file("/file").unwrap();
        for i in 0..40 {
            file.fallocate(Fallocate::Allocate { keep_size: false }, i * 65536, 4096)
                .unwrap();
        }
    });
    assert_eq!(before, after);
    // A contiguous range that takes several extents on disk.
    let (before, after) = sectors_before_and_after(|volume| {
        let file = volume.create_new_file("/file").unwrap();
        file.fallocate(Fallocate::Allocate { keep_size: false }, 0, 300 << 20)
            .unwrap();
    });
    assert_eq!(before, after);
    // Pieces are removed again.
    let (before, after) = sectors_before_and_after(|volume| {
        let file = volume.create_new_file("/file").unwrap();
        for i in 0..40 {
            file.fallocate(Fallocate::Allocate { keep_size: false }, i * 65536, 4096)
                .unwrap();
        }
        volume.sync().unwrap();
        file.set_len(100_000).unwrap();
        volume.sync().unwrap();
    });
    assert_eq!(before, after);
}

#[test]
fn what_is_removed_is_free_at_once() {
    let volume = open(&device(64 << 20));
    volume.write("/file", vec![1; 20 << 20]).unwrap();
    volume.sync().unwrap();
    let full = volume.statfs().unwrap();
    volume.remove_file("/file").unwrap();
    let shown = volume.statfs().unwrap();
    volume.sync().unwrap();
    let freed = volume.statfs().unwrap();
    assert!(shown.free_blocks >= full.free_blocks + 5000);
    assert_eq!(shown.free_blocks, freed.free_blocks);
    assert_eq!(shown.free_inodes, freed.free_inodes);
}

/// A caller that needs space gets freed blocks that are not yet reusable: the volume is pushed before a call fails
/// with ENOSPC.
#[test]
fn what_is_removed_can_be_taken_at_once() {
    let volume = open(&device(64 << 20));
    for round in 0..3 {
        let file = volume.create_new_file("/file").unwrap();
        let mut at = 0;
        while let Ok(n) = file.write_at(&[3; 65536], at) {
            at += n as u64;
        }
        assert!(at > 40 << 20, "round {round}: {at}");
        drop(file);
        volume.remove_file("/file").unwrap();
    }
}

#[test]
fn preallocated_space_can_be_written_on_a_full_volume() {
    let volume = open(&device(64 << 20));
    let file = volume.create_new_file("/file").unwrap();
    let len = 8 << 20;
    file.fallocate(Fallocate::Allocate { keep_size: false }, 0, len)
        .unwrap();
    let filler = volume.create_new_file("/filler").unwrap();
    let mut at = 0;
    while let Ok(n) = filler.write_at(&[3; 65536], at) {
        at += n as u64;
    }
    let full = filler.write_at(&[3; 65536], at);
    assert!(matches!(full, Err(Error::NoSpace(_))), "{full:?}");
    volume.sync().unwrap();
    // From the end, every other block first, so that the mapping has the most extents possible.
    let block = 4096;
    for round in 0..2 {
        for i in (0..len / block).rev().filter(|i| i % 2 == round) {
            file.write_all_at(&[5; 4096], i * block).unwrap();
        }
    }
    file.sync_all().unwrap();
    assert_eq!(volume.read("/file").unwrap(), vec![5; len as usize]);
}

/// The DAX flag as on a device without persistent memory: it is kept, inherited, and has no effect.
#[test]
fn the_flag_for_direct_access_is_kept() {
    use ext4_format::inode::flags::{DAX, EXTENTS, JOURNAL_DATA};
    let device = device(16 << 20);
    let volume = open(&device);
    volume.create_dir("/dir").unwrap();
    let set = |flags| SetAttributes {
        flags: Some(EXTENTS | flags),
        ..Default::default()
    };
    volume.set_attributes("/dir", &set(DAX)).unwrap();
    volume.create_new_file("/dir/file").unwrap();
    let both = volume.set_attributes("/dir/file", &set(DAX | JOURNAL_DATA));
    volume.close().unwrap();
    let volume = open(&device);
    for path in ["/dir", "/dir/file"] {
        assert_ne!(volume.metadata(path).unwrap().flags() & DAX, 0, "{path}");
    }
    assert!(
        both.is_ok() || matches!(both, Err(Error::Unsupported(_))),
        "{both:?}"
    );
}
