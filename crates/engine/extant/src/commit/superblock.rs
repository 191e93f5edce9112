//! Writing the superblock to its place, past the journal, while nothing is logged.

use crate::base::error::{Error, Result};
use crate::commit::Committer;
use blockdev::BlockDevice;
use extant_formatter::{Formatter, Moment};
use std::sync::atomic::Ordering;

impl Committer {
    /// Writes the superblock in place, past the journal: only while nothing is logged, at open, freezing and close.
    pub(crate) fn write_superblock(&self, formatter: &Formatter, moment: Moment) -> Result<()> {
        let now = crate::base::now().secs();
        let _place = self.store.superblock_io.lock();
        let damage = &self.store.health.damage;
        let (block, image) =
            formatter.superblock_update(&self.store.buffers, now, moment, |sb| damage.apply(sb))?;
        self.store
            .device
            .write_at(block.offset(self.store.geometry.block_size), &image)
            .map_err(|e| Error::block_io("write", block, e))?;
        self.store.buffers.replace_clean(block, image);
        self.store.flush()
    }

    /// Marks the volume as in use on the device, before the first commit.
    pub(crate) fn mark_open(&self, formatter: &Formatter) -> Result<()> {
        if !self.marked_open.load(Ordering::Relaxed) {
            self.write_superblock(formatter, Moment::Open)?;
            self.marked_open.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Brings the device to the state of a volume that was closed: the journal is empty, and the superblock marks the
    /// volume as not in use. `then` runs before another push can begin. A transaction that was committed after the
    /// last push stays in memory.
    pub(crate) fn rest(&self, then: impl FnOnce()) -> Result<()> {
        // Block new fast commits. One may have completed after the last push, and its write holds neither of the locks below.
        let _no_fast = self.stop_fast();
        if !self.is_formatted() {
            self.push_all()?;
        }
        // While both locks are held, no push is between them.
        let formatter = self.formatter.lock();
        let mut journal = self.journal.lock();
        if self.marked_open.load(Ordering::Relaxed) {
            journal.checkpoint(self)?;
            journal.close(self)?;
            self.write_superblock(&formatter, Moment::Close)?;
            self.marked_open.store(false, Ordering::Relaxed);
        }
        then();
        Ok(())
    }

    /// Returns when no write of a push or a fast commit is under way, nor one that notes damage, of a volume that has stopped.
    pub(crate) fn wait_for_pushes(&self) {
        drop(self.stop_fast());
        // A push has one of these locks, or is at the last stage.
        drop(self.journal.lock());
        drop(self.formatter.lock());
        drop(self.journal.lock());
        self.commit_stage.wait();
        drop(self.store.superblock_io.lock());
    }
}
