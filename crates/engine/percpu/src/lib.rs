//! Per-CPU structures for user threads.
//!
//! A kernel keeps counters, lists and caches per CPU, so that CPUs do not write to the same
//! cache lines. User threads have no per-CPU data: they can be moved at any instruction. This
//! crate gives them *slots* instead and builds on those:
//!
//! | item | is |
//! |---|---|
//! | [`slot`] | small integers that threads take at first use and return at exit |
//! | [`PerSlot`] | one padded value per slot |
//! | [`Counter`], [`BoundedCounter`] | sums without a shared line; the second is never overdrawn |
//! | [`SlotList`] | a list of objects with a lock per slot, iterated without holding the lock |
//! | [`Listed`] | a flag: the object is on a list of dirty objects, from which no change is lost |
//! | [`AtomicBitmap`] | bits that threads take and clear without a lock |
//! | [`AtomicSet`] | a large set of numbers, searched from any number without a lock |
//! | [`CommitLists`] | committed items by context; a switch to the next context stops no thread |
//! | [`prefetch`], [`prefetched`] | cache lines that are fetched during other work |
//! | `ReadMostly`, `RwLock` | locks whose readers write no common line ([`Bias`], [`VisibleReaders`]) |
//!
//! ```
//! use extant_percpu::PerSlot;
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//! let requests = PerSlot::new(|_| AtomicU64::new(0));
//! std::thread::scope(|s| {
//!     for _ in 0..3 {
//!         s.spawn(|| requests.local().fetch_add(1, Relaxed)); // no line is shared
//!     }
//! });
//! assert_eq!(requests.iter().map(|n| n.load(Relaxed)).sum::<u64>(), 3);
//! ```
//!
//! Methods that end in `_on` take the slot to use; the others use the caller's slot. The
//! algorithms are checked by loom models (`tests/loom.rs`, run by `scripts/loom.sh`) and, with more
//! threads, under random schedules by shuttle (`tests/shuttle.rs`, `scripts/shuttle.sh`).
//!
//! Values that an ended thread left in its slot stay there, and are found when the slots are summed up, gathered or
//! iterated (mechanism C7). With one slot everything here is a plain structure behind a plain lock (mechanism P4). The
//! examples `one_slot` and `biased` measure its cost.
#![deny(unsafe_code)]

mod biased;
mod bitmap;
mod commit;
mod counter;
mod list;
mod listed;
mod per_slot;
mod prefetch;
mod set;
pub mod slot;
mod sync;

#[cfg(not(any(loom, shuttle)))]
pub use biased::{
    Beneath, Biased, Exclusive, ReadGuard, ReadMostly, RwLock, RwLockReadGuard, WriteGuard,
};
pub use biased::{Bias, ReaderPlace, VisibleReaders};
#[cfg(not(any(loom, shuttle)))]
#[doc(hidden)]
pub use biased::{bias_at_once, readers_at};
pub use bitmap::AtomicBitmap;
pub use commit::{CommitLists, stamp};
pub use counter::{BoundedCounter, Counter};
pub use list::{Iter, Position, SlotList};
pub use listed::Listed;
pub use per_slot::PerSlot;
pub use prefetch::{prefetch, prefetched};
pub use set::AtomicSet;
pub use slot::SlotId;

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
