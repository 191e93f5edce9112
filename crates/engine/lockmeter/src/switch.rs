//! The switch of the meter, and the cost of metering.

use crate::class::LockClass;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

static ON: AtomicBool = AtomicBool::new(false);
/// Hold is measured when the count of acquisitions and this mask have no common bit.
static HOLD_MASK: AtomicU64 = AtomicU64::new(SAMPLED);
const SAMPLED: u64 = 63;

/// Time when the meter was switched on last, and the nanoseconds that it was on before that.
static CLOCK: Mutex<(Option<Instant>, u64)> = Mutex::new((None, 0));

/// Switches metering on or off for all locks of the process. The counts stay.
pub fn set_on(on: bool) {
    let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    if on == ON.swap(on, Ordering::Relaxed) {
        return;
    }
    match (on, clock.0) {
        (true, _) => clock.0 = Some(Instant::now()),
        (false, Some(since)) => *clock = (None, clock.1 + nanos(since)),
        (false, None) => {}
    }
}

/// Returns whether metering is on.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Measures how long locks are held at every acquisition, not at every 64th.
pub fn set_exact_hold(exact: bool) {
    let mask = if exact { 0 } else { SAMPLED };
    HOLD_MASK.store(mask, Ordering::Relaxed);
}

pub(crate) fn hold_mask() -> u64 {
    HOLD_MASK.load(Ordering::Relaxed)
}

/// Nanoseconds for which the meter has been on.
pub(crate) fn metered_ns() -> u64 {
    let clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    clock.1 + clock.0.map_or(0, nanos)
}

pub(crate) fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

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
    fn class() -> &'static crate::Class {
        static CLASS: crate::Class = crate::Class::new("(calibration)");
        &CLASS
    }
}

/// Measures the cost of metering on this machine, in some milliseconds: three loops alternately, the least of several
/// rounds each. Switches the meter meanwhile, so call it when nothing is being measured.
pub fn overhead() -> Overhead {
    const TURNS: u32 = 20_000;
    let plain = parking_lot::Mutex::new(0u64);
    let metered: crate::Mutex<u64, Calibration> = crate::Mutex::new(0);
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
