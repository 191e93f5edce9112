//! Races between processes that use one image. Hooks determine the order of their steps.

use super::log::{Log, snapshot};
use super::segment::CLAIMED;
use super::sender::ObjectsDevice;
use crate::address::Address;
use crate::requests::runtime;
use blockdev::BlockDevice;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn log(dir: &Path, query: &str) -> Log {
    let text = format!("file+objects://{}/store{query}", dir.display());
    Log::new(Address::parse(&text).unwrap(), runtime().unwrap())
}

/// Calls `then` after the first list of a kind.
fn after_list(log: &mut Log, kind: &'static str, then: impl FnOnce() + Send + 'static) {
    let then = Mutex::new(Some(then));
    log.listed = Some(Box::new(move |listed| {
        if listed == kind
            && let Some(then) = then.lock().unwrap().take()
        {
            then();
        }
    }));
}

/// Writes and flushes a block `rounds` times, each time with different content.
fn write(device: &ObjectsDevice, rounds: u64) {
    for round in 0..rounds {
        let block = [(round % 251) as u8; 4096];
        device.write_at(0, &block).unwrap();
        device.flush().unwrap();
    }
}

/// Number of writes after which the writer has created a map, because it creates one every 64 segments.
const ROUNDS_OF_A_MAP: u64 = 70;

#[test]
fn an_image_opens_while_its_writer_deletes_objects() {
    for kind in ["map", "log"] {
        let dir = tempfile::tempdir().unwrap();
        let writer = ObjectsDevice::open_log(log(dir.path(), "?size=1M"), false).unwrap();
        write(&writer, ROUNDS_OF_A_MAP);
        let mut reader = log(dir.path(), "");
        let done = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&done);
        after_list(&mut reader, kind, move || {
            write(&writer, ROUNDS_OF_A_MAP);
            count.fetch_add(1, Ordering::Relaxed);
        });
        let map = reader.load();
        assert_eq!(done.load(Ordering::Relaxed), 1);
        let number = map.unwrap_or_else(|e| panic!("{kind}: {e}")).map.number;
        assert!(number >= 2 * ROUNDS_OF_A_MAP, "{kind}: {number}");
    }
}

/// The writer lists the snapshots before the new one exists, and deletes segments afterwards.
#[test]
fn a_snapshot_keeps_its_segments_while_a_writer_deletes_segments() {
    let dir = tempfile::tempdir().unwrap();
    let mut log_of_writer = log(dir.path(), "?size=1M");
    let (has_listed, listed) = channel();
    let (finish, may_delete) = channel::<()>();
    after_list(&mut log_of_writer, "snap", move || {
        has_listed.send(()).unwrap();
        // A snapshot that waits for the writer would wait forever.
        may_delete.recv_timeout(Duration::from_secs(60)).unwrap();
    });
    let writer = ObjectsDevice::open_log(log_of_writer, false).unwrap();
    write(&writer, 1);
    let writing = Mutex::new(None);
    let writing = Arc::new(writing);
    let mut maker = log(dir.path(), "");
    let started = Arc::clone(&writing);
    after_list(&mut maker, "log", move || {
        let thread = std::thread::spawn(move || write(&writer, ROUNDS_OF_A_MAP));
        *started.lock().unwrap() = Some(thread);
        listed.recv().unwrap();
    });
    snapshot(&maker, "kept").unwrap();
    finish.send(()).unwrap();
    let thread = writing.lock().unwrap().take().unwrap();
    thread.join().unwrap();
    let kept = ObjectsDevice::open_log(log(dir.path(), "@kept"), true).unwrap();
    kept.read_at(0, &mut [0; 4096]).unwrap();
}

#[test]
fn a_torn_last_segment_is_removed_only_by_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let writer = ObjectsDevice::open_log(log(dir.path(), "?size=1M"), false).unwrap();
    write(&writer, 2);
    drop(writer);
    let last = dir.path().join("store/log/00000000000000000003");
    let whole = std::fs::read(&last).unwrap();
    let log = log(dir.path(), "");
    for len in [0, 20, whole.len() / 2] {
        std::fs::write(&last, &whole[..len]).unwrap();
        assert_eq!(log.load().unwrap().map.number, 2);
        assert_eq!(log.load().unwrap().torn, Some(log.segment(3)));
        assert!(last.exists());
    }
    // A claim takes its number, and the next ones.
    let writer = ObjectsDevice::open_log(self::log(dir.path(), "?takeover"), false).unwrap();
    assert_eq!(writer.0.last_number(), 2 + CLAIMED);
}

/// The second writer begins to claim the image while the first one has found a torn segment and not removed it yet. Without locks, the
/// second writer removes the segment and ends its claim.
#[test]
fn a_claim_is_not_taken_for_the_torn_segment_before_it() {
    for lacks_locks in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let writer = ObjectsDevice::open_log(log(dir.path(), "?size=1M"), false).unwrap();
        write(&writer, 2);
        drop(writer);
        let last = dir.path().join("store/log/00000000000000000003");
        std::fs::write(last, "").unwrap();
        let mut log_of_first = log(dir.path(), "?takeover");
        let mut log_of_second = log(dir.path(), "?takeover");
        log_of_first.lacks_locks = lacks_locks;
        log_of_second.lacks_locks = lacks_locks;
        let (begin, has_begun) = channel();
        let (end, has_ended) = channel();
        let second = std::thread::spawn(move || {
            has_begun.recv().unwrap();
            let second = ObjectsDevice::open_log(log_of_second, false).unwrap();
            // Under a lock, nobody waits any more.
            end.send(()).ok();
            second
        });
        // The first writer has listed the segment as empty.
        after_list(&mut log_of_first, "log", move || {
            begin.send(()).unwrap();
            let wait = Duration::from_millis(if lacks_locks { 60_000 } else { 300 });
            assert_eq!(has_ended.recv_timeout(wait).is_ok(), lacks_locks);
        });
        let first = ObjectsDevice::open_log(log_of_first, false).unwrap();
        let second = second.join().unwrap();
        let (former, latter) = if lacks_locks {
            (second, first)
        } else {
            (first, second)
        };
        let last = [former.0.last_number(), latter.0.last_number()];
        assert_eq!(last, [2 + CLAIMED, 2 + 2 * CLAIMED], "{lacks_locks}");
        write(&latter, 1);
        assert!(
            former
                .write_at(0, &[7; 4096])
                .and_then(|()| former.flush())
                .is_err()
        );
        log(dir.path(), "").load().unwrap();
    }
}

/// A process that stopped while it opened the image keeps the lock.
#[test]
fn the_wait_for_the_lock_of_a_directory_ends() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path(), "?size=1M");
    let held = log.lock(Duration::ZERO).unwrap();
    assert!(held.is_some());
    let error = log.lock(Duration::from_millis(50)).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("another process holds the lock of the directory"),
        "{said}"
    );
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(held);
    });
    assert!(log.lock(Duration::from_secs(60)).unwrap().is_some());
    release.join().unwrap();
    std::fs::remove_dir(dir.path().join("store")).unwrap();
    let error = log.lock(Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

/// A crash of the machine may leave a file with its length and without its data. If the machine has not crashed, wrong data is damage.
#[test]
fn a_last_segment_without_its_data_is_torn_after_a_crash_only() {
    for fields in ["?size=1M", "?size=1M&compress"] {
        let dir = tempfile::tempdir().unwrap();
        let writer = ObjectsDevice::open_log(log(dir.path(), fields), false).unwrap();
        write(&writer, 2);
        writer.write_at(8192, &[8; 8192]).unwrap();
        writer.flush().unwrap();
        drop(writer);
        let segment = |n: u64| dir.path().join(format!("store/log/{n:020}"));
        let (last, whole) = (segment(4), std::fs::read(segment(4)).unwrap());
        let log = log(dir.path(), "");
        let head = log.head(4, whole.len() as u64).unwrap();
        let cut = |from: usize| {
            let mut bytes = whole.clone();
            bytes[from..].fill(0);
            std::fs::write(&last, bytes).unwrap();
        };
        cut(head.len as usize);
        assert_eq!(log.load().unwrap().map.number, 4, "no crash");
        let reader = ObjectsDevice::open_log(self::log(dir.path(), ""), true).unwrap();
        assert!(reader.read_at(8192, &mut [0; 4096]).is_err());
        // The writer is one of before the start of this machine.
        let mut head = log
            .head(1, std::fs::metadata(segment(1)).unwrap().len())
            .unwrap();
        head.holder = "box before 1 1".into();
        let claim = head.encode_with(None, std::iter::empty()).unwrap();
        std::fs::write(segment(1), claim).unwrap();
        std::fs::write(&last, &whole).unwrap();
        assert_eq!(log.load().unwrap().map.number, 4, "whole");
        for from in [whole.len() - 1, whole.len() - 20] {
            cut(from);
            assert_eq!(log.load().unwrap().map.number, 3);
            assert!(last.exists());
            // A writer on another machine may be sending it.
            let refused = ObjectsDevice::open_log(self::log(dir.path(), ""), false);
            let why = refused.err().expect("the image is in use").to_string();
            assert!(why.contains("in use by"), "{why}");
            assert!(last.exists());
            assert_eq!(log.load().unwrap().torn, Some(log.segment(4)));
        }
        // Only the last file may be torn.
        std::fs::write(&last, &whole).unwrap();
        std::fs::write(segment(3), vec![0; 5000]).unwrap();
        assert!(log.load().is_err());
    }
}

/// The former writer deletes the segment whose number the claim then takes, below a map that has no claim of this writer.
#[test]
fn a_claim_is_not_hidden_by_the_map_of_a_former_writer() {
    let dir = tempfile::tempdir().unwrap();
    let former = ObjectsDevice::open_log(log(dir.path(), "?size=1M"), false).unwrap();
    former.write_at(5 * 4096, &[5; 4096]).unwrap();
    former.flush().unwrap();
    let mut log_of_writer = log(dir.path(), "?takeover");
    after_list(&mut log_of_writer, "log", move || {
        write(&former, 2 * ROUNDS_OF_A_MAP);
    });
    let writer = ObjectsDevice::open_log(log_of_writer, false).unwrap();
    writer.write_at(8192, &[9; 4096]).unwrap();
    writer.flush().unwrap();
    let reader = ObjectsDevice::open_log(log(dir.path(), ""), true).unwrap();
    let last = ((2 * ROUNDS_OF_A_MAP - 1) % 251) as u8;
    for (block, expected) in [(0, last), (2, 9), (5, 5)] {
        let mut bytes = [0; 4096];
        reader.read_at(block * 4096, &mut bytes).unwrap();
        assert_eq!(bytes, [expected; 4096], "block {block}");
    }
}

#[test]
fn segments_of_two_histories_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store/log");
    let copy = dir.path().join("copy");
    let segments = || {
        let names = std::fs::read_dir(&store).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names
    };
    let open = || ObjectsDevice::open_log(log(dir.path(), "?size=1M&takeover"), false).unwrap();
    write(&open(), 3);
    // Two writers continue from this state.
    write(&open(), 3);
    std::fs::create_dir(&copy).unwrap();
    for segment in segments().split_off(4) {
        std::fs::rename(&segment, copy.join(segment.file_name().unwrap())).unwrap();
    }
    write(&open(), 3);
    write(&open(), 1);
    // The last claim follows a writer of the other history, as does the last segment.
    for from in [5, 7] {
        for segment in &segments()[4..from] {
            let other = copy.join(segment.file_name().unwrap());
            if other.exists() {
                std::fs::copy(other, segment).unwrap();
            }
        }
        let error = log(dir.path(), "").load().map(|_| ()).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("another history") || said.contains("does not have the image"),
            "{said}"
        );
    }
}

/// A segment of a later version is not taken for one whose writing was interrupted.
#[test]
fn an_unknown_last_segment_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let writer = ObjectsDevice::open_log(log(dir.path(), "?size=1M"), false).unwrap();
    write(&writer, 2);
    drop(writer);
    let last = dir.path().join("store/log/00000000000000000003");
    let mut bytes = std::fs::read(&last).unwrap();
    bytes[6] = b'9';
    std::fs::write(&last, &bytes).unwrap();
    let error = log(dir.path(), "").load().map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("of this version"), "{error}");
    assert!(last.exists());
}
