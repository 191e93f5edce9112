//! Whether the volume's groups are fought over (mechanism B3): up when a group's lock was busy, down when it was
//! free at once; past a threshold the volume is *busy*. A count for each slot, so that counting is not itself what
//! the slots fight over: a slot that meets nobody only reads its zero.

use percpu::PerSlot;
use std::sync::atomic::{AtomicU32, Ordering};

/// A count above this says "busy".
const THRESHOLD: u32 = 4;
/// The count goes no higher, so that it comes down soon.
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

    /// Whether the caller's slot found groups busy more often than not.
    pub fn is_busy(&self) -> bool {
        self.0.local().load(Ordering::Relaxed) > THRESHOLD
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
