//! The cost of a lock and its release, compared with parking_lot and std, as ratios to parking_lot's lock of the same kind:
//! `cargo bench -p lockmeter`.
//!
//! One thread takes the locks, which nobody else holds. The rows of a table alternate, and the median of all rounds counts. The
//! lock of a row guards one number, which each hold increments or reads.

use lockmeter::lock_class;
use std::hint::black_box;
use std::time::{Duration, Instant};

lock_class!(Measured = "measured");

/// Locks and releases in one measurement.
const TURNS: u32 = 100_000;
const ROUNDS: usize = 81;

/// A row: its name, whether the meter is on, and the locks and releases of one measurement.
struct Row<'a> {
    name: &'static str,
    metered: bool,
    work: Box<dyn Fn() + 'a>,
}

fn row<'a>(name: &'static str, turn: impl Fn() + 'a) -> Row<'a> {
    Row {
        name,
        metered: false,
        work: Box::new(move || (0..TURNS).for_each(|_| turn())),
    }
}

fn metered<'a>(name: &'static str, turn: impl Fn() + 'a) -> Row<'a> {
    Row {
        metered: true,
        ..row(name, turn)
    }
}

/// Measures the rows alternately, and prints them as ratios to the first.
fn table(title: &str, rows: &[Row<'_>]) {
    let mut times = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for (row, times) in rows.iter().zip(&mut times) {
            lockmeter::set_on(row.metered);
            let began = Instant::now();
            (row.work)();
            times.push(began.elapsed());
        }
    }
    lockmeter::set_on(false);
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[ROUNDS / 2].as_secs_f64() * 1e9 / f64::from(TURNS)
    };
    let medians: Vec<f64> = times.iter_mut().map(median).collect();
    println!("{title}");
    for (row, median) in rows.iter().zip(&medians) {
        let ratio = median / medians[0];
        println!("  {:<28}{median:7.2} ns{ratio:7.2}", row.name);
    }
}

fn main() {
    let (pl, std) = (parking_lot::Mutex::new(0u64), std::sync::Mutex::new(0u64));
    let ours = lockmeter::Mutex::<_, Measured>::new(0u64);
    let spin = lockmeter::SpinLock::<_, Measured>::new(0u64);
    let mutexes = [
        row("parking_lot Mutex", || *black_box(&pl).lock() += 1),
        row("std Mutex", || *black_box(&std).lock().unwrap() += 1),
        row("lockmeter Mutex, off", || *black_box(&ours).lock() += 1),
        metered("lockmeter Mutex, on", || *black_box(&ours).lock() += 1),
        row("lockmeter SpinLock, off", || *black_box(&spin).lock() += 1),
        metered("lockmeter SpinLock, on", || *black_box(&spin).lock() += 1),
    ];
    table("mutex", &mutexes);

    let (pl, std) = (parking_lot::RwLock::new(0u64), std::sync::RwLock::new(0u64));
    let ours = lockmeter::RwLock::<_, Measured>::new(0u64);
    let read = |value: &u64| {
        black_box(*value);
    };
    let readers = [
        row("parking_lot RwLock", || read(&black_box(&pl).read())),
        row("std RwLock", || read(&black_box(&std).read().unwrap())),
        row("lockmeter RwLock, off", || read(&black_box(&ours).read())),
        metered("lockmeter RwLock, on", || read(&black_box(&ours).read())),
    ];
    table("read lock", &readers);

    let writers = [
        row("parking_lot RwLock", || *black_box(&pl).write() += 1),
        row("std RwLock", || *black_box(&std).write().unwrap() += 1),
        row("lockmeter RwLock, off", || *black_box(&ours).write() += 1),
        metered("lockmeter RwLock, on", || *black_box(&ours).write() += 1),
    ];
    table("write lock", &writers);
}
