//! A condition variable for metered mutexes.

use crate::class::LockClass;
use crate::locks::MutexGuard;
use std::time::Duration;

/// A condition variable for use with [`Mutex`](crate::Mutex).
///
/// ```
/// lockmeter::lock_class!(Ready = "ready");
/// let ready: lockmeter::Mutex<bool, Ready> = lockmeter::Mutex::new(false);
/// let changed = lockmeter::Condvar::new();
/// std::thread::scope(|s| {
///     s.spawn(|| {
///         *ready.lock() = true;
///         changed.notify_all();
///     });
///     let mut guard = ready.lock();
///     while !*guard {
///         changed.wait(&mut guard);
///     }
/// });
/// ```
#[derive(Debug, Default)]
pub struct Condvar {
    /// Held from before the caller's mutex is released until the wait has begun, and taken to notify, so that no
    /// notification falls in between.
    gate: parking_lot::Mutex<()>,
    changed: parking_lot::Condvar,
}

impl Condvar {
    /// Makes a condition variable without waiters.
    pub const fn new() -> Self {
        Self {
            gate: parking_lot::Mutex::new(()),
            changed: parking_lot::Condvar::new(),
        }
    }

    /// Releases the mutex until notified, and takes it again. May also wake for nothing.
    #[track_caller]
    pub fn wait<T, C: LockClass>(&self, guard: &mut MutexGuard<'_, T, C>) {
        #[cfg(debug_assertions)]
        if crate::turns::takes_part() {
            // The mutex is free for one turn; afterwards the caller takes it again and looks at its condition.
            return MutexGuard::unlocked(guard, crate::turns::pass);
        }
        let mut gate = self.gate.lock();
        MutexGuard::unlocked(guard, move || self.changed.wait(&mut gate));
    }

    /// Waits for no longer than `timeout`; true if the time is over.
    #[track_caller]
    pub fn wait_for<T, C: LockClass>(
        &self,
        guard: &mut MutexGuard<'_, T, C>,
        timeout: Duration,
    ) -> bool {
        #[cfg(debug_assertions)]
        if crate::turns::takes_part() {
            MutexGuard::unlocked(guard, crate::turns::pass);
            return false;
        }
        let mut gate = self.gate.lock();
        MutexGuard::unlocked(guard, move || {
            self.changed.wait_for(&mut gate, timeout).timed_out()
        })
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        let _gate = self.gate.lock();
        self.changed.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        let _gate = self.gate.lock();
        self.changed.notify_all();
    }
}
