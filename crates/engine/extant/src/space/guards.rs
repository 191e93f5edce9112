//! Guards for blocks and inode numbers that an operation has taken and not yet logged. A dropped guard returns them,
//! so an operation that fails anywhere before its commit leaves the counts and the bitmaps as it found them.

use crate::space::Space;
use crate::space::allocated::Allocated;
use crate::space::orlov::InodePurpose;
use ext4_format::InodeNr;
use extant_formatter::extent_map::Run;

/// Blocks taken out of the count of free ones, for which no place has been found yet.
pub(crate) struct Reservation<'a> {
    space: &'a Space,
    blocks: u64,
}

impl Reservation<'_> {
    /// Returns the number of blocks that the count holds back for this operation.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Marks this number of the blocks, at most all, as used.
    pub fn spend(&mut self, blocks: u64) {
        self.blocks = self.blocks.saturating_sub(blocks);
    }

    /// Passes all of the blocks to another owner, which returns the rest that it does not need.
    pub fn hand_over(mut self) {
        self.blocks = 0;
    }
}

impl Drop for Reservation<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.blocks > 0 {
            self.space.counts.give(self.blocks);
        }
    }
}

/// The effect on the count when [`PlacedRuns`] are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDrop {
    /// Every run was taken for this operation, with its number out of the count.
    ReturnCount,
    /// The pages of the runs keep their reservation. A run marked unwritten was the file's before.
    KeepCount,
}

/// Runs of blocks that are marked in use in the bitmaps, and that no logged change refers to yet.
pub(crate) struct PlacedRuns<'a> {
    space: &'a Space,
    pub runs: Vec<Run>,
    on_drop: OnDrop,
}

impl PlacedRuns<'_> {
    /// Keeps the runs, which are logged and belong to their file.
    pub fn keep(mut self) -> Vec<Run> {
        std::mem::take(&mut self.runs)
    }

    /// Keeps the first `n` runs, which are logged.
    pub fn keep_first(&mut self, n: usize) {
        self.runs.drain(..n.min(self.runs.len()));
    }
}

impl Drop for PlacedRuns<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.runs.is_empty() {
            self.unplace();
        }
    }
}

impl PlacedRuns<'_> {
    #[cold]
    fn unplace(&mut self) {
        for run in std::mem::take(&mut self.runs) {
            if self.on_drop == OnDrop::KeepCount && run.unwritten {
                continue;
            }
            let freed = self.space.unplace(run.physical, run.len);
            if freed && self.on_drop == OnDrop::ReturnCount {
                self.space.counts.give(u64::from(run.len));
            }
        }
    }
}

/// An allocated inode number for which nothing is logged yet.
pub(crate) struct NewNumber<'a> {
    space: &'a Space,
    allocated: Allocated,
}

impl NewNumber<'_> {
    /// Returns the number.
    #[inline]
    pub fn ino(&self) -> InodeNr {
        self.allocated.ino
    }

    /// Returns a stamp that everything logged for the number must exceed.
    #[inline]
    pub fn after(&self) -> u64 {
        self.allocated.after
    }

    /// Keeps the number, because the inode's birth is logged.
    #[inline]
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for NewNumber<'_> {
    #[cold]
    fn drop(&mut self) {
        self.space.inodes.undo(self.allocated);
    }
}

impl Space {
    /// Guards blocks that were taken out of the count.
    pub fn reserved(&self, blocks: u64) -> Reservation<'_> {
        Reservation {
            space: self,
            blocks,
        }
    }

    /// Guards runs that an operation takes together with their number.
    pub fn placing(&self) -> PlacedRuns<'_> {
        PlacedRuns {
            space: self,
            runs: Vec::new(),
            on_drop: OnDrop::ReturnCount,
        }
    }

    /// Guards runs whose number was reserved when the data came.
    pub fn placing_reserved(&self) -> PlacedRuns<'_> {
        PlacedRuns {
            space: self,
            runs: Vec::new(),
            on_drop: OnDrop::KeepCount,
        }
    }

    /// Takes an inode number near those of a directory.
    #[inline(always)]
    pub fn take_number(
        &self,
        parent: InodeNr,
        wanted: InodePurpose,
    ) -> crate::base::error::Result<NewNumber<'_>> {
        let allocated = self.inodes.allocate(parent, wanted, self)?;
        Ok(NewNumber {
            space: self,
            allocated,
        })
    }
}
