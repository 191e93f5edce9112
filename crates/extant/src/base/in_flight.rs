//! What is under way, by number: who begins something enters it, and others wait until all up to a number is over.

use crate::base::locks::{Condvar, Mutex};
use lockmeter::LockClass;
use std::collections::BTreeSet;

/// Numbered pieces of work that are under way.
pub(crate) struct InFlight<C: LockClass> {
    numbers: Mutex<BTreeSet<u64>, C>,
    ended: Condvar,
}

/// One piece of work; it is over when this goes, whatever happens.
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
    /// The piece of work with this number begins.
    pub fn begin(&self, number: u64) -> Piece<'_, C> {
        self.numbers.lock().insert(number);
        Piece { of: self, number }
    }

    /// Waits until nothing with this number or a lower one is under way.
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
