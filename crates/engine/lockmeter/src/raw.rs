//! The metered lock itself: a raw lock, and one word that names its last owner.
#![allow(unsafe_code)] // to hand on what the raw lock inside guarantees

use crate::class::LockClass;
use crate::site::{Cell, Site, with_cell};
use crate::switch::{hold_mask, is_on, nanos};
use crate::{cpu_time, hold, object};
use lock_api::{RawMutex, RawRwLock};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// A raw lock with a meter. Eight bytes over a lock of up to four.
///
/// ```
/// lockmeter::lock_class!(Any = "any");
/// type Raw = lockmeter::Metered<lockmeter::RawMutex, Any>;
/// assert_eq!(std::mem::size_of::<Raw>(), 8);
/// ```
pub struct Metered<R, C> {
    raw: R,
    /// The last exclusive holder: call site in the upper half, thread in the lower half; 0 if unknown. Only holders
    /// write it, and a relaxed read is enough to name a suspect. Readers do not write it, because all of them would
    /// write one line.
    last: AtomicU32,
    class: PhantomData<fn() -> C>,
}

impl<R, C: LockClass> Metered<R, C> {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn site(place: &'static Location<'static>) -> Site {
        Site {
            class: C::class(),
            place,
        }
    }

    /// Takes the lock by `take`, and counts if the meter is on.
    #[inline(always)]
    #[track_caller]
    fn take(&self, alone: bool, try_take: impl Fn() -> bool, take: impl FnOnce()) {
        #[cfg(debug_assertions)]
        if crate::turns::take(&try_take) {
            return;
        }
        if is_on() {
            self.acquire(Location::caller(), alone, try_take, take);
        } else {
            take();
        }
    }

    /// Tries to take the lock, and counts if the meter is on.
    #[inline(always)]
    #[track_caller]
    fn try_take(&self, alone: bool, try_take: impl FnOnce() -> bool) -> bool {
        if is_on() {
            self.try_acquire(Location::caller(), alone, try_take)
        } else {
            try_take()
        }
    }

    /// Takes the lock by `take` and counts; `try_take` has not been called. Apart from the way of a lock whose meter is
    /// off, which is short enough to be inlined then.
    #[cold]
    #[inline(never)]
    fn acquire(
        &self,
        place: &'static Location<'static>,
        alone: bool,
        try_take: impl FnOnce() -> bool,
        take: impl FnOnce(),
    ) {
        let waited = if try_take() {
            None
        } else {
            let holder = (self.last.load(Ordering::Relaxed) >> 16) as u16;
            let differs = object::differs(self.address());
            // The CPU time is read outside of the span that is measured.
            let cpu = cpu_time::of_this_thread();
            let since = Instant::now();
            take();
            let ns = nanos(since);
            let cpu = cpu_time::of_this_thread().saturating_sub(cpu);
            Some((ns, cpu, holder, differs))
        };
        with_cell(Self::site(place), |cell, thread| {
            if let Some((ns, cpu, holder, differs)) = waited {
                cell.waited(ns, cpu, holder);
                cell.met(differs);
            }
            self.taken(cell, thread, alone);
        });
    }

    #[cold]
    #[inline(never)]
    fn try_acquire(
        &self,
        place: &'static Location<'static>,
        alone: bool,
        try_take: impl FnOnce() -> bool,
    ) -> bool {
        let done = try_take();
        let differs = if done {
            None
        } else {
            object::differs(self.address())
        };
        with_cell(Self::site(place), |cell, thread| {
            if done {
                self.taken(cell, thread, alone);
            } else {
                cell.failed_tries.add(1);
                cell.met(differs);
            }
        });
        done
    }

    #[inline]
    fn taken(&self, cell: &Arc<Cell>, thread: u16, alone: bool) {
        let last = self.last.load(Ordering::Relaxed);
        let now = u32::from(cell.site) << 16 | u32::from(thread);
        if last != now {
            if last != 0 && last as u16 != thread {
                cell.hand_overs.add(1);
            }
            if alone {
                self.last.store(now, Ordering::Relaxed);
            }
        }
        if alone {
            object::note(self.address());
        }
        if cell.acquisitions.get() & hold_mask() == 0 {
            hold::begin(self.address(), cell);
        }
        cell.acquisitions.add(1);
    }
}

// SAFETY: every call takes or releases the raw lock inside, once, as its own contract asks.
unsafe impl<R: RawMutex, C: LockClass> RawMutex for Metered<R, C> {
    #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for
    const INIT: Self = Self {
        raw: R::INIT,
        last: AtomicU32::new(0),
        class: PhantomData,
    };
    type GuardMarker = R::GuardMarker;

    #[inline]
    #[track_caller]
    fn lock(&self) {
        self.take(true, || self.raw.try_lock(), || self.raw.lock());
    }

    #[inline]
    #[track_caller]
    fn try_lock(&self) -> bool {
        self.try_take(true, || self.raw.try_lock())
    }

    #[inline]
    unsafe fn unlock(&self) {
        hold::end(self.address());
        // SAFETY: by this function's own contract the caller holds the lock.
        unsafe { self.raw.unlock() }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }
}

// SAFETY: as above.
unsafe impl<R: RawRwLock, C: LockClass> RawRwLock for Metered<R, C> {
    #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for
    const INIT: Self = Self {
        raw: R::INIT,
        last: AtomicU32::new(0),
        class: PhantomData,
    };
    type GuardMarker = R::GuardMarker;

    #[inline]
    #[track_caller]
    fn lock_shared(&self) {
        let try_lock = || self.raw.try_lock_shared();
        self.take(false, try_lock, || self.raw.lock_shared());
    }

    #[inline]
    #[track_caller]
    fn try_lock_shared(&self) -> bool {
        self.try_take(false, || self.raw.try_lock_shared())
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        hold::end(self.address());
        // SAFETY: by this function's own contract the caller holds the lock shared.
        unsafe { self.raw.unlock_shared() }
    }

    #[inline]
    #[track_caller]
    fn lock_exclusive(&self) {
        let try_lock = || self.raw.try_lock_exclusive();
        self.take(true, try_lock, || self.raw.lock_exclusive());
    }

    #[inline]
    #[track_caller]
    fn try_lock_exclusive(&self) -> bool {
        self.try_take(true, || self.raw.try_lock_exclusive())
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        hold::end(self.address());
        // SAFETY: by this function's own contract the caller holds the lock exclusively.
        unsafe { self.raw.unlock_exclusive() }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.raw.is_locked_exclusive()
    }
}
