//! Trimming: the device discards the free blocks, and nothing else.

use crate::common;
use blockdev::{BlockDevice, Crash, Event, MemDevice, RecordingDevice};
use common::*;
use extant::{Error, Volume, VolumeOptions};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-J", "size=4"],
    &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    &["-t", "ext2"],
];

fn have_tools() -> bool {
    needs::have(&["mke2fs", "e2fsck"])
}

fn content(n: u64) -> Vec<u8> {
    vec![n as u8 | 1; 3000 + (n as usize * 7919) % 60_000]
}

#[test]
fn an_image_file_becomes_sparse() {
    if !have_tools() {
        return;
    }
    for args in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        mke2fs(&path, "32M", args);
        let v = VolumeOptions::new().open(&path).unwrap();
        v.write("/kept", content(5)).unwrap();
        for n in 0..10 {
            v.write(format!("/f{n}"), vec![9; 2 << 20]).unwrap();
        }
        v.sync().unwrap();
        for n in 0..10 {
            v.remove_file(format!("/f{n}")).unwrap();
        }
        v.sync().unwrap();
        let blocks = || std::fs::metadata(&path).unwrap().blocks();
        let before = blocks();
        let trimmed = match v.trim(0, u64::MAX, 0) {
            Err(Error::Unsupported(_)) => return,
            done => done.unwrap(),
        };
        let stats = v.statfs().unwrap();
        assert_eq!(trimmed, stats.free_blocks * u64::from(stats.block_size));
        assert!(
            blocks() + (18 << 20) / 512 < before,
            "{before}, then {}",
            blocks()
        );
        assert_eq!(v.statfs().unwrap(), stats);
        assert_eq!(v.read("/kept").unwrap(), content(5));
        v.close().unwrap();
        assert_clean_file(&path, "trimmed");
    }
}

#[test]
fn what_is_asked_for() {
    if !have_tools() {
        return;
    }
    let device = mem_image("64M", KINDS[0]);
    let v = open(&device);
    let bs = 4096u64;
    let invalid = |r: extant::Result<u64>| assert!(matches!(r, Err(Error::Invalid(_))), "{r:?}");
    invalid(v.trim(64 << 20, 4096, 0));
    invalid(v.trim(0, 4095, 0));
    invalid(v.trim(0, u64::MAX, 32769 * bs));
    let all = v.trim(0, u64::MAX, 0).unwrap();
    let halves = v.trim(0, 32 << 20, 0).unwrap() + v.trim(32 << 20, u64::MAX, 0).unwrap();
    assert_eq!(all, halves);
    // Only every second block is free, so that no run has two blocks.
    let file = v.create_new_file("/f").unwrap();
    file.write_all_at(&vec![1; 8 << 20], 0).unwrap();
    v.sync().unwrap();
    let extents = file.extents().unwrap();
    for n in (0..2048u64).step_by(2) {
        file.fallocate(extant::Fallocate::PunchHole, n * bs, bs)
            .unwrap();
    }
    v.sync().unwrap();
    let long = extents.iter().max_by_key(|e| e.len).unwrap();
    let trim = |least| v.trim(long.physical, long.len, least).unwrap();
    assert_eq!(trim(2 * bs), 0);
    let singles = trim(bs) / bs;
    assert!((long.len / bs / 2).abs_diff(singles) <= 1, "{singles}");
    drop(file);
    v.close().unwrap();
    let v = VolumeOptions::new()
        .read_only(true)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    assert!(matches!(v.trim(0, u64::MAX, 0), Err(Error::ReadOnly(_))));
    assert_clean(&device, "trimmed");
}

/// Freed blocks are trimmed only when a crash can no longer restore the file.
#[test]
fn blocks_whose_freeing_is_not_durable_stay() {
    if !have_tools() {
        return;
    }
    for args in &KINDS[..2] {
        let device = mem_image("32M", args);
        let v = open(&device);
        for n in 0..20 {
            v.write(format!("/f{n}"), content(n)).unwrap();
        }
        v.sync().unwrap();
        for n in 0..20 {
            v.remove_file(format!("/f{n}")).unwrap();
        }
        v.trim(0, u64::MAX, 0).unwrap();
        let cut = Arc::new(device.snapshot());
        let again = open(&cut);
        for n in 0..20 {
            assert_eq!(again.read(format!("/f{n}")).unwrap(), content(n));
        }
        again.close().unwrap();
        assert_clean(&cut, "cut before the removals were durable");
        v.sync().unwrap();
        v.trim(0, u64::MAX, 0).unwrap();
        v.close().unwrap();
        assert_clean(&device, "trimmed");
    }
}

/// Other threads write, remove and sync meanwhile, on a volume that is nearly full at times; no cut harms a synced
/// file.
#[test]
fn under_load_and_cut_off() {
    if !have_tools() {
        return;
    }
    for (kind, args) in KINDS[..2].iter().enumerate() {
        let base = mem_image("32M", args);
        let device = Arc::new(RecordingDevice::new(base.snapshot()));
        let v = VolumeOptions::new()
            .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
            .unwrap();
        for n in 0..50 {
            v.write(format!("/fixed{n}"), content(n)).unwrap();
        }
        v.sync().unwrap();
        device.mark(1);
        let (end, trimmed) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|s| {
            s.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    trimmed.fetch_add(v.trim(0, u64::MAX, 0).unwrap(), Ordering::Relaxed);
                }
            });
            let _end = Ends(&end);
            let writers: Vec<_> = (0..3u64)
                .map(|task| {
                    let v = &v;
                    s.spawn(move || write_and_remove(v, task))
                })
                .collect();
            for writer in writers {
                writer.join().unwrap();
            }
        });
        assert!(trimmed.into_inner() > 0);
        v.close().unwrap();
        let log = device.log();
        let mut replayer = log.replay(&base);
        let events = log.events();
        let marked = events.iter().position(|e| *e == Event::Mark(1)).unwrap();
        let cuts = if torture() { 200 } else { 12 };
        for cut in 0..=cuts {
            let at = marked + (events.len() - marked) * cut / cuts;
            replayer.advance_to(at).unwrap();
            let mut crash = Crash::new(cut as u64 + 100 * kind as u64);
            crash.reorder = false;
            let image = Arc::new(replayer.crash(&crash).unwrap());
            let again = open(&image);
            for n in 0..50 {
                assert_eq!(again.read(format!("/fixed{n}")).unwrap(), content(n));
            }
            again.close().unwrap();
            assert_clean(&image, "cut while trimming");
        }
        check_end(device.inner());
    }
}

fn write_and_remove(v: &Volume, task: u64) {
    for n in 0..300u64 {
        let path = format!("/w{task}-{}", n % 30);
        match v.write(&path, content(n)) {
            Ok(()) => assert_eq!(v.read(&path).unwrap(), content(n)),
            Err(Error::NoSpace(_)) => {}
            Err(e) => panic!("{path}: {e}"),
        }
        if n % 17 == 0 {
            v.sync().unwrap();
            v.drop_caches();
        }
        if n % 3 == 0 {
            let _ = v.remove_file(format!("/w{task}-{}", (n * 7) % 30));
        }
    }
    // Everything read back from the device.
    v.sync().unwrap();
    v.drop_caches();
}

fn check_end(device: &MemDevice) {
    assert_clean(device, "at the end");
    let v = open(&Arc::new(device.snapshot()));
    for n in 0..50 {
        assert_eq!(v.read(format!("/fixed{n}")).unwrap(), content(n));
    }
}

#[test]
fn a_device_that_cannot() {
    struct Plain(MemDevice);
    impl BlockDevice for Plain {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
            self.0.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, buf: &[u8]) -> std::io::Result<()> {
            self.0.write_at(offset, buf)
        }
        fn flush(&self) -> std::io::Result<()> {
            self.0.flush()
        }
        fn read_only(&self) -> bool {
            false
        }
    }
    if !have_tools() {
        return;
    }
    let device = mem_image("32M", KINDS[0]);
    let v = VolumeOptions::new()
        .open_device(Arc::new(Plain(device.snapshot())))
        .unwrap();
    let before = v.statfs().unwrap();
    let refused = v.trim(0, u64::MAX, 0).unwrap_err();
    assert!(matches!(refused, Error::Unsupported(_)));
    assert_eq!(v.statfs().unwrap(), before);
}

/// A device that is busy with every second range that it is to trim.
struct Busy {
    device: Arc<MemDevice>,
    asked: AtomicU64,
    refused: AtomicU64,
}

impl BlockDevice for Busy {
    fn len(&self) -> u64 {
        self.device.len()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.device.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> std::io::Result<()> {
        self.device.write_at(offset, buf)
    }
    fn discard(&self, offset: u64, len: u64) -> std::io::Result<()> {
        self.device.discard(offset, len)
    }
    fn trim(&self, offset: u64, len: u64) -> std::io::Result<()> {
        if self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            self.refused.fetch_add(len, Ordering::Relaxed);
            return Err(std::io::ErrorKind::ResourceBusy.into());
        }
        self.device.trim(offset, len)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.device.flush()
    }
    fn read_only(&self) -> bool {
        false
    }
}

/// A busy run is neither an error nor counted.
#[test]
fn a_busy_run_is_left_out() {
    if !have_tools() {
        return;
    }
    let device = Arc::new(Busy {
        device: mem_image("64M", KINDS[1]),
        asked: AtomicU64::new(0),
        refused: AtomicU64::new(0),
    });
    let v = VolumeOptions::new().open_device(device.clone()).unwrap();
    let stats = v.statfs().unwrap();
    let trimmed = v.trim(0, u64::MAX, 0).unwrap();
    let refused = device.refused.load(Ordering::Relaxed);
    assert!(trimmed > 0 && refused > 0);
    let free = stats.free_blocks * u64::from(stats.block_size);
    assert_eq!(trimmed + refused, free);
    assert_eq!(v.statfs().unwrap(), stats);
    v.close().unwrap();
}
