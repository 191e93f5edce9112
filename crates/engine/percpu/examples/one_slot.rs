//! Costs of the per-slot structures where they can gain nothing, with one slot and one thread, compared with the plain
//! structures they replace. `cargo run --release -p extant-percpu --example one_slot`

use extant_percpu::{BoundedCounter, CommitLists, Counter, SlotId, SlotList, stamp};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Rounds are shorter than a time slice, so that most of them are not interrupted.
const ROUNDS: usize = 401;
const TIMES: u32 = 20_000;

/// Nanoseconds of one call, the median of several rounds.
fn cost(mut f: impl FnMut(u32)) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..TIMES).for_each(&mut f);
            start.elapsed().as_nanos() as f64 / f64::from(TIMES)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// Prints a row. The rounds of both alternate within one process. The third column is measured with the slots of this
/// machine.
fn row(name: &str, plain: f64, one: f64, many: f64) {
    println!("{name:<34} {plain:>8.1} {one:>8.1} {many:>8.1}");
}

fn list(list: &SlotList<u32>) -> f64 {
    cost(|n| {
        let position = list.add(n);
        black_box(list.remove(position));
    })
}

fn bounded(free: &BoundedCounter) -> f64 {
    cost(|_| {
        black_box(free.try_take(1));
        free.give(1);
    })
}

fn commits(log: &CommitLists<Vec<u64>>) -> f64 {
    let mut done = 0;
    cost(|_| {
        log.commit(|_, clock, list| list.push(stamp(clock, 0)));
        done += 1;
        if done % 1000 == 0 {
            black_box(log.switch());
        }
    })
}

fn main() {
    let slot = SlotId::new(0);
    println!("slots of this process: {}", extant_percpu::slot::count());
    println!("ns per call                           plain one slot    slots");

    // A list with a lock: an element is removed by its position.
    let plain = Mutex::new((Vec::<Option<u32>>::new(), Vec::<usize>::new()));
    let plain_list = cost(|n| {
        let place = {
            let mut guard = plain.lock().unwrap();
            let (list, free) = &mut *guard;
            match free.pop() {
                Some(place) => {
                    list[place] = Some(n);
                    place
                }
                None => {
                    list.push(Some(n));
                    list.len() - 1
                }
            }
        };
        let mut guard = plain.lock().unwrap();
        black_box(guard.0[place].take());
        guard.1.push(place);
    });
    row(
        "SlotList: add and remove",
        plain_list,
        list(&SlotList::with_slots(1)),
        list(&SlotList::new()),
    );

    let shared = AtomicU64::new(0);
    let plain_counter = cost(|_| {
        black_box(shared.fetch_add(1, Ordering::Relaxed));
    });
    let one = Counter::with_slots(1);
    let many = Counter::new();
    row(
        "Counter: add",
        plain_counter,
        cost(|_| one.add_on(slot, 1)),
        cost(|_| many.add(1)),
    );

    let left = AtomicU64::new(1 << 30);
    let plain_bounded = cost(|_| {
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        black_box(taken.is_ok());
        left.fetch_add(1, Ordering::Relaxed);
    });
    row(
        "BoundedCounter: take and give",
        plain_bounded,
        bounded(&BoundedCounter::with_slots(1, 1 << 30, 256)),
        bounded(&BoundedCounter::new(1 << 30, 256)),
    );

    let queue = Mutex::new((0u64, Vec::new()));
    let mut done = 0;
    let plain_commits = cost(|_| {
        let mut guard = queue.lock().unwrap();
        guard.0 += 1;
        let stamp = guard.0;
        guard.1.push(stamp);
        done += 1;
        if done % 1000 == 0 {
            black_box(std::mem::take(&mut guard.1));
        }
    });
    row(
        "CommitLists: commit",
        plain_commits,
        commits(&CommitLists::with_slots(1, 1)),
        commits(&CommitLists::new()),
    );
}
