//! The cost of metering.

use crate::class::{Class, LockClass};
use crate::locks::Mutex;
use crate::switch::{ON, nanos};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Cost of metering on this machine, in nanoseconds for each uncontended lock and unlock.
///
/// ```
/// let cost = lockmeter::overhead();
/// assert!(cost.plain_ns > 0.0);
/// println!("off {:.2} ns, on {:.2} ns", cost.off_ns, cost.on_ns);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Overhead {
    /// parking_lot's mutex, for comparison.
    pub plain_ns: f64,
    /// Additional cost with metering switched off.
    pub off_ns: f64,
    /// Additional cost with metering switched on.
    pub on_ns: f64,
}

enum Calibration {}

impl LockClass for Calibration {
    fn class() -> &'static Class {
        static CLASS: Class = Class::new("(calibration)");
        &CLASS
    }
}

/// Measures the cost of metering on this machine, in some milliseconds: three loops alternately, the least of several
/// rounds each. Switches the meter meanwhile, so call it when nothing is being measured.
pub fn overhead() -> Overhead {
    const TURNS: u32 = 20_000;
    let plain = parking_lot::Mutex::new(0u64);
    let metered: Mutex<u64, Calibration> = Mutex::new(0);
    fn time(mut turn: impl FnMut()) -> f64 {
        let start = Instant::now();
        (0..TURNS).for_each(|_| turn());
        nanos(start) as f64 / f64::from(TURNS)
    }
    let was = ON.load(Ordering::Relaxed);
    let mut least = [f64::INFINITY; 3];
    for _ in 0..15 {
        let rounds = [
            time(|| *std::hint::black_box(&plain).lock() += 1),
            {
                ON.store(false, Ordering::Relaxed);
                time(|| *std::hint::black_box(&metered).lock() += 1)
            },
            {
                ON.store(true, Ordering::Relaxed);
                time(|| *std::hint::black_box(&metered).lock() += 1)
            },
        ];
        for (least, round) in least.iter_mut().zip(rounds) {
            *least = least.min(round);
        }
    }
    ON.store(was, Ordering::Relaxed);
    Overhead {
        plain_ns: least[0],
        off_ns: least[1] - least[0],
        on_ns: least[2] - least[0],
    }
}
