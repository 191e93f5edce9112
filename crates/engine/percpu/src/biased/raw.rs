//! The locks of this crate for `lock_api`, and their guards.
#![allow(unsafe_code)] // the contracts of lock_api's raw locks

use super::beneath::{Beneath, Exclusive};
use super::{Bias, Ordering, PLACES, ReaderPlace, VisibleReaders, address};
use crate::slot;
use lock_api::{GuardNoSend, RawRwLock};
use lockmeter::{LockClass, Metered};
use std::cell::Cell;
use std::sync::OnceLock;

thread_local! {
    /// The biased locks that this thread reads by an address in its slot, and the places of these.
    static HELD: [Cell<(usize, ReaderPlace)>; PLACES] =
        const { [const { Cell::new((0, ReaderPlace(0))) }; PLACES] };
    /// The number of these locks: most calls of unlock look at nothing else.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// Begins a reading without the lock beneath, if that is possible.
#[inline]
fn enter(bias: &Bias) -> bool {
    if !bias.is_on(Ordering::Relaxed) {
        return false;
    }
    HELD.with(|held| {
        let count = COUNT.get();
        let Some(held) = held.get(count) else {
            return false;
        };
        let place = readers().publish(slot::current(), bias);
        if let Some(place) = place {
            held.set((address(bias), place));
            COUNT.set(count + 1);
        }
        place.is_some()
    })
}

/// Notes that the lock beneath was taken to read.
#[inline]
fn note_read<R: Beneath>(bias: &Bias) {
    let slot = slot::current();
    if !bias.was_read_by(slot) {
        readers().was_read_on(slot, bias);
    } else if R::LEFT_BY_STEP {
        readers().was_read_again(bias);
    }
}

/// Ends a reading by address. Returns false if this thread has no address of this lock.
#[inline]
fn leave(bias: &Bias) -> bool {
    let count = COUNT.get();
    count > 0 && leave_one_of(count, bias)
}

fn leave_one_of(count: usize, bias: &Bias) -> bool {
    HELD.with(|held| {
        let locks = &held[..count];
        // Nearly always the last entry.
        let is_this = |l: &Cell<(usize, _)>| l.get().0 == address(bias);
        let Some(i) = locks.iter().rposition(is_this) else {
            return false;
        };
        locks[i].swap(&locks[count - 1]);
        COUNT.set(count - 1);
        readers().leave_on(slot::current(), locks[count - 1].get().1);
        true
    })
}

static READERS: OnceLock<VisibleReaders> = OnceLock::new();

fn readers() -> &'static VisibleReaders {
    READERS.get_or_init(|| VisibleReaders::with_slots(slot::count()))
}

/// Makes one reader of another slot enough to bias a lock, for tests of locks that contention has biased. Otherwise
/// that takes half as many readers as the process has slots. Returns false if a lock of the process has readers
/// already.
#[doc(hidden)]
pub fn bias_at_once() -> bool {
    let mut readers = VisibleReaders::with_slots(slot::count());
    readers.enough = 1;
    READERS.set(readers).is_ok()
}

/// Returns the addresses of the lines in which slots note the locks that they read, for tools that look at a trace of
/// accesses.
#[doc(hidden)]
pub fn readers_at() -> std::ops::Range<usize> {
    let slots = &readers().slots;
    let at = |places: &[_; PLACES]| std::ptr::from_ref(places).addr();
    let first = slots.iter().map(at).min().unwrap_or(0);
    let last = slots.iter().map(at).max().unwrap_or(0);
    first..last + size_of::<[usize; PLACES]>()
}

/// A raw reader-writer lock that may be biased towards readers, over one that may not.
///
/// ```
/// let map: lock_api::RwLock<extant_percpu::Biased<parking_lot::RawRwLock>, u32> = lock_api::RwLock::new(1);
/// *map.write() += 1;
/// assert_eq!(*map.read(), 2);
/// ```
pub struct Biased<R> {
    beneath: R,
    bias: Bias,
}

// SAFETY: a writer that holds the lock beneath exclusively and cleared the bias is alone. Readers hold the lock by a
// share of the lock beneath, or by an address in a place of their slot, for which `revoke` waits. `tests/loom.rs` has
// the model. A release ends what the same thread acquired, because each thread keeps a list of its addresses.
unsafe impl<R: Beneath> RawRwLock for Biased<R> {
    #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for
    const INIT: Self = Self {
        beneath: R::INIT,
        bias: Bias::NEW,
    };
    // A reading ends in the thread in which it began.
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        if !enter(&self.bias) {
            self.beneath.lock_shared(&self.bias.flags);
            note_read::<R>(&self.bias);
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        if enter(&self.bias) {
            return true;
        }
        let done = self.beneath.try_lock_shared(&self.bias.flags);
        if done {
            note_read::<R>(&self.bias);
        }
        done
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        if !leave(&self.bias) {
            // SAFETY: the caller holds the lock shared, and not by an address.
            unsafe { self.beneath.unlock_shared(&self.bias.flags) }
        }
    }

    #[inline]
    fn lock_exclusive(&self) {
        self.beneath.lock_exclusive(&self.bias.flags);
        if self.bias.needs_clearing() {
            readers().revoke(&self.bias);
        }
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        if !self.beneath.try_lock_exclusive(&self.bias.flags) {
            return false;
        }
        let alone = !self.bias.needs_clearing() || readers().try_revoke(&self.bias);
        if !alone {
            // SAFETY: it was taken above.
            unsafe { self.beneath.unlock_exclusive(&self.bias.flags) }
        }
        alone
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller holds the lock exclusively, and therefore also the one beneath.
        unsafe { self.beneath.unlock_exclusive(&self.bias.flags) }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.beneath.is_locked() || readers().is_read(&self.bias)
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.beneath.is_locked_exclusive()
    }
}

/// A metered reader-writer lock of class `C` that may be biased towards readers.
///
/// ```
/// lockmeter::lock_class!(Map = "map");
/// let map: extant_percpu::RwLock<_, Map> = extant_percpu::RwLock::new(1);
/// *map.write() += 1;
/// assert_eq!(*map.read(), 2);
/// ```
pub type RwLock<T, C> = lock_api::RwLock<Metered<Biased<parking_lot::RawRwLock>, C>, T>;

/// The guard of a reader of a [`RwLock`].
pub type RwLockReadGuard<'a, T, C> =
    lock_api::RwLockReadGuard<'a, Metered<Biased<parking_lot::RawRwLock>, C>, T>;

type Inner<T, C> = lock_api::RwLock<Metered<Biased<Exclusive>, C>, T>;
/// The guard of a reader.
pub type ReadGuard<'a, T, C> = lock_api::RwLockReadGuard<'a, Metered<Biased<Exclusive>, C>, T>;
/// The guard of a writer.
pub type WriteGuard<'a, T, C> = lock_api::RwLockWriteGuard<'a, Metered<Biased<Exclusive>, C>, T>;

/// A metered mutex of class `C` that several readers may hold at once while it is biased. While it is not, it
/// is a mutex, and of a mutex's size. It is meant for values that are mostly read, or mostly used by one
/// thread.
///
/// ```
/// lockmeter::lock_class!(Names = "names");
/// let names: extant_percpu::ReadMostly<_, Names> = extant_percpu::ReadMostly::new(vec![1]);
/// names.lock().push(2);
/// assert_eq!(*names.read(), [1, 2]);
/// assert_eq!(size_of::<extant_percpu::ReadMostly<(), Names>>(), 8);
/// ```
pub struct ReadMostly<T, C: LockClass>(Inner<T, C>);

impl<T: Default, C: LockClass> Default for ReadMostly<T, C> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T, C: LockClass> ReadMostly<T, C> {
    /// Makes an unlocked lock that is not biased.
    pub const fn new(value: T) -> Self {
        Self(Inner::new(value))
    }

    /// Locks it to write.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> WriteGuard<'_, T, C> {
        self.0.write()
    }

    /// Locks it to write if nobody holds it.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<WriteGuard<'_, T, C>> {
        self.0.try_write()
    }

    /// Locks it to read. A thread that holds it must not take it again.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T, C> {
        self.0.read()
    }

    /// Locks it to read if nobody writes.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T, C>> {
        self.0.try_read()
    }

    /// Returns the value, for a caller with exclusive access to the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: std::fmt::Debug, C: LockClass> std::fmt::Debug for ReadMostly<T, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
