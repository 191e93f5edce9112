//! Counters and locks, compared with those of std, parking_lot, crossbeam and thread_local, as ratios to the first row of a
//! table: `cargo bench -p extant-percpu`.
//!
//! Each table is measured with one thread, and with a thread for each CPU. All threads do the same work on one object. The
//! rows of a table are measured in turn, and the median of all rounds counts. A time is that of one operation of one
//! thread.

use crossbeam_utils::sync::ShardedLock;
use extant_percpu::{Biased, BoundedCounter, Counter};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use thread_local::ThreadLocal;

/// Operations of a thread in one measurement.
const TURNS: u32 = 100_000;
const ROUNDS: usize = 41;

/// A row: its name, and a function that does its operation a number of times.
type Row<'a> = (&'static str, Box<dyn Fn(u32) + Sync + 'a>);

fn row<'a>(name: &'static str, operation: impl Fn() + Sync + 'a) -> Row<'a> {
    (
        name,
        Box::new(move |turns| (0..turns).for_each(|_| operation())),
    )
}

/// Returns the nanoseconds of one operation, when `threads` threads do it at once: the mean of the threads.
fn measured(work: &(dyn Fn(u32) + Sync), threads: usize) -> f64 {
    let start = Barrier::new(threads);
    let one = || {
        work(100); // takes the thread's slot
        start.wait();
        let began = Instant::now();
        work(TURNS);
        began.elapsed().as_nanos() as f64 / f64::from(TURNS)
    };
    std::thread::scope(|s| {
        let running: Vec<_> = (0..threads).map(|_| s.spawn(one)).collect();
        let times = running.into_iter().filter_map(|thread| thread.join().ok());
        times.sum::<f64>() / threads as f64
    })
}

/// Measures the rows alternately, and prints them as ratios to the first.
fn table(title: &str, rows: &[Row<'_>]) {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in [1, cpus] {
        let mut times = vec![Vec::new(); rows.len()];
        for _ in 0..ROUNDS {
            for ((_, work), times) in rows.iter().zip(&mut times) {
                times.push(measured(work, threads));
            }
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        };
        let medians: Vec<f64> = times.iter_mut().map(median).collect();
        println!("{title}, threads: {threads}");
        for ((name, _), median) in rows.iter().zip(&medians) {
            let ratio = median / medians[0];
            println!("  {name:<36}{median:8.2} ns{ratio:7.2}");
        }
    }
}

fn main() {
    let atomic = AtomicU64::new(0);
    let by_thread: ThreadLocal<AtomicU64> = ThreadLocal::new();
    let counter = Counter::new();
    table(
        "counter: add one",
        &[
            row("std AtomicU64", || {
                black_box(atomic.fetch_add(1, Relaxed));
            }),
            row("thread_local ThreadLocal<AtomicU64>", || {
                black_box(by_thread.get_or_default().fetch_add(1, Relaxed));
            }),
            row("extant-percpu Counter", || counter.add(1)),
        ],
    );

    let left = AtomicU64::new(1 << 40);
    let bounded = BoundedCounter::new(1 << 40, 256);
    table(
        "counter that is never negative: take one and give it back",
        &[
            row("std AtomicU64, compare and exchange", || {
                let taken = left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
                black_box(taken.is_ok());
                left.fetch_add(1, Relaxed);
            }),
            row("extant-percpu BoundedCounter", || {
                black_box(bounded.try_take(1));
                bounded.give(1);
            }),
        ],
    );

    let plain = parking_lot::RwLock::new(0u64);
    let std = std::sync::RwLock::new(0u64);
    let sharded = ShardedLock::new(0u64);
    let biased: lock_api::RwLock<Biased<parking_lot::RawRwLock>, u64> = lock_api::RwLock::new(0);
    table(
        "lock: read",
        &[
            row("parking_lot RwLock", || {
                black_box(*plain.read());
            }),
            row("std RwLock", || {
                black_box(std.read().map_or(0, |n| *n));
            }),
            row("crossbeam ShardedLock", || {
                black_box(sharded.read().map_or(0, |n| *n));
            }),
            row("extant-percpu Biased", || {
                black_box(*biased.read());
            }),
        ],
    );
}
