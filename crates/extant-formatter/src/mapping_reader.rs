//! Reads the mapping of an inode from its tree: extents of any depth, or indirect blocks. The loader uses it for
//! files and the formatter for directories.

use crate::error::Result;
use crate::extent_map::{ExtentMap, Run};
use crate::image::BlockImages;
use crate::system_zone::SystemZone;
use ext4_format::extent::{self, Node, NodeRules};
use ext4_format::geometry::Geometry;
use ext4_format::inode::{I_BLOCK_SIZE, flags};
use ext4_format::{BlockNr, FormatError, InodeNr, Where, checksum, indirect};

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
        let mut map = ExtentMap::default();
        if inode_flags & flags::EXTENTS != 0 {
            let rules = NodeRules::root(self.geometry.blocks_count);
            self.node(i_block, &rules, &mut map)
                .map_err(|e| self.place(e))?;
        } else {
            self.indirect_root(i_block, &mut map)
                .map_err(|e| self.place(e))?;
        }
        Ok(map)
    }

    /// Returns true if an inode may map these blocks.
    fn is_data(&self, start: BlockNr, len: u64) -> bool {
        match self.zone {
            Some(zone) => zone.check(self.images, start, len).is_ok(),
            None => self.geometry.is_valid_data_range(start, len),
        }
    }

    fn place(&self, e: crate::error::Error) -> crate::error::Error {
        match e {
            crate::error::Error::Format(f) => f.at(Where::Inode(self.ino)).into(),
            other => other,
        }
    }

    fn corrupt(&self, what: &'static str) -> crate::error::Error {
        FormatError::corrupt(what, Where::Inode(self.ino)).into()
    }

    /// Returns the checksum seed of this inode's blocks.
    pub fn seed(&self) -> u32 {
        checksum::inode_seed(self.geometry.csum_seed, self.ino, self.generation)
    }

    fn node(&self, bytes: &[u8], rules: &NodeRules, map: &mut ExtentMap) -> Result<()> {
        match Node::parse(bytes, rules)? {
            Node::Leaf(leaf) => {
                for e in leaf.iter() {
                    if !self.is_data(e.physical, u64::from(e.len)) {
                        return Err(self.corrupt("extent outside the data area"));
                    }
                    map.set(Run {
                        logical: e.logical,
                        len: e.len,
                        physical: e.physical,
                        unwritten: e.unwritten,
                    });
                }
            }
            Node::Index(index) => {
                for (i, child) in index.iter().enumerate() {
                    if !self.is_data(child.child, 1) {
                        return Err(self.corrupt("extent node outside the data area"));
                    }
                    let image = self.images.image(child.child)?;
                    map.note_node();
                    if self.geometry.features.has_metadata_csum() && !image.is_verified() {
                        extent::verify_tail(&image, self.seed())
                            .map_err(|e| e.at(Where::Block(child.child, 0)))?;
                        image.set_verified();
                    }
                    let rules = index
                        .child_rules(i, rules)
                        .ok_or_else(|| self.corrupt("extent index entry"))?;
                    self.node(&image, &rules, map).map_err(|e| match e {
                        crate::error::Error::Format(f) => f.at(Where::Block(child.child, 0)).into(),
                        other => other,
                    })?;
                }
            }
        }
        Ok(())
    }

    fn indirect_root(&self, i_block: &[u8; I_BLOCK_SIZE], map: &mut ExtentMap) -> Result<()> {
        let blocks = self.geometry.blocks_count;
        let mut budget = blocks;
        for (i, nr) in indirect::mapped(i_block, blocks).collect::<Result<Vec<_>, _>>()? {
            let (depth, first) = match i {
                0..=11 => (0, u64::from(i)),
                12 => (1, 12),
                13 => (2, 12 + self.per(1)),
                _ => (3, 12 + self.per(1) + self.per(2)),
            };
            self.indirect_node(nr, depth, first, map, &mut budget)?;
        }
        Ok(())
    }

    fn per(&self, depth: u32) -> u64 {
        u64::from(indirect::per_block(self.geometry.block_size)).pow(depth)
    }

    fn indirect_node(
        &self,
        nr: BlockNr,
        depth: u32,
        first: u64,
        map: &mut ExtentMap,
        budget: &mut u64,
    ) -> Result<()> {
        if !self.is_data(nr, 1) {
            return Err(self.corrupt("mapped block outside the data area"));
        }
        // A tree that maps more blocks than the volume has contains a circle.
        *budget = budget
            .checked_sub(1)
            .ok_or_else(|| self.corrupt("block map larger than the volume"))?;
        if depth == 0 {
            let logical = u32::try_from(first).map_err(|_| self.corrupt("logical block number"))?;
            map.set(Run {
                logical,
                len: 1,
                physical: nr,
                unwritten: false,
            });
            return Ok(());
        }
        let image = self.images.image(nr)?;
        map.note_node();
        for entry in indirect::mapped(&image, self.geometry.blocks_count) {
            let (i, child) = entry.map_err(|e| e.at(Where::Block(nr, 0)))?;
            self.indirect_node(
                child,
                depth - 1,
                first + u64::from(i) * self.per(depth - 1),
                map,
                budget,
            )?;
        }
        Ok(())
    }
}
