//! Lists of dirty inodes that a thread has taken and is writing back.
//!
//! An inode on such a list is on no slot's list any more, but its data are not on the device either. A sync that finds
//! the slots' lists empty waits here for those who took them before.

use crate::locks::{self, Condvar, Mutex};
use std::collections::BTreeSet;

/// The lists that threads have in hand, by numbers that grow.
#[derive(Default)]
pub(crate) struct ListsInHand {
    numbers: Mutex<Numbers, locks::ListsInHand>,
    changed: Condvar,
}

#[derive(Default)]
struct Numbers {
    next: u64,
    busy: BTreeSet<u64>,
}

/// Lists that are in hand until this goes.
pub(crate) struct InHand<'a> {
    all: &'a ListsInHand,
    number: u64,
}

impl ListsInHand {
    /// To be called before lists are taken from their slots.
    pub fn take(&self) -> InHand<'_> {
        let mut numbers = self.numbers.lock();
        let number = numbers.next;
        numbers.next += 1;
        numbers.busy.insert(number);
        InHand { all: self, number }
    }

    /// Waits until all lists that were taken before the call have been written. The caller has none in hand: two who
    /// waited for each other would wait forever.
    pub fn wait(&self) {
        let mut numbers = self.numbers.lock();
        let next = numbers.next;
        while numbers.busy.first().is_some_and(|&number| number < next) {
            self.changed.wait(&mut numbers);
        }
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.all.numbers.lock().busy.remove(&self.number);
        self.all.changed.notify_all();
    }
}
