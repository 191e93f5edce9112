//! Each call that can fail, in each operation, fails: in the first run the first call, in the second run the second
//! one, until the operation makes no more of them. An operation that fails must leave the tree as it was, the counts
//! and the bitmaps in agreement, and an image that e2fsck calls clean. When it is tried again, it must succeed.

use crate::base::failing::{self, Call};
use crate::{Error, Fallocate, FileType, OpenOptions, RenameMode, SetXattr, Volume, VolumeOptions};
use blockdev::{BlockDevice, FaultDevice, MemDevice, Op};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

type Device = Arc<FaultDevice<MemDevice>>;

/// The call that fails.
#[derive(Clone, Copy, Debug)]
enum Fails {
    Call(Call),
    Device(Op),
}

const ALL: [Fails; 6] = [
    Fails::Call(Call::Count),
    Fails::Call(Call::Blocks),
    Fails::Call(Call::Number),
    Fails::Device(Op::Read),
    Fails::Device(Op::Write),
    Fails::Device(Op::Flush),
];

type Operation = (&'static str, fn(&Volume) -> crate::Result<()>);

fn open_file(v: &Volume, path: &str) -> crate::Result<crate::File> {
    v.open_file_with(path, &OpenOptions::new().read(true).write(true))
}

fn fallocate(v: &Volume, how: Fallocate, from: u64, len: u64) -> crate::Result<()> {
    open_file(v, "/data")?.fallocate(how, from, len)
}

const OPERATIONS: &[Operation] = &[
    ("create", |v| v.create_new_file("/dir/new").map(drop)),
    ("create, inheriting ACLs", |v| {
        v.create_new_file("/acls/new").map(drop)
    }),
    ("mkdir", |v| v.create_dir("/dir/new").map(drop)),
    ("mknod", |v| v.mknod("/dir/new", FileType::Fifo, 0o644, 0)),
    ("symlink, short", |v| v.symlink("target", "/dir/new")),
    ("symlink, long", |v| v.symlink("t".repeat(200), "/dir/new")),
    ("unnamed file, named", |v| {
        let file = v.create_unnamed(0o600)?;
        v.link_file(&file, "/dir/new")
    }),
    ("link", |v| v.hard_link("/data", "/dir/new")),
    ("unlink", |v| v.remove_file("/data")),
    ("rmdir", |v| v.remove_dir("/empty")),
    ("rename", |v| v.rename("/data", "/dir/new")),
    ("rename over a file", |v| v.rename("/data", "/dir/f1")),
    ("rename over a directory", |v| {
        v.rename("/dir/sub", "/empty")
    }),
    ("exchange", |v| {
        v.rename_with("/data", "/dir/sub", RenameMode::Exchange)
    }),
    ("rename, leaving a whiteout", |v| {
        v.rename_with("/data", "/dir/new", RenameMode::Whiteout)
    }),
    ("write", |v| v.write("/dir/new", [7; 20_000])),
    ("write and fsync", |v| {
        let file = open_file(v, "/data")?;
        file.write_all_at(&[8; 9_000], 100_000)?;
        file.sync_all()
    }),
    ("overwrite", |v| {
        open_file(v, "/data")?.write_all_at(&[9; 3_000], 3_000)
    }),
    ("append", |v| {
        open_file(v, "/data")?.append(&[5; 5_000]).map(drop)
    }),
    ("copy", |v| {
        let (from, to) = (open_file(v, "/data")?, open_file(v, "/dir/f1")?);
        from.copy_range_to(0, &to, 0, 30_000).map(drop)
    }),
    ("allocate", |v| {
        fallocate(v, Fallocate::Allocate { keep_size: false }, 80_000, 40_000)
    }),
    ("allocate in holes", |v| {
        open_file(v, "/holes")?.fallocate(Fallocate::Allocate { keep_size: true }, 0, 64 << 10)
    }),
    ("punch", |v| {
        fallocate(v, Fallocate::PunchHole, 5_000, 20_000)
    }),
    ("zero", |v| {
        fallocate(v, Fallocate::ZeroRange { keep_size: false }, 5_000, 90_000)
    }),
    ("collapse", |v| {
        fallocate(v, Fallocate::CollapseRange, 4_096, 8_192)
    }),
    ("insert", |v| {
        fallocate(v, Fallocate::InsertRange, 4_096, 8_192)
    }),
    ("truncate", |v| v.set_len("/data", 10_001)),
    ("extend", |v| v.set_len("/data", 100_001)),
    ("set attributes", |v| {
        v.set_xattr("/dir/f2", "user.large", &[3; 600], SetXattr::Any)
    }),
    ("remove attributes", |v| v.remove_xattr("/dir/f3", "user.x")),
];

/// Makes a closed volume with a small tree.
fn image() -> MemDevice {
    let device = Arc::new(MemDevice::new(8 << 20));
    let options = crate::mkfs::MkfsOptions {
        size: Some(8 << 20),
        zeroed_device: true,
        ..Default::default()
    };
    crate::mkfs::format(&*device, &options).unwrap();
    let v = VolumeOptions::new()
        .background(false)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    for dir in ["/dir", "/empty", "/acls", "/dir/sub"] {
        v.create_dir(dir).unwrap();
    }
    // A new file takes over entries for the owner, a named user, the group, the mask and all others.
    let acl: Vec<u8> = [
        (1u16, 7u16, !0u32),
        (2, 6, 1000),
        (4, 5, !0),
        (16, 7, !0),
        (32, 5, !0),
    ]
    .iter()
    .flat_map(|(tag, perm, id)| {
        [
            &tag.to_le_bytes()[..],
            &perm.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    })
    .collect();
    let acl = [&2u32.to_le_bytes()[..], &acl].concat();
    v.set_xattr("/acls", "system.posix_acl_default", &acl, SetXattr::Any)
        .unwrap();
    v.write(
        "/data",
        (0..80_000u32).map(|n| (n / 7) as u8).collect::<Vec<_>>(),
    )
    .unwrap();
    for n in 0..6u8 {
        v.write(format!("/dir/f{n}"), vec![n; usize::from(n) * 1_500])
            .unwrap();
    }
    v.set_xattr("/dir/f3", "user.x", &[1; 500], SetXattr::Any)
        .unwrap();
    let holes = v.create_new_file("/holes").unwrap();
    for n in 0..8 {
        holes.write_all_at(&[1; 100], n * 8192).unwrap();
    }
    drop(holes);
    v.close().unwrap();
    device.snapshot()
}

fn open(device: &Device) -> crate::Result<Volume> {
    VolumeOptions::new()
        .background(false)
        .cache_bytes(1 << 20)
        .open_device(Arc::clone(device) as Arc<dyn BlockDevice>)
}

/// Returns the names, types, links, sizes, contents and attributes.
fn tree(v: &Volume) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        for entry in v.read_dir(format!("{dir}/")).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{dir}/{}", entry.file_name().display());
            let stat = v.symlink_metadata(&path).unwrap();
            let content = match entry.file_type() {
                FileType::Directory => {
                    dirs.push(path.clone());
                    String::new()
                }
                FileType::Regular => {
                    let bytes = v.read(&path).unwrap();
                    let sum = bytes
                        .iter()
                        .fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(*b)));
                    format!("{} {sum:x}", bytes.len())
                }
                FileType::Symlink => format!("{:?}", v.read_link(&path).unwrap()),
                _ => String::new(),
            };
            let xattrs: Vec<_> = v
                .list_xattrs(&path)
                .unwrap()
                .into_iter()
                .map(|name| (v.get_xattr(&path, &name).unwrap(), name))
                .collect();
            let ftype = entry.file_type();
            found.insert(
                path,
                format!(
                    "{ftype:?} {} {} {content} {xattrs:?}",
                    stat.links, stat.mode
                ),
            );
        }
    }
    found
}

/// Returns the number of free blocks by count and by the bitmaps, and of free inode numbers, with nothing set aside and
/// nothing in flight.
fn free(v: &Volume) -> (u64, u64, u64) {
    v.sync().unwrap();
    let engine = v.guard_engine();
    engine.data.discard_aside();
    engine.commit.push_and_release().unwrap();
    let in_bitmaps = engine.space.blocks.free_in_bitmaps(&*engine.space).unwrap();
    (
        engine.space.counts.free().0,
        in_bitmaps,
        engine.space.inodes.free(),
    )
}

fn judge(device: &Device, what: &dyn Debug) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; device.len() as usize];
    device.inner().read_at(0, &mut bytes).unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let run = std::process::Command::new("e2fsck")
        .arg("-fn")
        .arg(file.path())
        .output();
    let run = run.expect("e2fsck is needed (Debian package e2fsprogs)");
    assert!(
        run.status.success(),
        "{what:?}: {}",
        String::from_utf8_lossy(&run.stdout)
    );
}

/// The effect of the operation when no call fails.
struct Expected {
    before: BTreeMap<String, String>,
    after: BTreeMap<String, String>,
    free_before: (u64, u64, u64),
    free_after: (u64, u64, u64),
}

impl Expected {
    fn of(base: &MemDevice, run: fn(&Volume) -> crate::Result<()>) -> Self {
        let v = open(&Arc::new(FaultDevice::new(base.snapshot()))).unwrap();
        let (before, free_before) = (tree(&v), free(&v));
        run(&v).unwrap();
        Self {
            before,
            after: tree(&v),
            free_before,
            free_after: free(&v),
        }
    }
}

/// Runs an operation with one call failing; false if it needed fewer calls.
fn run_failing(
    base: &MemDevice,
    operation: &Operation,
    expected: &Expected,
    fails: Fails,
    n: u64,
) -> bool {
    let (name, run) = *operation;
    let what = (name, fails, n);
    let device: Device = Arc::new(FaultDevice::new(base.snapshot()));
    let v = open(&device).unwrap();
    match fails {
        Fails::Call(call) => failing::arm(call, n),
        Fails::Device(op) => device.fail_after(op, n),
    }
    let done = run(&v);
    let fired = match fails {
        Fails::Call(_) => failing::disarm(),
        Fails::Device(_) => {
            device.heal();
            device.injected() > 0
        }
    };
    if !fired {
        assert!(done.is_ok(), "{what:?}: {done:?}");
        return false;
    }
    let stopped = v.guard_engine().store.check_running().is_err();
    let now = tree(&v);
    match &done {
        Ok(()) => assert_eq!(now, expected.after, "{what:?}"),
        // Data may be stored in part, and a volume that has stopped loses only unsynced data.
        Err(e) => {
            let parts = [
                "write",
                "copy",
                "zero",
                "append",
                "allocate",
                "overwrite",
                "punch",
            ];
            let in_part = parts.iter().any(|p| name.starts_with(p));
            assert!(in_part || now == expected.before, "{what:?}: {e}: {now:#?}");
            let expected = matches!(e, Error::NoSpace(_) | Error::Io { .. } | Error::Stopped(_));
            assert!(expected, "{what:?}: {e:?}");
        }
    }
    if stopped {
        // A failed read stops the volume if a push was about to format.
        assert!(matches!(fails, Fails::Device(_)), "{what:?}: stopped");
        let _ = v.close();
        open(&device).unwrap().close().unwrap();
        judge(&device, &what);
        return true;
    }
    let left = free(&v);
    assert_eq!(left.0, left.1, "{what:?}: count and bitmaps");
    if done.is_err() {
        if now == expected.before && !name.starts_with("allocate") {
            assert_eq!(
                left, expected.free_before,
                "{what:?}: what was taken is back"
            );
        }
        if now == expected.before {
            run(&v).unwrap_or_else(|e| panic!("{what:?}: again: {e}"));
            assert_eq!(tree(&v), expected.after, "{what:?}: again");
            assert_eq!(free(&v), expected.free_after, "{what:?}: again");
        }
    } else {
        assert_eq!(left, expected.free_after, "{what:?}");
    }
    v.close().unwrap_or_else(|e| panic!("{what:?}: {e}"));
    judge(&device, &what);
    true
}

#[test]
fn each_call_that_fails_leaves_everything_as_it_was() {
    let base = image();
    let mut failed = 0;
    let mut wrong = 0;
    for operation in OPERATIONS {
        let expected = Expected::of(&base, operation.1);
        for fails in ALL {
            for n in 0.. {
                assert!(n < 200, "{operation:?} {fails:?}");
                let run = || run_failing(&base, operation, &expected, fails, n);
                // Show every failure, not only the first.
                match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(_) => wrong += 1,
                }
                failing::disarm();
                failed += 1;
            }
        }
    }
    println!("{failed} calls failed in turn");
    assert!(failed > 200, "{failed}");
    assert_eq!(wrong, 0, "of {failed} runs");
}

/// A call removes a part of a file whose pages are newer than the device, and fails because no space is left. The older
/// contents on the device must not show: readers would find them.
#[test]
fn a_removal_that_fails_brings_back_nothing_older() {
    let removals: &[Operation] = &[
        ("punch", |v| {
            fallocate(v, Fallocate::PunchHole, 4_096, 40_960)
        }),
        ("punch, edges too", |v| {
            fallocate(v, Fallocate::PunchHole, 5_000, 40_000)
        }),
        ("zero", |v| {
            fallocate(v, Fallocate::ZeroRange { keep_size: true }, 5_000, 40_000)
        }),
        ("collapse", |v| {
            fallocate(v, Fallocate::CollapseRange, 4_096, 8_192)
        }),
        ("truncate", |v| v.set_len("/data", 10_001)),
        ("truncate to nothing", |v| v.set_len("/data", 0)),
    ];
    let base = image();
    let mut failed = 0;
    for (name, run) in removals {
        for n in 0.. {
            let device: Device = Arc::new(FaultDevice::new(base.snapshot()));
            let v = open(&device).unwrap();
            let file = open_file(&v, "/data").unwrap();
            file.write_all_at(&[0xee; 80_000], 0).unwrap();
            failing::arm_from(Call::Count, n);
            let done = run(&v);
            if !failing::disarm() {
                done.unwrap();
                break;
            }
            failed += u32::from(done.is_err());
            let check = |v: &Volume, when: &str| {
                let found = v.read("/data").unwrap();
                let older = found.iter().position(|b| ![0, 0xee].contains(b));
                assert_eq!(older, None, "{name} {n} {when}: {done:?}");
            };
            check(&v, "at once");
            file.sync_all().unwrap();
            drop(file);
            v.close().unwrap();
            check(&open(&device).unwrap(), "afterwards");
        }
    }
    assert!(failed > 3, "{failed}");
}
