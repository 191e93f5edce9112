//! Points inside operations at which a thread may be delayed. An operation takes a microsecond, so without delays two
//! operations rarely overlap on few CPUs. With delays a test makes threads meet at these points, with and without locks
//! held. A build without debug assertions does not have the points.

/// Delays threads at about one point in `every`; 0, the initial value, at none. True if this build has the points.
#[doc(hidden)]
pub fn jitter(every: u32) -> bool {
    #[cfg(debug_assertions)]
    debug::EVERY.store(every, std::sync::atomic::Ordering::Relaxed);
    let _ = every;
    cfg!(debug_assertions)
}

/// Delays the thread at random. Any lock may be held.
#[inline(always)]
pub(crate) fn point() {
    #[cfg(debug_assertions)]
    {
        debug::point();
        lockmeter::turns::pass();
    }
}

#[cfg(debug_assertions)]
mod debug {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use std::time::Duration;

    pub(super) static EVERY: AtomicU32 = AtomicU32::new(0);
    static THREADS: AtomicU64 = AtomicU64::new(1);

    thread_local! {
        static STATE: Cell<u64> =
            Cell::new(THREADS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    }

    #[inline]
    pub(super) fn point() {
        let every = EVERY.load(Ordering::Relaxed);
        if every != 0 {
            pause(every);
        }
    }

    #[cold]
    fn pause(every: u32) {
        // An ending thread has no state left to draw from.
        let Ok(drawn) = STATE.try_with(|state| {
            let mut x = state.get() | 1;
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            state.set(x);
            x >> 16
        }) else {
            return;
        };
        if drawn % u64::from(every) != 0 {
            return;
        }
        match drawn >> 32 & 3 {
            0 => std::thread::yield_now(),
            n => std::thread::sleep(Duration::from_micros(n * n * n)),
        }
    }
}
