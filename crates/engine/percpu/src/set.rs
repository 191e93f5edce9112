//! [`AtomicSet`]: a set of small numbers, changed and searched without a lock. It serves for lists of candidates such
//! as those of mechanism B4: groups by largest free order, by average fragment.
//!
//! The set has a bit for each number, and a summary bit for each word of 64. So the next member of a sparse set of a
//! million is found by looking at a few words.
//!
//! A thread that empties a word clears its summary bit and then looks at the word again. A member added in between has
//! either set the summary bit after it was cleared, or is seen by that second look. So when no thread is changing the
//! set, every member is found. Meanwhile a search may miss a member that was just added and find one that was just
//! removed: it returns candidates, which the caller checks.

use crate::sync::{AtomicU64, Ordering};

/// Numbers below a bound.
///
/// ```
/// let set = extant_percpu::AtomicSet::new(1_000_000);
/// set.insert(70_000);
/// set.insert(900_000);
/// assert_eq!(set.next(0, 1_000_000), Some(70_000));
/// assert_eq!(set.next(70_001, 1_000_000), Some(900_000));
/// set.remove(900_000);
/// assert_eq!(set.next(70_001, 1_000_000), None);
/// ```
#[derive(Debug)]
pub struct AtomicSet {
    words: Box<[AtomicU64]>,
    /// Bit n of it: word n is not empty.
    summary: Box<[AtomicU64]>,
}

const fn place(n: u32) -> (usize, u64) {
    ((n / 64) as usize, 1 << (n % 64))
}

impl AtomicSet {
    /// Makes an empty set of numbers below `bound`.
    pub fn new(bound: u32) -> Self {
        let zeros = |bits: usize| (0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let words: Box<[AtomicU64]> = zeros(bound as usize);
        Self {
            summary: zeros(words.len()),
            words,
        }
    }

    /// Makes a set of the numbers below `n`, with room for those below `bound`.
    ///
    /// ```
    /// let set = extant_percpu::AtomicSet::first(70, 1000);
    /// assert_eq!((set.next(69, 1000), set.next(70, 1000)), (Some(69), None));
    /// set.insert(999);
    /// assert_eq!(set.next(70, 1000), Some(999));
    /// ```
    pub fn first(n: u32, bound: u32) -> Self {
        let (full, mut set) = (Self::full(n.min(bound)), Self::new(bound));
        let tables = [
            (full.words, &mut set.words),
            (full.summary, &mut set.summary),
        ];
        for (from, to) in tables {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from);
        }
        set
    }

    /// Makes the set of all numbers below `bound`.
    ///
    /// ```
    /// let set = extant_percpu::AtomicSet::full(70);
    /// assert_eq!((set.next(69, 100), set.next(70, 100)), (Some(69), None));
    /// ```
    pub fn full(bound: u32) -> Self {
        let ones = |bits: usize| {
            let word = |i: usize| match bits - i * 64 {
                left if left < 64 => (1 << left) - 1,
                _ => u64::MAX,
            };
            (0..bits.div_ceil(64))
                .map(|i| AtomicU64::new(word(i)))
                .collect()
        };
        let words: Box<[AtomicU64]> = ones(bound as usize);
        Self {
            summary: ones(words.len()),
            words,
        }
    }

    /// Adds a number; one past the bound is ignored.
    pub fn insert(&self, n: u32) {
        let (at, bit) = place(n);
        let Some(word) = self.words.get(at) else {
            return;
        };
        // Release: a thread that clears the summary bit after us must see the member.
        if word.fetch_or(bit, Ordering::AcqRel) == 0 {
            self.summarise(at);
        }
    }

    fn summarise(&self, word: usize) {
        let (at, bit) = place(word as u32);
        if let Some(summary) = self.summary.get(at) {
            summary.fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// Takes a number out.
    pub fn remove(&self, n: u32) {
        let (at, bit) = place(n);
        let Some(word) = self.words.get(at) else {
            return;
        };
        let before = word.fetch_and(!bit, Ordering::AcqRel);
        if before & bit == 0 || before & !bit != 0 {
            return;
        }
        let (up, up_bit) = place(at as u32);
        if let Some(summary) = self.summary.get(up) {
            summary.fetch_and(!up_bit, Ordering::AcqRel);
            if word.load(Ordering::Acquire) != 0 {
                self.summarise(at);
            }
        }
    }

    /// Returns whether a number is in the set.
    pub fn contains(&self, n: u32) -> bool {
        let (at, bit) = place(n);
        let word = self.words.get(at);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Returns the first member of `[from, to)`.
    pub fn next(&self, from: u32, to: u32) -> Option<u32> {
        let mut at = from;
        while at < to {
            let word = self.words.get((at / 64) as usize)?;
            let rest = word.load(Ordering::Relaxed) & (u64::MAX << (at % 64));
            if rest != 0 {
                let found = at / 64 * 64 + rest.trailing_zeros();
                return (found < to).then_some(found);
            }
            // The next word that holds anything.
            let mut word = at / 64 + 1;
            at = loop {
                let summary = self.summary.get((word / 64) as usize)?;
                let rest = summary.load(Ordering::Relaxed) & (u64::MAX << (word % 64));
                if rest != 0 {
                    break (word / 64 * 64 + rest.trailing_zeros()) * 64;
                }
                word = (word / 64 + 1) * 64;
                if word.checked_mul(64).is_none_or(|first| first >= to) {
                    return None;
                }
            };
        }
        None
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_an_ordered_set() {
        let bound = if cfg!(miri) { 5_000 } else { 300_000 };
        let (set, mut model) = (AtomicSet::new(bound), BTreeSet::new());
        let mut x = 12345u64;
        for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let n = (x >> 33) as u32 % bound;
            // Clustered, so that words fill and empty.
            let n = if x & 1 == 0 { n % 200 } else { n };
            if x & 6 == 0 {
                set.insert(n);
                model.insert(n);
            } else {
                let gone = model.range(n..).next().copied();
                assert_eq!(set.next(n, bound), gone);
                if let Some(gone) = gone.filter(|_| x & 8 == 0) {
                    set.remove(gone);
                    model.remove(&gone);
                    assert!(!set.contains(gone));
                }
            }
        }
        let all: Vec<u32> =
            std::iter::successors(set.next(0, bound), |n| set.next(n + 1, bound)).collect();
        assert!(all.iter().eq(&model));
        set.insert(bound + 64);
        assert_eq!(set.next(bound, u32::MAX), None);
    }

    #[test]
    fn threads_lose_no_member() {
        let set = AtomicSet::new(128);
        std::thread::scope(|s| {
            for t in 0..4 {
                let set = &set;
                s.spawn(move || {
                    for _ in 0..if cfg!(miri) { 50 } else { 20_000 } {
                        set.insert(64 + t);
                        set.remove(64 + t);
                    }
                    set.insert(64 + t);
                });
            }
        });
        let all: Vec<u32> =
            std::iter::successors(set.next(0, 128), |n| set.next(n + 1, 128)).collect();
        assert_eq!(all, [64, 65, 66, 67]);
    }
}
