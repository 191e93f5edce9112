//! Mappings of inodes, run by run. Only the numbers of visited nodes are kept.

use ext4_format::extent::{self, Node, NodeRules};
use ext4_format::geometry::Geometry;
use ext4_format::{BlockNr, FormatError, InodeNr, Where, checksum, indirect};
use extant::Volume;
use std::collections::HashSet;

/// A mapping and its kind.
pub struct Mapping {
    pub ino: InodeNr,
    pub generation: u32,
    /// Whether the mapping is a tree of extents; otherwise a block map.
    pub extents: bool,
}

/// Walks over mappings. Every node belongs to one mapping; a node that is visited again is an error, which bounds the
/// work.
pub struct Walker<'a> {
    volume: &'a Volume,
    geometry: &'a Geometry,
    seen: HashSet<u64>,
}

/// Function called for each run, with its start in the file and on the device, and its number of blocks; false ends
/// the walk.
type Visit<'v> = dyn FnMut(u64, BlockNr, u64) -> bool + 'v;

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

    /// Returns the runs of a mapping, in its order.
    pub fn walk(
        &mut self,
        mapping: &Mapping,
        i_block: &[u8],
        mut visit: impl FnMut(u64, BlockNr, u64) -> bool,
    ) -> extant::Result<()> {
        let at = Where::Inode(mapping.ino);
        let walked = if mapping.extents {
            let rules = NodeRules::root(self.geometry.blocks_count);
            self.extents(mapping, i_block, &rules, &mut visit)
        } else {
            self.block_map(mapping, i_block, &mut visit)
        };
        walked.map_err(|e| match e {
            extant::Error::Format(e) => e.at(at).into(),
            other => other,
        })
    }

    fn bad(mapping: &Mapping, what: &'static str) -> extant::Error {
        FormatError::corrupt(what, Where::Inode(mapping.ino)).into()
    }

    fn tell(
        &self,
        mapping: &Mapping,
        visit: &mut Visit<'_>,
        run: (u64, BlockNr, u64),
    ) -> extant::Result<()> {
        let (logical, start, len) = run;
        if !self.geometry.is_valid_data_range(start, len) {
            return Err(Self::bad(mapping, "mapping outside the data area"));
        }
        if visit(logical, start, len) {
            Ok(())
        } else {
            Err(Self::bad(mapping, "more blocks mapped than the volume has"))
        }
    }

    fn extents(
        &mut self,
        mapping: &Mapping,
        bytes: &[u8],
        rules: &NodeRules,
        visit: &mut Visit<'_>,
    ) -> extant::Result<()> {
        let index = match Node::parse(bytes, rules)? {
            Node::Leaf(leaf) => {
                return leaf.iter().try_for_each(|e| {
                    self.tell(mapping, visit, (e.logical.into(), e.physical, e.len.into()))
                });
            }
            Node::Index(index) => index,
        };
        let seed = checksum::inode_seed(self.geometry.csum_seed, mapping.ino, mapping.generation);
        for (i, child) in index.iter().enumerate() {
            let rules = index
                .child_rules(i, rules)
                .ok_or_else(|| Self::bad(mapping, "extent index entry"))?;
            self.first_visit(child.child, "extent node that has two parents")?;
            let node = self.volume.metadata_block(child.child)?;
            if self.geometry.features.has_metadata_csum() {
                extent::verify_tail(&node, seed).map_err(|e| e.at(Where::Block(child.child, 0)))?;
            }
            self.extents(mapping, &node, &rules, visit)?;
        }
        Ok(())
    }

    fn block_map(
        &mut self,
        mapping: &Mapping,
        i_block: &[u8],
        visit: &mut Visit<'_>,
    ) -> extant::Result<()> {
        let per = u64::from(self.geometry.block_size / 4);
        for entry in indirect::mapped(i_block, self.geometry.blocks_count) {
            let (i, block) = entry?;
            let (depth, first) = match i {
                0..=11 => (0, u64::from(i)),
                12 => (1, 12),
                13 => (2, 12 + per),
                _ => (3, 12 + per + per * per),
            };
            self.indirect(mapping, block, depth, first, visit)?;
        }
        Ok(())
    }

    fn indirect(
        &mut self,
        mapping: &Mapping,
        block: BlockNr,
        depth: u32,
        first: u64,
        visit: &mut Visit<'_>,
    ) -> extant::Result<()> {
        if depth == 0 {
            return self.tell(mapping, visit, (first, block, 1));
        }
        self.first_visit(block, "address block that has two parents")?;
        let addresses = self.volume.metadata_block(block)?;
        let each = u64::from(self.geometry.block_size / 4).pow(depth - 1);
        for entry in indirect::mapped(&addresses, self.geometry.blocks_count) {
            let (i, child) = entry?;
            self.indirect(
                mapping,
                child,
                depth - 1,
                first + u64::from(i) * each,
                visit,
            )?;
        }
        Ok(())
    }
}
