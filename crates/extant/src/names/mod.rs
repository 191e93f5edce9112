//! Names: looked up, made, removed, moved.
//!
//! # Lock order
//! 1. `Names::rename` (moves of directories between parents) then the lock for adding a name to a directory whose
//!    index is full ([`index_room`])
//! 2. directory buckets, by inode number of the directory, then by bucket
//! 3. a file's map ([`FileData::map`](crate::incore::file::FileData::map)), then its page index, then a chunk
//! 4. inode states, by inode number
//! 5. the slot's commit lists
//!
//! A push takes none of these, so opening a transaction may wait for a push under any of them but 5.

pub mod create;
pub mod index_room;
pub mod load;
pub mod lookup;
mod moving;
pub mod remove;
pub mod rename;
pub mod unnamed;
pub mod walk;
pub mod whiteout;

use crate::base::locks::{self, Mutex};
use crate::commit::Committer;
use crate::data::Data;
use crate::inodes::Inodes;
use crate::lifecycle::Lifecycle;
use crate::space::Space;
use crate::store::Store;
use crate::watch::watchers::Watchers;
use extant_formatter::Allowance;
use std::sync::Arc;

/// The name space.
pub(crate) struct Names {
    pub(crate) store: Arc<Store>,
    space: Arc<Space>,
    commit: Arc<Committer>,
    watch: Arc<Watchers>,
    inodes: Arc<Inodes>,
    data: Arc<Data>,
    lifecycle: Arc<Lifecycle>,
    /// Held by renames that move a directory to another parent, so that no two make a loop.
    pub(crate) rename: Mutex<(), locks::Rename>,
    /// The room that any directory has, without an account of its own.
    pub(crate) index_allowance: Allowance,
}

impl Names {
    /// Over the inodes of a volume.
    pub fn new(lifecycle: Arc<Lifecycle>) -> Self {
        Self {
            store: Arc::clone(&lifecycle.store),
            space: Arc::clone(&lifecycle.space),
            commit: Arc::clone(&lifecycle.commit),
            watch: Arc::clone(&lifecycle.watch),
            inodes: Arc::clone(&lifecycle.inodes),
            data: Arc::clone(&lifecycle.data),
            rename: Mutex::new(()),
            index_allowance: Allowance::new(&lifecycle.store.geometry),
            lifecycle,
        }
    }
}
