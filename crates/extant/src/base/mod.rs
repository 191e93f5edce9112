//! Tools of every room: errors, lock classes, rules that are checked at run time, hooks of the tests, small helpers.

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
pub mod upward;

use ext4_format::timestamp::Timestamp;

/// The time of the present operation.
pub(crate) fn now() -> Timestamp {
    let (seconds, nanoseconds) = system::now();
    Timestamp::new(seconds, nanoseconds)
}
