//! The meter's counts, in one process. The tests take turns, because the switch belongs to the process.

use lockmeter::{Mutex, RwLock, Snapshot, SpinLock, lock_class};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex as Turn, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Switches the meter on for one test alone.
fn metering() -> MutexGuard<'static, ()> {
    static TURN: Turn<()> = Turn::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    lockmeter::set_exact_hold(false);
    lockmeter::set_on(true);
    turn
}

#[test]
fn counts_are_exact_with_many_threads_that_end() {
    lock_class!(Class = "exact");
    let _turn = metering();
    let lock: Mutex<u64, Class> = Mutex::new(0);
    for _ in 0..3 {
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
    }
    let seen = Snapshot::take();
    let class = seen.class("exact").unwrap();
    assert_eq!(class.total.acquisitions, 120_000);
    assert_eq!(lock.into_inner(), 120_000);
    assert_eq!(class.sites.len(), 1);
    let t = &class.total;
    assert!(t.hold_samples >= 120_000 / 64 && t.hold_samples < 120_000 / 32);
    assert_eq!(t.hold_log2.iter().sum::<u64>(), t.hold_samples);
    assert_eq!(t.wait_log2.iter().sum::<u64>(), t.contentions);
    assert!(class.sites[0].place.contains("meter.rs"));
}

/// Waits until a thread of this process sleeps, by its number once it is known.
fn sleeps(thread: &AtomicI32) {
    loop {
        let stat = match thread.load(Ordering::SeqCst) {
            0 => String::new(),
            number => std::fs::read_to_string(format!("/proc/self/task/{number}/stat")).unwrap(),
        };
        // The state letter follows the name, which is in parentheses.
        if stat.rsplit(") ").next().unwrap().starts_with('S') {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_wait_is_measured_and_its_cause_named() {
    lock_class!(Class = "wait");
    let _turn = metering();
    lockmeter::set_exact_hold(true);
    let lock: Mutex<(), Class> = Mutex::new(());
    let number = AtomicI32::new(0);
    std::thread::scope(|s| {
        let held_line = line!() + 1;
        let guard = lock.lock();
        let waiter = s.spawn(|| {
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            number.store(own, Ordering::SeqCst);
            drop(lock.lock());
        });
        // From here to the lock there is nothing else that the thread could sleep in.
        sleeps(&number);
        let since = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
        let held = since.elapsed();
        drop(guard);
        waiter.join().unwrap();
        let seen = Snapshot::take();
        let class = seen.class("wait").unwrap();
        let waited = class
            .sites
            .iter()
            .find(|x| x.stats.contentions == 1)
            .unwrap();
        assert!(
            u128::from(waited.stats.wait_ns) >= held.as_nanos(),
            "{waited:?}"
        );
        // It slept.
        assert!(
            waited.stats.wait_cpu_ns < waited.stats.wait_ns,
            "{waited:?}"
        );
        assert!(
            waited.holders[0]
                .place
                .contains(&format!("meter.rs:{held_line}"))
        );
        let holder = class
            .sites
            .iter()
            .find(|x| x.stats.contentions == 0)
            .unwrap();
        assert!(u128::from(holder.stats.hold_max_ns) >= held.as_nanos());
        assert_eq!(class.total.hand_overs, 1);
        assert!(seen.to_string().contains("waits for"));
    });
}

#[test]
fn readers_writers_tries_and_spinners() {
    lock_class!(Map = "rw");
    lock_class!(Spin = "spin");
    let _turn = metering();
    let map: RwLock<u32, Map> = RwLock::new(0);
    let readers = (map.read(), map.read());
    assert!(map.try_write().is_none());
    drop(readers);
    *map.write() += 1;
    assert_eq!(*map.try_read().unwrap(), 1);
    let spin: SpinLock<u64, Spin> = SpinLock::new(0);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..5_000).for_each(|_| *spin.lock() += 1));
        }
    });
    assert_eq!(*spin.lock(), 20_000);
    let seen = Snapshot::take();
    let map = &seen.class("rw").unwrap().total;
    assert_eq!((map.acquisitions, map.failed_tries), (4, 1));
    assert_eq!(seen.class("spin").unwrap().total.acquisitions, 20_001);
}

#[test]
fn off_counts_nothing_and_a_difference_only_the_new() {
    lock_class!(Class = "switch");
    let _turn = metering();
    let lock: Mutex<(), Class> = Mutex::new(());
    drop(lock.lock());
    let before = Snapshot::take();
    lockmeter::set_on(false);
    (0..100).for_each(|_| drop(lock.lock()));
    assert_eq!(Snapshot::take().since(&before).class("switch"), None);
    lockmeter::set_on(true);
    (0..7).for_each(|_| drop(lock.lock()));
    let seen = Snapshot::take().since(&before);
    assert_eq!(seen.class("switch").unwrap().total.acquisitions, 7);
    assert!(seen.metered_ns < Snapshot::take().metered_ns);
}

#[test]
fn a_report_sorts_by_cost_and_is_json() {
    lock_class!(Idle = "idle");
    lock_class!(Busy = "busy");
    let _turn = metering();
    lockmeter::set_exact_hold(true);
    let (idle, busy): (Mutex<(), Idle>, Mutex<(), Busy>) = (Mutex::new(()), Mutex::new(()));
    drop(idle.lock());
    let guard = busy.lock();
    std::thread::sleep(Duration::from_millis(5));
    drop(guard);
    let text = Snapshot::take().to_string();
    let at = |name: &str| {
        text.find(name)
            .unwrap_or_else(|| panic!("{name} in {text}"))
    };
    assert!(at("busy") < at("idle"));
    let json = serde_json::to_value(Snapshot::take()).unwrap();
    let classes = json["classes"].as_array().unwrap();
    assert!(
        classes
            .iter()
            .any(|c| c["name"] == "busy" && c["total"]["acquisitions"] == 1)
    );
}

#[test]
fn a_guard_outlives_the_switch() {
    lock_class!(Class = "outlives");
    let _turn = metering();
    lockmeter::set_exact_hold(true);
    let lock: Mutex<(), Class> = Mutex::new(());
    let guard = lock.lock();
    lockmeter::set_on(false);
    drop(guard);
    drop(lock.lock());
    lockmeter::set_on(true);
    let seen = Snapshot::take();
    assert_eq!(seen.class("outlives").unwrap().total.hold_samples, 1);
}

#[test]
fn locks_taken_while_a_thread_ends_work() {
    lock_class!(Class = "ending");
    struct AtEnd;
    static LOCK: Mutex<u32, Class> = Mutex::new(0);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            *LOCK.lock() += 1;
        }
    }
    thread_local!(static AT_END: AtEnd = const { AtEnd });
    let _turn = metering();
    for metered_before in [false, true] {
        std::thread::spawn(move || {
            AT_END.with(|_| ());
            if metered_before {
                drop(LOCK.lock());
            }
        })
        .join()
        .unwrap();
    }
    assert_eq!(*LOCK.lock(), 2);
}

#[test]
fn who_waits_for_another_object_is_counted() {
    lock_class!(Class = "objects");
    let _turn = metering();
    let lock: Mutex<(), Class> = Mutex::new(());
    let tries = |held: Option<u64>, wanted: Option<u64>| {
        let before = Snapshot::take();
        let take = || lock.lock();
        let guard = match held {
            Some(object) => lockmeter::wanting(object, take),
            None => take(),
        };
        let failed = || assert!(lock.try_lock().is_none());
        std::thread::scope(|s| {
            s.spawn(|| match wanted {
                Some(object) => lockmeter::wanting(object, failed),
                None => failed(),
            });
        });
        drop(guard);
        let seen = Snapshot::take().since(&before);
        let total = seen.class("objects").unwrap().total.clone();
        assert_eq!(total.failed_tries, 1);
        (total.objects_known, total.different_objects)
    };
    assert_eq!(tries(Some(1), Some(2)), (1, 1));
    assert_eq!(tries(Some(2), Some(2)), (1, 0));
    assert_eq!(tries(Some(0), Some(0)), (1, 0));
    assert_eq!(
        tries(None, Some(2)),
        (0, 0),
        "what the last holder wanted is forgotten"
    );
    assert_eq!(tries(Some(3), None), (0, 0));
    let text = Snapshot::take().to_string();
    let line = text.lines().find(|l| l.ends_with("  objects")).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[words.len() - 3..], ["5", "33%", "objects"], "{line}");
}

#[cfg(feature = "tracing")]
mod traced {
    use super::*;
    use std::fmt::Debug;
    use std::sync::Arc;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Keeps the fields of all events as text.
    #[derive(Clone, Default)]
    struct Events(Arc<Turn<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0 += &format!("{}={value:?} ", field.name());
        }
    }

    impl Subscriber for Events {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "lockmeter"
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn event(&self, event: &Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_call_site_that_was_used_is_an_event_with_its_counts() {
        lock_class!(Traced = "traced");
        let _turn = metering();
        let (used, unused): (Mutex<u32, Traced>, Mutex<u32, Traced>) = Default::default();
        let before = Snapshot::take();
        (0..3).for_each(|_| *used.lock() += 1);
        let seen = Snapshot::take().since(&before);
        drop(unused.lock()); // after the second snapshot
        let events = Events::default();
        tracing::subscriber::with_default(events.clone(), || seen.to_tracing());
        let lines = events.0.lock().unwrap();
        let ours: Vec<_> = lines
            .iter()
            .filter(|l| l.contains("class=traced "))
            .collect();
        assert_eq!(ours.len(), 1, "{lines:?}");
        for field in ["acquisitions=3 ", "contentions=0 ", "place=", "meter.rs:"] {
            assert!(ours[0].contains(field), "{field} in {ours:?}");
        }
    }
}
