//! Reads the mapping of an inode from its tree: extents of any depth, or indirect blocks. The loader uses it for
//! files and the formatter for directories.

use crate::error::{Error, Result};
use crate::extent_map::{ExtentMap, Run};
use crate::image::{BlockImages, Image};
use crate::system_zone::SystemZone;
use ext4_format::extent::{self, Extent};
use ext4_format::geometry::Geometry;
use ext4_format::inode::{I_BLOCK_SIZE, flags};
use ext4_format::map_walk::{self, MapNode, MapVisitor, OnDamage};
use ext4_format::{BlockNr, FormatError, InodeNr, Where, checksum};
use std::ops::Deref;
use std::sync::Arc;

/// The input of a reading.
pub struct MappingReader<'a> {
    /// The volume.
    pub geometry: &'a Geometry,
    /// The source of blocks.
    pub images: &'a dyn BlockImages,
    /// The inode of the mapping.
    pub ino: InodeNr,
    /// Generation of the inode, for checksums.
    pub generation: u32,
    /// The volume's own blocks, once they are known; the journal's mapping leads into them.
    pub zone: Option<&'a SystemZone>,
}

impl MappingReader<'_> {
    /// Reads the whole mapping, given the inode's flags and `i_block`. Every block is checked to lie in the volume's
    /// data area.
    pub fn read(&self, inode_flags: u32, i_block: &[u8; I_BLOCK_SIZE]) -> Result<ExtentMap> {
        let mut reading = Reading {
            reader: self,
            tree: inode_flags & flags::EXTENTS != 0,
            map: ExtentMap::default(),
            budget: self.geometry.blocks_count,
        };
        map_walk::walk(&mut reading, self.geometry, inode_flags, i_block)?;
        Ok(reading.map)
    }

    /// Returns true if an inode may map these blocks.
    fn is_data(&self, start: BlockNr, len: u64) -> bool {
        match self.zone {
            Some(zone) => zone.check(self.images, start, len).is_ok(),
            None => self.geometry.is_valid_data_range(start, len),
        }
    }

    fn corrupt(&self, what: &'static str) -> Error {
        FormatError::corrupt(what, Where::Inode(self.ino)).into()
    }

    /// Returns the checksum seed of this inode's blocks.
    pub fn seed(&self) -> u32 {
        checksum::inode_seed(self.geometry.csum_seed, self.ino, self.generation)
    }
}

/// A reading under way.
struct Reading<'r, 'a> {
    reader: &'r MappingReader<'a>,
    /// Whether the mapping is an extent tree.
    tree: bool,
    map: ExtentMap,
    /// Blocks that a block map may still have.
    budget: u64,
}

impl Reading<'_, '_> {
    /// Checks blocks of the mapping; `outside` is the rule that a tree breaks.
    fn check(&mut self, start: BlockNr, len: u64, outside: &'static str) -> Result<()> {
        let reader = self.reader;
        if !reader.is_data(start, len) {
            return Err(reader.corrupt(if self.tree {
                outside
            } else {
                "mapped block outside the data area"
            }));
        }
        if !self.tree {
            // A block map of more blocks than the volume has contains a circle.
            let left = self.budget.checked_sub(len);
            let circle = || reader.corrupt("block map larger than the volume");
            self.budget = left.ok_or_else(circle)?;
        }
        Ok(())
    }
}

/// The bytes of a node.
struct NodeBytes(Arc<Image>);

impl Deref for NodeBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl MapVisitor for Reading<'_, '_> {
    type Error = Error;
    type Block = NodeBytes;

    fn node(&mut self, node: &MapNode) -> Result<Option<NodeBytes>> {
        let reader = self.reader;
        self.check(node.block, 1, "extent node outside the data area")?;
        let image = reader.images.image(node.block)?;
        self.map.note_node();
        if self.tree && reader.geometry.features.has_metadata_csum() && !image.is_verified() {
            extent::verify_tail(&image, reader.seed())
                .map_err(|e| e.at(Where::Block(node.block, 0)))?;
            image.set_verified();
        }
        Ok(Some(NodeBytes(image)))
    }

    fn extent(&mut self, extent: Extent, _end: u64) -> Result<()> {
        let len = extent.len.into();
        self.check(extent.physical, len, "extent outside the data area")?;
        self.map.set(Run {
            logical: extent.logical,
            len: extent.len,
            physical: extent.physical,
            unwritten: extent.unwritten,
        });
        Ok(())
    }

    fn damage(&mut self, node: Option<&MapNode>, error: FormatError) -> Result<OnDamage> {
        let place = node.map_or(Where::Inode(self.reader.ino), |node| {
            Where::Block(node.block, 0)
        });
        Err(error.at(place).into())
    }
}
