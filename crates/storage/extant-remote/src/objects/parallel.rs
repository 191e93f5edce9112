//! Several segments that are sent at once, and that the store gets in any order or never.

use super::log::{Log, snapshot};
use super::sender::ObjectsDevice;
use super::watched::{Put, Watch, Watched};
use crate::address::Address;
use crate::requests::runtime;
use blockdev::BlockDevice;
use object_store::{Error, ObjectStore, PutResult, Result};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Holds the segments of certain numbers until they are permitted.
#[derive(Debug, Default)]
struct Held {
    numbers: Mutex<BTreeSet<u64>>,
    /// Whether held segments are denied at the end.
    denied: Mutex<bool>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl Held {
    fn permit(&self, denied: bool) {
        *self.denied.lock().unwrap() = denied;
        self.numbers.lock().unwrap().clear();
    }
}

impl Watched<Held> {
    fn segments(&self) -> BTreeSet<u64> {
        let log = self.log("");
        log.numbers("log").unwrap().into_iter().collect()
    }

    fn log(&self, fields: &str) -> Log {
        log(Arc::clone(&self.store) as _, fields)
    }
}

#[async_trait::async_trait]
impl Watch for Held {
    async fn put(&self, put: Put<'_>) -> Result<PutResult> {
        let number = put.at.filename().and_then(|name| name.parse().ok());
        let is_segment = put.at.as_ref().contains("log/");
        let now = self.at_once.fetch_add(1, SeqCst) + 1;
        self.most_at_once.fetch_max(now, SeqCst);
        loop {
            let held = number.is_some_and(|n| self.numbers.lock().unwrap().contains(&n));
            if !(held && is_segment) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            if *self.denied.lock().unwrap() {
                self.at_once.fetch_sub(1, SeqCst);
                return Err(Error::PermissionDenied {
                    path: put.at.to_string(),
                    source: "held".into(),
                });
            }
        }
        self.at_once.fetch_sub(1, SeqCst);
        put.make().await
    }
}

fn log(store: Arc<dyn ObjectStore>, fields: &str) -> Log {
    // An address of a store on the network makes its client, which reads the certificates of the system.
    let there = std::env::temp_dir();
    let text = format!("file+objects://{}?cache=1M{fields}", there.display());
    let mut address = Address::parse(&text).unwrap();
    (address.directory, address.store) = (None, store);
    Log::new(address, runtime().unwrap())
}

fn open(store: Arc<dyn ObjectStore>, fields: &str) -> ObjectsDevice {
    ObjectsDevice::open_log(log(store, fields), false).unwrap()
}

const BLOCK: u64 = 4096;

/// Writes the blocks `first..first + count` with the byte.
fn write(device: &ObjectsDevice, first: u64, count: u64, byte: u8) -> std::io::Result<()> {
    (first..first + count).try_for_each(|at| device.write_at(at * BLOCK, &[byte; BLOCK as usize]))
}

fn byte(device: &ObjectsDevice, block: u64) -> u8 {
    let mut bytes = [0; BLOCK as usize];
    device.read_at(block * BLOCK, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == bytes[0]));
    bytes[0]
}

/// Waits until the condition holds.
fn wait(condition: impl Fn() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("it does not come about");
}

/// A writer of segments of 4 blocks, with blocks 0..4 flushed in segment 2. The segments of `held` wait, and 3 to 6 are being sent.
fn sending(held: &[u64]) -> (Arc<Watched<Held>>, Arc<ObjectsDevice>) {
    let store = Arc::new(Watched::<Held>::default());
    let mut device = open(Arc::clone(&store) as _, "&size=1M");
    Arc::get_mut(&mut device.0).unwrap().batch = 4;
    write(&device, 0, 3, 1).unwrap();
    device.flush().unwrap();
    *store.numbers.lock().unwrap() = held.iter().copied().collect();
    for n in 0..4 {
        // A write does not wait for the store.
        write(&device, n * 4, 4, 10 + n as u8).unwrap();
        assert_eq!(device.0.last_number(), 3 + n);
    }
    wait(|| store.at_once.load(SeqCst) == held.len());
    let free: Vec<u64> = (3..7).filter(|n| !held.contains(n)).collect();
    wait(|| free.iter().all(|n| store.segments().contains(n)));
    (store, Arc::new(device))
}

#[test]
fn several_segments_are_sent_at_once_and_a_flush_waits_for_all() {
    let (store, device) = sending(&[3, 4, 5, 6]);
    wait(|| store.at_once.load(SeqCst) == 4);
    // A fifth waits for one of them, as does a flush.
    write(&device, 30, 3, 5).unwrap();
    let flushing = Arc::clone(&device);
    let flush = thread::spawn(move || flushing.flush());
    thread::sleep(Duration::from_millis(100));
    assert!(!flush.is_finished());
    assert_eq!(store.most_at_once.load(SeqCst), 4);
    assert_eq!([0, 4, 12, 30].map(|at| byte(&device, at)), [10, 11, 13, 5]);
    let reader = ObjectsDevice::open_log(store.log(""), true).unwrap();
    assert_eq!([0, 4, 12].map(|at| byte(&reader, at)), [1, 0, 0]);
    store.permit(false);
    flush.join().unwrap().unwrap();
    let reader = ObjectsDevice::open_log(store.log(""), true).unwrap();
    assert_eq!([0, 4, 12, 30].map(|at| byte(&reader, at)), [10, 11, 13, 5]);
}

/// A writer ends while the store has any of four segments. The image ends before the first missing segment: the next writer
/// continues from there, and a late segment of the former writer changes nothing.
#[test]
fn what_counts_is_all_up_to_the_first_missing_segment() {
    for bits in 0..16_u64 {
        let held: Vec<u64> = (0..4)
            .filter(|n| bits & 1 << n != 0)
            .map(|n| n + 3)
            .collect();
        let (store, former) = sending(&held);
        let whole = held.first().map_or(4, |first| first - 3);
        let expected = |at: u64| match at {
            at if at / 4 < whole => 10 + (at / 4) as u8,
            0..3 => 1,
            _ => 0,
        };
        let new = open(Arc::clone(&store.store) as _, "&takeover");
        let check = |device: &ObjectsDevice, kind: &str| {
            for at in 0..16 {
                assert_eq!(byte(device, at), expected(at), "{held:?} {kind} block {at}");
            }
        };
        check(&new, "writer");
        // The segments that were held arrive now.
        store.permit(false);
        wait(|| (3..7).all(|n| store.segments().contains(&n)));
        // The claim has the number of the first.
        assert_eq!(former.flush().is_err(), !held.is_empty(), "{held:?}");
        check(&new, "writer later");
        for n in 0..40 {
            write(&new, 100, 1, n).unwrap();
            new.flush().unwrap();
        }
        assert!(
            former
                .write_at(0, &[9; 4096])
                .and_then(|()| former.flush())
                .is_err()
        );
        let reader = ObjectsDevice::open_log(store.log(""), true).unwrap();
        check(&reader, "reader");
        assert_eq!(byte(&reader, 100), 39);
        // Many segments make a map, and the segments that nobody needs are deleted.
        for n in 0..80 {
            write(&new, 100, 1, n).unwrap();
            new.flush().unwrap();
        }
        let reader = ObjectsDevice::open_log(store.log(""), true).unwrap();
        check(&reader, "reader of a map");
        let segments = store.segments();
        assert!(segments.len() < 80, "{held:?}: {} segments", segments.len());
        assert!(
            !segments.iter().any(|n| held.contains(n) && *n > held[0]),
            "{held:?}: {segments:?}"
        );
    }
}

/// A write returns before its segment is sent, so the release reports the failure.
#[test]
fn a_release_reports_a_segment_that_could_not_be_sent() {
    let (store, device) = sending(&[5]);
    store.permit(true);
    wait(|| device.write_at(0, &[1; BLOCK as usize]).is_err());
    device.release().unwrap_err();
    let reader = ObjectsDevice::open_log(store.log(""), true).unwrap();
    assert_eq!([0, 4, 8].map(|at| byte(&reader, at)), [10, 11, 0]);
}

/// A segment that is missing although a flush had returned for it is damage.
#[test]
fn a_lost_segment_is_not_taken_for_one_that_was_being_sent() {
    let (store, device) = sending(&[5]);
    store.permit(true);
    assert!(device.flush().is_err());
    let log = store.log("");
    assert_eq!(log.load().unwrap().map.number, 4);
    log.delete(&log.segment(2)).unwrap();
    let error = log.load().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("segment 2 is missing"), "{error}");
}

/// Writers with several threads, each with its own blocks, end at any moment.
#[test]
fn threads_that_flush_find_what_they_flushed() {
    let store = Arc::new(Watched::<Held>::default());
    let (mut begun, mut kept) = ([0_u8; 4], [0_u8; 4]);
    for round in 0..20_u64 {
        let mut device = open(Arc::clone(&store) as _, "&size=1M&takeover");
        Arc::get_mut(&mut device.0).unwrap().batch = 3;
        *store.numbers.lock().unwrap() = BTreeSet::from([device.0.last_number() + 5 + round % 7]);
        let flushed = thread::scope(|s| {
            let device = &device;
            let threads = (0..4_u64).map(|task| {
                let from = begun[task as usize];
                let kept = kept[task as usize];
                s.spawn(move || {
                    let mut flushed = kept;
                    for n in from + 1..=from + 10 {
                        let blocks = (0..5).try_for_each(|b| write(device, task * 8 + b, 1, n));
                        if blocks.and_then(|()| device.flush()).is_err() {
                            break;
                        }
                        flushed = n;
                    }
                    flushed
                })
            });
            let threads: Vec<_> = threads.collect();
            thread::sleep(Duration::from_millis(30));
            store.permit(true);
            let ended = threads.into_iter().map(|thread| thread.join().unwrap());
            ended.collect::<Vec<_>>()
        });
        drop(device);
        let reader = ObjectsDevice::open_log(store.log(""), true).unwrap();
        for task in 0..4 {
            // The threads write the blocks of a round in this order, and the image is all writes up to some moment.
            let blocks = [0, 1, 2, 3, 4].map(|at| byte(&reader, task as u64 * 8 + at));
            assert!(
                blocks.is_sorted_by(|a, b| a >= b),
                "round {round}: {blocks:?}"
            );
            assert!(
                blocks[4] >= flushed[task],
                "round {round}: task {task}: {blocks:?}"
            );
            (begun[task], kept[task]) = (blocks[0], blocks[4]);
        }
    }
}

/// Answers a conflict to the first request for the segment 2, and makes no object.
#[derive(Debug, Default)]
struct Conflicting(AtomicUsize);

#[async_trait::async_trait]
impl Watch for Conflicting {
    async fn put(&self, put: Put<'_>) -> Result<PutResult> {
        if put.at.as_ref().ends_with("log/00000000000000000002") && self.0.fetch_add(1, SeqCst) == 0
        {
            return Err(Error::AlreadyExists {
                path: put.at.to_string(),
                source: "409".into(),
            });
        }
        put.make().await
    }
}

#[test]
fn a_segment_is_sent_again_after_a_conflict_without_an_object() {
    let store = Arc::new(Watched::<Conflicting>::default());
    let device = open(Arc::clone(&store) as _, "&size=1M");
    write(&device, 0, 1, 7).unwrap();
    device.flush().unwrap();
    assert_eq!(store.watch.0.load(SeqCst), 2);
    assert_eq!(byte(&device, 0), 7);
}

/// Makes the first snapshot, and loses the answer.
#[derive(Debug, Default)]
struct Losing(AtomicUsize);

#[async_trait::async_trait]
impl Watch for Losing {
    async fn put(&self, put: Put<'_>) -> Result<PutResult> {
        let is_snapshot = put.at.as_ref().contains("snap/");
        let made = put.make().await?;
        if is_snapshot && self.0.fetch_add(1, SeqCst) == 0 {
            return Err(Error::Generic {
                store: "a test",
                source: "the answer was cut".into(),
            });
        }
        Ok(made)
    }
}

#[test]
fn a_snapshot_whose_answer_is_lost_is_made_once() {
    let store = Arc::new(Watched::<Losing>::default());
    let device = open(Arc::clone(&store) as _, "&size=1M");
    write(&device, 0, 1, 7).unwrap();
    device.flush().unwrap();
    let log = log(Arc::clone(&store) as _, "");
    snapshot(&log, "kept").unwrap();
    assert_eq!(store.watch.0.load(SeqCst), 1);
    let taken = snapshot(&log, "kept").unwrap_err().to_string();
    assert!(taken.contains("the snapshot 'kept' exists"), "{taken}");
}
