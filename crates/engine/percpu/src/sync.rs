//! The primitives of this crate: metered locks and std, or those of a model checker.

#[cfg(not(any(loom, shuttle)))]
mod real {
    pub(crate) use lockmeter::Mutex;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence,
    };

    /// Waits a little, longer after each call.
    pub(crate) fn relax(waited: &mut u32) {
        *waited += 1;
        #[cfg(debug_assertions)]
        lockmeter::turns::pass();
        match *waited {
            0..64 => std::hint::spin_loop(),
            64..256 => std::thread::yield_now(),
            _ => std::thread::sleep(std::time::Duration::from_micros(50)),
        }
    }
}

#[cfg(any(loom, shuttle))]
mod real {
    #[cfg(loom)]
    use loom::sync as model;
    #[cfg(not(loom))]
    use shuttle::sync as model;

    #[cfg(loom)]
    pub(crate) use model::atomic::fence;
    pub(crate) use model::atomic::{
        AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering,
    };
    // Under this checker all threads see one order of all writes.
    #[cfg(not(loom))]
    pub(crate) use std::sync::atomic::fence;

    /// Lets other threads run.
    pub(crate) fn relax(_waited: &mut u32) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        shuttle::thread::yield_now();
    }

    /// The checker's mutex with the signature of the metered one.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T, C>(model::Mutex<T>, std::marker::PhantomData<C>);

    impl<T, C> Mutex<T, C> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(model::Mutex::new(value), std::marker::PhantomData)
        }

        pub(crate) fn lock(&self) -> model::MutexGuard<'_, T> {
            // A poisoned mutex means that the model has already failed.
            self.0.lock().expect("poisoned")
        }
    }
}

pub(crate) use real::*;

/// Classes of the locks here.
pub(crate) mod classes {
    use lockmeter::lock_class;

    lock_class!(
        /// A slot's committed items.
        pub(crate) Commit = "commit list of a slot"
    );
    lock_class!(
        /// The switch to the next context.
        pub(crate) Switch = "context switch"
    );
    lock_class!(
        /// Units that a bounded counter has not handed to slots.
        pub(crate) Pool = "counter pool"
    );
    lock_class!(
        /// A slot's list.
        pub(crate) List = "list of a slot"
    );
}
