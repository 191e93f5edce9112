//! Inodes by number: loading, reading and changing them.

pub mod access_times;
pub mod attributes;
mod inline;
pub mod load;
pub mod log_core;
pub mod new_inode;
pub mod observe;
pub mod open_files;
pub mod path_cache;
pub mod permit;
pub mod published;
mod value_inodes;
pub mod walk_cache;
pub mod xattrs;

use crate::base::locks::{self, Mutex};
use crate::base::upward::Upward;
use crate::commit::{Committer, PushObserver};
use crate::incore::inode::Inode;
use crate::incore::inode_index::InodeIndex;
use crate::log::Log;
use crate::space::Space;
use crate::store::Store;
use crate::watch::watchers::Watchers;
use access_times::LazyTimes;
use extant_formatter::Published;
use observe::Observed;
use open_files::OpenFiles;
use percpu::{PerSlot, SlotList};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use walk_cache::WalkCache;

/// The upper layer that removes unused inodes from memory.
pub(crate) trait Evictor: Send + Sync {
    /// Evicts inodes if there are too many. Called when an inode was added.
    fn bound_inodes(&self);
}

/// The inodes in memory. Apart from the count of its references, which a push changes.
#[repr(align(128))]
pub(crate) struct Inodes {
    pub(crate) store: Arc<Store>,
    pub(crate) space: Arc<Space>,
    pub(crate) log: Arc<Log>,
    pub(crate) commit: Arc<Committer>,
    pub(crate) watch: Arc<Watchers>,
    /// Map from number to inode.
    pub(crate) index: InodeIndex,
    /// All inodes in core, for walks [P1].
    pub(crate) in_core: SlotList<Arc<Inode>>,
    /// Inodes that the last walk for clean ones left in core.
    pub(crate) inodes_left: AtomicU64,
    /// Inodes that write-back must visit.
    pub(crate) dirty_inodes: PerSlot<Mutex<Vec<Arc<Inode>>, locks::DirtyInodes>>,
    pub(crate) lazy_times: LazyTimes,
    observed: Observed,
    /// Files that several slots open.
    pub(crate) open_files: OpenFiles,
    /// Directories that slots have walked through.
    pub(crate) walks: WalkCache,
    pub(crate) evictor: Upward<dyn Evictor>,
}

impl PushObserver for Inodes {
    fn published(&self, published: &Published) {
        self.note_published(published);
    }

    fn will_grow(&self, inodes: u32) {
        self.index.grow(inodes);
    }
}

impl Inodes {
    /// Makes the layer with no inode in memory.
    pub fn new(commit: Arc<Committer>, watch: Arc<Watchers>) -> Self {
        let geometry = &commit.store.geometry;
        Self {
            store: Arc::clone(&commit.store),
            space: Arc::clone(&commit.space),
            log: Arc::clone(&commit.log),
            index: InodeIndex::new(geometry.groups, geometry.inodes_per_group),
            in_core: SlotList::new(),
            inodes_left: AtomicU64::new(0),
            dirty_inodes: PerSlot::default(),
            lazy_times: Default::default(),
            observed: Default::default(),
            open_files: Default::default(),
            walks: Default::default(),
            evictor: Default::default(),
            watch,
            commit,
        }
    }
}
