//! [`AtomicBitmap`]: a bitmap searched without a lock. Mechanisms I1 and L3.
//!
//! A free bit is found and taken by one atomic test-and-set of its word. A thread that loses the race for a bit has
//! learned the word's new value and continues its search there. No bit is found, then locked, tested again and retried
//! from the start.

use crate::sync::{AtomicU64, Ordering};

/// Bits that threads take and clear; set means taken.
///
/// ```
/// let map = extant_percpu::AtomicBitmap::new(vec![0b0111]);
/// assert_eq!(map.take(0, 64), Some(3));
/// assert_eq!(map.take(0, 4), None);
/// map.give(1);
/// assert_eq!(map.take(0, 4), Some(1));
/// ```
#[derive(Debug)]
pub struct AtomicBitmap {
    words: Box<[AtomicU64]>,
}

impl AtomicBitmap {
    /// Makes a bitmap from words, bit 0 of the first word first.
    pub fn new(words: Vec<u64>) -> Self {
        Self {
            words: words.into_iter().map(AtomicU64::new).collect(),
        }
    }

    /// Takes the first free bit of `[from, to)`; `to` past the end means the end.
    #[inline]
    pub fn take(&self, from: u32, to: u32) -> Option<u32> {
        let mut at = from;
        while at < to {
            let word = self.words.get((at / 64) as usize)?;
            // Bits below the start count as taken.
            let mut taken = word.load(Ordering::Relaxed) | ((1u64 << (at % 64)) - 1);
            while taken != u64::MAX {
                let bit = taken.trailing_ones();
                let index = at / 64 * 64 + bit;
                if index >= to {
                    return None;
                }
                // No ordering, because the log or a lock orders accesses to the object behind a bit.
                let before = word.fetch_or(1 << bit, Ordering::Relaxed);
                if before & (1 << bit) == 0 {
                    return Some(index);
                }
                taken |= before;
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Clears a bit; false if it was not taken, or lies outside.
    pub fn give(&self, bit: u32) -> bool {
        self.words.get((bit / 64) as usize).is_some_and(|word| {
            let mask = 1u64 << (bit % 64);
            word.fetch_and(!mask, Ordering::Relaxed) & mask != 0
        })
    }

    /// Returns the number of free bits in `[from, to)`.
    ///
    /// ```
    /// let map = extant_percpu::AtomicBitmap::new(vec![0b1010, 0]);
    /// assert_eq!((map.free_in(0, 4), map.free_in(1, 3), map.free_in(3, 66)), (2, 1, 62));
    /// ```
    pub fn free_in(&self, from: u32, to: u32) -> u32 {
        let last = (to.div_ceil(64) as usize).min(self.words.len());
        let first = ((from / 64) as usize).min(last);
        let free = |(at, word): (usize, &AtomicU64)| {
            // A word that lies in the range begins or ends outside of it by less than 64 bits.
            let start = (at * 64) as u64;
            let below = u64::from(from).saturating_sub(start).min(63);
            let above = (start + 64).saturating_sub(u64::from(to)).min(63);
            let inside = (u64::MAX << below) & (u64::MAX >> above);
            (!word.load(Ordering::Relaxed) & inside).count_ones()
        };
        let words = self.words.iter().enumerate();
        words.take(last).skip(first).map(free).sum()
    }

    /// Returns true if the bitmap holds the same bits as these words. While other threads take or clear bits, the
    /// answer is not of a single moment.
    ///
    /// ```
    /// let map = extant_percpu::AtomicBitmap::new(vec![5, 0]);
    /// assert!(map.agrees(&[5, 0]) && !map.agrees(&[5, 1]) && !map.agrees(&[5]));
    /// ```
    pub fn agrees(&self, words: &[u64]) -> bool {
        let mine = self.words.iter().map(|w| w.load(Ordering::Relaxed));
        mine.eq(words.iter().copied())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn threads_take_every_bit_once() {
        let words = if cfg!(miri) { 2 } else { 16 };
        let bits = words * 64;
        let map = AtomicBitmap::new(vec![0; words as usize]);
        let mut all: Vec<u32> = std::thread::scope(|s| {
            let workers: Vec<_> = (0..4)
                .map(|_| s.spawn(|| std::iter::from_fn(|| map.take(0, bits)).collect::<Vec<_>>()))
                .collect();
            workers
                .into_iter()
                .flat_map(|w| w.join().unwrap())
                .collect()
        });
        all.sort_unstable();
        assert_eq!(all, (0..bits).collect::<Vec<_>>());
        assert_eq!(map.free_in(0, bits), 0);
    }

    #[test]
    fn stays_inside_its_range() {
        let map = AtomicBitmap::new(vec![u64::MAX, 0]);
        assert_eq!(map.take(0, 64), None);
        assert_eq!(map.take(70, 72), Some(70));
        assert_eq!(map.take(70, 72), Some(71));
        assert_eq!(map.take(70, 72), None);
        assert_eq!(map.take(128, 500), None);
        assert!(map.give(70) && !map.give(70) && !map.give(999));
    }
}
