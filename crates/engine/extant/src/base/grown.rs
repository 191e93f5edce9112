//! A value of a volume that is replaced when the volume grows, and read without a lock.

use std::ops::Deref;
use std::sync::OnceLock;

/// The newest of some values. Older ones stay in memory, because readers may hold references to them: a volume grows a
/// few times while it is open.
pub struct Grown<T> {
    value: T,
    next: OnceLock<Box<Grown<T>>>,
}

impl<T> Grown<T> {
    /// Makes the first value.
    pub const fn new(value: T) -> Self {
        Self {
            value,
            next: OnceLock::new(),
        }
    }

    /// Returns the first value, without a look for newer ones, to read a part that growth does not change, such as the
    /// size of a block.
    #[inline(always)]
    pub const fn first(&self) -> &T {
        &self.value
    }

    /// Returns the newest value.
    #[inline(always)]
    pub fn newest(&self) -> &T {
        match self.next.get() {
            None => &self.value,
            Some(next) => &next.last().value,
        }
    }

    #[cold]
    fn last(&self) -> &Self {
        let mut at = self;
        while let Some(next) = at.next.get() {
            at = next;
        }
        at
    }

    /// Replaces the value for all later reads. Only one thread grows the volume at a time.
    pub fn grow(&self, value: T) {
        let _first = self.last().next.set(Box::new(Self::new(value)));
    }
}

impl<T> Deref for Grown<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.newest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_read_and_the_first_stays() {
        let value = Grown::new(1);
        let held = value.newest();
        value.grow(2);
        value.grow(3);
        assert_eq!((*held, *value), (1, 3));
    }
}
