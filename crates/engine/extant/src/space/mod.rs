//! Space: how many blocks and inode numbers are free, which callers may take them, and which of them are allocated.
//! Allocation relies on the in-core bitmaps. The formatter writes their images.

pub mod allocated;
pub mod bitmaps;
pub mod block;
mod bound;
pub mod buddy;
pub mod contention;
pub mod counts;
mod goals;
pub mod guards;
pub mod inode;
pub mod inode_source;
pub mod orlov;
pub mod preallocation;
mod ranks;
pub mod search;

use crate::base::locks::{self, Mutex};
use crate::space::contention::Contention;
use crate::store::Store;
use crate::types::settings::BlockScan;
use block::BlockAlloc;
use counts::Counts;
use ext4_format::growth::Growth;
use inode::InodeAlloc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Free blocks and inode numbers.
pub(crate) struct Space {
    pub(crate) store: Arc<Store>,
    /// The counts of free blocks.
    pub(crate) counts: Counts,
    /// The bitmaps of free blocks.
    pub(crate) blocks: BlockAlloc,
    /// Free inode numbers.
    pub(crate) inodes: InodeAlloc,
    /// Held while a run of free blocks is out of use to be trimmed: callers that are short of space wait for it.
    pub(crate) trimming: Mutex<(), locks::Trimming>,
}

impl Space {
    /// Makes the space of a volume with these counts.
    pub fn new(store: Arc<Store>, counts: Counts, free_inodes: u64, scan: BlockScan) -> Self {
        let (geometry, cache) = (&store.geometry, store.limits.cache_bytes);
        let contention = Arc::<Contention>::default();
        let inodes = InodeAlloc::new(geometry, free_inodes, cache / 32, Arc::clone(&contention));
        Self {
            counts,
            blocks: BlockAlloc::new(geometry, scan, cache / 8, contention),
            inodes,
            trimming: Mutex::new(()),
            store,
        }
    }
}

impl Space {
    /// Grows with the volume: its new groups can be allocated from, and their blocks and numbers are free from now on.
    pub fn grow(&self, growth: &Growth) {
        let (old, new) = (&growth.old, &growth.new);
        let (blocks, inodes) = growth.free();
        self.blocks.grow(new);
        self.inodes.groups.grow(new.groups - old.groups);
        self.inodes.found.fetch_add(inodes, Ordering::Relaxed);
        let reserve = new.reserved_blocks.saturating_sub(old.reserved_blocks);
        self.counts.grow(blocks, reserve);
    }
}
