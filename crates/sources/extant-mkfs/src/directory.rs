//! The directories of the tree, as the builder of the format takes them.

use super::error::Result;
use super::tree::{Name, Tree};
use ext4_format::InodeNr;
use ext4_format::directory::{Builder, Named, Shape};
use ext4_format::geometry::Geometry;

/// Size of `lost+found`, so that a repair finds room without allocating.
const LOST_FOUND: u32 = 16 << 10;

/// Returns the shape of a directory with these names and at least `least` blocks.
pub(super) fn shape_of(geo: &Geometry, names: &[Name], least: u32) -> Shape {
    Shape::of(geo, names.iter().map(Name::len), least)
}

/// Returns the number of blocks that a directory needs for its purpose, full or not.
pub(super) fn least_blocks(geo: &Geometry, is_lost_found: bool) -> u32 {
    // mke2fs stops at twelve blocks, the ones mapped directly.
    if is_lost_found {
        (LOST_FOUND / geo.block_size).clamp(2, 12)
    } else {
        1
    }
}

/// Everything needed to write one directory.
pub(super) struct Writer<'a> {
    pub geo: &'a Geometry,
    pub tree: &'a Tree,
    /// Inode numbers by index.
    pub numbers: &'a [u32],
    pub own: InodeNr,
    pub parent: InodeNr,
    /// Checksum seed of the directory's inode.
    pub seed: u32,
    pub hash_version: u8,
}

impl Writer<'_> {
    /// Builds all blocks in logical order.
    pub fn write(
        &self,
        names: &[Name],
        shape: &Shape,
        emit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let builder = Builder {
            geo: self.geo,
            own: self.own,
            parent: self.parent,
            seed: self.seed,
            hash_version: self.hash_version,
            encrypted: false,
            count: names.len(),
            named: |i: usize| {
                let name = &names[i]; // the builder asks for known names only
                let inode = name.inode as usize;
                Named {
                    name: self.tree.name(name),
                    hash: name.hash,
                    ino: InodeNr(self.numbers[inode]), // one number for each inode
                    file_type: Some(self.tree.inodes[inode].file_type()),
                }
            },
        };
        builder.build(shape, emit)
    }
}
