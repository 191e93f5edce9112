//! The superblock at its place: written past the journal while nothing is logged.

use crate::base::error::{Error, Result};
use crate::commit::formatter::{Formatter, Moment};
use crate::volume::engine::Engine;
use blockdev::BlockDevice;
use std::sync::atomic::Ordering;

impl Engine {
    /// Writes the superblock in place, past the journal: only while nothing is logged, at open, freezing and close.
    pub(crate) fn write_superblock(&self, formatter: &Formatter, moment: Moment) -> Result<()> {
        let now = crate::base::now().secs();
        let _place = self.superblock_io.lock();
        let (block, image) = formatter.superblock_update(&self.buffers, now, moment)?;
        self.device
            .write_at(block.offset(self.geometry.block_size), &image)
            .map_err(|e| Error::block_io("write", block, e))?;
        self.buffers.replace_clean(block, image);
        self.flush()
    }

    /// Says on the device that the volume is in use, before the first commit.
    pub(crate) fn mark_open(&self, formatter: &Formatter) -> Result<()> {
        if !self.marked_open.load(Ordering::Relaxed) {
            self.write_superblock(formatter, Moment::Open)?;
            self.marked_open.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}
