//! A record of whether anything has changed since a sync made everything durable [C3]. So an idle sync only reads two
//! words.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nothing has changed since a sync that succeeded.
const IDLE: u64 = 0;
/// Something has changed since the last sync began.
const CHANGED: u64 = 1;
/// Number of the first sync. The word holds the number of a sync that has begun until something changes.
const FIRST: u64 = 2;

/// Work left for syncs. A sync first writes dirty inodes back, which commits, and then pushes the committed contexts.
/// So it takes a number from the first word before it visits the lists of dirty inodes, and one from the second before
/// it pushes.
#[derive(Default)]
pub(crate) struct Unsynced {
    /// Inodes became dirty.
    pub dirty: Changes,
    /// Operations committed, or data were written to the device.
    pub logged: Changes,
}

impl Unsynced {
    /// Returns true if a sync has nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.dirty.is_idle() && self.logged.is_idle()
    }
}

/// A mark that something has changed. Changes write the word once after each sync, and only read it otherwise.
pub(crate) struct Changes {
    word: CachePadded<AtomicU64>,
    next: AtomicU64,
}

impl Default for Changes {
    /// Starts with work left, because data from before the volume was opened may never have been flushed.
    fn default() -> Self {
        Self {
            word: CachePadded::new(AtomicU64::new(CHANGED)),
            next: AtomicU64::new(FIRST),
        }
    }
}

impl Changes {
    /// Notes a change, which is on a list already that syncs visit with the list locked. A caller whose list was
    /// visited before the change was added sees the number of that sync here, because the list's lock orders the two.
    #[inline]
    pub(crate) fn note(&self) {
        if self.word.load(Ordering::SeqCst) != CHANGED {
            self.word.store(CHANGED, Ordering::SeqCst);
        }
    }

    fn is_idle(&self) -> bool {
        self.word.load(Ordering::SeqCst) == IDLE
    }

    /// Begins a sync; returns its number.
    pub(crate) fn begin(&self) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.word.swap(number, Ordering::SeqCst);
        number
    }

    /// Notes that the sync of this number has made everything durable that it found. Later syncs are idle unless
    /// something changed, or another sync began, since this one began.
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
        let changes = Changes::default();
        let first = changes.begin();
        changes.end(first);
        assert!(changes.is_idle());
        changes.note();
        let second = changes.begin();
        changes.note();
        changes.end(second);
        assert!(!changes.is_idle(), "changed meanwhile");
    }

    #[test]
    fn a_sync_that_ends_first_leaves_the_other_its_changes() {
        let changes = Changes::default();
        let first = changes.begin();
        changes.note();
        let second = changes.begin();
        changes.end(first);
        assert!(!changes.is_idle(), "the change is not durable");
        changes.end(second);
        assert!(changes.is_idle());
    }
}
