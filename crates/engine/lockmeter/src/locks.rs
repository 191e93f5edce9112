//! The locks: raw locks with meters, under the names of `std::sync`.

use crate::mutex::RawMutex;
use crate::raw::Metered;
use crate::spin::RawSpinLock;
use parking_lot::RawRwLock;

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
pub type RwLock<T, C> = lock_api::RwLock<Metered<RawRwLock, C>, T>;

/// A spin lock of class `C`, for a few instructions at a time.
///
/// ```
/// lockmeter::lock_class!(Bits = "bits");
/// let bits: lockmeter::SpinLock<_, Bits> = lockmeter::SpinLock::new(0u64);
/// *bits.lock() |= 8;
/// assert_eq!(*bits.lock(), 8);
/// ```
pub type SpinLock<T, C> = lock_api::Mutex<Metered<RawSpinLock, C>, T>;

/// The guard of a [`Mutex`](Mutex).
pub type MutexGuard<'a, T, C> = lock_api::MutexGuard<'a, Metered<RawMutex, C>, T>;
/// The guard of a reader of a [`RwLock`](RwLock).
pub type RwLockReadGuard<'a, T, C> = lock_api::RwLockReadGuard<'a, Metered<RawRwLock, C>, T>;
/// The guard of the writer of a [`RwLock`](RwLock).
pub type RwLockWriteGuard<'a, T, C> = lock_api::RwLockWriteGuard<'a, Metered<RawRwLock, C>, T>;
