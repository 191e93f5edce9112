//! Times of the last access: which reads change them, and when they are written to the device.

use crate::common;
use blockdev::{BlockDevice, MemDevice};
use common::*;
use extant::unstable::Node;
use extant::{
    AccessTimes, Credentials, Fallocate, SetAttributes, SetTime, Timestamp, Volume, VolumeOptions,
};
use std::sync::Arc;

const ARGS: &[&str] = &["-t", "ext4", "-J", "size=4"];

fn open_with(device: &Arc<MemDevice>, which: AccessTimes, lazy: bool) -> Volume {
    let options = VolumeOptions::new().background(false).access_times(which);
    options
        .lazy_times(lazy)
        .open_device(Arc::clone(device) as Arc<dyn BlockDevice>)
        .unwrap()
}

/// Makes a file, a directory and a symbolic link that were last read before they were changed, or after.
fn set_up(v: &Volume, atime: i64, mtime: i64) {
    let set = |path: &str| {
        let set = SetAttributes {
            atime: Some(Timestamp::new(atime, 0).into()),
            mtime: Some(Timestamp::new(mtime, 0).into()),
            ctime: Some(Timestamp::new(mtime, 0)),
            ..Default::default()
        };
        v.set_symlink_attributes(path, &set).unwrap();
    };
    for path in ["/file", "/dir", "/link"] {
        if v.symlink_metadata(path).is_err() {
            match path {
                "/file" => v.write(path, b"data").unwrap(),
                "/dir" => drop(v.create_dir(path).unwrap()),
                _ => v.symlink("file", path).unwrap(),
            }
        }
        set(path);
    }
}

fn read_all(v: &Volume) {
    v.read("/file").unwrap();
    let _ = v.read_dir("/dir").unwrap();
    v.read_link("/link").unwrap();
}

fn atimes(v: &Volume) -> [i64; 3] {
    ["/file", "/dir", "/link"].map(|p| v.symlink_metadata(p).unwrap().atime().secs())
}

/// A second ago: the coarse clock, by which inodes are stamped, may lag behind this one.
fn today() -> i64 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64 - 1
}

#[test]
fn reads_are_noted_by_the_volumes_rule() {
    needs::tools!("mke2fs");
    let device = mem_image("16M", ARGS);
    let now = today();
    let (old, fresh) = (now - 100_000, now - 1_000);
    for (which, atime, mtime, noted) in [
        (AccessTimes::None, old, now - 10, false),
        (AccessTimes::Strict, fresh, fresh - 5, true),
        (AccessTimes::Relative, fresh, fresh - 5, false),
        (AccessTimes::Relative, fresh, fresh, true),
        (AccessTimes::Relative, fresh, fresh + 5, true),
        (AccessTimes::Relative, old, old - 5, true),
    ] {
        let v = open_with(&device, which, false);
        set_up(&v, atime, mtime);
        read_all(&v);
        let what = format!("{which:?}, read {atime}, changed {mtime}");
        for found in atimes(&v) {
            assert_eq!(found >= now, noted, "{what}: {found}");
            assert!(noted || found == atime, "{what}: {found}");
        }
        // A second read changes nothing.
        let first = atimes(&v);
        if which != AccessTimes::Strict {
            read_all(&v);
            assert_eq!(atimes(&v), first, "{what}");
        }
        v.close().unwrap();
        let v = open(&device);
        assert_eq!(atimes(&v), first, "{what}: on the device");
        v.close().unwrap();
        assert_clean(&device, &what);
    }
    // Neither an inode with the flag nor a volume opened read-only changes its times.
    let v = open_with(&device, AccessTimes::Strict, false);
    set_up(&v, old, old);
    let no_atime = SetAttributes {
        flags: Some(0x8_0080),
        ..Default::default()
    };
    v.set_attributes("/file", &no_atime).unwrap();
    v.read("/file").unwrap();
    assert_eq!(v.metadata("/file").unwrap().atime().secs(), old);
    v.set_attributes(
        "/file",
        &SetAttributes {
            flags: Some(0x8_0000),
            ..Default::default()
        },
    )
    .unwrap();
    v.close().unwrap();
    let v = VolumeOptions::new()
        .read_only(true)
        .access_times(AccessTimes::Strict)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    read_all(&v);
    assert_eq!(atimes(&v), [old; 3]);
}

/// Returns the file's node and the time on the device, after `then` and a crash.
fn after_crash(lazy: bool, then: impl FnOnce(&Volume, &Node)) -> i64 {
    let device = mem_image("16M", ARGS);
    let v = open_with(&device, AccessTimes::Strict, lazy);
    set_up(&v, 1000, 1000);
    v.sync().unwrap();
    let who = Credentials::root();
    let file = Node::root(&v).unwrap().lookup(&who, b"file").unwrap();
    file.read_at(&mut [0; 4], 0).unwrap();
    assert!(
        file.metadata().unwrap().atime().secs() > 1000,
        "in memory at once"
    );
    then(&v, &file);
    drop(file);
    v.invalidate();
    let v = open(&device);
    v.metadata("/file").unwrap().atime().secs()
}

#[test]
fn lazy_times_are_written_with_the_next_reason_to_write() {
    needs::tools!("mke2fs");
    let written = |lazy, then: fn(&Volume, &Node)| after_crash(lazy, then) > 1000;
    assert!(!written(true, |_, _| ()));
    assert!(!written(true, |_, file| file.fsync(true).unwrap()));
    assert!(written(true, |_, file| file.fsync(false).unwrap()));
    assert!(written(true, |v, _| v.sync().unwrap()));
    assert!(written(true, |v, _| v.clone().close().unwrap()));
    // fdatasync promises no times, lazy or not.
    assert!(!written(false, |_, file| file.fsync(true).unwrap()));
    assert!(written(false, |_, file| file.fsync(false).unwrap()));
    // Another change of the inode is made durable by a change elsewhere.
    assert!(written(true, |v, file| {
        let mode = SetAttributes {
            mode: Some(0o600),
            ..Default::default()
        };
        file.set_attributes(&Credentials::root(), &mode).unwrap();
        Node::root(v).unwrap().fsync(true).unwrap();
        v.create_dir_with_mode("/other", 0o700)
            .unwrap()
            .sync_all()
            .unwrap();
    }));
}

/// Inodes with lazy times are evicted like others, and many reads do not fill memory.
#[test]
fn inodes_with_lazy_times_leave_memory() {
    needs::tools!("mke2fs");
    let device = mem_image("64M", &["-t", "ext4", "-N", "8192", "-J", "size=4"]);
    let v = open(&device);
    for n in 0..3_000 {
        v.write(format!("/f{n}"), b"x").unwrap();
    }
    v.close().unwrap();
    let v = VolumeOptions::new()
        .background(false)
        .inodes_in_core(400)
        .access_times(AccessTimes::Relative)
        .lazy_times(true)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    let start = today();
    for n in 0..3_000 {
        v.read(format!("/f{n}")).unwrap();
        if n % 100 == 0 {
            v.sync().unwrap();
        }
    }
    v.sync().unwrap();
    v.drop_caches();
    for n in 0..3_000 {
        assert!(
            v.metadata(format!("/f{n}")).unwrap().atime().secs() >= start,
            "{n}"
        );
    }
    v.close().unwrap();
    assert_clean(&device, "after many reads");
}

/// Readers of one file and its writers meet at its times.
#[test]
fn readers_and_writers_of_one_file() {
    needs::tools!("mke2fs");
    let device = mem_image("16M", ARGS);
    let v = open_with(&device, AccessTimes::Strict, true);
    v.write("/f", b"data").unwrap();
    std::thread::scope(|s| {
        for task in 0..3 {
            let v = &v;
            s.spawn(move || {
                for n in 0..2_000 {
                    match (task, n % 50) {
                        (0, 0) => v.sync().unwrap(),
                        (0, _) => v.write("/f", b"data").unwrap(),
                        _ => drop(v.read("/f").unwrap()),
                    }
                    let _ = v.read_dir("/").unwrap();
                    if task == 1 {
                        let touch = SetAttributes {
                            atime: Some(SetTime::Now),
                            mtime: Some(SetTime::Now),
                            ..Default::default()
                        };
                        v.set_attributes("/f", &touch).unwrap();
                    }
                }
            });
        }
    });
    v.close().unwrap();
    assert_clean(&device, "after the storm");
}

/// A directory's time is set, and its mode, while names are made in it: the time in memory is the one on the device.
/// The later of the two changes counts.
#[test]
fn times_set_while_names_are_made_are_those_on_the_device() {
    needs::tools!("mke2fs");
    let device = mem_image("16M", ARGS);
    let v = open_with(&device, AccessTimes::None, false);
    extant::unstable::jitter(12);
    for round in 0..400 {
        let path = format!("/d{round}");
        v.create_dir(&path).unwrap();
        let dir = v.open_dir(&path).unwrap();
        std::thread::scope(|s| {
            let (v, dir, path) = (v.clone(), &dir, &path);
            s.spawn(move || {
                for n in 0..4 {
                    dir.create_new_file(format!("f{n}")).unwrap();
                }
            });
            s.spawn(move || {
                for n in 0..3 {
                    let set = SetAttributes {
                        mtime: (n < 2).then(|| Timestamp::new(1000 + n, 0).into()),
                        mode: (n > 0).then_some(0o700),
                        ..Default::default()
                    };
                    v.set_attributes(path, &set).unwrap();
                }
            });
        });
        drop(dir);
        let before = v.metadata(&path).unwrap();
        v.sync().unwrap();
        v.drop_caches();
        let after = v.metadata(&path).unwrap();
        assert_eq!(
            (after.mtime(), after.ctime()),
            (before.mtime(), before.ctime()),
            "round {round}"
        );
    }
    extant::unstable::jitter(0);
    v.close().unwrap();
    assert_clean(&device, "times");
}

/// As in Linux, every mode of fallocate changes both times, even if no block is allocated or freed.
#[test]
fn every_allocation_is_a_change_of_the_file() {
    needs::tools!("mke2fs");
    let v = open_with(&mem_image("16M", ARGS), AccessTimes::None, false);
    let file = v.create_new_file("/file").unwrap();
    file.write_all_at(&[7; 10_000], 0).unwrap();
    let ways = [
        (Fallocate::PunchHole, 10, 20),
        (Fallocate::PunchHole, 4096, 4096),
        (Fallocate::PunchHole, 4096, 4096),
        (Fallocate::PunchHole, 100_000, 4096),
        (Fallocate::ZeroRange { keep_size: true }, 20, 20),
        (Fallocate::ZeroRange { keep_size: true }, 50_000, 100),
        (Fallocate::ZeroRange { keep_size: false }, 10, 20_000),
        (Fallocate::Allocate { keep_size: true }, 0, 100),
        (Fallocate::Allocate { keep_size: true }, 0, 40_000),
        (Fallocate::Allocate { keep_size: false }, 0, 100),
        (Fallocate::Allocate { keep_size: false }, 20_010, 40_000),
        (Fallocate::Allocate { keep_size: true }, 64_000, 40_000),
    ];
    let old = Timestamp::new(1_000_000_000, 0);
    for (how, offset, len) in ways {
        let set = SetAttributes {
            mtime: Some(old.into()),
            ctime: Some(old),
            ..Default::default()
        };
        v.set_attributes("/file", &set).unwrap();
        file.fallocate(how, offset, len).unwrap();
        let metadata = v.metadata("/file").unwrap();
        let times = [metadata.mtime(), metadata.ctime()];
        assert!(times.iter().all(|t| *t > old), "{how:?} {offset} {len}");
    }
    drop(file);
    v.close().unwrap();
}

/// As in Linux, a time that is clamped, or nearly so, has no fractions.
#[test]
fn the_first_and_the_last_second_have_no_fractions() {
    needs::tools!("mke2fs");
    let v = open_with(&mem_image("16M", ARGS), AccessTimes::None, false);
    v.create_new_file("/file").unwrap();
    for (secs, stored) in [
        (i64::MIN, (Timestamp::MIN_SECS, 0)),
        (Timestamp::MIN_SECS, (Timestamp::MIN_SECS, 0)),
        (Timestamp::MIN_SECS + 1, (Timestamp::MIN_SECS + 1, 5)),
        (Timestamp::MAX_SECS - 1, (Timestamp::MAX_SECS - 1, 5)),
        (Timestamp::MAX_SECS, (Timestamp::MAX_SECS, 0)),
    ] {
        let set = SetAttributes {
            mtime: Some(Timestamp::new(secs, 5).into()),
            ..Default::default()
        };
        v.set_attributes("/file", &set).unwrap();
        let mtime = v.metadata("/file").unwrap().mtime();
        assert_eq!((mtime.secs(), mtime.nanos()), stored, "{secs}");
    }
    v.close().unwrap();
}
