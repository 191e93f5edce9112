//! The end of an inode in memory, and on disk.

pub mod evict;
pub mod handles;
pub mod orphans;
pub mod reap;

use crate::commit::Committer;
use crate::data::Data;
use crate::inodes::{Evictor, Inodes};
use crate::log::Log;
use crate::space::Space;
use crate::store::Store;
use crate::watch::watchers::Watchers;
use std::sync::Arc;

/// Takes inodes out of memory, and off the volume.
pub(crate) struct Lifecycle {
    pub(crate) store: Arc<Store>,
    pub(crate) space: Arc<Space>,
    pub(crate) log: Arc<Log>,
    pub(crate) commit: Arc<Committer>,
    pub(crate) watch: Arc<Watchers>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) data: Arc<Data>,
}

impl Evictor for Lifecycle {
    fn bound_inodes(&self) {
        Lifecycle::bound_inodes(self);
    }
}

impl Lifecycle {
    /// Makes the layer over the data of a volume.
    pub fn new(data: Arc<Data>) -> Self {
        Self {
            store: Arc::clone(&data.store),
            space: Arc::clone(&data.space),
            log: Arc::clone(&data.log),
            commit: Arc::clone(&data.commit),
            watch: Arc::clone(&data.watch),
            inodes: Arc::clone(&data.inodes),
            data,
        }
    }
}
