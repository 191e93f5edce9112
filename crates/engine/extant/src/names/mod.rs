//! Names: lookup, creation, removal, renames.
//!
//! # Lock order
//! 1. `Names::rename` (moves of directories between parents), then the lock for adding a name to a directory whose
//!    index is full ([`index_room`])
//! 2. directory buckets, by inode number of the directory, then by bucket
//! 3. a file's map ([`FileData::map`](crate::incore::file::FileData::map)), then its page index, then a page
//! 4. inode states, by inode number
//! 5. the slot's commit lists
//! 6. a chunk of the index of inodes; a reader of the device may hold it, which waits for none of these
//!
//! A push takes none of the first four, so opening a transaction may wait for a push under any of them.

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

use crate::base::error::Result;
use crate::base::locks::{self, Mutex};
use crate::commit::Committer;
use crate::data::Data;
use crate::incore::inode::Inode;
use crate::inodes::Inodes;
use crate::inodes::attributes::SetAttributes;
use crate::lifecycle::Lifecycle;
use crate::space::Space;
use crate::store::Store;
use crate::types::credentials::Credentials;
use crate::watch::watchers::Watchers;
use ext4_format::inode::flags;
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
    /// Room that every directory has without a separate account.
    pub(crate) index_allowance: Allowance,
}

impl Names {
    /// Makes the layer over the inodes of a volume.
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

    /// Changes attributes.
    pub(crate) fn set_attributes(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        set: &SetAttributes,
    ) -> Result<()> {
        if let (Some(_), Some(new)) = (inode.directory(), set.flags)
            && (new ^ inode.flags()) & flags::CASEFOLD != 0
        {
            // Names may be compared in another way only while the directory is empty.
            self.names(inode)?;
        }
        self.data.set_attributes(who, inode, set)
    }
}
