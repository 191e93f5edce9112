//! The inode that a mapping belongs to.

use ext4_format::geometry::Geometry;
use ext4_format::inode::{I_BLOCK_SIZE, flags};
use ext4_format::{BlockNr, InodeNr, checksum};

/// The 60 bytes in an inode at which its mapping begins.
pub(super) type Root = [u8; I_BLOCK_SIZE];

/// Owner of a mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub ino: InodeNr,
    pub generation: u32,
    /// Checksum seed of the volume.
    pub csum_seed: u32,
    /// The mapping is an extent tree; otherwise a block map.
    pub extents: bool,
    /// The goal for the first block.
    pub goal: BlockNr,
}

impl Owner {
    pub fn new(geometry: &Geometry, ino: InodeNr, generation: u32, inode_flags: u32) -> Self {
        let group = geometry
            .group_of_inode(ino)
            .map(|(group, _)| group)
            .unwrap_or_default();
        Self {
            ino,
            generation,
            csum_seed: geometry.csum_seed,
            extents: inode_flags & flags::EXTENTS != 0,
            goal: geometry.group_first_block(group),
        }
    }

    /// Returns the checksum seed of the inode's blocks. Most inodes have no blocks with checksums.
    pub fn seed(&self) -> u32 {
        checksum::inode_seed(self.csum_seed, self.ino, self.generation)
    }
}
