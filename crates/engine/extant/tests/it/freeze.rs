//! A volume that is frozen while other threads want to work on it, shut down in every way, and one that fails.

use crate::common;
use blockdev::{BlockDevice, FaultDevice, MemDevice, Op};
use common::*;
use extant::{Error, ErrorPolicy, OpenOptions, Shutdown, Volume, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-J", "size=8", "-N", "32768"],
    &[
        "-t",
        "ext4",
        "-J",
        "size=4",
        "-b",
        "1024",
        "-O",
        "orphan_file",
    ],
    &["-t", "ext4", "-O", "^has_journal"],
];

fn have_tools() -> bool {
    needs::have(&["mke2fs", "e2fsck"])
}

fn open_lively(device: &Arc<MemDevice>) -> Volume {
    VolumeOptions::new()
        .commit_interval(Duration::from_millis(20))
        .open_device(Arc::clone(device) as Arc<dyn BlockDevice>)
        .unwrap()
}

/// A round of a busy thread: every kind of change, made durable at times.
fn work(v: &Volume, task: u64, n: u64) -> extant::Result<()> {
    let dir = format!("/t{task}");
    let path = format!("{dir}/{}", n % 40);
    match n % 9 {
        0 => v.write(&path, vec![n as u8; (n % 7) as usize * 3000]),
        1 => match v.remove_file(format!("{dir}/{}", (n * 7) % 40)) {
            Err(Error::NotFound) => Ok(()),
            other => other,
        },
        2 => v
            .open_file_with(
                &path,
                &OpenOptions::new().write(true).create(true).mode(0o600),
            )?
            .write_at(&[n as u8; 5000], n * 100 % 50_000)
            .map(drop),
        3 => v
            .open_file_with(
                &path,
                &OpenOptions::new().write(true).create(true).mode(0o600),
            )?
            .set_len(n * 997 % 90_000),
        4 => v
            .open_file_with(
                &path,
                &OpenOptions::new().write(true).create(true).mode(0o600),
            )?
            .fallocate(extant::Fallocate::default(), 0, n * 31 % 60_000 + 1),
        5 => v
            .open_file_with(
                &path,
                &OpenOptions::new().read(true).create(true).mode(0o600),
            )?
            .sync_all(),
        6 => v
            .open_file_with(
                &path,
                &OpenOptions::new().write(true).create(true).mode(0o600),
            )?
            .fallocate(extant::Fallocate::PunchHole, n % 9000, 20_000),
        7 => {
            let file = v.create_new_file(format!("{dir}/gone"))?;
            file.write_at(&[1; 9000], 0)?;
            v.remove_file(format!("{dir}/gone"))
        }
        _ if n.is_multiple_of(2) => v.sync(),
        // At most fifty files, so that there is room on a fast machine as well.
        _ => {
            let sub = format!("{dir}/d{}", n % 900);
            match v.create_dir_with_mode(&sub, 0o700) {
                Err(Error::Exists) => v.remove_dir(&sub),
                other => other.map(drop),
            }
        }
    }
}

/// Works until the end, and counts the rounds.
fn work_until(v: &Volume, task: u64, end: &AtomicBool, done: &AtomicU64) {
    for n in 0.. {
        if end.load(Ordering::Relaxed) {
            return;
        }
        work(v, task, n).unwrap();
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// While the volume is frozen, under load, not a byte changes, the device holds a clean volume, and readers continue.
#[test]
fn a_frozen_volume_holds_still() {
    if !have_tools() {
        return;
    }
    for args in KINDS {
        let device = mem_image("64M", args);
        let v = open_lively(&device);
        v.write("/fixed", [7; 10_000]).unwrap();
        for task in 0..4 {
            v.create_dir(format!("/t{task}")).unwrap();
        }
        let (end, done) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|s| {
            for task in 0..4 {
                let (v, end, done) = (&v, &end, &done);
                s.spawn(move || work_until(v, task, end, done));
            }
            let _end = Ends(&end);
            for round in 0..6 {
                let before = done.load(Ordering::Relaxed);
                let start = Instant::now();
                while done.load(Ordering::Relaxed) < before + 200 {
                    assert!(start.elapsed() < Duration::from_secs(120), "nobody works");
                    std::thread::yield_now();
                }
                let frozen = v.freeze().unwrap();
                let image = device.snapshot();
                assert!(matches!(v.freeze(), Err(Error::Busy(_))));
                assert_eq!(v.read("/fixed").unwrap(), [7; 10_000]);
                for task in 0..4 {
                    for entry in list(&v, format!("/t{task}")).unwrap() {
                        if entry.file_type == extant::FileType::Regular {
                            let name = String::from_utf8(entry.name).unwrap();
                            // A file without its name is gone at the latest after the thaw.
                            match v.read(format!("/t{task}/{name}")) {
                                Ok(_) | Err(Error::NotFound) => {}
                                Err(e) => panic!("{name}: {e}"),
                            }
                        }
                    }
                }
                std::thread::sleep(Duration::from_millis(60));
                assert!(
                    image.to_bytes().unwrap() == device.to_bytes().unwrap(),
                    "{args:?}, round {round}: written while frozen"
                );
                drop(frozen);
                let copy = Arc::new(image);
                let again = open(&copy);
                assert!(again.recovery().transactions == 0, "{args:?}: not clean");
                assert_eq!(again.read("/fixed").unwrap(), [7; 10_000]);
                // Files without a name were freed at opening.
                again.sync().unwrap();
                again.close().unwrap();
                assert_clean(&copy, "a copy of a frozen volume");
            }
        });
        v.close().unwrap();
        assert_clean(&device, "thawed and closed");
    }
}

#[test]
fn syncing_and_closing_a_frozen_volume() {
    if !have_tools() {
        return;
    }
    for args in KINDS {
        let device = mem_image("64M", args);
        let v = open(&device);
        let file = v.create_new_file("/a").unwrap();
        file.write_at(b"before", 0).unwrap();
        let frozen = v.freeze().unwrap();
        // Everything is durable: nothing to wait for.
        v.sync().unwrap();
        file.sync_all().unwrap();
        assert_clean(&device, "frozen");
        let waits = AtomicBool::new(true);
        std::thread::scope(|s| {
            let writer = s.spawn(|| {
                let r = file.write_at(b"after", 0).map(drop);
                assert!(!waits.load(Ordering::SeqCst));
                r
            });
            let maker = s.spawn(|| {
                let r = v.create_new_file("/b").map(drop);
                assert!(!waits.load(Ordering::SeqCst));
                r
            });
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(v.read("/a").unwrap(), b"before");
            waits.store(false, Ordering::SeqCst);
            frozen.thaw();
            writer.join().unwrap().unwrap();
            maker.join().unwrap().unwrap();
        });
        assert_eq!(v.read("/a").unwrap(), b"aftere");
        // Closing while frozen ends, too.
        let _frozen = v.freeze().unwrap();
        let other = v.clone();
        std::thread::scope(|s| {
            let writer = s.spawn(|| file.write_at(b"late", 0));
            std::thread::sleep(Duration::from_millis(20));
            other.close().unwrap();
            // The write may have come before the end or after it.
            let _ = writer.join().unwrap();
        });
        assert!(matches!(v.metadata("/"), Err(Error::Stale)));
        assert_clean(&device, "closed while frozen");
    }
}

#[test]
fn every_way_to_shut_down() {
    if !have_tools() {
        return;
    }
    for how in [Shutdown::Sync, Shutdown::LogFlush, Shutdown::NoLogFlush] {
        let device = mem_image("64M", KINDS[0]);
        let v = open(&device);
        v.write("/synced", b"durable").unwrap();
        v.sync().unwrap();
        v.write("/new", [5; 30_000]).unwrap();
        let file = v
            .open_file_with("/new", &OpenOptions::new().read(true).write(true))
            .unwrap();
        v.shutdown(how).unwrap();
        let image = device.snapshot();
        let eio = |e: Option<Error>| {
            let e = e.expect("works after the shutdown");
            assert!(matches!(e, Error::Stopped(_)), "{how:?}: {e}");
            assert_eq!(e.errno(), 5);
        };
        eio(file.read_at(&mut [0; 4], 0).err());
        eio(file.write_at(b"x", 0).err());
        eio(file.sync_all().err());
        eio(v.metadata("/").err());
        eio(v.create_new_file("/more").err());
        eio(v.sync().err());
        eio(v.freeze().err());
        eio(v.shutdown(how).err());
        assert!(v.is_over());
        drop(file);
        v.close().unwrap();
        assert!(image.to_bytes().unwrap() == device.to_bytes().unwrap());
        let v = open(&device);
        assert_eq!(v.read("/synced").unwrap(), b"durable");
        let new = v.read("/new");
        match how {
            Shutdown::Sync => assert_eq!(new.unwrap(), [5; 30_000]),
            // The file's name is in the log, but its data had no blocks yet.
            Shutdown::LogFlush => assert_eq!(new.unwrap(), []),
            Shutdown::NoLogFlush => assert!(matches!(new, Err(Error::NotFound))),
        }
        v.close().unwrap();
        assert_clean(&device, "after a shutdown");
    }
}

#[test]
fn shut_down_under_load() {
    if !have_tools() {
        return;
    }
    for (round, how) in [Shutdown::Sync, Shutdown::LogFlush, Shutdown::NoLogFlush]
        .into_iter()
        .cycle()
        .take(6)
        .enumerate()
    {
        let device = mem_image("64M", KINDS[round % 2]);
        let v = open_lively(&device);
        for task in 0..4 {
            v.create_dir(format!("/t{task}")).unwrap();
        }
        let image = std::thread::scope(|s| {
            for task in 0..4 {
                let v = &v;
                s.spawn(move || {
                    for n in 0.. {
                        if let Err(e) = work(v, task, n) {
                            let over = v.metadata("/");
                            assert!(matches!(over, Err(Error::Stopped(_))), "{e}");
                            return;
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(30));
            v.shutdown(how).unwrap();
            device.snapshot()
        });
        v.close().unwrap();
        assert!(image.to_bytes().unwrap() == device.to_bytes().unwrap());
        open(&device).close().unwrap();
        assert_clean(&device, "after a shutdown under load");
    }
}

#[test]
fn a_failure_is_told_once() {
    if !have_tools() {
        return;
    }
    for (policy, reads) in [
        (ErrorPolicy::Superblock, true),
        (ErrorPolicy::ReadOnly, true),
        (ErrorPolicy::Shutdown, false),
    ] {
        let base = mem_image("64M", KINDS[0]);
        let device = Arc::new(FaultDevice::new(base.snapshot()));
        let told = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&told);
        let v = VolumeOptions::new()
            .background(false)
            .errors(policy)
            .on_stop(move |_| {
                count.fetch_add(1, Ordering::SeqCst);
            })
            .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
            .unwrap();
        v.write("/a", b"a").unwrap();
        v.sync().unwrap();
        v.write("/b", b"b").unwrap();
        device.fail_all(Op::Write);
        v.sync().unwrap_err();
        v.sync().unwrap_err();
        assert_eq!(told.load(Ordering::SeqCst), 1);
        let made = v.create_new_file("/c").err().unwrap();
        let read = v.read("/a");
        if reads {
            assert!(matches!(made, Error::ReadOnly(_)), "{made}");
            assert_eq!(read.unwrap(), b"a");
        } else {
            assert!(matches!(made, Error::Stopped(_)), "{made}");
            assert!(matches!(read, Err(Error::Stopped(_))));
        }
        v.close().unwrap_err();
        assert_eq!(told.load(Ordering::SeqCst), 1);
        // Stopping on demand is not a failure.
        let count = Arc::clone(&told);
        let v = VolumeOptions::new()
            .on_stop(move |_| {
                count.fetch_add(1, Ordering::SeqCst);
            })
            .open_device(base)
            .unwrap();
        v.shutdown(Shutdown::NoLogFlush).unwrap();
        v.close().unwrap();
        assert_eq!(told.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn memory_is_counted() {
    let v = extant::doc_volume();
    let before = v.memory();
    for n in 0..50 {
        v.write(format!("/f{n}"), [1; 8192]).unwrap();
    }
    let dirty = v.memory();
    assert_eq!(dirty.data - before.data, 50 * 8192);
    assert_eq!(dirty.dirty - before.dirty, 50 * 8192);
    assert_eq!(dirty.inodes - before.inodes, 50);
    v.sync().unwrap();
    let clean = v.memory();
    assert_eq!((clean.dirty, clean.data), (0, dirty.data));
    assert!(clean.dirty_metadata > 0 && clean.metadata >= clean.dirty_metadata);
    v.drop_caches();
    assert_eq!(v.memory().data, 0);
}

/// Access times of earlier reads are in the copy. Reads during the freeze do not wait, though they change times.
#[test]
fn access_times_of_a_frozen_volume() {
    if !have_tools() {
        return;
    }
    let device = mem_image("64M", KINDS[0]);
    let v = VolumeOptions::new()
        .background(false)
        .access_times(extant::AccessTimes::Strict)
        .lazy_times(true)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    v.write("/a", b"a").unwrap();
    v.sync().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    v.read("/a").unwrap();
    let read = v.metadata("/a").unwrap().atime();
    let frozen = v.freeze().unwrap();
    let image = Arc::new(device.snapshot());
    std::thread::sleep(Duration::from_millis(20));
    v.read("/a").unwrap();
    assert!(v.metadata("/a").unwrap().atime() > read);
    v.sync().unwrap();
    assert!(image.to_bytes().unwrap() == device.to_bytes().unwrap());
    drop(frozen);
    let copy = open(&image);
    assert_eq!(copy.metadata("/a").unwrap().atime(), read);
    v.close().unwrap();
    assert_clean(&device, "closed");
}

/// Snapshots while other threads create, write, rename and remove. Each snapshot is a clean volume with the files of
/// its moment, however often it is read and whatever happens meanwhile.
#[test]
fn a_snapshot_stays_while_work_goes_on() {
    if !have_tools() {
        return;
    }
    for args in KINDS {
        let device = mem_image("64M", args);
        let v = open_lively(&device);
        v.write("/fixed", [7; 10_000]).unwrap();
        for task in 0..3 {
            v.create_dir(format!("/t{task}")).unwrap();
        }
        let (end, done) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|s| {
            for task in 0..3 {
                let (v, end, done) = (&v, &end, &done);
                s.spawn(move || work_until(v, task, end, done));
            }
            let _end = Ends(&end);
            for round in 0..5 {
                v.write("/fixed", [round; 10_000]).unwrap();
                let snapshot = Arc::new(v.snapshot().unwrap());
                assert!(matches!(v.snapshot(), Err(Error::Busy(_))));
                let at = done.load(Ordering::Relaxed);
                v.write("/fixed", [99; 10_000]).unwrap();
                v.sync().unwrap();
                while done.load(Ordering::Relaxed) < at + 300 {
                    std::thread::yield_now();
                }
                let mut bytes = vec![0; snapshot.len() as usize];
                snapshot.read_at(0, &mut bytes).unwrap();
                let copy = Arc::new(MemDevice::from_bytes(&bytes));
                let again = open(&copy);
                assert!(again.recovery().transactions == 0, "{args:?}: not clean");
                // Files without a name were freed at opening.
                again.close().unwrap();
                assert_clean(&copy, "a snapshot");
                let then = VolumeOptions::new()
                    .read_only(true)
                    .open_device(snapshot)
                    .unwrap();
                assert_eq!(then.read("/fixed").unwrap(), [round; 10_000], "{args:?}");
            }
        });
        v.close().unwrap();
        assert_clean(&device, "after its snapshots");
    }
}
