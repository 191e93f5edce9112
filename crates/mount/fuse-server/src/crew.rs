//! A crew of threads that grows when all of them are inside a handler.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of threads that wait for a request, and the number of all threads.
///
/// A thread that takes a request and leaves no other thread waiting starts a new one, so that a handler that blocks
/// delays only its own caller. Only the threads of one crew write the count.
#[derive(Debug)]
pub(crate) struct Crew {
    waiting: AtomicUsize,
    members: AtomicUsize,
    limit: usize,
}

impl Crew {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            members: AtomicUsize::new(0),
            limit,
        }
    }

    /// Counts a thread that is about to start as waiting, so that no other thread starts another one. Returns false if
    /// there are enough threads.
    pub(crate) fn join(&self) -> bool {
        let joined = self
            .members
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |members| {
                (members < self.limit).then_some(members + 1)
            })
            .is_ok();
        if joined {
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
        joined
    }

    /// Counts a waiting thread that leaves, or did not start. Returns true if it was the last waiting thread: threads
    /// that took requests since it decided to leave have relied on it.
    pub(crate) fn leave(&self) -> bool {
        self.members.fetch_sub(1, Ordering::Relaxed);
        self.waiting.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Counts a waiting thread that has taken a request. Returns true if no thread waits any more.
    pub(crate) fn take(&self) -> bool {
        self.waiting.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Returns whether some thread is inside a handler.
    pub(crate) fn is_busy(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < self.members.load(Ordering::Relaxed)
    }

    /// Counts a thread that waits again. Returns true if the thread may leave, because `enough` others already wait.
    pub(crate) fn done(&self, enough: usize) -> bool {
        self.waiting.fetch_add(1, Ordering::Relaxed) >= enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crew_grows_only_when_nobody_waits() {
        let crew = Crew::new(3);
        assert!(crew.join() && crew.join());
        assert!(!crew.take());
        assert!(crew.take());
        assert!(crew.join());
        assert!(!crew.join(), "three are the limit");
        assert!(crew.is_busy());
        assert!(!crew.done(2));
        assert!(crew.take() || crew.take());
        crew.done(9);
        assert!(crew.leave());
        assert!(crew.join());
    }
}
