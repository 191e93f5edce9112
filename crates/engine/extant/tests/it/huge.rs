//! A volume of a million groups, 128 TiB: it opens and takes files at the cost of its used part.

use blockdev::{BlockDevice, MemDevice};
use extant::{Fallocate, Volume, VolumeOptions, mkfs};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const SIZE: u64 = 128 << 40;

/// Counts the bytes read.
struct Counting {
    device: MemDevice,
    read: AtomicU64,
}

impl BlockDevice for Counting {
    fn len(&self) -> u64 {
        self.device.len()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.device.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.device.write_at(offset, buf)
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.discard(offset, len)
    }
    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }
    fn read_only(&self) -> bool {
        false
    }
}

/// Makes an empty volume, once. Its descriptors alone are 64 MiB, so it has one backup of them.
fn image() -> Arc<Counting> {
    static IMAGE: OnceLock<MemDevice> = OnceLock::new();
    let device = IMAGE.get_or_init(|| {
        let device = MemDevice::new(SIZE);
        let options = mkfs::MkfsOptions {
            size: Some(SIZE),
            zeroed_device: true,
            inodes: Some(ext4_format::layout::Inodes::Count(1 << 27)),
            journal_size: Some(16 << 20),
            features: "sparse_super2,^resize_inode".into(),
            flex_bg_size: 1024,
            ..Default::default()
        };
        mkfs::format(&device, &options).unwrap();
        device
    });
    Arc::new(Counting {
        device: device.snapshot(),
        read: AtomicU64::new(0),
    })
}

fn open(device: &Arc<Counting>) -> Volume {
    VolumeOptions::new()
        .background(false)
        .open_device(Arc::clone(device) as _)
        .unwrap()
}

fn read(device: &Counting) -> u64 {
    device.read.swap(0, Ordering::Relaxed)
}

#[test]
fn a_million_groups_are_not_walked() {
    let device = image();
    let v = open(&device);
    assert_eq!(v.geometry().groups, 1 << 20);
    let opened = read(&device);
    // Two of the blocks are the orphan file, and a few hold the mapping of the journal.
    assert!(
        opened < (3 << 20) + (64 << 10),
        "{opened} bytes read to open"
    );
    let before = v.statfs().unwrap();
    assert!(before.free_blocks > (SIZE / 4096) * 9 / 10);
    // Directories are spread over the volume, files and blocks follow them.
    for d in 0..200 {
        v.create_dir(format!("/d{d}")).unwrap();
        for f in 0..5 {
            v.write(format!("/d{d}/f{f}"), [d as u8; 20_000]).unwrap();
        }
    }
    let large = v.create_new_file("/large").unwrap();
    large.fallocate(Fallocate::default(), 0, 1 << 40).unwrap();
    v.sync().unwrap();
    let used = read(&device);
    assert!(used < 64 << 20, "{used} bytes read to fill");
    let after = v.statfs().unwrap();
    let taken = before.free_blocks - after.free_blocks;
    let data = (1 << 40) / 4096 + 1000 * 5;
    assert!((data..data + 2000).contains(&taken), "{taken} blocks taken");
    assert_eq!(before.free_inodes - after.free_inodes, 1201);
    drop(large);
    v.remove_file("/large").unwrap();
    v.close().unwrap();
    // When the volume is opened again, the superblock's counts are the ones that it was left with.
    let v = open(&device);
    let again = v.statfs().unwrap();
    let left = before.free_blocks - again.free_blocks;
    assert!((5000..7000).contains(&left), "{left} blocks in use");
    assert_eq!(v.read("/d199/f4").unwrap(), vec![199; 20_000]);
    v.close().unwrap();
    read(&device);
}

/// After a cut the counts are taken from the descriptors, which are in the journal.
#[test]
fn a_million_groups_are_counted_after_a_cut() {
    let device = image();
    let v = open(&device);
    v.write("/f", [1; 100_000]).unwrap();
    v.sync().unwrap();
    let free = v.statfs().unwrap();
    let cut = Arc::new(Counting {
        device: device.device.snapshot(),
        read: AtomicU64::new(0),
    });
    drop(v);
    let v = open(&cut);
    let found = v.statfs().unwrap();
    assert_eq!(
        (found.free_blocks, found.free_inodes),
        (free.free_blocks, free.free_inodes)
    );
    assert_eq!(v.read("/f").unwrap().len(), 100_000);
    v.close().unwrap();
}
