//! File data: reading, writing, placement, write-back, truncation.

pub mod attributes;
pub mod copy;
pub mod defragment;
pub mod extents;
pub mod fallocate;
mod page_bound;
mod placement;
pub mod read_write;
pub mod shift;
pub mod step_limits;
pub mod truncate;
pub mod write_back;
pub mod write_lists;
mod write_through;

use crate::base::error::Result;
use crate::base::locks::{self, Mutex};
use crate::commit::{BlockHolders, Committer};
use crate::inodes::Inodes;
use crate::log::Log;
use crate::space::Space;
use crate::space::preallocation::Preallocation;
use crate::store::Store;
use crate::watch::watchers::Watchers;
use percpu::{Counter, PerSlot};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use write_lists::WritingBack;

/// The data of files.
pub(crate) struct Data {
    pub(crate) store: Arc<Store>,
    pub(crate) space: Arc<Space>,
    pub(crate) log: Arc<Log>,
    pub(crate) commit: Arc<Committer>,
    pub(crate) watch: Arc<Watchers>,
    pub(crate) inodes: Arc<Inodes>,
    /// Blocks set aside for the small files of each slot [B4].
    pub(crate) slot_preallocations: PerSlot<Mutex<Preallocation, locks::SlotPreallocation>>,
    /// Context in which space was short last.
    pub(crate) short_at: AtomicU64,
    /// Bytes of pages that are dirty.
    pub(crate) dirty_bytes: Counter,
    /// Bytes of pages in memory, clean and dirty.
    pub(crate) cached_bytes: Counter,
    /// Lists of dirty inodes that threads are writing back.
    pub(crate) writing_back: WritingBack,
}

impl BlockHolders for Data {
    fn discard_aside(&self) -> bool {
        Data::discard_aside(self)
    }

    fn holds_promises(&self) -> bool {
        self.dirty_bytes.sum() > 0
    }

    fn write_back_promised(&self) -> Result<()> {
        Data::write_back_promised(self)
    }
}

impl Data {
    /// Makes the layer with no pages in memory.
    pub fn new(inodes: Arc<Inodes>) -> Self {
        Self {
            store: Arc::clone(&inodes.store),
            space: Arc::clone(&inodes.space),
            log: Arc::clone(&inodes.log),
            commit: Arc::clone(&inodes.commit),
            watch: Arc::clone(&inodes.watch),
            slot_preallocations: PerSlot::default(),
            short_at: AtomicU64::new(0),
            dirty_bytes: Counter::new(),
            cached_bytes: Counter::new(),
            writing_back: Default::default(),
            inodes,
        }
    }
}
