//! Locks that measure their cost.
//!
//! A drop-in [`Mutex`], [`RwLock`] and [`SpinLock`], over `lock_api`, whose locks belong to named classes. While the
//! meter is on ([`set_on`]), each acquisition is counted for its class and for its place in the source. The counts
//! contain how often and how long it had to wait, which place held the lock meanwhile, and how long the lock was held.
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
//! Each thread keeps its own counts, and a snapshot adds them up. So metering makes no line that two threads write.
//! Switched off, it costs one load and a branch.
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
mod mutex;
mod object;
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
#[cfg(not(loom))]
pub use mutex::RawMutex;
pub use mutex::{WAITING, Word};
pub use object::wanting;
#[cfg(loom)]
#[doc(hidden)]
pub use parking_lot::RawMutex;
pub use raw::{Metered, MutexGuard, RwLockReadGuard, RwLockWriteGuard};
pub use snapshot::{ClassStats, Holder, SiteStats, Snapshot, Stats};
pub use spin::RawSpinLock;
pub use switch::{Overhead, is_on, overhead, set_exact_hold, set_on};

/// A mutex of class `C`, metered; its threads wait in parking_lot's queues.
///
/// ```
/// lockmeter::lock_class!(Queue = "queue");
/// let queue: lockmeter::Mutex<_, Queue> = lockmeter::Mutex::new(vec![1]);
/// queue.lock().push(2);
/// assert_eq!(queue.into_inner(), [1, 2]);
/// ```
pub type Mutex<T, C> = lock_api::Mutex<Metered<RawMutex, C>, T>;

/// A reader-writer lock of class `C`: parking_lot's, metered.
///
/// ```
/// lockmeter::lock_class!(Map = "map");
/// let map: lockmeter::RwLock<_, Map> = lockmeter::RwLock::new(1);
/// *map.write() += 1;
/// assert_eq!(*map.read(), 2);
/// ```
pub type RwLock<T, C> = lock_api::RwLock<Metered<parking_lot::RawRwLock, C>, T>;

/// A spin lock of class `C`, for a few instructions at a time.
///
/// ```
/// lockmeter::lock_class!(Bits = "bits");
/// let bits: lockmeter::SpinLock<_, Bits> = lockmeter::SpinLock::new(0u64);
/// *bits.lock() |= 8;
/// assert_eq!(*bits.lock(), 8);
/// ```
pub type SpinLock<T, C> = lock_api::Mutex<Metered<RawSpinLock, C>, T>;

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
