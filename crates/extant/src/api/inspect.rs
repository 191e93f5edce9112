//! What those ask who show a volume instead of using it: its metadata as bytes, and what its log holds. Nothing here
//! changes anything, and no operation takes part in what is counted for it beyond what it does anyway.

use crate::api::volume::Volume;
use crate::base::error::Result;
use crate::commit::statistics::{LogState, SlotState};
use ext4_format::{BlockNr, FormatError, Where};

impl Volume {
    /// A block of metadata as the last push left it; of a volume that was opened for reading, with what its journal holds.
    /// The bytes are the device's own: whoever parses them checks them.
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

    /// What the log holds now. Each slot is looked at for itself, so it is not the state of one moment.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let log = volume.log_state();
    /// assert_eq!(log.slots.len(), volume.log_state().slots.len());
    /// assert_eq!(log.used_blocks, 0, "the volume is new");
    /// ```
    pub fn log_state(&self) -> LogState {
        let engine = &self.guard.engine;
        let (used_blocks, push_times) = engine.commit.totals.log();
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
        }
    }

    /// How many bytes of file data are kept in memory, as [`OpenOptions::cache_bytes`](crate::OpenOptions::cache_bytes) says.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert!(volume.memory().data <= volume.cache_limit());
    /// ```
    pub fn cache_limit(&self) -> u64 {
        self.guard.engine.store.limits.cache_bytes
    }
}
