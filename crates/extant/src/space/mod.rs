//! Space: how many blocks and inode numbers are free, for whom, and which of them are handed out. The in-core bitmaps are the
//! truth for allocating; the formatter writes their images.

pub mod bitmaps;
pub mod block;
mod bound;
pub mod buddy;
mod charged;
mod contention;
pub mod counts;
mod goals;
pub mod inode;
pub mod preallocation;
mod ranks;
pub mod search;

use crate::base::locks::{self, Mutex};
use crate::store::Store;
use block::BlockAlloc;
use counts::Counts;
use inode::InodeAlloc;
use search::BlockScan;
use std::sync::Arc;

/// Free blocks and inode numbers.
pub(crate) struct Space {
    pub(crate) store: Arc<Store>,
    /// Blocks that are free, by count.
    pub(crate) counts: Counts,
    /// Blocks that are free, by place.
    pub(crate) blocks: BlockAlloc,
    /// Inode numbers that are free.
    pub(crate) inodes: InodeAlloc,
    /// Held while a run of free blocks is out of use to be trimmed: who is short of space waits for it.
    pub(crate) trimming: Mutex<(), locks::Trimming>,
}

impl Space {
    /// With so many blocks and inode numbers free.
    pub fn new(store: Arc<Store>, counts: Counts, free_inodes: u64, scan: BlockScan) -> Self {
        let (geometry, cache) = (&store.geometry, store.limits.cache_bytes);
        Self {
            counts,
            blocks: BlockAlloc::new(geometry, scan, cache / 8),
            inodes: InodeAlloc::new(geometry, free_inodes, cache / 16),
            trimming: Mutex::new(()),
            store,
        }
    }
}
