//! The caches of many cores, line by line: the MESI states with unlimited capacity.

use std::collections::HashMap;

/// Largest number of cores in the model.
pub const MOST: usize = 256;

/// A set of cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cores([u64; MOST / 64]);

impl Cores {
    fn only(core: usize) -> Self {
        let mut one = Self::default();
        one.add(core);
        one
    }

    fn add(&mut self, core: usize) {
        self.0[core / 64 % (MOST / 64)] |= 1 << (core % 64);
    }

    fn has(&self, core: usize) -> bool {
        self.0[core / 64 % (MOST / 64)] & 1 << (core % 64) != 0
    }

    fn join(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
    }

    fn is_empty(&self) -> bool {
        self.0 == [0; MOST / 64]
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Holders {
    /// Cores that have the line; a single core if the line is modified.
    by: Cores,
    /// Whether the line is modified in the cache of its core.
    modified: bool,
    /// Cores that lost the line to another core's write.
    lost: Cores,
}

/// The reason why a core had to fetch a line from another core.
///
/// ```
/// use extant_bench::coherence::caches::{Caches, Miss};
/// let mut caches = Caches::default();
/// assert_eq!(caches.access(0, 7, true), None); // nobody had it
/// assert_eq!(caches.access(1, 7, false), Some(Miss::Read));
/// assert_eq!(caches.access(0, 7, true), Some(Miss::Write)); // core 1 has it, too
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Miss {
    /// A read of a line that another core has written.
    Read,
    /// A write to a line that other cores have.
    Write,
}

/// The lines of memory with their holders.
#[derive(Debug, Default)]
pub struct Caches {
    lines: HashMap<u64, Holders>,
}

impl Caches {
    /// Records that a core, below [`MOST`], reads or writes a line.
    pub fn access(&mut self, core: usize, line: u64, writes: bool) -> Option<Miss> {
        let holders = self.lines.entry(line).or_default();
        let has = holders.by.has(core);
        if writes {
            let alone = holders.by.is_empty() || holders.by == Cores::only(core);
            holders.lost.join(holders.by);
            *holders = Holders {
                by: Cores::only(core),
                modified: true,
                lost: holders.lost,
            };
            return (!alone).then_some(Miss::Write);
        }
        if has {
            return None;
        }
        let fetched = holders.modified || holders.lost.has(core);
        holders.by.add(core);
        holders.modified = false;
        fetched.then_some(Miss::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_by_all_is_fetched_once() {
        let mut caches = Caches::default();
        assert!((0..MOST).all(|core| caches.access(core, 1, false).is_none()));
        // A write by one core invalidates the line in all others.
        assert_eq!(caches.access(3, 1, true), Some(Miss::Write));
        assert_eq!(caches.access(3, 1, true), None);
        assert_eq!(caches.access(3, 1, false), None);
        for core in (0..MOST).filter(|core| *core != 3) {
            assert_eq!(caches.access(core, 1, false), Some(Miss::Read), "{core}");
            assert_eq!(caches.access(core, 1, false), None, "{core}");
        }
    }

    #[test]
    fn a_line_of_ones_own_is_never_missed() {
        let mut caches = Caches::default();
        for turn in 0..10 {
            for core in 0..64 {
                assert_eq!(caches.access(core, core as u64, turn % 2 == 0), None);
            }
        }
    }

    #[test]
    fn a_counter_of_all_is_missed_by_each() {
        let mut caches = Caches::default();
        caches.access(0, 9, true);
        let turns = (1..1000).map(|n| caches.access(n % 64, 9, true));
        assert!(turns.into_iter().all(|miss| miss == Some(Miss::Write)));
    }
}
