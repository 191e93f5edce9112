//! Whether anything has changed since a sync made everything durable [C3]: an idle sync reads one word.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nothing has changed since a sync that succeeded.
const IDLE: u64 = 0;
/// Something has changed since the last sync began.
const CHANGED: u64 = 1;
/// Number of the first sync. The word holds the number of a sync that has begun until something changes.
const FIRST: u64 = 2;

/// The word. Changes write it once after each sync, and only read it otherwise.
pub(crate) struct Unsynced {
    word: CachePadded<AtomicU64>,
    next: AtomicU64,
}

impl Default for Unsynced {
    /// Data from before the volume was opened may never have been flushed.
    fn default() -> Self {
        Self {
            word: CachePadded::new(AtomicU64::new(CHANGED)),
            next: AtomicU64::new(FIRST),
        }
    }
}

impl Unsynced {
    /// Notes a change, which is on a list already that syncs visit with the list locked. A caller whose list was visited before the
    /// change was added sees the number of that sync here, because the list's lock orders the two.
    #[inline]
    pub(crate) fn note(&self) {
        if self.word.load(Ordering::SeqCst) != CHANGED {
            self.word.store(CHANGED, Ordering::SeqCst);
        }
    }

    /// Begins a sync; `None` if nothing is to be done.
    pub(crate) fn begin(&self) -> Option<u64> {
        if self.word.load(Ordering::SeqCst) == IDLE {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.word.swap(number, Ordering::SeqCst);
        Some(number)
    }

    /// Notes that the sync of this number has made everything durable that it found. Later syncs are idle unless something
    /// changed, or another sync began, since this one began.
    pub(crate) fn end(&self, number: u64) {
        // A failure means one of the two.
        let _ = self
            .word
            .compare_exchange(number, IDLE, Ordering::SeqCst, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_idle_after_one_without_changes() {
        let unsynced = Unsynced::default();
        let first = unsynced.begin().unwrap();
        unsynced.end(first);
        assert_eq!(unsynced.begin(), None);
        unsynced.note();
        let second = unsynced.begin().unwrap();
        unsynced.note();
        unsynced.end(second);
        assert!(unsynced.begin().is_some(), "changed meanwhile");
    }

    #[test]
    fn a_sync_that_ends_first_leaves_the_other_its_changes() {
        let unsynced = Unsynced::default();
        let first = unsynced.begin().unwrap();
        unsynced.note();
        let second = unsynced.begin().unwrap();
        unsynced.end(first);
        assert!(unsynced.begin().is_some(), "the change is not durable");
        unsynced.end(second);
        assert!(unsynced.begin().is_some());
    }
}
