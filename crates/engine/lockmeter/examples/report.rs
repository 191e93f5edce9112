//! A report of a small program in which two places compete for one lock: `cargo run --release -p lockmeter --example
//! report`.

use lockmeter::{Mutex, Snapshot, lock_class, span};
use std::collections::BTreeMap;

lock_class!(
    /// The table that every worker reads.
    Table = "table"
);
lock_class!(
    /// A lock that only its worker takes.
    Worker = "worker"
);

fn work(table: &Mutex<BTreeMap<u64, u64>, Table>, worker: &Mutex<u64, Worker>, turn: u64) {
    let _span = span!("work");
    *worker.lock() += 1;
    if turn.is_multiple_of(16) {
        // Holds the lock for the whole walk through the table.
        let sum: u64 = table.lock().values().sum();
        std::hint::black_box(sum);
    } else {
        *table.lock().entry(turn % 1000).or_default() += 1;
    }
}

fn main() {
    lockmeter::set_on(true);
    lockmeter::profile::set_on(true);
    let table = Mutex::new(BTreeMap::new());
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let worker = Mutex::new(0);
                (0..200_000).for_each(|turn| work(&table, &worker, turn));
            });
        }
    });
    println!("{}", Snapshot::take());
    println!("{}", lockmeter::profile::Table::take());
}
