//! Views of a volume for tools that show it: its metadata as bytes, and the contents of its log. The views change
//! nothing, and operations do no extra work for them.

use crate::api::volume::Volume;
use crate::base::error::Result;
use crate::commit::statistics::{LogState, SlotState};
use ext4_format::{BlockNr, FormatError, Where};

impl Volume {
    /// Reads a block of metadata as the last push left it. On a volume that was opened for reading, the contents of its
    /// journal are applied. The bytes are the device's own, so the caller checks them before use.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let group = *volume.groups().next().expect("there is one")?;
    /// let bitmap = volume.metadata_block(group.block_bitmap)?;
    /// assert_eq!(bitmap.len(), 1024);
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// Corruption for a number outside of the volume.
    pub fn metadata_block(&self, block: BlockNr) -> Result<Vec<u8>> {
        let engine = &self.guard.engine;
        if block.0 >= engine.store.geometry.blocks_count {
            let what = "number of a metadata block";
            return Err(FormatError::corrupt(what, Where::Block(block, 0)).into());
        }
        Ok(engine.store.buffers.read(block)?.to_vec())
    }

    /// Returns the log's present contents. Each slot is read separately, so the answer is not of one moment.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let log = volume.log_state();
    /// assert_eq!(log.slots.len(), volume.log_state().slots.len());
    /// assert_eq!(log.used_blocks, 0, "the volume is new");
    /// ```
    pub fn log_state(&self) -> LogState {
        let engine = &self.guard.engine;
        let (used_blocks, push_times, stages) = engine.commit.totals.log();
        let threads = percpu::slot::users();
        let threads = threads.into_iter().chain(std::iter::repeat(0));
        let lists = engine.log.lists.each(SlotState::of);
        LogState {
            blocks: self.journal().map_or(0, |j| j.log_range().len() as u64),
            used_blocks,
            slots: lists
                .into_iter()
                .zip(threads)
                .map(|(slot, threads)| SlotState { threads, ..slot })
                .collect(),
            push_times,
            stages,
        }
    }

    /// Returns the limit for file data in memory, in bytes, as set by
    /// [`VolumeOptions::cache_bytes`](crate::VolumeOptions::cache_bytes).
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert!(volume.memory().data <= volume.cache_limit());
    /// ```
    pub fn cache_limit(&self) -> u64 {
        self.guard.engine.store.limits.cache_bytes
    }
}
