//! The mapping of one file in memory: sorted, merged runs of logical to physical blocks. Files with indirect blocks
//! look the same here; only the formatter knows the form on disk.

use ext4_format::{BlockNr, extent};
use std::collections::BTreeMap;

/// Longest run, written. Unwritten extents on disk are one block shorter; the formatter splits.
const MAX_RUN: u32 = 1 << 30;

/// A run of logical blocks and its physical place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First logical block.
    pub logical: u32,
    /// Number of blocks, at least 1.
    pub len: u32,
    /// First physical block.
    pub physical: BlockNr,
    /// Allocated but reads as zero.
    pub unwritten: bool,
}

impl Run {
    /// Returns one past the last logical block, which always fits 64 bits.
    #[inline]
    pub fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.len)
    }

    #[inline]
    fn skip(&self, blocks: u32) -> Self {
        Self {
            logical: self.logical + blocks,
            len: self.len - blocks,
            physical: BlockNr(self.physical.0 + u64::from(blocks)),
            unwritten: self.unwritten,
        }
    }
}

/// The result of [`ExtentMap::at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The block is mapped: the rest of its run, from the block on.
    Mapped(Run),
    /// A hole from the block on, of this many blocks (to the next run, or `u32::MAX`).
    Hole(u32),
}

/// Longest extents on disk: written, and unwritten.
const LONGEST: [u32; 2] = [extent::MAX_INIT_LEN, extent::MAX_UNWRITTEN_LEN];

/// Extents, or entries of an index, that an inode holds itself.
pub const IN_INODE: u64 = 4;

/// Returns the least number of extents on disk for a run.
#[inline]
pub fn extents_of(run: &Run) -> u64 {
    if run.len <= extent::MAX_UNWRITTEN_LEN {
        return 1; // nearly always, and without a division
    }
    u64::from(run.len.div_ceil(LONGEST[usize::from(run.unwritten)]))
}

/// All runs of a file.
#[derive(Clone, Debug, Default)]
pub struct ExtentMap {
    runs: BTreeMap<u32, Run>,
    /// The least number of extents on disk.
    extents: u64,
    /// The number of blocks.
    blocks: u64,
    /// Blocks of the tree that it was read from.
    nodes: u64,
}

impl ExtentMap {
    /// Returns the number of blocks of the tree on disk that the map was read from.
    #[inline]
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Returns the least number of extents on disk for this map: runs that are longer than an extent take several.
    pub fn extents(&self) -> u64 {
        self.extents
    }

    /// Counts one more block of the tree that was read.
    #[inline]
    pub(crate) fn note_node(&mut self) {
        self.nodes += 1;
    }

    /// Returns the least number of blocks that the mapping takes on disk besides the data: those of a tree whose nodes
    /// are full, or of a block map without holes.
    pub fn tree_blocks(&self, by_extents: bool, block_size: u32) -> u32 {
        let nodes = match by_extents {
            true if self.extents <= IN_INODE => return 0,
            true => {
                let per_node = u64::from(block_size - 12) / 12;
                let (mut level, mut all) = (self.extents, 0);
                while level > IN_INODE {
                    level = level.div_ceil(per_node);
                    all += level;
                }
                all
            }
            false if self.last().is_none_or(|last| last.end() != self.blocks) => 0,
            false => {
                let per = u64::from(block_size / 4);
                let beyond = |blocks: u64| self.blocks.saturating_sub(blocks);
                let (one, two, three) =
                    (beyond(12), beyond(12 + per), beyond(12 + per + per * per));
                let twice = two.min(per * per);
                u64::from(one > 0)
                    + u64::from(two > 0)
                    + twice.div_ceil(per)
                    + u64::from(three > 0)
                    + three.div_ceil(per * per)
                    + three.div_ceil(per)
            }
        };
        u32::try_from(nodes).unwrap_or(u32::MAX)
    }

    #[inline]
    fn insert(&mut self, run: Run) {
        self.count(&run);
        if let Some(old) = self.runs.insert(run.logical, run) {
            self.discount(&old);
        }
    }

    #[inline]
    fn take(&mut self, logical: u32) {
        if let Some(old) = self.runs.remove(&logical) {
            self.discount(&old);
        }
    }

    #[inline]
    fn count(&mut self, run: &Run) {
        self.extents += extents_of(run);
        self.blocks += u64::from(run.len);
    }

    #[inline]
    fn discount(&mut self, run: &Run) {
        self.extents -= extents_of(run);
        self.blocks -= u64::from(run.len);
    }

    /// Returns the last run.
    #[inline]
    pub fn last(&self) -> Option<&Run> {
        self.runs.last_key_value().map(|(_, run)| run)
    }

    /// Maps a run behind all others; true if that takes a further extent.
    #[inline]
    pub fn append(&mut self, run: Run) -> bool {
        match self.runs.last_entry() {
            Some(mut last) if joins(last.get(), &run) => {
                let before = extents_of(last.get());
                last.get_mut().len += run.len;
                let more = extents_of(last.get()) - before;
                self.extents += more;
                self.blocks += u64::from(run.len);
                more != 0
            }
            _ => {
                self.insert(run);
                true
            }
        }
    }

    /// Returns the run or hole at a logical block.
    #[inline]
    pub fn at(&self, logical: u32) -> Found {
        if let Some((_, run)) = self.runs.range(..=logical).next_back()
            && u64::from(logical) < run.end()
        {
            return Found::Mapped(run.skip(logical - run.logical));
        }
        let next = logical
            .checked_add(1)
            .and_then(|l| self.runs.range(l..).next());
        Found::Hole(next.map_or(u32::MAX, |(&l, _)| l - logical))
    }

    /// Removes the mapping of `[logical, logical + len)`; returns the removed runs in order.
    #[inline]
    pub fn remove(&mut self, logical: u32, len: u32) -> Vec<Run> {
        let end = u64::from(logical) + u64::from(len);
        let mut removed = Vec::new();
        // A run that begins before the range keeps its head, and its tail if it reaches past the end.
        if let Some((_, &run)) = self.runs.range(..logical).next_back()
            && run.end() > u64::from(logical)
        {
            let head = logical - run.logical;
            self.insert(Run { len: head, ..run });
            self.cut(run.skip(head), end, &mut removed);
        }
        while let Some((_, &run)) = self.runs.range(logical..).next() {
            if u64::from(run.logical) >= end {
                break;
            }
            self.take(run.logical);
            self.cut(run, end, &mut removed);
        }
        removed
    }

    #[inline]
    fn cut(&mut self, run: Run, end: u64, removed: &mut Vec<Run>) {
        if run.end() > end {
            // end > run.logical here and end < run.end() <= 2^32, so the difference fits.
            let inside = (end - u64::from(run.logical)) as u32;
            let tail = run.skip(inside);
            self.insert(tail);
            removed.push(Run { len: inside, ..run });
        } else {
            removed.push(run);
        }
    }

    /// Maps a run, replaces the old mapping there, and merges it with its neighbours; returns the replaced runs.
    #[inline]
    pub fn set(&mut self, mut run: Run) -> Vec<Run> {
        if self
            .last()
            .is_none_or(|last| last.end() <= u64::from(run.logical))
        {
            self.append(run);
            return Vec::new();
        }
        let replaced = self.remove(run.logical, run.len);
        if let Some((_, &left)) = self.runs.range(..run.logical).next_back()
            && joins(&left, &run)
        {
            self.take(left.logical);
            run = Run {
                len: left.len + run.len,
                ..left
            };
        }
        if let Ok(next) = u32::try_from(run.end())
            && let Some(&right) = self.runs.get(&next)
            && joins(&run, &right)
        {
            self.take(right.logical);
            run.len += right.len;
        }
        self.insert(run);
        replaced
    }

    /// Returns all runs in order.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Run> {
        self.runs.values()
    }

    /// Returns the runs that touch `[logical, logical + len)`, clipped to it.
    pub fn range(&self, logical: u32, len: u32) -> Vec<Run> {
        let end = u64::from(logical) + u64::from(len);
        let first = self
            .runs
            .range(..=logical)
            .next_back()
            .map_or(logical, |(&l, _)| l);
        let mut found = Vec::new();
        for run in self.runs.range(first..).map(|(_, r)| *r) {
            if u64::from(run.logical) >= end {
                break;
            }
            if run.end() <= u64::from(logical) {
                continue;
            }
            let run = if run.logical < logical {
                run.skip(logical - run.logical)
            } else {
                run
            };
            let len = u64::from(run.len).min(end - u64::from(run.logical)) as u32;
            found.push(Run { len, ..run });
        }
        found
    }

    /// Returns true if nothing is mapped.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[inline]
fn joins(left: &Run, right: &Run) -> bool {
    left.end() == u64::from(right.logical)
        && left.physical.0 + u64::from(left.len) == right.physical.0
        && left.unwritten == right.unwritten
        && left
            .len
            .checked_add(right.len)
            .is_some_and(|n| n <= MAX_RUN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(logical: u32, len: u32, physical: u64) -> Run {
        Run {
            logical,
            len,
            physical: BlockNr(physical),
            unwritten: false,
        }
    }

    #[test]
    fn removing_the_middle_leaves_both_ends() {
        let mut map = ExtentMap::default();
        map.set(run(10, 10, 100));
        assert_eq!(map.remove(13, 4), vec![run(13, 4, 103)]);
        assert_eq!(
            map.iter().copied().collect::<Vec<_>>(),
            vec![run(10, 3, 100), run(17, 3, 107)]
        );
        assert_eq!(map.at(13), Found::Hole(4));
        assert_eq!(map.at(20), Found::Hole(u32::MAX));
    }

    #[test]
    fn the_last_logical_block_can_be_mapped() {
        let mut map = ExtentMap::default();
        map.set(run(u32::MAX - 1, 1, 5));
        assert_eq!(map.at(u32::MAX - 1), Found::Mapped(run(u32::MAX - 1, 1, 5)));
        assert_eq!(map.at(u32::MAX), Found::Hole(u32::MAX));
    }

    proptest! {
        #[test]
        fn agrees_with_an_array(ops in prop::collection::vec((any::<bool>(), 0u32..64, 1u32..20, 0u64..200), 1..40)) {
            let mut map = ExtentMap::default();
            let mut model = [0u64; 96];
            for (set, logical, len, physical) in ops {
                let at = logical as usize;
                let before: Vec<u64> = model[at..at + len as usize].iter().copied().filter(|&p| p != 0).collect();
                let gone = if set { map.set(run(logical, len, physical + 1)) } else { map.remove(logical, len) };
                for i in 0..len as usize {
                    model[at + i] = if set { physical + 1 + i as u64 } else { 0 };
                }
                let gone: Vec<u64> = gone.iter().flat_map(|r| (0..u64::from(r.len)).map(|i| r.physical.0 + i)).collect();
                prop_assert_eq!(gone, before);
                prop_assert_eq!(map.blocks, map.iter().map(|r| u64::from(r.len)).sum::<u64>());
                prop_assert_eq!(map.extents, map.iter().count() as u64);
            }
            for (l, &p) in model.iter().enumerate() {
                match map.at(l as u32) {
                    Found::Mapped(r) => prop_assert_eq!(r.physical.0, p),
                    Found::Hole(n) => {
                        prop_assert_eq!(p, 0);
                        prop_assert!(model[l..].iter().take(n as usize).all(|&p| p == 0));
                    }
                }
            }
        }
    }
}
