//! A crew of threads that grows when all of them are inside a handler.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many threads wait for a request and how many there are.
///
/// A thread that takes a request and leaves nobody waiting behind starts another one, so that a handler that
/// blocks holds up nobody but its caller. The count is written to by the threads of one crew only.
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

    /// A thread is about to start: it counts as waiting at once, so that nobody starts another in its place.
    /// False: there are enough.
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

    /// A thread that waits leaves, or did not start. True: nobody waits any more. Those who took requests since it
    /// made up its mind have counted on it.
    pub(crate) fn leave(&self) -> bool {
        self.members.fetch_sub(1, Ordering::Relaxed);
        self.waiting.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// A waiting thread has taken a request. True: nobody waits any more.
    pub(crate) fn take(&self) -> bool {
        self.waiting.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Whether some thread is inside a handler.
    pub(crate) fn is_busy(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < self.members.load(Ordering::Relaxed)
    }

    /// The thread waits again. True: it may leave, because `enough` others wait already.
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
