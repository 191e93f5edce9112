//! Fast commits: an fsync writes a block of the journal's area, and every program that replays the image finds the
//! synced changes.

mod dirty;
mod programs;

use crate::common::*;
use crate::kernel::tree::{Tree, kernel_tree, our_tree, same};
use blockdev::{BlockDevice, Crash, FaultDevice, MemDevice, Op, RecordingDevice};
use extant::unstable::schedule::{self, Point};
use extant::{OpenOptions, SetAttributes, SetXattr, Volume, VolumeOptions};
use extant_testing::mounted::{Mounted, able};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;

fn volume(size: &str, more: &[&str]) -> (Arc<MemDevice>, Volume) {
    let args = [&["-t", "ext4", "-O", "fast_commit", "-J", "size=8"], more].concat();
    let device = mem_image(size, &args);
    let volume = open(&device);
    (device, volume)
}

fn synced(volume: &Volume, path: &str, content: &[u8]) {
    let file = volume.create_new_file(path).unwrap();
    file.write_all_at(content, 0).unwrap();
    file.sync_all().unwrap();
}

/// Returns the device as a power cut leaves it at this moment.
fn cut(device: &MemDevice) -> Arc<MemDevice> {
    Arc::new(device.snapshot())
}

#[test]
fn an_fsync_writes_less_than_a_block() {
    needs::tools!("mke2fs", "e2fsck");
    let (device, volume) = volume("64M", &[]);
    volume.create_dir("/d").unwrap();
    volume.sync().unwrap();
    let before = volume.statistics();
    for n in 0..40u8 {
        synced(&volume, &format!("/d/f{n}"), &[n; 4096]);
    }
    let after = volume.statistics();
    assert_eq!(after.fast_commits - before.fast_commits, 40);
    assert_eq!(after.pushes, before.pushes, "nothing was formatted");
    let bytes = (after.log_bytes - before.log_bytes) / 40;
    assert!((512..2048).contains(&bytes), "{bytes} bytes for each file");
    let crashed = cut(&device);
    let read_only = VolumeOptions::new().read_only(true);
    let shared: Arc<MemDevice> = Arc::clone(&crashed);
    let seen = read_only.open_device(shared).unwrap();
    assert!(seen.recovery().fast_changes >= 120);
    let tree = snapshot(&volume).unwrap();
    assert_eq!(snapshot(&seen).unwrap(), tree, "read-only");
    drop(seen);
    let again = open(&crashed);
    assert_eq!(snapshot(&again).unwrap(), tree);
    again.write("/d/later", b"later").unwrap();
    again.close().unwrap();
    assert_clean(&crashed, "after the replay");
    volume.close().unwrap();
    assert_clean(&device, "closed");
}

/// Changes two files. The fast commit of the second is put together while that of the first is held before its write. Calls `queued`
/// then, and `resumed` in the first thread before its write. Returns `None` in a build without schedules.
fn overlapping<R: Send>(
    change: impl Fn(&str) -> R + Sync,
    queued: impl FnOnce(),
    resumed: impl FnOnce() + Send + 'static,
) -> Option<[R; 2]> {
    if !schedule::at(Point::FastCommitQueued, || {}) {
        return None;
    }
    let (held, is_held) = channel();
    let (release, is_released) = channel::<()>();
    let (queue, is_queued) = channel();
    let change = &change;
    Some(std::thread::scope(|s| {
        let first = s.spawn(move || {
            schedule::at(Point::FastCommitBegun, move || {
                held.send(()).unwrap();
                is_released.recv().unwrap();
                resumed();
            });
            change("/first")
        });
        is_held.recv().unwrap();
        let second = s.spawn(move || {
            schedule::at(Point::FastCommitQueued, move || queue.send(()).unwrap());
            change("/second")
        });
        is_queued.recv().unwrap();
        queued();
        release.send(()).unwrap();
        [first, second].map(|thread| thread.join().unwrap())
    }))
}

/// A fast commit that is put together while an earlier one is written is not durable before that one.
#[test]
fn a_fast_commit_waits_for_the_one_before_it() {
    needs::tools!("mke2fs", "e2fsck");
    let (device, volume) = volume("64M", &[]);
    synced(&volume, "/before", b"before");
    let names = || {
        let volume = open(&cut(&device));
        ["/first", "/second"].map(|path| volume.metadata(path).is_ok())
    };
    let change = |path: &str| {
        synced(&volume, path, b"content");
        names()
    };
    let found = overlapping(change, || assert_eq!(names(), [false, false]), || {});
    let Some([first, second]) = found else {
        return;
    };
    assert!(first[0]);
    assert_eq!(second, [true, true]);
    volume.close().unwrap();
    assert_clean(&device, "closed");
}

/// A fast commit that is put together behind one whose write fails would be out of reach of recovery.
#[test]
fn a_fast_commit_behind_one_that_failed_fails() {
    needs::tools!("mke2fs");
    let device = mem_image("64M", &["-t", "ext4", "-O", "fast_commit", "-J", "size=8"]);
    let device = Arc::new(FaultDevice::new(device.snapshot()));
    let volume = VolumeOptions::new()
        .background(false)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    synced(&volume, "/before", b"before");
    let sync = |path: &str| volume.create_new_file(path)?.sync_all();
    let faulty = Arc::clone(&device);
    // Only the first write fails.
    let heal = move || {
        schedule::at(Point::LogFailed, move || faulty.heal());
    };
    if let Some([first, second]) = overlapping(sync, || device.fail_all(Op::Write), heal) {
        assert!(first.is_err());
        assert!(second.is_err(), "durable behind a gap");
    }
}

/// Names fill the leaves of a directory, which fast commits cannot split. A push leaves room for more names in them. It comes when
/// its transaction might become too large, not for each full leaf or after a few items.
#[test]
fn a_thousand_synced_files_share_few_pushes() {
    needs::tools!("mke2fs", "e2fsck");
    let (device, volume) = volume("256M", &[]);
    volume.create_dir("/d").unwrap();
    for n in 0..3000 {
        volume.create_new_file(format!("/d/there-{n}")).unwrap();
    }
    volume.sync().unwrap();
    synced(&volume, "/d/first", b"first");
    volume.freeze().unwrap().thaw();
    let before = volume.statistics();
    for n in 0..1000u32 {
        synced(&volume, &format!("/d/synced-{n}"), &[1; 4096]);
    }
    let after = volume.statistics();
    let pushes = after.pushes - before.pushes;
    println!(
        "{pushes} pushes, {} fast commits",
        after.fast_commits - before.fast_commits
    );
    assert!(pushes <= 20, "{pushes}");
    // The area is nearly full of them.
    replayed_as(&device, &volume, "a thousand files");
    volume.close().unwrap();
    assert_clean(&device, "closed");
}

/// Changes that cancel each other out take no room in the area, but memory until the next push.
#[test]
fn what_comes_and_goes_is_pushed_some_day() {
    needs::tools!("mke2fs", "e2fsck");
    let (device, volume) = volume("64M", &[]);
    let root = volume.open_dir("/").unwrap();
    volume.sync().unwrap();
    let before = volume.statistics();
    for _ in 0..8000 {
        volume.create_new_file("/tmp").unwrap();
        volume.remove_file("/tmp").unwrap();
        root.sync_all().unwrap();
    }
    drop(root);
    let pushes = volume.statistics().pushes - before.pushes;
    println!("{pushes} pushes");
    assert!((1..100).contains(&pushes), "{pushes}");
    volume.close().unwrap();
    assert_clean(&device, "closed");
}

/// Changes that are durable by a fast commit are on disk in no other form. They must not leave memory before a push has
/// formatted them.
#[test]
fn what_is_not_formatted_stays_in_memory() {
    needs::tools!("mke2fs", "e2fsck");
    let (device, volume) = volume("64M", &[]);
    volume.create_dir("/d").unwrap();
    volume.write("/there", b"old").unwrap();
    volume.sync().unwrap();
    synced(&volume, "/d/new", b"new");
    let there = extant::OpenOptions::new()
        .write(true)
        .open(&volume, "/there")
        .unwrap();
    there.set_len(1).unwrap();
    there.sync_all().unwrap();
    there.sync_all().unwrap();
    drop(there);
    let tree = snapshot(&volume).unwrap();
    assert!(volume.statistics().fast_commits > 1);
    volume.drop_caches();
    assert_eq!(snapshot(&volume).unwrap(), tree);
    volume.close().unwrap();
    assert_clean(&device, "closed");
    assert_eq!(snapshot(&open(&device)).unwrap(), tree);
}

/// Operations that fast commits can express, with others between them that must be formatted. `synced` is called where
/// everything was synced.
fn work(volume: &Volume, mut synced_now: impl FnMut(&str)) {
    let sync = |volume: &Volume| volume.sync().unwrap();
    for n in 0..30u8 {
        synced(volume, &format!("/f{n}"), &vec![n; usize::from(n) * 700]);
    }
    synced_now("files");
    let file = volume
        .open_file_with("/f3", &extant::OpenOptions::new().append(true))
        .unwrap();
    for n in 0..20u8 {
        file.append(&[n; 3000]).unwrap();
        file.sync_all().unwrap();
    }
    synced_now("appends");
    file.set_len(10_000).unwrap();
    file.sync_all().unwrap();
    synced_now("a shorter file");
    file.set_len(400_000).unwrap();
    file.write_all_at(b"far", 300_000).unwrap();
    file.sync_all().unwrap();
    synced_now("a hole");
    volume.hard_link("/f4", "/second").unwrap();
    volume.rename("/f5", "/moved").unwrap();
    sync(volume);
    synced_now("names");
    let mode = SetAttributes {
        mode: Some(0o600),
        ..Default::default()
    };
    volume.set_attributes("/f6", &mode).unwrap();
    sync(volume);
    synced_now("a mode");
    synced(volume, "/tmp", b"new contents");
    volume.rename("/tmp", "/f7").unwrap();
    sync(volume);
    synced_now("a name replaced");
    volume.remove_file("/f8").unwrap();
    synced(volume, "/after", b"after");
    synced_now("a removal");
    volume.create_dir("/dir").unwrap();
    synced(volume, "/dir/in", b"inside");
    synced_now("a directory");
    volume.write("/lock", b"").unwrap();
    volume.remove_file("/lock").unwrap();
    synced(volume, "/dir/again", &[7; 9000]);
    synced_now("came and went");
    volume.rename("/dir/again", "/dir/a").unwrap();
    synced(volume, "/dir/again", b"another");
    synced_now("a name used again");
}

/// The kernel sets a directory's time to the time of the replay.
fn without_times(mut tree: Tree) -> Tree {
    for entry in tree
        .values_mut()
        .filter(|entry| entry.mode & 0o170000 == 0o040000)
    {
        (entry.mtime, entry.ctime) = Default::default();
    }
    tree
}

#[test]
fn the_kernel_replays_them() {
    if !able() {
        return;
    }
    for more in [
        &[][..],
        &["-b", "1024"],
        &["-O", "fast_commit,^metadata_csum,^64bit"],
    ] {
        let (device, volume) = volume("64M", more);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let device = &device;
        work(&volume, |what| {
            let what = format!("{more:?}, {what}");
            write_image(&cut(device), &path);
            let mounted = Mounted::new(&path, "");
            let [ours, theirs] =
                [our_tree(&volume), kernel_tree(mounted.path())].map(without_times);
            same(&ours, &theirs, &what);
            mounted.unmount();
            assert_clean_file(&path, &what);
        });
        assert!(volume.statistics().fast_commits > 40);
    }
}

fn e2fsck(path: &Path, what: &str) {
    let out = Command::new("e2fsck")
        .args(["-f", "-p"])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.code().is_some_and(|code| code <= 1),
        "{what}: {text}"
    );
}

#[test]
fn e2fsck_replays_them() {
    needs::tools!("mke2fs", "e2fsck");
    let (device, volume) = volume("64M", &[]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let device = &device;
    work(&volume, |what| {
        write_image(&cut(device), &path);
        e2fsck(&path, what);
        let replayed = VolumeOptions::new().read_only(true).open(&path).unwrap();
        assert_eq!(
            snapshot(&replayed).unwrap(),
            snapshot(&volume).unwrap(),
            "{what}"
        );
        assert_clean_file(&path, what);
    });
}

/// e2fsck reads the table block of the journal's inode before it replays the log. If the first record of a fast commit is in
/// this block, e2fsck writes back the stale block.
#[test]
fn the_first_record_is_in_another_table_block() {
    needs::tools!("mke2fs", "e2fsck");
    let (device, volume) = volume("64M", &["-b", "4096", "-N", "32"]);
    for n in 17..=32 {
        volume.write(format!("/f{n}"), b"").unwrap();
    }
    volume.write("/first", b"first").unwrap();
    volume.create_dir("/d").unwrap();
    volume.sync().unwrap();
    let first = OpenOptions::new()
        .write(true)
        .open(&volume, "/first")
        .unwrap();
    assert!(first.ino() <= 16, "{}", first.ino());
    // A fast commit that expresses no change is not the first.
    volume.create_new_file("/d/gone").unwrap();
    volume.remove_file("/d/gone").unwrap();
    first.sync_all().unwrap();
    for n in 0..3 {
        first.append(&[n; 100]).unwrap();
        first.sync_all().unwrap();
        replayed_as(&device, &volume, "appended");
    }
}

/// Checks that e2fsck replays a cut image to the tree of the volume.
fn replayed_as(device: &MemDevice, volume: &Volume, what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    write_image(&cut(device), &path);
    e2fsck(&path, what);
    let replayed = VolumeOptions::new().read_only(true).open(&path).unwrap();
    assert_eq!(
        snapshot(&replayed).unwrap(),
        snapshot(volume).unwrap(),
        "{what}"
    );
}

/// A file whose attributes a fast commit set has no name when it is freed. If e2fsck still found the attributes, it would put the
/// file into lost+found.
#[test]
fn a_removed_file_with_attributes_stays_away() {
    needs::tools!("mke2fs", "e2fsck");
    let (device, volume) = volume("64M", &[]);
    volume.write("/there", b"text").unwrap();
    volume.write("/synced", b"text").unwrap();
    volume.sync().unwrap();
    let synced = OpenOptions::new()
        .write(true)
        .open(&volume, "/synced")
        .unwrap();
    for name in ["/there", "/new"] {
        volume.write(name, b"text").unwrap();
        volume
            .set_xattr(name, "user.a", b"value", SetXattr::Any)
            .unwrap();
        synced.append(b"1").unwrap();
        synced.sync_all().unwrap();
        volume.remove_file(name).unwrap();
        synced.append(b"2").unwrap();
        synced.sync_all().unwrap();
        replayed_as(&device, &volume, name);
    }
    assert!(volume.statistics().fast_commits > 0);
}

/// A number that one fast commit uses and a later one frees is free again after the push.
#[test]
fn numbers_return() {
    needs::tools!("mke2fs");
    let (_, volume) = volume("64M", &["-b", "4096", "-N", "32"]);
    volume.write("/log", b"").unwrap();
    let log = OpenOptions::new()
        .write(true)
        .open(&volume, "/log")
        .unwrap();
    for n in 0..40 {
        synced(&volume, "/file", b"text");
        volume.remove_file("/file").unwrap();
        log.append(&[n]).unwrap();
        log.sync_all().unwrap();
        volume.sync().unwrap();
    }
    assert!(volume.statistics().fast_commits > 0);
}

/// The first files of a new volume are not in the table block of the journal's inode, as long as there are other numbers.
#[test]
fn the_first_file_has_fast_commits() {
    needs::tools!("mke2fs");
    let (_, volume) = volume("64M", &["-b", "4096", "-N", "32"]);
    let path = |n: u32| format!("/f{n}");
    synced(&volume, &path(0), b"text");
    assert_eq!(volume.statistics().fast_commits, 1);
    let free = volume.statfs().unwrap().free_inodes;
    for n in 1..=free as u32 {
        volume.write(path(n), b"").unwrap();
    }
    let numbers: Vec<u32> = (0..=free as u32)
        .map(|n| volume.metadata(path(n)).unwrap().ino())
        .collect();
    assert_eq!(numbers[0], 17);
    assert!(numbers.contains(&13), "{numbers:?}");
    assert!(volume.write("/more", b"").is_err());
}

/// A larger size in an existing block is durable only with the bytes that it covers. A cut leaves the old size, or the
/// new bytes, and never the bytes that were cut off before.
#[test]
fn a_larger_size_comes_after_its_bytes() {
    needs::tools!("mke2fs", "e2fsck");
    let args = ["-t", "ext4", "-O", "fast_commit", "-J", "size=8"];
    let base = mem_image("64M", &args);
    let first = open(&base);
    let file = first.create_new_file("/f").unwrap();
    file.write_all_at(&[7; 3000], 0).unwrap();
    file.sync_all().unwrap();
    file.set_len(2000).unwrap();
    first.close().unwrap();
    let device = Arc::new(RecordingDevice::new(base.snapshot()));
    let volume = options()
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    let file = OpenOptions::new().write(true).open(&volume, "/f").unwrap();
    for n in 1..=8 {
        file.write_all_at(&[9; 100], 1900 + n * 100).unwrap();
        file.sync_all().unwrap();
    }
    assert!(volume.statistics().fast_commits >= 8);
    let log = device.take_log();
    let mut replayer = log.replay(&base);
    let mut longer = 0;
    loop {
        for seed in 0..20 {
            let crashed = Arc::new(replayer.crash(&Crash::new(seed)).unwrap());
            let found = open(&crashed).read("/f").unwrap();
            assert!(found[..2000] == [7; 2000]);
            assert!(
                found[2000..].iter().all(|&byte| byte == 9),
                "{:?}",
                &found[2000..]
            );
            longer += usize::from(found.len() > 2000);
        }
        if replayer.step().unwrap().is_none() {
            break;
        }
    }
    assert!(longer > 100, "{longer}");
}
