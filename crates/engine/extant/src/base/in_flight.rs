//! Numbered work in progress. A thread registers its work, and others wait until all work up to a number has ended.

use crate::base::locks::{Condvar, Mutex};
use lockmeter::LockClass;
use std::collections::BTreeSet;

/// Numbered pieces of work in progress.
pub(crate) struct InFlight<C: LockClass> {
    numbers: Mutex<BTreeSet<u64>, C>,
    ended: Condvar,
}

/// A piece of work, which ends when this value is dropped.
pub(crate) struct Piece<'a, C: LockClass> {
    of: &'a InFlight<C>,
    number: u64,
}

impl<C: LockClass> Default for InFlight<C> {
    fn default() -> Self {
        Self {
            numbers: Mutex::default(),
            ended: Condvar::new(),
        }
    }
}

impl<C: LockClass> InFlight<C> {
    /// Enters a piece of work with this number.
    pub fn begin(&self, number: u64) -> Piece<'_, C> {
        self.note(number);
        Piece { of: self, number }
    }

    /// Notes a piece of work with this number as in progress. A later [`InFlight::begin`] takes it up and ends it.
    pub fn note(&self, number: u64) {
        self.numbers.lock().insert(number);
    }

    /// Waits until no work with this number or a lower one is in progress.
    pub fn wait_up_to(&self, number: u64) {
        let mut numbers = self.numbers.lock();
        while numbers.first().is_some_and(|&first| first <= number) {
            self.ended.wait(&mut numbers);
        }
    }
}

impl<C: LockClass> Drop for Piece<'_, C> {
    fn drop(&mut self) {
        self.of.numbers.lock().remove(&self.number);
        self.of.ended.notify_all();
    }
}
