//! Tools that all rooms use: errors, lock classes, rules that are checked at run time, hooks of the tests, small
//! helpers.

pub mod address;
pub mod chunked;
pub mod error;
pub mod failing;
pub mod grown;
pub mod in_flight;
pub mod invariants;
pub mod jitter;
pub mod locks;
pub mod parallel;
pub mod planted;
pub mod schedule;
pub mod system;
pub mod unsynced;
pub mod upward;

use ext4_format::timestamp::Timestamp;
use std::sync::OnceLock;

/// The time of all operations of this process, if it was fixed.
static FIXED: OnceLock<i64> = OnceLock::new();

/// Sets the time of all changes that this process makes, in seconds since 1970. Generations of inodes follow from it,
/// too, so that the same changes by one thread produce the same bytes. Only the first call has an effect.
pub fn fix_time(seconds: i64) {
    FIXED.get_or_init(|| seconds);
}

/// Returns the fixed time, if one was set.
pub(crate) fn fixed_time() -> Option<i64> {
    FIXED.get().copied()
}

/// Returns the time of the present operation.
pub(crate) fn now() -> Timestamp {
    if let Some(seconds) = fixed_time() {
        return Timestamp::new(seconds, 0);
    }
    let (seconds, nanoseconds) = system::now();
    Timestamp::new(seconds, nanoseconds)
}
