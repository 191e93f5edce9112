//! The algorithms of loom.rs with more threads than loom can run, under many random schedules, by
//! `scripts/shuttle.sh`. Shuttle runs one thread at a time, so it sees every order of steps but no weak memory; loom
//! and Miri cover that. A failure prints a schedule to replay.
#![cfg(shuttle)]

use extant_percpu::{AtomicBitmap, BoundedCounter, CommitLists, SlotId, SlotList, stamp};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::{Arc, Mutex};
use shuttle::{Config, Runner, thread};
use std::collections::{BTreeMap, HashSet};

/// Checks a model with half of the schedules random, and half with few switches at random points (PCT), which finds
/// orders that need a thread to be held back for long.
fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    let iterations = std::env::var("SHUTTLE_ITERATIONS")
        .map(|n| n.parse().expect("SHUTTLE_ITERATIONS is a number"))
        .unwrap_or(20_000);
    Runner::new(RandomScheduler::new(iterations / 2), Config::default()).run(model.clone());
    Runner::new(PctScheduler::new(4, iterations / 2), Config::default()).run(model);
}

fn slot(n: usize) -> SlotId {
    SlotId::new(n as u32)
}

/// Five threads change shared objects, two at a time, and commit under their locks, while two other threads switch.
/// Nothing is lost or taken twice, no operation is split, and each object's changes are in order by context and by
/// stamp.
#[test]
fn commits_and_switches() {
    const OBJECTS: usize = 3;
    const WORKERS: usize = 5;
    const OPS: usize = 3;
    #[derive(Default, Clone, Copy)]
    struct Object {
        stamp: u64,
        version: u64,
    }
    #[derive(Clone, Copy)]
    struct Item {
        op: (usize, usize),
        context: u64,
        stamp: u64,
        object: usize,
        version: u64,
    }
    check(|| {
        let log: Arc<CommitLists<Vec<Item>>> = Arc::new(CommitLists::with_slots(4, 1));
        let objects: Arc<Vec<_>> = Arc::new(
            (0..OBJECTS)
                .map(|_| Mutex::new(Object::default()))
                .collect(),
        );
        let workers: Vec<_> = (0..WORKERS)
            .map(|t| {
                let (log, objects) = (log.clone(), objects.clone());
                thread::spawn(move || {
                    for n in 0..OPS {
                        let x = thread_rng().gen_range(0..OBJECTS);
                        let y = (x + 1) % OBJECTS;
                        let mut low = objects[x.min(y)].lock().unwrap();
                        let mut high = objects[x.max(y)].lock().unwrap();
                        let seen = low.stamp.max(high.stamp);
                        low.version += 1;
                        high.version += 1;
                        let changes = [(x.min(y), low.version), (x.max(y), high.version)];
                        let id = log.commit_on(slot(t), |context, clock, list| {
                            let stamp = stamp(clock, seen);
                            for (object, version) in changes {
                                list.push(Item {
                                    op: (t, n),
                                    context,
                                    stamp,
                                    object,
                                    version,
                                });
                                thread::yield_now();
                            }
                            stamp
                        });
                        (low.stamp, high.stamp) = (id, id);
                    }
                })
            })
            .collect();
        let switchers: Vec<_> = (0..2)
            .map(|_| {
                let log = log.clone();
                thread::spawn(move || {
                    let mut closed = vec![log.switch()];
                    let seen = log.context();
                    thread::yield_now();
                    closed.extend(log.switch_if(seen).map(|lists| (seen, lists)));
                    closed
                })
            })
            .collect();
        let mut closed = BTreeMap::new();
        let mut add = |(context, lists): (u64, Vec<Vec<Item>>)| {
            assert!(closed.insert(context, lists).is_none(), "closed twice");
        };
        switchers
            .into_iter()
            .flat_map(|s| s.join().unwrap())
            .for_each(&mut add);
        workers.into_iter().for_each(|w| w.join().unwrap());
        add(log.switch());
        add(log.switch());

        let mut versions = [0; OBJECTS];
        let mut ops = BTreeMap::new();
        for (n, (context, lists)) in closed.into_iter().enumerate() {
            assert_eq!(context, n as u64 + 1, "a context is missing");
            let mut items: Vec<Item> = lists.into_iter().flatten().collect();
            items.sort_by_key(|i| i.stamp);
            for item in items {
                assert_eq!(item.context, context, "in the wrong context");
                ops.entry(item.op).or_insert_with(Vec::new).push(context);
                versions[item.object] += 1;
                assert_eq!(versions[item.object], item.version, "out of order");
            }
        }
        assert_eq!(ops.len(), WORKERS * OPS);
        let whole = |c: &Vec<u64>| c.len() == 2 && c[0] == c[1];
        assert!(ops.values().all(whole), "an operation was split");
    });
}

/// Three threads add and remove while two iterate: what stays is met exactly once.
#[test]
fn iteration_among_adders_and_removers() {
    check(|| {
        let list = Arc::new(SlotList::with_slots(2));
        let goes: Vec<_> = (0..3).map(|i| list.add_on(slot(i), 100 + i)).collect();
        for i in 0..4 {
            list.add_on(slot(i), i);
        }
        let mut workers: Vec<_> = goes
            .into_iter()
            .enumerate()
            .map(|(t, position)| {
                let list = list.clone();
                thread::spawn(move || {
                    assert_eq!(list.remove(position), Some(100 + t));
                    // The element may be in the place that became free, or in another one.
                    list.add_on(slot(t + 1), 200 + t);
                })
            })
            .collect();
        workers.extend((0..2).map(|_| {
            let list = list.clone();
            thread::spawn(move || {
                let met: Vec<usize> = list.iter().collect();
                for stays in 0..4 {
                    assert_eq!(met.iter().filter(|&&m| m == stays).count(), 1);
                }
            })
        }));
        workers.into_iter().for_each(|w| w.join().unwrap());
        let left: HashSet<usize> = list.iter().collect();
        assert_eq!(left, [0, 1, 2, 3, 200, 201, 202].into());
        assert_eq!(list.len(), 7);
    });
}

/// Four threads take and return units, a fifth wants all units. The units are never overdrawn, and units that exist for
/// certain are never refused.
#[test]
fn units_are_never_overdrawn_or_lost() {
    check(|| {
        const TOTAL: u64 = 11;
        let units = Arc::new(BoundedCounter::with_slots(2, TOTAL, 2));
        let taken = Arc::new(Mutex::new(0));
        let mut workers: Vec<_> = (0..4)
            .map(|t| {
                let units = units.clone();
                thread::spawn(move || {
                    for n in 0..2 {
                        // Four threads hold at most two each, the fifth at most three.
                        assert!(
                            units.try_take_on(slot(t), 2),
                            "refused though there are enough"
                        );
                        units.give_on(slot(t + n), 2);
                    }
                })
            })
            .collect();
        workers.push({
            let (units, taken) = (units.clone(), taken.clone());
            thread::spawn(move || {
                assert!(!units.try_take_on(slot(1), TOTAL + 1));
                assert!(units.try_take_on(slot(0), 3));
                *taken.lock().unwrap() += 3;
            })
        });
        workers.into_iter().for_each(|w| w.join().unwrap());
        assert_eq!(units.sum() + *taken.lock().unwrap(), TOTAL);
        assert!(units.try_take_on(slot(1), TOTAL - 3), "all that is left");
        assert_eq!(units.sum(), 0);
    });
}

/// Five threads take and give bits of two words: none is held by two at a time, none is lost.
#[test]
fn bits_are_held_by_one() {
    check(|| {
        // Six bits for five threads that hold one each.
        let map = Arc::new(AtomicBitmap::new(vec![!0 << 3, !0 << 3]));
        let held = Arc::new(Mutex::new(HashSet::new()));
        let workers: Vec<_> = (0..5)
            .map(|t| {
                let (map, held) = (map.clone(), held.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let from = t % 2 * 64;
                        let bit = map.take(from, 128).or_else(|| map.take(0, 128));
                        let Some(bit) = bit else { continue };
                        assert!(held.lock().unwrap().insert(bit), "{bit} is held twice");
                        thread::yield_now();
                        assert!(held.lock().unwrap().remove(&bit));
                        assert!(map.give(bit));
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|w| w.join().unwrap());
        assert_eq!(map.free_in(0, 128), 6);
    });
}
