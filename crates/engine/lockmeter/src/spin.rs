//! A spin lock for critical sections of a few instructions.
#![allow(unsafe_code)] // to say that it excludes, which is what RawMutex asks of it

use std::sync::atomic::{AtomicBool, Ordering};

/// Spins for longer and longer times, then yields: a user thread may be preempted while it holds the lock.
///
/// ```
/// use lock_api::RawMutex;
/// let lock = lockmeter::RawSpinLock::INIT;
/// assert!(lock.try_lock() && !lock.try_lock());
/// ```
#[derive(Debug)]
pub struct RawSpinLock(AtomicBool);

// SAFETY: only the thread that turns the flag from false to true holds the lock; acquire and release order the
// accesses of successive holders.
unsafe impl lock_api::RawMutex for RawSpinLock {
    #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        let mut turns = 0u32;
        while !self.try_lock() {
            // The loop only reads, so the line stays shared until the lock is free.
            while self.0.load(Ordering::Relaxed) {
                if turns < 7 {
                    (0..1 << turns).for_each(|_| std::hint::spin_loop());
                    turns += 1;
                } else {
                    std::thread::yield_now();
                }
            }
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
