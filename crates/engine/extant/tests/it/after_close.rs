//! Handles, watchers and observers after a volume is closed, in order or by force.

use crate::common;
use blockdev::MemDevice;
use common::*;
use extant::unstable::{InodeInCore, InodeObserver};
use extant::{Error, OpenOptions, Volume, WatchEvent};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn stale<T>(what: &str, result: extant::Result<T>) {
    match result {
        Err(Error::Stale) => {}
        Err(e) => panic!("{what}: {e}"),
        Ok(_) => panic!("{what}: works"),
    }
}

/// Every call through every kind of handle.
fn all_stale(volume: &Volume, dir: &extant::Dir, file: &extant::File) {
    let mut buf = [0; 4];
    stale("read", file.read_at(&mut buf, 0));
    stale("write", file.write_at(b"x", 0));
    stale("fsync", file.sync_all());
    stale("stat", volume.metadata("/"));
    stale("create", dir.create_new_file("new"));
    stale("unlink", dir.remove_file("f"));
    stale("list", dir.read_dir("."));
    stale("open", dir.open_file("f"));
    stale("rename", dir.rename("f", "g"));
    stale("sync", volume.sync());
    stale("statfs", volume.statfs());
    stale("watch", volume.watch("/"));
}

fn volume() -> Option<(Arc<MemDevice>, Volume)> {
    if !needs::have(&["mke2fs", "e2fsck"]) {
        return None;
    }
    let device = mem_image("64M", &["-t", "ext4", "-J", "size=8", "-N", "32768"]);
    let volume = open(&device);
    volume.create_dir("/d").unwrap();
    volume.write("/d/f", b"durable").unwrap();
    volume.sync().unwrap();
    Some((device, volume))
}

#[test]
fn handles_of_a_closed_volume() {
    let Some((device, v)) = volume() else { return };
    let (dir, file) = (
        v.open_dir("/d").unwrap(),
        v.open_file_with("/d/f", &OpenOptions::new().read(true).write(true))
            .unwrap(),
    );
    // A file without a name that is still open is freed with the volume.
    let gone = v.create_new_file("/gone").unwrap();
    gone.write_at(&[1; 9000], 0).unwrap();
    v.remove_file("/gone").unwrap();
    v.clone().close().unwrap();
    all_stale(&v, &dir, &file);
    drop((gone, file, dir, v));
    assert_clean(&device, "closed with handles open");
}

/// A forced end under the load of many threads: nothing is written afterwards, and synced files exist.
#[test]
fn forced_under_load() {
    for round in 0..6u64 {
        let Some((device, v)) = volume() else { return };
        let (dir, file) = (
            v.open_dir("/d").unwrap(),
            v.open_file_with("/d/f", &OpenOptions::new().read(true).write(true))
                .unwrap(),
        );
        let synced = AtomicU64::new(0);
        let image = std::thread::scope(|s| {
            for thread in 0..4 {
                let (v, synced) = (v.clone(), &synced);
                s.spawn(move || {
                    for n in 0.. {
                        let path = format!("/{thread}-{n}");
                        let done = v.write(&path, [n as u8; 5000]).and_then(|()| {
                            if thread == 0 && n % 5 == 0 {
                                v.sync()?;
                                synced.store(n + 1, Ordering::Relaxed);
                            }
                            if n % 3 == 2 {
                                v.remove_file(format!("/{thread}-{}", n - 1))?;
                            }
                            Ok(())
                        });
                        match done {
                            Ok(()) => {}
                            Err(Error::NoSpace(_)) => return,
                            Err(e) => {
                                // The operation that was under way has failed; its effect is unknown.
                                let after = v.metadata("/");
                                assert!(matches!(after, Err(Error::Stale)), "{path}: {e}");
                                return;
                            }
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(3 + 7 * round));
            v.invalidate();
            device.snapshot()
        });
        all_stale(&v, &dir, &file);
        stale("close", v.sync());
        v.close().unwrap();
        drop((file, dir));
        // Not a byte has changed since the call returned.
        assert!(image.to_bytes().unwrap() == device.to_bytes().unwrap());
        let v = open(&device);
        for n in 0..synced.into_inner() {
            let found = v.read(format!("/0-{n}"));
            let removed = n % 3 == 1;
            match found {
                Ok(bytes) => assert!(bytes.is_empty() || bytes == [n as u8; 5000]),
                Err(Error::NotFound) if removed => {}
                Err(e) => panic!("round {round}, file {n}: {e}"),
            }
        }
        assert_eq!(v.read("/d/f").unwrap(), b"durable");
        v.close().unwrap();
        assert_clean(&device, "recovered after a forced close");
    }
}

#[test]
fn memory_is_freed_though_handles_stay() {
    let Some((device, v)) = volume() else { return };
    let weak = Arc::downgrade(&device);
    let file = v.create_new_file("/big").unwrap();
    file.write_at(&[7; 1 << 20], 0).unwrap();
    v.invalidate();
    drop((v, device));
    assert!(weak.upgrade().is_some(), "the handle keeps the device");
    drop(file);
    assert!(weak.upgrade().is_none());
}

#[test]
fn events_in_their_order() {
    let Some((_, v)) = volume() else { return };
    v.create_dir("/d/sub").unwrap();
    let all = v.watch_volume();
    let dir = v.watch("/d").unwrap();
    let file = v.watch("/d/f").unwrap();
    let other = v.watch("/d/sub").unwrap();
    let ino = v.metadata("/d/f").unwrap().ino();
    let d = v.metadata("/d").unwrap().ino();
    let sub = v.metadata("/d/sub").unwrap().ino();
    v.hard_link("/d/f", "/d/g").unwrap();
    v.rename("/d/g", "/d/sub/h").unwrap();
    let handle = v
        .open_file_with("/d/f", &OpenOptions::new().write(true))
        .unwrap();
    for n in 0..10 {
        handle.write_at(b"w", n).unwrap();
    }
    handle.set_len(3).unwrap();
    v.remove_file("/d/f").unwrap();
    v.symlink("nowhere", "/d/link").unwrap();
    v.create_dir_with_mode("/d/e", 0o700).unwrap();
    v.remove_dir("/d/e").unwrap();
    let name = |n: &str| n.as_bytes().to_vec();
    let created = |dir, n: &str, ino| WatchEvent::Created {
        dir,
        name: name(n),
        ino,
    };
    let removed = |dir, n: &str, ino| WatchEvent::Removed {
        dir,
        name: name(n),
        ino,
    };
    let renamed = WatchEvent::Renamed {
        from_dir: d,
        from: name("g"),
        to_dir: sub,
        to: name("h"),
        ino,
    };
    let link = v.symlink_metadata("/d/link").unwrap().ino();
    let drain = |watch: &extant::Watch| -> Vec<WatchEvent> {
        std::iter::from_fn(|| watch.try_next()).collect()
    };
    let of_dir = drain(&dir);
    assert_eq!(of_dir[..2], [created(d, "g", ino), renamed.clone()]);
    assert_eq!(of_dir[2], removed(d, "f", ino));
    assert_eq!(of_dir[3], created(d, "link", link));
    assert!(matches!(
        &of_dir[4..],
        [WatchEvent::Created { .. }, WatchEvent::Removed { .. }]
    ));
    assert_eq!(drain(&other), std::slice::from_ref(&renamed));
    // Eleven changes of data are one event.
    assert_eq!(
        drain(&file),
        [renamed, WatchEvent::Written { ino }, removed(d, "f", ino)]
    );
    assert_eq!(drain(&all).len(), 7);
    drop(dir);
    v.create_new_file("/d/x").unwrap();
    assert_eq!(drain(&other), []);
    assert_eq!(drain(&all).len(), 1);
    // If no events are fetched for long, the watcher gets the overflow, and then the end.
    for n in 0..20_000 {
        v.create_new_file(format!("/d/sub/{n}")).unwrap();
    }
    v.close().unwrap();
    for watch in [all, other] {
        let events: Vec<_> = watch.collect();
        assert!(events.contains(&WatchEvent::Lost));
        assert_eq!(events.last(), Some(&WatchEvent::Unmounted));
    }
    assert_eq!(file.try_next(), Some(WatchEvent::Unmounted));
}

/// A watcher that waits in another thread is notified of the end by force.
#[test]
fn a_waiting_watcher_is_told_of_the_end() {
    let Some((_, v)) = volume() else { return };
    let watch = v.watch("/d").unwrap();
    assert_eq!(watch.next_within(Duration::from_millis(5)), None);
    let waiter = std::thread::spawn(move || watch.collect::<Vec<_>>());
    v.invalidate();
    assert_eq!(waiter.join().unwrap(), [WatchEvent::Unmounted]);
}

/// Counts references to the reported inodes, as quotas would. If a number is freed and taken again at once, the call
/// for the new inode may come before the last call for the old one.
#[derive(Default)]
struct Shown(Mutex<HashMap<u32, i32>>);

impl InodeObserver for Shown {
    fn comes(&self, inode: &InodeInCore) {
        *self.0.lock().unwrap().entry(inode.ino).or_default() += 1;
    }
    fn goes(&self, inode: &InodeInCore) {
        *self.0.lock().unwrap().entry(inode.ino).or_default() -= 1;
    }
}

/// An observer is set and removed again and again while inodes enter and leave core. Each inode is reported once, and
/// none is left.
#[test]
fn observers_see_each_inode_once() {
    let Some((device, v)) = volume() else { return };
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let ends = Ends(&stop);
        for thread in 0..4 {
            let (v, stop) = (v.clone(), &stop);
            s.spawn(move || {
                let mut n = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let path = |n: u64| format!("/{thread}-{}", n % 50);
                    v.create_new_file(path(n))
                        .map(drop)
                        .or_else(|e| match e {
                            Error::Exists => Ok(()),
                            e => Err(e),
                        })
                        .unwrap();
                    if n % 2 == 1 {
                        v.remove_file(path(n / 2)).ok();
                    }
                    if n.is_multiple_of(64) {
                        v.drop_caches();
                    }
                    n += 1;
                }
            });
        }
        for _ in 0..if torture() { 2000 } else { 60 } {
            let shown = Arc::new(Shown::default());
            assert!(v.observe_inodes(Arc::clone(&shown) as _));
            assert!(!v.observe_inodes(Arc::clone(&shown) as _), "one at a time");
            let root = shown.0.lock().unwrap().get(&2).copied();
            assert_eq!(root, Some(1), "the root is in core");
            std::thread::sleep(Duration::from_micros(500));
            v.stop_observing();
            let mut all = shown.0.lock().unwrap();
            all.retain(|_, n| *n != 0);
            assert!(all.is_empty(), "{all:?}");
        }
        drop(ends);
    });
    v.close().unwrap();
    assert_clean(&device, "observed");
}

/// An observer that is set at the end receives every inode's last call.
#[test]
fn observers_at_the_end() {
    let Some((_, v)) = volume() else { return };
    let shown = Arc::new(Shown::default());
    v.observe_inodes(Arc::clone(&shown) as _);
    v.create_new_file("/x").unwrap();
    assert!(shown.0.lock().unwrap().values().all(|n| *n == 1));
    v.close().unwrap();
    assert!(shown.0.lock().unwrap().values().all(|n| *n == 0));
}
