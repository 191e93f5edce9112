//! Counts of how often the volume's groups are contended (mechanism B3). A count goes up when a group's lock was busy,
//! and down when the lock was free at once. Past a threshold the volume is *busy*. Each slot has a count, so that the
//! counts are not contended themselves: a slot without competitors only reads its zero.

use percpu::{Counter, PerSlot};
use std::sync::atomic::{AtomicU32, Ordering};

/// A count above this means that groups are busy.
const THRESHOLD: u32 = 4;
/// Upper limit of the count, so that it falls soon.
const MOST: u32 = 2 * THRESHOLD;

/// The contention counts of one volume.
#[derive(Default)]
pub struct Contention(PerSlot<AtomicU32>);

impl Contention {
    /// Counts an attempt to take a lock, which was busy or not.
    pub fn note(&self, busy: bool) {
        let count = self.0.local();
        let now = count.load(Ordering::Relaxed);
        // Threads that share a slot may lose a step: it is an estimate.
        match busy {
            true if now < MOST => count.store(now + 1, Ordering::Relaxed),
            false if now > 0 => count.store(now - 1, Ordering::Relaxed),
            _ => {}
        }
    }

    #[cfg(test)]
    pub fn local(&self) -> u32 {
        self.0.local().load(Ordering::Relaxed)
    }

    /// Returns whether the caller's slot found groups busy more often than not.
    pub fn is_busy(&self) -> bool {
        self.0.local().load(Ordering::Relaxed) > THRESHOLD
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
}

/// Counters of the searches of one volume.
#[derive(Default)]
pub struct Searches {
    considered: Counter,
    busy: Counter,
    failed: Counter,
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

    /// Returns the sums of all slots.
    pub fn read(&self) -> SearchCounts {
        let sum = |counter: &Counter| u64::try_from(counter.sum()).unwrap_or(0);
        SearchCounts {
            considered: sum(&self.considered),
            busy: sum(&self.busy),
            failed: sum(&self.failed),
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
        assert_eq!(c.0.local().load(Ordering::Relaxed), 0);
    }
}
