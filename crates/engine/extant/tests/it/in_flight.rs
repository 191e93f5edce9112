//! Several contexts in flight [C6]: threads that sync at the same time, on a device whose flushes take long. Whichever
//! writes a cut loses, each thread finds a prefix of its operations, including all synced ones.

use crate::common;
use blockdev::{BlockDevice, Crash, MemDevice, RecordingDevice, SlowDevice};
use common::*;
use extant::VolumeOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const THREADS: u64 = 6;
const FILES: u64 = 14;

fn content(thread: u64, n: u64) -> Vec<u8> {
    format!("{thread} {n} ").repeat(900).into_bytes()
}

/// Returns true if the file is synced. Other files are only committed: after the sync of the next file they exist, but
/// perhaps without content.
fn is_synced(thread: u64, n: u64) -> bool {
    !(n + thread).is_multiple_of(3)
}

/// Checks the files of each thread: the first ones must exist, in order, with their contents if they were synced.
fn judge(device: &MemDevice, synced: &[u64], what: &str, fsck: bool) {
    let device = Arc::new(device.snapshot());
    let volume = VolumeOptions::new()
        .background(false)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap_or_else(|e| panic!("{what}: does not open: {e}"));
    for thread in 0..THREADS {
        let path = |n: u64| format!("/t{thread}/{n}");
        let there = |n: &u64| volume.metadata(path(*n)).is_ok();
        let found = (0..FILES).take_while(there).count() as u64;
        let gap = (found..FILES).find(there);
        assert_eq!(gap, None, "{what}: thread {thread} has {found} files, and");
        let promised = synced[thread as usize];
        assert!(
            found >= promised,
            "{what}: thread {thread} synced {promised} files, {found} are there"
        );
        for n in (0..promised).filter(|n| is_synced(thread, *n)) {
            assert!(
                volume.read(path(n)).unwrap() == content(thread, n),
                "{what}: {} was synced",
                path(n)
            );
        }
    }
    volume
        .close()
        .unwrap_or_else(|e| panic!("{what}: does not close: {e}"));
    if fsck {
        assert_clean(&device, what);
    }
}

fn cut_everywhere(args: &[&str], journal: &str) {
    needs::tools!("mke2fs", "e2fsck");
    let base = mem_image("32M", &[&["-t", "ext4", "-J", journal], args].concat());
    {
        let volume = open(&base);
        for thread in 0..THREADS {
            volume.create_dir(format!("/t{thread}")).unwrap();
        }
        volume.close().unwrap();
    }
    let recorder = RecordingDevice::new(base.snapshot());
    let device = Arc::new(SlowDevice::new(recorder, Duration::from_micros(300)));
    let volume = options()
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let (volume, device) = (volume.clone(), &device);
            s.spawn(move || {
                for n in 0..FILES {
                    let path = format!("/t{thread}/{n}");
                    volume.write(&path, content(thread, n)).unwrap();
                    if is_synced(thread, n) {
                        let file = volume.open_file(&path).unwrap();
                        file.sync_all().unwrap();
                        device.inner().mark(thread << 32 | (n + 1));
                    }
                }
            });
        }
    });
    volume.close().unwrap();
    let log = device.inner().take_log();
    let mut synced = vec![0; THREADS as usize];
    let mut replayer = log.replay(&base);
    let mut judged = 0u64;
    loop {
        let pending = replayer.pending().len() > 0;
        let position = replayer.position() as u64;
        let what = format!("{journal}: cut after event {position}");
        judge(&replayer.image(), &synced, &what, judged.is_multiple_of(32));
        for seed in 0..if !pending {
            0
        } else if torture() {
            12
        } else {
            2
        } {
            let crash = Crash::new(seed * 7919 + position);
            let what = format!("{what}, un-flushed writes by seed {seed}");
            judge(
                &replayer.crash(&crash).unwrap(),
                &synced,
                &what,
                judged % 64 == 1,
            );
        }
        judged += 1;
        match replayer.step().unwrap() {
            None => break,
            Some(blockdev::Event::Mark(mark)) => {
                synced[(mark >> 32) as usize] = mark & 0xFFFF_FFFF;
            }
            Some(_) => {}
        }
    }
    eprintln!("{journal}: {judged} cuts");
}

#[test]
fn cut_with_room_in_the_log() {
    cut_everywhere(&[], "size=8");
}

/// The log is emptied again and again while others are in flight.
#[test]
fn cut_with_a_tiny_log() {
    cut_everywhere(&["-b", "1024"], "size=1");
}

/// Syncs that arrive together share pushes, and pushes that arrive together share flushes.
#[test]
fn syncs_share_flushes() {
    needs::tools!("mke2fs");
    let base = mem_image("64M", &["-t", "ext4", "-J", "size=16"]);
    let device = Arc::new(SlowDevice::new(base.snapshot(), Duration::from_millis(1)));
    let volume = options()
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    let before = device.flushes();
    let syncs = AtomicU64::new(0);
    std::thread::scope(|s| {
        for thread in 0..16 {
            let (volume, syncs) = (volume.clone(), &syncs);
            s.spawn(move || {
                for n in 0..20 {
                    let file = volume.create_new_file(format!("/{thread}-{n}")).unwrap();
                    file.write_at(&content(thread, n), 0).unwrap();
                    file.sync_all().unwrap();
                    syncs.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (syncs, flushes) = (syncs.into_inner(), device.flushes() - before);
    eprintln!("{syncs} syncs, {flushes} flushes");
    assert!(flushes < syncs, "{syncs} syncs, {flushes} flushes");
    volume.close().unwrap();
    assert_clean(device.inner(), "shared flushes");
}

/// A device that delays writes of one pattern until it is released.
struct Holds {
    inner: Arc<MemDevice>,
    held: AtomicBool,
    waiting: AtomicU64,
}

const PATTERN: u8 = 0xa7;

impl Holds {
    fn wait(&self, bytes: &[u8]) {
        if bytes.first() == Some(&PATTERN) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            while self.held.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl BlockDevice for Holds {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> std::io::Result<()> {
        self.wait(buf);
        self.inner.write_at(offset, buf)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.inner.flush()
    }
    fn read_only(&self) -> bool {
        false
    }
}

/// A sync that comes while another one is writing files back waits for them. They are on no list any more, and not on
/// the device yet.
#[test]
fn a_sync_covers_what_another_sync_is_writing() {
    needs::tools!("mke2fs");
    let inner = mem_image("16M", &["-t", "ext4", "-J", "size=4"]);
    let device = Arc::new(Holds {
        inner: Arc::clone(&inner),
        held: AtomicBool::new(true),
        waiting: AtomicU64::new(0),
    });
    let volume = options()
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    let content = vec![PATTERN; 8192];
    volume.write("/f", &content).unwrap();
    std::thread::scope(|s| {
        let first = s.spawn(|| volume.sync());
        while device.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let second = s.spawn(|| volume.sync());
        for _ in 0..200 {
            if second.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let returned = second.is_finished();
        let cut = returned.then(|| Arc::new(inner.snapshot()));
        device.held.store(false, Ordering::SeqCst);
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
        if let Some(cut) = cut {
            let found = open(&cut).read("/f");
            assert!(
                found.is_ok_and(|f| f == content),
                "the second sync returned"
            );
        }
    });
    volume.close().unwrap();
    assert_clean(&inner, "two syncs");
}

/// When a sync has ended, the space of earlier removals can be used again, even if other threads sync at the same time.
#[test]
fn synced_removals_have_made_room() {
    needs::tools!("mke2fs");
    let device = mem_image("64M", &["-t", "ext4", "-b", "1024", "-J", "size=4"]);
    let volume = open(&device);
    volume.create_dir("/d").unwrap();
    volume.sync().unwrap();
    let free = volume.statfs().unwrap().free_blocks;
    let done = AtomicU64::new(0);
    std::thread::scope(|s| {
        let other = volume.clone();
        let done = &done;
        s.spawn(move || {
            while done.load(Ordering::Relaxed) == 0 {
                other.sync().unwrap();
            }
        });
        for turn in 0..300 {
            // Write every other block, so that each block is freed separately.
            let file = volume.create_new_file("/d/f").unwrap();
            for n in 0..200 {
                file.write_at(&[7; 1024], n * 2048).unwrap();
            }
            file.sync_all().unwrap();
            drop(file);
            volume.remove_file("/d/f").unwrap();
            volume.sync().unwrap();
            let left = volume.statfs().unwrap().free_blocks;
            if left != free {
                done.store(1, Ordering::Relaxed);
            }
            assert_eq!(left, free, "turn {turn}");
        }
        done.store(1, Ordering::Relaxed);
    });
    volume.close().unwrap();
    assert_clean(&device, "room made");
}
