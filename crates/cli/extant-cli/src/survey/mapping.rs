//! Mappings of inodes, run by run. Only the numbers of visited nodes are kept.

use ext4_format::extent::{self, Extent};
use ext4_format::geometry::Geometry;
use ext4_format::map_walk::{self, MapNode, MapVisitor, OnDamage};
use ext4_format::{BlockNr, FormatError, InodeNr, Where, checksum};
use extant::Volume;
use std::collections::HashSet;

/// A mapping of an inode.
pub struct Mapping {
    pub ino: InodeNr,
    pub generation: u32,
    /// Flags of the inode, which say of what kind the mapping is.
    pub flags: u32,
}

/// Walks over mappings. Every node belongs to one mapping; a node that is visited again is an error, which bounds the
/// work.
pub struct Walker<'a> {
    volume: &'a Volume,
    geometry: &'a Geometry,
    seen: HashSet<u64>,
}

impl<'a> Walker<'a> {
    /// Makes a walker that has visited no node.
    pub fn new(volume: &'a Volume) -> Self {
        Self {
            volume,
            geometry: volume.geometry(),
            seen: HashSet::new(),
        }
    }

    /// Records a block of metadata as visited.
    ///
    /// # Errors
    /// The block was visited before.
    pub fn first_visit(&mut self, block: BlockNr, what: &'static str) -> Result<(), FormatError> {
        if self.seen.insert(block.0) {
            Ok(())
        } else {
            Err(FormatError::corrupt(what, Where::Block(block, 0)))
        }
    }

    /// Visits the runs of a mapping, in its order.
    pub fn walk(
        &mut self,
        mapping: &Mapping,
        i_block: &[u8],
        visit: impl FnMut(u64, BlockNr, u64) -> bool,
    ) -> extant::Result<()> {
        let (geometry, inode_flags) = (self.geometry, mapping.flags);
        let mut walk = Walk {
            walker: self,
            mapping,
            visit,
        };
        map_walk::walk(&mut walk, geometry, inode_flags, i_block)
    }
}

/// A walk over one mapping.
struct Walk<'w, 'a, V> {
    walker: &'w mut Walker<'a>,
    mapping: &'w Mapping,
    /// Called for each run, with its start in the file and on the device, and its number of blocks; false ends the walk.
    visit: V,
}

impl<V: FnMut(u64, BlockNr, u64) -> bool> MapVisitor for Walk<'_, '_, V> {
    type Error = extant::Error;
    type Block = Vec<u8>;

    fn node(&mut self, node: &MapNode) -> extant::Result<Option<Vec<u8>>> {
        let block = node.block;
        let two_parents = match node.rules {
            Some(_) => "extent node that has two parents",
            None => "address block that has two parents",
        };
        self.walker.first_visit(block, two_parents)?;
        let bytes = self.walker.volume.metadata_block(block)?;
        let geometry = self.walker.geometry;
        if node.rules.is_some() && geometry.features.has_metadata_csum() {
            let Mapping {
                ino, generation, ..
            } = *self.mapping;
            let seed = checksum::inode_seed(geometry.csum_seed, ino, generation);
            extent::verify_tail(&bytes, seed).map_err(|e| e.at(Where::Block(block, 0)))?;
        }
        Ok(Some(bytes))
    }

    fn extent(&mut self, extent: Extent, _end: u64) -> extant::Result<()> {
        let Extent {
            logical, physical, ..
        } = extent;
        let len = extent.len.into();
        let broken = if !self.walker.geometry.is_valid_data_range(physical, len) {
            "mapping outside the data area"
        } else if !(self.visit)(logical.into(), physical, len) {
            "more blocks mapped than the volume has"
        } else {
            return Ok(());
        };
        Err(FormatError::corrupt(broken, Where::Inode(self.mapping.ino)).into())
    }

    fn damage(&mut self, _: Option<&MapNode>, error: FormatError) -> extant::Result<OnDamage> {
        Err(error.at(Where::Inode(self.mapping.ino)).into())
    }
}
