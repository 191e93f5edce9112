//! The formatter: the only code that changes ext4 metadata blocks. Batch in, block images out.
//!
//! Pure and deterministic: no device, no clock, no namespace lock. What it reads comes through
//! [`BlockImages`], the blocks it takes come through [`MetaSpace`] out of what the operations
//! reserved, so it cannot fail for lack of space.

pub mod workspace;

use crate::buffers::Image;
use crate::error::Result;
use ext4_format::{BlockNr, InodeNr};
use std::sync::Arc;

/// Where the formatter gets the images it starts from.
pub trait BlockImages: Sync {
    /// The newest image of a metadata block.
    fn image(&self, block: BlockNr) -> Result<Arc<Image>>;
}

impl BlockImages for crate::buffers::Buffers {
    fn image(&self, block: BlockNr) -> Result<Arc<Image>> {
        self.read(block)
    }
}

/// Where the formatter gets blocks for directories, index and extent blocks and attributes.
pub trait MetaSpace: Sync {
    /// One block near `goal`, marked used in the in-core bitmap. The formatter sets its bit in
    /// the bitmap image.
    fn alloc_meta(&self, goal: BlockNr) -> Result<BlockNr>;
    /// Blocks no longer used; they become free for others when this batch is on disk. The formatter
    /// clears their bits in the bitmap image.
    fn free_meta(&self, start: BlockNr, len: u32);
}

/// What stat must learn of an inode whose mapping the formatter changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Which inode.
    pub ino: InodeNr,
    /// New size in bytes, for directories.
    pub size: Option<u64>,
    /// Change of its count of 512-byte sectors by metadata blocks (directory blocks, index and
    /// extent blocks, attribute block); data blocks are the namespace's own to count.
    pub sectors_delta: i64,
}

/// What one batch becomes.
#[derive(Debug, Default)]
pub struct Output {
    /// Changed blocks with their new images, by block number.
    pub blocks: Vec<(BlockNr, Arc<Image>)>,
    /// Metadata blocks freed: revoked in the journal, forgotten by the cache.
    pub revoked: Vec<BlockNr>,
    /// For stat.
    pub published: Vec<Published>,
    /// Inode numbers that were in use on disk before this batch and are free after it.
    pub freed_inodes: Vec<InodeNr>,
    /// Metadata blocks taken from [`MetaSpace`].
    pub taken: u64,
}
