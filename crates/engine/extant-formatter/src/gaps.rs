//! Blocks of inode tables that are used from now on without an inode in them. They are zeroed on the device, but
//! perhaps not yet when the next batch is formatted. So that batch does not read them.

use ext4_format::BlockNr;
use std::collections::BTreeMap;

/// Blocks known to be zeros, as ranges: start and one past the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps(BTreeMap<u64, u64>);

impl Gaps {
    /// Adds blocks that are zeros until they are taken.
    pub fn add(&mut self, start: BlockNr, len: u32) {
        self.0.insert(start.0, start.0.saturating_add(len.into()));
    }

    /// Removes the block, which is about to change. Returns true if it was one of them.
    pub fn take(&mut self, block: BlockNr) -> bool {
        let Some((&start, &end)) = self
            .0
            .range(..=block.0)
            .next_back()
            .filter(|(_, end)| block.0 < **end)
        else {
            return false;
        };
        self.0.remove(&start);
        for (start, end) in [(start, block.0), (block.0 + 1, end)] {
            if start < end {
                self.0.insert(start, end);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_taken_once() {
        let mut gaps = Gaps::default();
        gaps.add(BlockNr(10), 3);
        gaps.add(BlockNr(20), 1);
        let taken = |gaps: &mut Gaps| {
            (0..30)
                .filter(|b| gaps.take(BlockNr(*b)))
                .collect::<Vec<_>>()
        };
        assert!(gaps.take(BlockNr(11)));
        assert_eq!(taken(&mut gaps), [10, 12, 20]);
        assert_eq!(taken(&mut gaps), [0; 0]);
    }
}
