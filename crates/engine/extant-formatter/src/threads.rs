//! The threads that format a batch.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

/// A batch of fewer items is not worth starting a thread for.
pub(super) const PARALLEL_ITEMS: usize = 8192;

/// Computes both results, side by side if there are many items.
pub(super) fn both<A: Send, B>(
    threads: usize,
    items: usize,
    a: impl Fn() -> A + Send + Copy,
    b: impl FnOnce() -> B,
) -> Result<(A, B)> {
    if items < PARALLEL_ITEMS || threads < 2 {
        return Ok((a(), b()));
    }
    std::thread::scope(|s| {
        let started = Builder::new().spawn_scoped(s, a);
        let b = b();
        let a = match started {
            Ok(thread) => thread.join().map_err(Error::panicked)?,
            // The system gives no thread.
            Err(_) => a(),
        };
        Ok((a, b))
    })
}

/// The threads that may work at a batch, and the number that do. Large work that can be divided checks how many threads
/// are idle.
#[derive(Debug)]
pub struct Crew {
    pub(super) threads: usize,
    pub(super) working: AtomicUsize,
}

impl Crew {
    /// Creates a crew of this many threads, one of them at work.
    pub fn of(threads: usize) -> Self {
        Self {
            threads,
            working: AtomicUsize::new(1),
        }
    }

    /// Returns the number of threads that have nothing to do at the moment.
    pub fn idle(&self) -> usize {
        self.threads
            .saturating_sub(self.working.load(Ordering::Relaxed))
    }
}
