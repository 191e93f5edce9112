//! The properties that shape a directory's blocks, and the check of a block by its role.

use crate::error::{Error, Result};
use crate::image::Image;
use ext4_format::geometry::Geometry;
use ext4_format::htree::{self, IndexBlockKind};
use ext4_format::{BlockNr, FormatError, Where, dir_entry};

/// The role of a directory block, which decides how it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Names: an htree's leaf or any block of a linear directory.
    Leaf,
    /// Block 0 of an htree.
    Root,
    /// An index block below it.
    Node,
}

/// Properties of the volume and the inode that shape directory blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub block_size: usize,
    pub csum: bool,
    pub filetype: bool,
    pub large_dir: bool,
    /// Split a leaf when it is three quarters full, because fast commits cannot split leaves.
    pub keeps_room: bool,
    /// Checksum seed of the inode.
    pub seed: u32,
}

impl Shape {
    pub fn new(geometry: &Geometry, seed: u32) -> Self {
        let features = &geometry.features;
        Self {
            block_size: geometry.block_size as usize,
            csum: features.has_metadata_csum(),
            filetype: features.has_filetype(),
            large_dir: features.has_large_dir(),
            keeps_room: false,
            seed,
        }
    }

    /// Returns the bytes of a block that names can use.
    pub fn usable(&self) -> usize {
        dir_entry::usable(self.block_size, self.csum)
    }

    /// Returns the bytes of names up to which a leaf takes new ones without a split.
    pub fn full(&self) -> usize {
        if self.keeps_room {
            self.usable() / 4 * 3
        } else {
            self.usable()
        }
    }

    /// Returns the least number of entries that a node takes before it is split again, because new nodes are three quarters
    /// full at most.
    pub fn until_split(&self) -> u64 {
        self.capacity(IndexBlockKind::Node) as u64 / 4
    }

    /// Returns the number of leaves that any directory may have, in whatever order they came.
    pub fn most_leaves(&self) -> u64 {
        // A root that gets its last level has two entries.
        (self.capacity(IndexBlockKind::Root) as u64 - 2) * self.until_split() - 1
    }

    /// Returns the most entries of an index block.
    pub fn capacity(&self, kind: IndexBlockKind) -> usize {
        kind.capacity(self.block_size, self.csum)
    }

    /// Checks an image that has not been checked since it was read.
    pub fn verify(&self, image: &Image, role: Role, block: BlockNr) -> Result<()> {
        if image.len() != self.block_size {
            let what = FormatError::corrupt("directory block size", Where::Block(block, 0));
            return Err(what.into());
        }
        if !self.csum || image.is_verified() {
            return Ok(());
        }
        match role {
            Role::Leaf => dir_entry::verify_tail(image, self.seed),
            Role::Root => htree::verify_checksum(image, IndexBlockKind::Root, self.seed),
            Role::Node => htree::verify_checksum(image, IndexBlockKind::Node, self.seed),
        }
        .map_err(|e| e.at(Where::Block(block, 0)))?;
        image.set_verified();
        Ok(())
    }
}

/// Gives a parser's error its block.
pub(super) fn at(block: BlockNr) -> impl Fn(FormatError) -> Error {
    move |e| e.at(Where::Block(block, 0)).into()
}
