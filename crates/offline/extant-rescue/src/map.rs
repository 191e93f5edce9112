//! The blocks of an inode, as far as its mapping obeys the rules.

use crate::state::Rescue;
use ext4_format::extent::Extent;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::map_walk::{self, MapNode, MapVisitor, OnDamage};
use ext4_format::{BlockNr, FormatError};
use ext4_image::ExtentOrder;
use std::collections::BTreeSet;
use std::convert::Infallible;

/// Result of reading a mapping.
#[derive(Debug, Default)]
pub(crate) struct Map {
    /// Runs in logical order.
    pub(crate) extents: Vec<Extent>,
    /// Whether a part is lost.
    pub(crate) damaged: bool,
}

struct Reader<'r, 'd> {
    rescue: &'r Rescue<'d>,
    /// Whether the mapping is an extent tree.
    tree: bool,
    /// Whether to read the nodes in their state before the file was deleted.
    old: bool,
    map: Map,
    blocks: u64,
    order: ExtentOrder,
    seen: BTreeSet<BlockNr>,
}

impl Reader<'_, '_> {
    fn keep(&mut self, extent: Extent, end: u64) {
        let geo = &self.rescue.image.geo;
        let len = u64::from(extent.len);
        let fits = len > 0
            && extent.end() <= end
            && geo.is_valid_data_range(extent.physical, len)
            // A file has no more blocks than the volume: a hostile map does not grow beyond all bounds.
            && self.blocks + len <= geo.blocks_count;
        if !fits {
            self.map.damaged = true;
            return;
        }
        // The length of the last extent may be reduced.
        let extents = &mut self.map.extents;
        let from = extents.len().saturating_sub(1);
        let blocks = |extents: &[Extent]| extents.iter().skip(from).map(|e| u64::from(e.len)).sum();
        let before: u64 = blocks(extents);
        self.map.damaged |= !self.order.push(extents, extent);
        self.blocks = (self.blocks + blocks(extents)).saturating_sub(before);
    }
}

impl MapVisitor for Reader<'_, '_> {
    type Error = Infallible;
    type Block = Vec<u8>;

    /// Reads a block of the mapping itself, each once.
    fn node(&mut self, node: &MapNode) -> Result<Option<Vec<u8>>, Infallible> {
        let (rescue, block) = (self.rescue, node.block);
        let valid = rescue.image.geo.is_valid_data_range(block, 1) && self.seen.insert(block);
        let old = if valid && self.old {
            rescue.old_node(block)
        } else {
            None
        };
        let bytes = old.or_else(|| rescue.block(block).filter(|_| valid));
        self.map.damaged |= bytes.is_none();
        Ok(bytes)
    }

    fn extent(&mut self, extent: Extent, end: u64) -> Result<(), Infallible> {
        if self.tree {
            self.keep(extent, end);
        } else {
            extent.blocks().for_each(|block| self.keep(block, end));
        }
        Ok(())
    }

    fn damage(&mut self, _: Option<&MapNode>, _: FormatError) -> Result<OnDamage, Infallible> {
        self.map.damaged = true;
        Ok(OnDamage::Salvage)
    }
}

impl Rescue<'_> {
    /// Returns the blocks of an inode; with `old`, of a deleted one before its deletion.
    pub(crate) fn map(&self, raw: &[u8], core: &InodeCore, old: bool) -> Map {
        match inode::i_block(raw) {
            Ok(root) => self.map_root(root, core.flags, old),
            Err(_) => Map::default(),
        }
    }

    /// Returns the blocks of a mapping with this root.
    pub(crate) fn map_root(&self, root: &[u8], inode_flags: u32, old: bool) -> Map {
        let mut reader = Reader {
            rescue: self,
            tree: inode_flags & flags::EXTENTS != 0,
            old,
            map: Map::default(),
            blocks: 0,
            order: ExtentOrder::default(),
            seen: BTreeSet::new(),
        };
        let Ok(()) = map_walk::walk(&mut reader, &self.image.geo, inode_flags, root);
        reader.map
    }
}
