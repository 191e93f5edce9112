//! The switch of the meter.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

pub(crate) static ON: AtomicBool = AtomicBool::new(false);
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
