//! A failing device. A read error reaches its caller and harms no other. A write or flush error stops the volume, makes
//! it read-only and is recorded in the superblock. After healing the volume is whole.

use crate::common;
use blockdev::{BlockDevice, FaultDevice, MemDevice, Op};
use common::*;
use extant::{Error, OpenOptions, SetXattr, Volume, VolumeOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

type Device = Arc<FaultDevice<MemDevice>>;

fn open_faulty(device: &Device) -> extant::Result<Volume> {
    let device = Arc::clone(device) as Arc<dyn BlockDevice>;
    VolumeOptions::new().background(false).open_device(device)
}

fn faulty(base: &MemDevice) -> Device {
    Arc::new(FaultDevice::new(base.snapshot()))
}

const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-J", "size=4"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=1",
        "-O",
        "orphan_file",
    ],
    &["-t", "ext3", "-b", "1024", "-J", "size=1"],
    &["-t", "ext4", "-O", "^has_journal"],
];

/// Makes a closed volume with a small tree.
fn populated(args: &[&str]) -> Arc<MemDevice> {
    let device = mem_image("16M", args);
    let v = open(&device);
    for d in 0..3 {
        v.create_dir(format!("/d{d}")).unwrap();
        for n in 0..30usize {
            v.write(format!("/d{d}/f{n}"), vec![n as u8 + 1; 3000 * (n % 4)])
                .unwrap();
        }
    }
    v.write("/large", vec![9; 600_000]).unwrap();
    v.set_xattr("/large", "user.x", &[1; 700], SetXattr::Any)
        .unwrap();
    v.close().unwrap();
    device
}

/// Changes of every kind, and a sync.
fn work(v: &Volume) -> extant::Result<()> {
    v.write("/new", [1; 50_000])?;
    v.create_dir("/newdir")?;
    for n in 0..40 {
        v.create_new_file(format!("/newdir/a rather long name {n}"))?;
    }
    v.rename("/d0/f1", "/d1/moved")?;
    v.remove_file("/d2/f3")?;
    v.set_len("/large", 100_000)?;
    v.open_file_with("/d1/f7", &OpenOptions::new().append(true))?
        .append(&[7; 20_000])?;
    v.set_xattr("/d1/f2", "user.y", &[2; 600], SetXattr::Any)?;
    v.sync()?;
    v.remove_file("/new")?;
    v.write("/second", [3; 9_000])?;
    v.sync()
}

fn is_io(e: &Error) -> bool {
    matches!(e, Error::Io { .. })
}

/// Makes one block after the other unreadable: calls that need it get an error, all else works as before.
#[test]
fn read_errors_reach_the_caller_only() {
    needs::tools!("mke2fs", "e2fsck");
    let args = &["-t", "ext4", "-b", "1024", "-J", "size=1"];
    let base = populated(args);
    let whole = snapshot(&open(&Arc::new(base.snapshot()))).unwrap();
    let bytes = base.to_bytes().unwrap();
    let blocks: Vec<u64> = bytes
        .chunks_exact(1024)
        .enumerate()
        .filter(|(_, b)| b.iter().any(|&x| x != 0))
        .map(|(n, _)| n as u64)
        .collect();
    let step = if torture() { 1 } else { 9 };
    let mut hit = 0;
    for &block in blocks.iter().step_by(step) {
        let device = faulty(&base);
        let Ok(v) = open_faulty(&device) else {
            panic!("a healthy device opens")
        };
        v.drop_caches();
        device.fail_range(Op::Read, block * 1024..(block + 1) * 1024);
        match snapshot(&v) {
            Ok(tree) => assert!(
                tree == whole,
                "block {block}: the tree differs without an error"
            ),
            Err(e) => {
                hit += 1;
                assert!(is_io(&e), "block {block}: {e:?}");
            }
        }
        // Other calls still work, and accepted changes are kept.
        let made = v.write("/fresh", [5; 4000]);
        assert!(
            made.as_ref().is_ok() || made.as_ref().is_err_and(is_io),
            "block {block}: {made:?}"
        );
        let synced = v.sync();
        device.heal();
        if let Err(e) = &synced {
            // Formatting the change needed a block that could not be read: then the volume stops with an error.
            assert!(is_io(e), "block {block}: {e:?}");
            continue;
        }
        assert!(
            snapshot(&v).unwrap().len() >= whole.len(),
            "block {block}: all is back after healing"
        );
        v.close()
            .unwrap_or_else(|e| panic!("block {block}: close: {e}"));
        assert_clean(device.inner(), &format!("block {block} could not be read"));
    }
    assert!(hit > 3, "some blocks matter: {hit}");
}

/// If the data or the mapping of a file cannot be read, changes of other files are not held up.
#[test]
fn a_file_that_cannot_be_written_back_does_not_take_others_with_it() {
    needs::tools!("mke2fs");
    let base = populated(&["-t", "ext3", "-b", "1024", "-J", "size=1"]);
    let device = faulty(&base);
    let v = open_faulty(&device).unwrap();
    // The middle of a page that is not in memory, which must be read first.
    device.fail_all(Op::Read);
    let bad = v
        .open_file_with("/large", &OpenOptions::new().write(true))
        .and_then(|f| f.write_at(b"x", 300_123));
    assert!(bad.is_err_and(|e| is_io(&e)));
    device.heal();
    for n in 0..20 {
        v.write(format!("/ok{n}"), [n; 2000]).unwrap();
    }
    v.sync().unwrap();
    v.close().unwrap();
    let v = open(&Arc::new(device.inner().snapshot()));
    for n in 0..20 {
        assert_eq!(v.read(format!("/ok{n}")).unwrap(), [n; 2000]);
    }
}

/// After the device failed, every change fails with an error, and nothing hangs.
fn assert_stopped(v: &Volume, what: &str) {
    let refused = |r: extant::Result<()>, op: &str| match r {
        Err(Error::ReadOnly(why) | Error::Stopped(why)) => assert!(!why.is_empty()),
        other => panic!("{what}: {op} after the failure: {other:?}"),
    };
    refused(v.create_new_file("/after").map(drop), "create");
    refused(v.remove_file("/d0/f0"), "unlink");
    refused(v.create_dir("/after").map(drop), "mkdir");
    refused(v.rename("/d0/f0", "/x"), "rename");
    refused(v.set_len("/large", 5), "truncate");
    refused(
        v.set_xattr("/large", "user.q", b"1", SetXattr::Any),
        "set xattr",
    );
    refused(
        v.open_file_with("/large", &OpenOptions::new().write(true))
            .and_then(|f| f.write_at(b"x", 0).map(drop)),
        "write",
    );
    refused(v.sync(), "sync");
    refused(v.open_file("/large").and_then(|f| f.sync_all()), "fsync");
    assert!(v.read_only().is_some(), "{what}: shown as read-only");
    // Reads still work.
    v.metadata("/large")
        .unwrap_or_else(|e| panic!("{what}: stat: {e}"));
    list(v, "/d1").unwrap_or_else(|e| panic!("{what}: read_dir: {e}"));
}

/// Makes the n-th write or flush fail, for every n.
fn nth(op: Op, args: &[&str]) {
    let base = populated(args);
    let before = snapshot(&open(&Arc::new(base.snapshot()))).unwrap();
    let journaled = !args.contains(&"^has_journal");
    let step = if torture() || op == Op::Flush { 1 } else { 3 };
    let mut n = 0;
    loop {
        let what = format!("{args:?}: {op:?} {n} fails");
        let device = faulty(&base);
        let v = open_faulty(&device).unwrap();
        let opened = device.inner().snapshot();
        device.fail_after(op, n);
        let done = work(&v);
        if done.is_ok() {
            assert_eq!(device.injected(), 0, "{what}: an error was swallowed");
            assert!(n > 1, "the work writes and flushes");
            device.heal();
            v.close().unwrap();
            assert_clean(device.inner(), &what);
            return;
        }
        let error = done.unwrap_err();
        assert!(is_io(&error), "{what}: {error:?}");
        assert_stopped(&v, &what);
        device.heal();
        // A stopped volume stays stopped: a device that recovers is not written again.
        assert_stopped(&v, &what);
        let closed = v.close();
        assert!(closed.is_err(), "{what}: closing a stopped volume says so");
        drop(opened);
        recovered(&device, journaled, &before, &what);
        n += step;
    }
}

/// After healing the volume is whole: recovery, by us and by e2fsck, finds the state of some moment.
fn recovered(device: &Device, journaled: bool, before: &BTreeMap<String, Node>, what: &str) {
    if !journaled {
        // The volume opens read-only and e2fsck can mend it, or nothing was written at all. No other promise is left.
        let image = Arc::new(device.inner().snapshot());
        if open(&image).read_only().is_none() {
            assert_clean(device.inner(), what);
        }
        return;
    }
    let image = Arc::new(device.inner().snapshot());
    let found = VolumeOptions::new()
        .background(false)
        .force(true)
        .open_device(Arc::clone(&image) as Arc<dyn BlockDevice>)
        .unwrap_or_else(|e| panic!("{what}: does not open again: {e}"));
    let tree = snapshot(&found).unwrap_or_else(|e| panic!("{what}: cannot be read: {e}"));
    // All files that the work does not touch are there.
    for (path, node) in before
        .iter()
        .filter(|(p, _)| p.starts_with("/d1/f1") || p.starts_with("/d2/f2"))
    {
        assert_eq!(tree.get(path), Some(node), "{what}: {path}");
    }
    assert_eq!(
        tree.contains_key("/d0/f1"),
        !tree.contains_key("/d1/moved"),
        "{what}: rename is atomic"
    );
    found
        .write("/again", b"works")
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    found
        .close()
        .unwrap_or_else(|e| panic!("{what}: close after healing: {e}"));
    assert_clean(&image, what);
}

macro_rules! nth_fails {
    ($($name:ident: $op:expr, $kind:expr;)*) => { $(
        #[test]
        fn $name() {
            if needs::have(&["mke2fs", "e2fsck"]) {
                nth($op, KINDS[$kind]);
            }
        }
    )* };
}

nth_fails! {
    writes_fail: Op::Write, 0;
    writes_fail_small_blocks: Op::Write, 1;
    writes_fail_ext3: Op::Write, 2;
    writes_fail_no_journal: Op::Write, 3;
    flushes_fail: Op::Flush, 0;
    flushes_fail_small_blocks: Op::Flush, 1;
    flushes_fail_ext3: Op::Flush, 2;
    flushes_fail_no_journal: Op::Flush, 3;
}

/// A failing device does not damage the volume. Where the superblock can still be written, it is not marked, and the
/// next opening recovers. Without a journal, as after a power cut, the next opening asks for e2fsck.
#[test]
fn a_failed_write_is_no_damage() {
    needs::tools!("mke2fs", "e2fsck");
    for args in KINDS {
        let base = populated(args);
        let device = faulty(&base);
        let v = open_faulty(&device).unwrap();
        // All but the first blocks: the superblock can be written.
        device.fail_range(Op::Write, 16384..base.len());
        assert!(work(&v).is_err_and(|e| is_io(&e)), "{args:?}");
        assert!(v.close().is_err());
        device.heal();
        let mut bytes = [0; 1024];
        device.inner().read_at(1024, &mut bytes).unwrap();
        let sb = ext4_format::superblock::RawSuperblock::parse(&bytes).unwrap();
        assert_eq!(
            sb.state.get() & ext4_format::superblock::STATE_ERROR,
            0,
            "{args:?}: marked"
        );
        let journal = !args.contains(&"^has_journal");
        let v = open_faulty(&device).unwrap();
        // Without a journal, only if a part of a context may be home.
        let writable = v.read_only().is_none();
        assert!(writable || !journal, "{args:?}: {:?}", v.read_only());
        assert!(v.read("/d1/f5").is_ok());
        v.close().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        write_image(device.inner(), &path);
        if writable {
            assert_clean_file(&path, "recovered");
            continue;
        }
        let out = std::process::Command::new("e2fsck")
            .args(["-f", "-y"])
            .arg(&path)
            .output()
            .unwrap();
        assert!(
            out.status.code().is_some_and(|c| c <= 1),
            "{args:?}: {}",
            String::from_utf8_lossy(&out.stdout)
        );
        let v = VolumeOptions::new().open(&path).unwrap();
        assert!(v.read_only().is_none());
        v.write("/again", b"works").unwrap();
        v.close().unwrap();
        assert_clean_file(&path, "after e2fsck");
    }
}

/// The device fails while opening: any of its operations returns an error.
#[test]
fn opening_on_a_failing_device() {
    needs::tools!("mke2fs");
    for args in KINDS {
        let base = populated(args);
        for op in [Op::Read, Op::Write, Op::Flush] {
            for n in 0..200 {
                let device = faulty(&base);
                device.fail_after(op, n);
                match open_faulty(&device) {
                    Ok(v) => {
                        device.heal();
                        v.close().unwrap();
                        assert_clean(device.inner(), "opened");
                        break;
                    }
                    Err(e) => assert!(
                        is_io(&e) || matches!(e, Error::Format(_)),
                        "{args:?} {op:?} {n}: {e:?}"
                    ),
                }
            }
        }
    }
}

/// Threads that wait for a sync get its error; none hangs.
#[test]
fn waiting_threads_are_told() {
    needs::tools!("mke2fs");
    let base = populated(KINDS[0]);
    for n in 0..if torture() { 200 } else { 12 } {
        let device = faulty(&base);
        let v = open_faulty(&device).unwrap();
        std::thread::scope(|s| {
            for t in 0..6 {
                let (v, device) = (v.clone(), &device);
                s.spawn(move || {
                    for k in 0..100 {
                        if t == 0 && k == 20 {
                            device.fail_after(if n % 2 == 0 { Op::Write } else { Op::Flush }, n);
                        }
                        let made = v.create_new_file(format!("/t{t}.{k}")).and_then(|f| {
                            f.write_at(&[1; 3000], 0)?;
                            f.sync_all()
                        });
                        match made {
                            Ok(()) => {}
                            Err(Error::Io { .. } | Error::ReadOnly(_) | Error::Stopped(_)) => {
                                return;
                            }
                            Err(e) => panic!("{e:?}"),
                        }
                    }
                });
            }
        });
        if device.injected() == 0 {
            // Syncs that share a push need fewer writes, so all work may be done before the fault.
            continue;
        }
        assert!(v.read_only().is_some(), "stopped");
        assert!(v.close().is_err());
    }
}
