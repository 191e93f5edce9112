//! Promises must hold in every schedule and at every cut: each test here runs one schedule, or cuts at one place,
//! that once broke a promise.

use crate::common::list;
use crate::medium;
use blockdev::{BlockDevice, Crash, FaultDevice, MemDevice, Op, RecordingDevice};
use extant::unstable::Node;
use extant::unstable::schedule::{self, Point};
use extant::{Credentials, Error, Fallocate, OpenOptions, SetAttributes, Volume, VolumeOptions};
use medium::Medium;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// The time for which a thread that must not get further is watched.
const WATCHED: Duration = Duration::from_millis(300);
/// The time that a thread that must get further may take.
const LONG: Duration = Duration::from_secs(30);

pub(crate) fn format(device: &dyn BlockDevice, block_size: u32, inodes: u32) {
    let options = extant::mkfs::MkfsOptions {
        size: Some(device.len()),
        block_size: Some(block_size),
        zeroed_device: true,
        inodes: Some(ext4_format::layout::Inodes::Count(inodes)),
        ..Default::default()
    };
    extant::mkfs::format(device, &options).unwrap();
}

pub(crate) fn open(device: impl BlockDevice + 'static) -> Volume {
    VolumeOptions::new()
        .background(false)
        .open_device(Arc::new(device))
        .unwrap()
}

pub(crate) fn made(bytes: u64, block_size: u32) -> (Arc<Medium>, Volume) {
    made_with(bytes, block_size, 1024)
}

pub(crate) fn made_with(bytes: u64, block_size: u32, inodes: u32) -> (Arc<Medium>, Volume) {
    let medium = Medium::new(MemDevice::new(bytes));
    format(&*medium, block_size, inodes);
    let volume = VolumeOptions::new()
        .background(false)
        .open_device(Arc::clone(&medium) as Arc<dyn BlockDevice>)
        .unwrap();
    (medium, volume)
}

/// A block is overwritten during the flush of another caller's push, which began before the write. The file's last
/// change of metadata is part of that push. fsync has nothing to commit, and must not mistake that flush for its own.
#[test]
fn a_flush_that_began_before_the_write_is_not_enough_for_fsync() {
    let (medium, volume) = made(16 << 20, 4096);
    let file = volume.create_new_file("/file").unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    volume.sync().unwrap();
    let node = Node::root(&volume).unwrap();
    let node = node.lookup(&Credentials::root(), b"file").unwrap();
    let attributes = SetAttributes {
        mode: Some(0o640),
        ..Default::default()
    };
    node.set_attributes(&Credentials::root(), &attributes)
        .unwrap();
    // A push flushes before its commit block and after it.
    let (began, go) = medium.hold(1);
    std::thread::scope(|s| {
        let other = volume.clone();
        let push = s.spawn(move || other.sync());
        began.recv_timeout(LONG).unwrap();
        // Write-back of the kernel's page cache: the server must not set the times.
        node.write_cached(&[2; 4096], 0).unwrap();
        assert!(schedule::at(Point::FsyncWritten, move || go
            .send(())
            .unwrap()));
        node.fsync(true).unwrap();
        push.join().unwrap().unwrap();
    });
    let found = open(medium.after_cut()).read("/file").unwrap();
    assert!(found == [2; 4096], "old data after fsync returned");
}

/// fsync covers blocks written to a file even if the file's inode has left memory.
#[test]
fn fsync_flushes_data_of_a_file_that_has_left_memory() {
    let (medium, volume) = made(16 << 20, 4096);
    // Long enough that it goes to the device at once.
    let data = |byte| vec![byte; 1 << 20];
    volume.create_new_file("/file").unwrap();
    volume.write("/file", data(1)).unwrap();
    volume.sync().unwrap();
    let lookup = || {
        let root = Node::root(&volume).unwrap();
        root.lookup(&Credentials::root(), b"file").unwrap()
    };
    let node = lookup();
    node.write_cached(&data(2), 0).unwrap();
    drop(node);
    volume.drop_caches();
    lookup().fsync(true).unwrap();
    let found = open(medium.after_cut()).read("/file").unwrap();
    assert!(found == data(2), "old data after fsync returned");
}

/// A file that was loaded from the device may have older data without a flush, so its first fsync asks for one. Then it
/// is known to be covered until it is written to, whatever is written to other files.
#[test]
fn a_flush_is_remembered_by_the_file_that_it_covers() {
    let (medium, volume) = made(16 << 20, 4096);
    for path in ["/file", "/other"] {
        volume.write(path, vec![1; 1 << 20]).unwrap();
    }
    volume.close().unwrap();
    let volume = open(medium.after_cut());
    let node = |name: &[u8]| {
        let root = Node::root(&volume).unwrap();
        root.lookup(&Credentials::root(), name).unwrap()
    };
    let (file, other) = (node(b"file"), node(b"other"));
    file.read_at(&mut [0; 4096], 0).unwrap();
    // Long enough that it goes to the device at once.
    let write = |node: &Node| node.write_cached(&vec![2; 1 << 20], 0).unwrap();
    let flushes = |node: &Node| {
        let before = volume.statistics().flushes;
        node.fsync(true).unwrap();
        volume.statistics().flushes - before
    };
    write(&other);
    assert_eq!(flushes(&file), 1);
    write(&other);
    assert_eq!(flushes(&file), 0);
    write(&file);
    assert_eq!(flushes(&file), 1);
    assert_eq!((flushes(&file), flushes(&other)), (0, 0));
    write(&other);
    assert_eq!((flushes(&file), flushes(&other)), (0, 1));
}

/// Several callers that have only overwritten wait for one flush together.
#[test]
fn callers_of_fsync_share_a_flush() {
    let (medium, volume) = made(16 << 20, 4096);
    let files: Vec<_> = (0..8)
        .map(|n| {
            let path = format!("/{n}");
            volume.create_new_file(&path).unwrap();
            volume.write(&path, [1; 4096]).unwrap();
            volume.sync().unwrap();
            let root = Node::root(&volume).unwrap();
            root.lookup(&Credentials::root(), &path.as_bytes()[1..])
                .unwrap()
        })
        .collect();
    let before = volume.statistics().flushes;
    let (began, go) = medium.hold(0);
    let (waits, waiting) = channel();
    std::thread::scope(|s| {
        let mut callers: Vec<_> = files.iter().collect();
        let first = callers.pop().unwrap();
        first.write_cached(&[2; 4096], 0).unwrap();
        s.spawn(|| first.fsync(true).unwrap());
        began.recv_timeout(LONG).unwrap();
        // All other callers come while that flush is under way.
        for file in callers {
            let waits = waits.clone();
            s.spawn(move || {
                file.write_cached(&[2; 4096], 0).unwrap();
                schedule::at(Point::FsyncWritten, move || waits.send(()).unwrap());
                file.fsync(true).unwrap();
            });
        }
        for _ in 1..files.len() {
            waiting.recv_timeout(LONG).unwrap();
        }
        go.send(()).unwrap();
    });
    assert_eq!(volume.statistics().flushes - before, 2);
    let after = open(medium.after_cut());
    for n in 0..8 {
        assert_eq!(after.read(format!("/{n}")).unwrap(), [2; 4096]);
    }
}

/// Another thread has taken the list of dirty inodes and written nothing of it yet when `sync` is called.
#[test]
fn sync_waits_for_what_another_thread_writes_back() {
    let (medium, volume) = made(16 << 20, 4096);
    volume.write("/file", [1; 10_000]).unwrap();
    let ((taken, is_taken), (go, gone)) = (channel(), channel::<()>());
    std::thread::scope(|s| {
        let other = volume.clone();
        let slow = s.spawn(move || {
            schedule::at(Point::WriteBackTaken, move || {
                taken.send(()).unwrap();
                // Until the other sync has returned, which it must not.
                let _ = gone.recv_timeout(WATCHED);
            });
            other.sync()
        });
        is_taken.recv_timeout(LONG).unwrap();
        volume.sync().unwrap();
        let after = open(medium.after_cut());
        let found = after.read("/file");
        let _ = go.send(());
        slow.join().unwrap().unwrap();
        assert!(
            found.is_ok_and(|f| f == [1; 10_000]),
            "not there after sync returned"
        );
    });
}

/// A file is made shorter and longer again, or loses a part of a block, and before any of that is synced another
/// file's fsync makes the log durable. All written data are there after the cut, and none that were cut off.
#[test]
fn bytes_that_were_cut_off_do_not_come_back() {
    type Change = fn(&extant::File, u64) -> extant::Result<()>;
    let changes: [(&str, u64, Change); 7] = [
        ("truncate", 1, |f, bs| {
            f.set_len(100)?;
            f.set_len(bs)
        }),
        ("truncate further", 1, |f, bs| {
            f.set_len(100)?;
            f.set_len(bs / 2)?;
            f.set_len(3 * bs + 1)
        }),
        ("fallocate beyond the end", 1, |f, bs| {
            f.set_len(100)?;
            f.fallocate(Fallocate::default(), bs, 2 * bs)
        }),
        ("truncate, then fallocate", 1, |f, bs| {
            f.set_len(100)?;
            f.set_len(2 * bs + 10)?;
            f.fallocate(Fallocate::default(), 4 * bs, 2 * bs)
        }),
        ("zero range beyond the end", 1, |f, bs| {
            f.set_len(100)?;
            let how = Fallocate::ZeroRange { keep_size: false };
            f.fallocate(how, bs, bs)
        }),
        ("punch", 4, |f, bs| {
            f.fallocate(Fallocate::PunchHole, 100, 3 * bs)
        }),
        ("zero range", 4, |f, bs| {
            let how = Fallocate::ZeroRange { keep_size: true };
            f.fallocate(how, 100, 3 * bs)
        }),
    ];
    for block_size in [1024u32, 4096] {
        for (what, blocks, change) in changes {
            let bs = u64::from(block_size);
            let (medium, volume) = made(16 << 20, block_size);
            volume
                .write("/file", vec![b'A'; (blocks * bs) as usize])
                .unwrap();
            let other = volume.create_new_file("/other").unwrap();
            volume.sync().unwrap();
            let file = volume
                .open_file_with("/file", &OpenOptions::new().write(true))
                .unwrap();
            change(&file, bs).unwrap();
            other.write_all_at(b"other", 0).unwrap();
            other.sync_all().unwrap();
            let after = open(medium.now.snapshot());
            let found = after.read("/file").unwrap();
            let zeroed = 100..(100 + 3 * bs as usize).min(found.len());
            let stale = found
                .get(zeroed)
                .is_some_and(|part| part.contains(&b'A') && part.contains(&0));
            assert!(
                !stale,
                "{what} in blocks of {block_size}: old bytes are back"
            );
            if blocks == 1 && found.len() > 100 {
                assert!(
                    found[100..].iter().all(|b| *b == 0),
                    "{what} in blocks of {block_size}: {} bytes, old ones beyond 100",
                    found.len()
                );
            }
            // And when the file itself is synced, it is all there.
            file.sync_all().unwrap();
            let synced = open(medium.after_cut()).read("/file").unwrap();
            assert_eq!(synced, volume.read("/file").unwrap(), "{what}");
        }
    }
}

/// Writing a transaction fails. Before the volume has stopped, another push reaches the journal.
#[test]
fn a_push_after_one_that_failed_does_not_go_on() {
    let device = MemDevice::new(16 << 20);
    format(&device, 4096, 1024);
    let device = Arc::new(FaultDevice::new(device));
    let volume = VolumeOptions::new()
        .background(false)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    volume.create_new_file("/first").unwrap();
    volume.sync().unwrap();
    volume.create_new_file("/second").unwrap();
    let ((failed, has_failed), (go, gone)) = (channel(), channel::<()>());
    std::thread::scope(|s| {
        let other = volume.clone();
        let faulty = Arc::clone(&device);
        device.fail_all(Op::Write);
        let first = s.spawn(move || {
            schedule::at(Point::LogFailed, move || {
                faulty.heal();
                failed.send(()).unwrap();
                // Until the other push is through, which it must not be.
                let _ = gone.recv_timeout(WATCHED);
            });
            other.sync()
        });
        has_failed.recv_timeout(LONG).unwrap();
        let made = volume.create_new_file("/third").and_then(|_| volume.sync());
        let _ = go.send(());
        assert!(first.join().unwrap().is_err());
        assert!(
            made.is_err(),
            "durable behind a transaction that is not there"
        );
    });
}

/// Blocks of metadata are freed, and their group's bitmap cannot be read at that moment. If it were read only later,
/// from an image in which the blocks are free, they would be used again before the free is durable.
#[test]
fn a_bitmap_that_cannot_be_read_stops_what_frees_in_it() {
    let memory = MemDevice::new(16 << 20);
    format(&memory, 4096, 1024);
    let volume = open(memory.snapshot());
    drop(volume);
    let device = Arc::new(FaultDevice::new(memory));
    let open = || {
        VolumeOptions::new()
            .background(false)
            .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
            .unwrap()
    };
    let volume = open();
    let geometry = volume.geometry().clone();
    volume.create_new_file("/file").unwrap();
    volume
        .set_xattr("/file", "user.large", &[7; 2000], extant::SetXattr::Any)
        .unwrap();
    let bitmap = volume.groups().next().unwrap().unwrap().block_bitmap;
    volume.close().unwrap();
    let volume = open();
    volume.remove_xattr("/file", "user.large").unwrap();
    let at = bitmap.offset(geometry.block_size);
    device.fail_range(Op::Read, at..at + 1);
    // Once: the formatter itself can read it a moment later.
    let once = Arc::clone(&device);
    schedule::at(Point::BlockRead, move || once.heal());
    let synced = volume.sync();
    assert_eq!(device.injected(), 1, "the bitmap was asked for");
    assert!(matches!(synced, Err(Error::Io { .. })), "{synced:?}");
}

/// A new file finds no free inode number and waits for a push, and the volume is frozen: the thread must not hold its
/// directory meanwhile, or readers of the frozen volume wait for the thaw.
#[test]
fn names_are_found_while_a_create_waits_for_a_frozen_volume() {
    let device = MemDevice::new(16 << 20);
    format(&device, 4096, 32);
    let volume = open(device);
    let mut n = 0;
    while volume.create_new_file(format!("/{n}")).is_ok() {
        n += 1;
    }
    volume.sync().unwrap();
    let ((begun, has_begun), (go, gone)) = (channel(), channel::<()>());
    let (without, is_without) = channel();
    std::thread::scope(|s| {
        let other = volume.clone();
        let create = s.spawn(move || {
            schedule::at(Point::Begun, move || {
                begun.send(()).unwrap();
                gone.recv().unwrap();
                schedule::at(Point::NoInode, move || without.send(()).unwrap());
            });
            other.create_new_file("/new")
        });
        has_begun.recv_timeout(LONG).unwrap();
        let frozen = volume.freeze().unwrap();
        go.send(()).unwrap();
        is_without.recv_timeout(LONG).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let (told, answer) = channel();
        let reader = volume.clone();
        s.spawn(move || told.send(reader.metadata("/new").is_err()));
        let answered = answer.recv_timeout(Duration::from_secs(3));
        drop(frozen);
        assert!(matches!(create.join().unwrap(), Err(Error::NoSpace(_))));
        assert_eq!(answered, Ok(true), "a look-up waits for the thaw");
    });
}

/// Two threads pass a file to each other by renaming it, and each makes another file before it does. All operations
/// form one context, which the journal takes only in parts. Whichever parts are durable, the operations before the
/// rename that gave the file its name exist.
#[test]
fn parts_of_a_context_keep_the_order_of_threads_and_of_objects() {
    const ROUNDS: u64 = 160;
    let base = MemDevice::new(16 << 20);
    format(&base, 1024, 1024);
    let device = Arc::new(RecordingDevice::new(base.snapshot()));
    let volume = VolumeOptions::new()
        .background(false)
        .most_log_blocks(12)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    for dir in ["/0", "/1", "/a", "/b"] {
        volume.create_dir(dir).unwrap();
    }
    volume.create_new_file("/a/0").unwrap();
    volume.sync().unwrap();
    let places = ["/a", "/b"];
    std::thread::scope(|s| {
        for task in 0..2 {
            let volume = volume.clone();
            s.spawn(move || {
                for round in (task..ROUNDS).step_by(2) {
                    volume.create_new_file(format!("/{task}/{round}")).unwrap();
                    let from = format!("{}/{round}", places[round as usize % 2]);
                    let to = format!("{}/{}", places[(round as usize + 1) % 2], round + 1);
                    while let Err(e) = volume.rename(&from, &to) {
                        assert!(matches!(e, Error::NotFound), "{e}");
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    volume.sync().unwrap();
    volume.close().unwrap();
    let log = device.take_log();
    let mut replayer = log.replay(&base);
    let mut seen = std::collections::BTreeSet::new();
    loop {
        let position = replayer.position();
        let crashed = replayer.crash(&Crash::new(position as u64)).unwrap();
        for image in [replayer.image(), crashed] {
            let volume = open(image);
            let numbers = |dir: &str| -> Vec<u64> {
                let entries = list(&volume, dir).unwrap_or_default();
                let names = entries
                    .iter()
                    .map(|e| String::from_utf8_lossy(&e.name).parse());
                names.filter_map(Result::ok).collect()
            };
            let token: Vec<u64> = places.iter().flat_map(|dir| numbers(dir)).collect();
            let mut made: Vec<u64> = ["/0", "/1"].iter().flat_map(|dir| numbers(dir)).collect();
            made.sort_unstable();
            let Some(&round) = token.first() else {
                assert!(made.is_empty(), "cut {position}: the file is gone");
                continue;
            };
            assert_eq!(token.len(), 1, "cut {position}: the file has two names");
            seen.insert(round);
            let all: Vec<u64> = (0..round).collect();
            assert!(
                made.starts_with(&all) && made.len() as u64 <= round + 2,
                "cut {position}: renamed {round} times, made {made:?}"
            );
        }
        if replayer.step().unwrap().is_none() {
            break;
        }
    }
    assert!(seen.len() > 4, "it went in parts: {seen:?}");
}

/// The last block of a file may hold old bytes behind the size, as after a cut. Every way to make the file larger
/// shows zeros there: data further on, a larger size, a range that is allocated or zeroed, from inside the block or
/// behind it.
#[test]
fn what_makes_a_file_larger_shows_zeros() {
    type Grow = fn(&extant::File) -> extant::Result<()>;
    let ways: [(&str, Grow); 6] = [
        ("write", |f| f.write_all_at(&[1; 100], 8192)),
        ("truncate", |f| f.set_len(9000)),
        ("allocate", |f| {
            f.fallocate(Fallocate::default(), 6000, 3000)
        }),
        ("zero from inside the last block", |f| {
            f.fallocate(Fallocate::ZeroRange { keep_size: false }, 256, 8000)
        }),
        ("zero from behind the last block", |f| {
            f.fallocate(Fallocate::ZeroRange { keep_size: false }, 5000, 4000)
        }),
        ("zero inside the last block", |f| {
            f.fallocate(Fallocate::ZeroRange { keep_size: false }, 1000, 2000)
        }),
    ];
    for (name, grow) in ways {
        let (medium, volume) = made(16 << 20, 4096);
        let file = volume.create_new_file("/file").unwrap();
        file.write_all_at(&[1; 500], 0).unwrap();
        file.sync_all().unwrap();
        let at = file.extents().unwrap()[0].physical;
        drop(file);
        volume.close().unwrap();
        medium.write_at(at + 500, &[9; 3596]).unwrap();
        let volume = open(Arc::clone(&medium));
        let options = OpenOptions::new().read(true).write(true);
        let file = volume.open_file_with("/file", &options).unwrap();
        // The page is in memory, as it was read from the device.
        file.read_at(&mut [0; 500], 0).unwrap();
        grow(&file).unwrap();
        drop(file);
        let found = volume.read("/file").unwrap();
        assert!(found.len() > 500, "{name}");
        assert_eq!(found.iter().position(|b| *b == 9), None, "{name}");
        volume.close().unwrap();
    }
}

/// Blocks of a directory are in the log, the directory is removed, and a file takes its blocks for data: recovery must
/// not write the directory's blocks over them. The file takes all free blocks, so it has those, too.
#[test]
fn what_was_metadata_and_holds_data_is_not_replayed() {
    let (medium, volume) = made(8 << 20, 1024);
    volume.create_dir("/d").unwrap();
    volume.sync().unwrap();
    let name = |n: usize| format!("/d/{n:0>200}");
    for n in 0..100 {
        volume.symlink("target", name(n)).unwrap();
    }
    volume.sync().unwrap();
    for n in 0..100 {
        volume.remove_file(name(n)).unwrap();
    }
    volume.remove_dir("/d").unwrap();
    volume.sync().unwrap();
    let file = volume.create_new_file("/file").unwrap();
    let piece = [0xd5; 64 << 10];
    let mut size = 0;
    while let Ok(n) = file.write_at(&piece, size) {
        size += n as u64;
    }
    file.sync_all().unwrap();
    assert!(size > 4 << 20, "{size}");
    let after = open(medium.after_cut());
    assert!(after.recovery().transactions > 1, "{:?}", after.recovery());
    let found = after.read("/file").unwrap();
    assert_eq!(found.len() as u64, size);
    assert_eq!(found.iter().position(|b| *b != 0xd5), None);
    after.close().unwrap();
    drop(file);
    volume.close().unwrap();
}

/// The time of a write need not be durable when fdatasync returns, so overwritten blocks need no push. A later fsync
/// makes it durable.
#[test]
fn fdatasync_of_overwritten_blocks_only_flushes() {
    let (medium, volume) = made(16 << 20, 4096);
    let file = volume.create_new_file("/file").unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.sync_all().unwrap();
    let counts = |v: &Volume| (v.statistics().pushes, v.statistics().flushes);
    let before = counts(&volume);
    for n in 1..=3 {
        // Longer than a tick of the clock by which inodes are stamped.
        std::thread::sleep(Duration::from_millis(20));
        file.write_all_at(&[n; 4096], 4096).unwrap();
        file.sync_data().unwrap();
        assert_eq!(counts(&volume), (before.0, before.1 + u64::from(n)));
    }
    let mtime = file.metadata().unwrap().mtime();
    // A write that grows the file is pushed.
    file.write_all_at(&[9; 100], 8192).unwrap();
    file.sync_data().unwrap();
    assert_eq!(counts(&volume).0, before.0 + 1);
    file.write_all_at(&[7; 4096], 0).unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    let written = file.metadata().unwrap().mtime();
    assert!(written >= mtime);
    drop(file);
    volume.close().unwrap();
    let volume = VolumeOptions::new()
        .open_device(medium as Arc<dyn BlockDevice>)
        .unwrap();
    assert_eq!(volume.metadata("/file").unwrap().mtime(), written);
    assert_eq!(
        volume.read("/file").unwrap()[4096..8292],
        [&[3; 4096][..], &[9; 100]].concat()
    );
}
