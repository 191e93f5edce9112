//! The atomics of the mutex: std's, or those of a model checker.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Keeps a load behind a store before it, together with the barrier of another thread.
#[inline(always)]
pub(crate) fn light_barrier() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
    #[cfg(miri)]
    std::sync::atomic::fence(Ordering::SeqCst);
    #[cfg(not(any(loom, miri)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}
