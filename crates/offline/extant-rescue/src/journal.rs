//! The place of the journal. Its log has old copies of other blocks, which searches must not take for these blocks.

use ext4_format::BlockNr;
use ext4_format::extent::Extent;
use std::ops::Range;

/// The blocks of a journal.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Runs in logical order.
    pub(crate) runs: Vec<Extent>,
    /// Blocks of the device, in ascending ranges that do not touch.
    places: Vec<Range<u64>>,
}

impl Journal {
    /// Creates a journal of runs in logical order.
    pub(crate) fn new(runs: Vec<Extent>) -> Self {
        let all = runs.iter();
        let all = all.map(|run| run.physical.0..run.physical.0 + u64::from(run.len));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|range| range.start);
        let mut places: Vec<Range<u64>> = Vec::new();
        for range in all {
            match places.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => places.push(range),
            }
        }
        Self { runs, places }
    }

    /// Returns whether one of `len` blocks is in the journal.
    pub(crate) fn meets(&self, first: BlockNr, len: u64) -> bool {
        let next = self.places.partition_point(|range| range.end <= first.0);
        let next = self.places.get(next);
        next.is_some_and(|range| range.start < first.0.saturating_add(len))
    }

    /// Returns a block of the journal.
    pub(crate) fn at(&self, logical: u32) -> Option<BlockNr> {
        let after = self.runs.partition_point(|run| run.logical <= logical);
        self.runs.get(after.checked_sub(1)?)?.map(logical)
    }
}
