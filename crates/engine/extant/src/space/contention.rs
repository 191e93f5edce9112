//! Count of how often the volume's groups are contended (mechanism B3). The count rises when a group's lock was busy,
//! and falls when the lock was free at once. Past a threshold the volume is *busy*. All slots share the count. Without
//! contention it is 0 and only read, so that no cache line moves between cores.

use crate::base::locks::{Mutex, MutexGuard};
use crossbeam_utils::CachePadded;
use lockmeter::LockClass;
use percpu::Counter;
use std::sync::atomic::{AtomicU32, Ordering};

/// A count above this means that groups are busy.
const THRESHOLD: u32 = 4;
/// Upper limit of the count, so that it falls soon.
const MOST: u32 = 2 * THRESHOLD;

/// The contention count of one volume.
#[derive(Debug, Default)]
pub struct Contention(CachePadded<AtomicU32>);

impl Contention {
    /// Counts an attempt to take a lock, which was busy or not.
    pub fn note(&self, busy: bool) {
        let now = self.0.load(Ordering::Relaxed);
        // Threads that write at the same time may lose a step, because the count is an estimate.
        if busy && now < MOST {
            self.0.store(now + 1, Ordering::Relaxed);
        } else if !busy && now > 0 {
            self.0.store(now - 1, Ordering::Relaxed);
        }
    }

    /// Waits for a group's lock, and counts whether the lock was busy.
    pub fn lock<'a, T, C: LockClass>(&self, group: &'a Mutex<T, C>) -> MutexGuard<'a, T, C> {
        let free = group.try_lock();
        self.note(free.is_none());
        free.unwrap_or_else(|| group.lock())
    }

    /// Returns whether groups were found busy more often than not.
    pub fn is_busy(&self) -> bool {
        self.0.load(Ordering::Relaxed) > THRESHOLD
    }
}

/// The work of searches for blocks since a volume was opened: counts that only grow.
///
/// ```
/// # let volume = extant::doc_volume();
/// let before = volume.statistics().search;
/// volume.write("/file", b"data")?;
/// volume.sync()?;
/// assert!(volume.statistics().search.considered > before.considered);
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchCounts {
    /// Groups that were considered.
    pub considered: u64,
    /// Groups that were passed over because their lock was busy, and groups for whose busy lock a search waited.
    pub busy: u64,
    /// Groups that were locked and had no run that would do.
    pub failed: u64,
    /// Runs that were found, by the step of the search in the order of [`SEARCH_STEPS`](Self::SEARCH_STEPS).
    pub found: [u64; 6],
}

impl SearchCounts {
    /// Steps of a search: the goal itself, then the five criteria (mechanism B4).
    pub const SEARCH_STEPS: [&'static str; 6] = [
        "goal",
        "power of two",
        "goal length, fast",
        "best available length",
        "goal length, slow",
        "any free",
    ];
}

/// Counters of the searches of one volume.
#[derive(Default)]
pub struct Searches {
    considered: Counter,
    busy: Counter,
    failed: Counter,
    found: [Counter; 6],
}

impl Searches {
    /// Counts a group that was considered.
    pub fn considered(&self) {
        self.considered.add(1);
    }

    /// Counts a group whose lock was busy.
    pub fn busy(&self) {
        self.busy.add(1);
    }

    /// Counts a group that was locked and where nothing was found.
    pub fn failed(&self) {
        self.failed.add(1);
    }

    /// Counts a run that a step of [`SearchCounts::SEARCH_STEPS`] found.
    pub fn found(&self, step: usize) {
        if let Some(counter) = self.found.get(step) {
            counter.add(1);
        }
    }

    /// Returns the sums of all slots.
    pub fn read(&self) -> SearchCounts {
        let sum = |counter: &Counter| u64::try_from(counter.sum()).unwrap_or(0);
        SearchCounts {
            considered: sum(&self.considered),
            busy: sum(&self.busy),
            failed: sum(&self.failed),
            found: self.found.each_ref().map(sum),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_past_the_threshold_and_calm_again() {
        let c = Contention::default();
        (0..THRESHOLD).for_each(|_| c.note(true));
        assert!(!c.is_busy());
        (0..100).for_each(|_| c.note(true));
        assert!(c.is_busy());
        (0..MOST).for_each(|_| c.note(false));
        assert!(!c.is_busy());
        assert_eq!(c.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_one_thread_meets_counts_for_all() {
        lockmeter::lock_class!(Group = "group of a test");
        let (c, group) = (Contention::default(), Mutex::<(), Group>::new(()));
        let held = group.lock();
        std::thread::scope(|s| {
            let waiting: Vec<_> = (0..=THRESHOLD)
                .map(|_| s.spawn(|| drop(c.lock(&group))))
                .collect();
            while !c.is_busy() {
                std::thread::yield_now();
            }
            drop(held);
            waiting.into_iter().for_each(|w| w.join().unwrap());
        });
        (0..MOST).for_each(|_| drop(c.lock(&group)));
        assert!(!c.is_busy());
    }
}
