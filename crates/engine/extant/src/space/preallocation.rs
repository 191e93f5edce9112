//! Preallocation (mechanisms B4, L8): blocks set aside for one file that grows, or for the small files of one slot,
//! so that most requests touch no group. They are taken in the in-core bitmap and in the count of free blocks, and
//! nothing of them is logged: a crash, or a close, leaves them free.
//!
//! A file's preallocation is discarded when its last handle is closed, when it is removed, and with all others when
//! space is short. So a full volume is full to the last block.

use ext4_format::BlockNr;

/// Contiguous blocks set aside, for the logical blocks from `logical` on.
#[derive(Debug, Default)]
pub struct Preallocation {
    start: u64,
    len: u32,
    logical: u32,
    /// Blocks of the last request that filled it; the next request is for more.
    pub size: u32,
}

impl Preallocation {
    /// Returns true if no block is set aside.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes up to `want` blocks for logical block `logical`, if they were set aside for that block or `anywhere` is
    /// true.
    #[inline]
    pub fn take(&mut self, logical: u32, want: u32, anywhere: bool) -> Option<(BlockNr, u32)> {
        if self.len == 0 || logical != self.logical && !anywhere {
            return None;
        }
        let len = self.len.min(want);
        let start = self.start;
        self.start += u64::from(len);
        self.len -= len;
        self.logical = logical.saturating_add(len);
        Some((BlockNr(start), len))
    }

    /// Takes up to `want` blocks if they begin at this block.
    pub fn take_at(&mut self, start: BlockNr, want: u32) -> Option<(BlockNr, u32)> {
        let is_there = self.start == start.0;
        is_there.then(|| self.take(0, want, true)).flatten()
    }

    /// Prepends blocks that end where the preallocation begins; returns whether they do.
    pub fn put_before(&mut self, start: BlockNr, len: u32) -> bool {
        self.len > 0 && self.take_back(start, len, 0)
    }

    /// Fills the empty preallocation.
    pub fn fill(&mut self, start: BlockNr, len: u32, logical: u32) {
        debug_assert!(self.is_empty());
        (self.start, self.len, self.logical) = (start.0, len, logical);
    }

    /// Takes blocks back that lie right before it, or anywhere if it is empty; returns false if it did not.
    pub fn take_back(&mut self, start: BlockNr, len: u32, logical: u32) -> bool {
        let sum = self.len.checked_add(len);
        let (Some(sum), true) = (sum, self.len == 0 || start.0 + u64::from(len) == self.start)
        else {
            return false;
        };
        (self.start, self.len, self.logical) = (start.0, sum, logical);
        true
    }

    /// Empties it and returns its blocks.
    pub fn drain(&mut self) -> Option<(BlockNr, u32)> {
        let len = std::mem::take(&mut self.len);
        (len > 0).then_some((BlockNr(self.start), len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_in_order_and_go_back_to_the_front() {
        let mut w = Preallocation::default();
        assert_eq!(w.take(0, 1, true), None);
        w.fill(BlockNr(100), 10, 5);
        assert_eq!(w.take(4, 2, false), None, "for another place of the file");
        assert_eq!(w.take(5, 4, false), Some((BlockNr(100), 4)));
        assert_eq!(w.take(9, 1, false), Some((BlockNr(104), 1)));
        assert!(!w.take_back(BlockNr(100), 3, 0), "a gap");
        assert!(w.take_back(BlockNr(102), 3, 0));
        assert_eq!(w.take(0, 99, false), Some((BlockNr(102), 8)));
        assert!(w.is_empty() && w.drain().is_none());
        assert_eq!(w.take_at(BlockNr(110), 1), None, "nothing is left");
        assert!(!w.put_before(BlockNr(109), 1), "nothing is behind it");
        w.fill(BlockNr(110), 4, 0);
        assert_eq!(w.take_at(BlockNr(109), 9), None);
        assert_eq!(w.take_at(BlockNr(110), 3), Some((BlockNr(110), 3)));
        assert!(w.put_before(BlockNr(111), 2) && !w.put_before(BlockNr(100), 1));
        assert_eq!(w.drain(), Some((BlockNr(111), 3)));
        assert!(w.take_back(BlockNr(7), 2, 3));
        assert_eq!(w.take(40, 1, true), Some((BlockNr(7), 1)));
        assert_eq!(w.drain(), Some((BlockNr(8), 1)));
    }
}
