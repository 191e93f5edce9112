//! [`PerSlot`]: a value per slot, each on separate cache lines.

use crossbeam_utils::CachePadded;

use crate::slot::{self, SlotId};

/// A `T` per slot, padded so that no two share a cache line (or a pair the prefetcher pulls).
///
/// The number of values is a power of two, usually the number of slots. With fewer, several
/// slots use one value; with one it is a plain `T` with a detour.
///
/// ```
/// use extant_percpu::PerSlot;
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// let hits = PerSlot::new(|_| AtomicU64::new(0));
/// hits.local().fetch_add(1, Relaxed);
/// assert_eq!(hits.iter().map(|h| h.load(Relaxed)).sum::<u64>(), 1);
/// ```
#[derive(Debug)]
pub struct PerSlot<T> {
    values: Box<[CachePadded<T>]>,
}

impl<T> PerSlot<T> {
    /// Makes a value for each slot of the process.
    pub fn new(init: impl FnMut(SlotId) -> T) -> Self {
        Self::with_slots(slot::count(), init)
    }

    /// Makes `slots` values, rounded up to a power of two.
    pub fn with_slots(slots: usize, mut init: impl FnMut(SlotId) -> T) -> Self {
        let values = (0..slot::round(slots))
            .map(|i| CachePadded::new(init(SlotId::new(i as u32))))
            .collect();
        PerSlot { values }
    }

    /// Returns the value of the calling thread's slot.
    #[inline]
    pub fn local(&self) -> &T {
        self.get(slot::current())
    }

    /// Returns the value of a slot.
    #[inline]
    pub fn get(&self, slot: SlotId) -> &T {
        // In range: the length is a power of two, never zero.
        &self.values[slot.index() & (self.values.len() - 1)]
    }

    /// Returns the number of values.
    pub fn slots(&self) -> usize {
        self.values.len()
    }

    /// Returns all values in the order of slots.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> + DoubleEndedIterator {
        self.values.iter().map(|v| &**v)
    }

    /// Returns all values, mutable.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> + DoubleEndedIterator {
        self.values.iter_mut().map(|v| &mut **v)
    }
}

impl<T: Default> Default for PerSlot<T> {
    fn default() -> Self {
        Self::new(|_| T::default())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn padded_and_wrapping() {
        let p = PerSlot::with_slots(3, |s| s.index());
        assert_eq!(p.slots(), 4);
        assert_eq!(*p.get(SlotId::new(6)), 2);
        let a: *const usize = p.get(SlotId::new(0));
        let b: *const usize = p.get(SlotId::new(1));
        assert!((b as usize) - (a as usize) >= 128);
        assert_eq!(p.iter().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}
