//! The last places of streams of blocks (mechanism B4): a few goals, hashed by inode number modulo their count, so that
//! files that grow at once grow in different places. Read and written without a lock: a goal is a hint.

use crossbeam_utils::CachePadded;
use ext4_format::BlockNr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The goals of one volume.
pub struct Goals(Box<[CachePadded<AtomicU64>]>);

impl Goals {
    /// Makes a goal for each CPU, but no more than one for four groups.
    pub fn new(groups: u32) -> Self {
        let cpus = crate::base::parallel::cpus();
        let count = cpus.min(groups as usize / 4).max(1);
        Self((0..count).map(|_| Default::default()).collect())
    }

    fn of(&self, ino: u32) -> &AtomicU64 {
        // The list has at least one goal.
        &self.0[ino as usize % self.0.len()]
    }

    /// Returns the end of the last stream with this inode's goal.
    pub fn get(&self, ino: u32) -> Option<BlockNr> {
        match self.of(ino).load(Ordering::Relaxed) {
            0 => None,
            block => Some(BlockNr(block)),
        }
    }

    /// Notes the end of a stream.
    pub fn set(&self, ino: u32, end: BlockNr) {
        self.of(ino).store(end.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_spread_over_the_goals() {
        let goals = Goals((0..3).map(|_| Default::default()).collect());
        goals.set(7, BlockNr(70));
        assert_eq!(goals.get(10), Some(BlockNr(70)));
        assert_eq!((goals.get(8), goals.get(9)), (None, None));
        assert_eq!(Goals::new(1).0.len(), 1);
    }
}
