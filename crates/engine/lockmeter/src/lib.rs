//! Locks that measure their cost.
//!
//! A drop-in [`Mutex`], [`RwLock`] and [`SpinLock`], over `lock_api`, whose locks belong to named classes. While the
//! meter is on ([`set_on`]), each acquisition is counted for its class and for its place in the source. The counts
//! contain the number and length of waits, the place that held the lock meanwhile, and the time that the lock was held.
//! A [`Snapshot`] reads all counts. Its text is laid out like the Linux lockmeter's.
//!
//! ```
//! lockmeter::lock_class!(Cache = "page cache");
//! static PAGES: lockmeter::Mutex<Vec<u8>, Cache> = lockmeter::Mutex::new(Vec::new());
//!
//! lockmeter::set_on(true);
//! PAGES.lock().push(7);
//! let seen = lockmeter::Snapshot::take();
//! let cache = seen.class("page cache").expect("it was used");
//! assert_eq!((cache.total.acquisitions, cache.total.contentions), (1, 0));
//! assert!(seen.to_string().contains("page cache"));
//! # lockmeter::set_on(false);
//! ```
//!
//! Exact and sampled counts:
//! - acquisitions, failed tries, contentions, hand-overs: exact;
//! - waits and failed tries in which the holder wanted another object ([`wanting`]): if both threads have named theirs;
//! - wait: exact, measured only after a first try has failed;
//! - hold: every 64th acquisition of a thread at a place ([`set_exact_hold`]: every one).
//!
//! Each thread keeps its own counts, and a snapshot adds them up, so that metering adds no cache line that two threads write.
//! A meter that is switched off costs one load and a branch.
//!
//! The layout of the report, and the meaning of UTIL, CON, HOLD and WAIT, follow the lockmeter of the Linux kernel as
//! it was used on linux-kernel in March 2001 (mechanism L1). The table of functions follows the profile in linux-ext4,
//! 2017 (mechanism I6).
#![deny(unsafe_code)]

// The tests over the public interface are part of the program of the unit tests: one program less to link.
#[cfg(all(test, not(loom)))]
extern crate self as lockmeter;
#[cfg(all(test, not(loom)))]
#[path = "../tests/meter.rs"]
mod it;

mod class;
mod condvar;
mod cpu_time;
#[cfg(feature = "tracing")]
mod events;
mod hold;
mod locks;
mod mutex;
mod object;
mod overhead;
pub mod profile;
mod prometheus;
mod raw;
mod report;
mod site;
mod snapshot;
mod spin;
mod switch;
mod sync;

#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod turns;

pub use class::{Class, LockClass};
pub use condvar::Condvar;
pub use locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, SpinLock};
pub use mutex::{RawMutex, WAITING, Word};
pub use object::wanting;
pub use overhead::{Overhead, overhead};
pub use raw::Metered;
pub use snapshot::{ClassStats, Holder, SiteStats, Snapshot, Stats};
pub use spin::RawSpinLock;
pub use switch::{is_on, set_exact_hold, set_on};

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
