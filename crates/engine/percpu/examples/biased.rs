//! Costs of reading under a reader-biased lock for one thread, compared with the locks of parking_lot, and of the first
//! write after it, which looks at all slots. `cargo run --release -p extant-percpu --example biased`

use extant_percpu::{Biased, Exclusive};
use lock_api::RwLock;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 9;
const TIMES: u32 = 1_000_000;

/// Nanoseconds of one call.
fn cost(mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..TIMES).for_each(|_| f());
    start.elapsed().as_nanos() as f64 / f64::from(TIMES)
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// Reads from two slots until the lock is biased.
fn bias<R: lock_api::RawRwLock + Sync>(lock: &RwLock<R, u64>) {
    for _ in 0..extant_percpu::slot::count() {
        std::thread::scope(|s| {
            s.spawn(|| black_box(*lock.read()));
        });
        black_box(*lock.read());
    }
}

fn main() {
    let mutex = parking_lot::Mutex::new(0u64);
    let plain = parking_lot::RwLock::new(0u64);
    let beside: RwLock<Biased<parking_lot::RawRwLock>, u64> = RwLock::new(0);
    let biased: RwLock<Biased<parking_lot::RawRwLock>, u64> = RwLock::new(0);
    let small: RwLock<Biased<Exclusive>, u64> = RwLock::new(0);
    bias(&biased);
    bias(&small);
    let mut rows: Vec<(&str, Vec<f64>)> = Vec::new();
    // The locks take turns, so that interference meets all of them.
    for _ in 0..ROUNDS {
        let round = [
            (
                "parking_lot Mutex, lock",
                cost(|| {
                    black_box(*mutex.lock());
                }),
            ),
            (
                "parking_lot RwLock, read",
                cost(|| {
                    black_box(*plain.read());
                }),
            ),
            (
                "percpu RwLock, not biased, read",
                cost(|| {
                    black_box(*beside.read());
                }),
            ),
            (
                "percpu RwLock, biased, read",
                cost(|| {
                    black_box(*biased.read());
                }),
            ),
            (
                "percpu ReadMostly, biased, read",
                cost(|| {
                    black_box(*small.read());
                }),
            ),
            ("parking_lot RwLock, write", cost(|| *plain.write() += 1)),
            (
                "percpu RwLock, not biased, write",
                cost(|| *beside.write() += 1),
            ),
        ];
        for (i, (name, ns)) in round.into_iter().enumerate() {
            match rows.get_mut(i) {
                Some(row) => row.1.push(ns),
                None => rows.push((name, vec![ns])),
            }
        }
    }
    println!("slots of this process: {}", extant_percpu::slot::count());
    for (name, rounds) in rows {
        println!("{name:<34} {:>8.1} ns", median(rounds));
    }
    let first = (0..99).map(|_| {
        bias(&biased);
        let start = Instant::now();
        *biased.write() += 1;
        start.elapsed().as_nanos() as f64
    });
    println!(
        "{:<34} {:>8.0} ns",
        "percpu RwLock, biased, write",
        median(first.collect())
    );
}
