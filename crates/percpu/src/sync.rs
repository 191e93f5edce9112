//! The primitives everything here is built of: parking_lot and std, or those of a model checker.

#[cfg(not(any(loom, shuttle)))]
mod real {
    pub(crate) use parking_lot::Mutex;
    pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
}

#[cfg(any(loom, shuttle))]
mod real {
    #[cfg(loom)]
    use loom::sync as model;
    #[cfg(not(loom))]
    use shuttle::sync as model;

    pub(crate) use model::atomic::{AtomicI64, AtomicU64, Ordering};

    /// The checker's mutex with the signature of parking_lot's.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(model::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(model::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> model::MutexGuard<'_, T> {
            // A poisoned mutex means that the model has already failed.
            self.0.lock().expect("poisoned")
        }
    }
}

pub(crate) use real::*;
