//! Limits on the part of a mapping that one operation may change: at most a fraction of a journal transaction, so that
//! no operation can outgrow it. Larger changes are done in steps of one operation each.

use crate::data::Data;
use crate::incore::inode::Inode;
use ext4_format::inode::flags;
use extant_formatter::extent_map::Run;
use std::sync::atomic::Ordering;

impl Data {
    /// Returns the number of log blocks that placing or removing a run may change: bitmap and descriptor of each group
    /// it touches, and the blocks of the mapping.
    fn weight(&self, inode: &Inode, run: &Run) -> u64 {
        let len = u64::from(run.len);
        let groups = len / u64::from(self.store.geometry.first().blocks_per_group) + 2;
        let mapping = match self.blocks_per_leaf(inode) {
            // The leaf, a new one next to it, and the index above; the run may be split in the middle.
            None => 4,
            // Block map: the leaves it covers, and two levels above each end.
            Some(per_leaf) => len / per_leaf + 6,
        };
        2 * groups + mapping
    }

    /// Returns the number of blocks that a leaf of a block map names, or `None` for extents.
    fn blocks_per_leaf(&self, inode: &Inode) -> Option<u64> {
        let extents = inode.flags.load(Ordering::Relaxed) & flags::EXTENTS != 0;
        (!extents).then_some(u64::from(self.store.geometry.first().block_size / 4))
    }

    /// Returns the number of blocks of one run that one step takes, at least one.
    fn piece(&self, inode: &Inode) -> u32 {
        let per_unit = u64::from(self.store.geometry.first().blocks_per_group) / 2;
        let per_unit = match self.blocks_per_leaf(inode) {
            None => per_unit,
            Some(per_leaf) => per_unit.min(per_leaf / 2),
        };
        let units = self.log.step().saturating_sub(10);
        u32::try_from(units * per_unit).unwrap_or(u32::MAX).max(1)
    }

    /// Returns whether one operation may place or remove all of these runs.
    pub(crate) fn in_one_step(&self, inode: &Inode, runs: &[Run]) -> bool {
        let sum: u64 = runs.iter().map(|r| self.weight(inode, r)).sum();
        sum <= self.log.step()
    }

    /// Returns true if the runs fit into half a step, which leaves the other half for other changes.
    pub(super) fn in_half_a_step(&self, inode: &Inode, runs: &[Run]) -> bool {
        let sum: u64 = runs.iter().map(|r| self.weight(inode, r)).sum();
        sum <= self.log.step() / 2
    }

    /// Returns how many of these runs, from the first on, fit into the first step. If the first run does not fit,
    /// returns zero and the number of its blocks that do.
    pub(super) fn first_step<'r>(
        &self,
        inode: &Inode,
        runs: impl Iterator<Item = &'r Run>,
    ) -> (usize, u32) {
        let mut left = self.log.step();
        let fit = runs
            .take_while(|run| match left.checked_sub(self.weight(inode, run)) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => false,
            })
            .count();
        (fit, self.piece(inode))
    }
}
