//! The primitives everything here is built of: parking_lot and std, or their loom models.

#[cfg(not(loom))]
mod real {
    pub(crate) use parking_lot::Mutex;
    pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    /// loom's mutex with the signature of parking_lot's.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            // A poisoned mutex means that the model has already failed.
            self.0.lock().expect("poisoned")
        }
    }
}

pub(crate) use real::*;
