//! The blocks of an inode, as far as its mapping obeys the rules.

use crate::Rescue;
use ext4_format::BlockNr;
use ext4_format::extent::{Extent, LOGICAL_END, Node, NodeRules};
use ext4_format::geometry::Geometry;
use ext4_format::indirect;
use ext4_format::inode::{self, InodeCore, flags};
use std::collections::BTreeSet;

/// Result of reading a mapping.
#[derive(Debug, Default)]
pub(crate) struct Map {
    /// Runs in logical order.
    pub(crate) extents: Vec<Extent>,
    /// Whether a part is lost.
    pub(crate) damaged: bool,
    blocks: u64,
    seen: BTreeSet<BlockNr>,
    /// Whether to read the nodes in their state before the file was deleted.
    old: bool,
}

impl Map {
    fn keep(&mut self, rescue: &Rescue<'_>, extent: Extent, end: u64) {
        let after = self.extents.last().map_or(0, Extent::end);
        let len = u64::from(extent.len);
        let fits = len > 0
            && u64::from(extent.logical) >= after
            && extent.end() <= end
            && rescue.geo.is_valid_data_range(extent.physical, len)
            // A file has no more blocks than the volume: a hostile map does not grow beyond all bounds.
            && self.blocks + len <= rescue.geo.blocks_count;
        if fits {
            self.blocks += len;
            self.extents.push(extent);
        } else {
            self.damaged = true
        }
    }

    /// Reads a block of the mapping itself, each once.
    fn node(&mut self, rescue: &Rescue<'_>, block: BlockNr) -> Option<Vec<u8>> {
        let valid = rescue.geo.is_valid_data_range(block, 1) && self.seen.insert(block);
        let old = if self.old && valid {
            rescue.old_node(block)
        } else {
            None
        };
        let bytes = if valid {
            old.or_else(|| rescue.block(block))
        } else {
            None
        };
        self.damaged |= bytes.is_none();
        bytes
    }
}

/// Returns the first block of a mapping, if its number is in the inode itself.
pub(crate) fn first_block(raw: &[u8], core: &InodeCore, geo: &Geometry) -> Option<BlockNr> {
    let root = inode::i_block(raw).ok()?;
    if core.flags & flags::EXTENTS == 0 {
        return indirect::get(root, 0, geo.blocks_count).ok()?;
    }
    match Node::parse(root, &NodeRules::root(geo.blocks_count)).ok()? {
        Node::Leaf(leaf) => Some(leaf.get(0)?.physical),
        Node::Index(_) => None,
    }
}

impl Rescue<'_> {
    pub(crate) fn map(&self, raw: &[u8], core: &InodeCore) -> Map {
        self.mapped(raw, core, Map::default())
    }

    /// Returns the blocks of a deleted inode before its deletion.
    pub(crate) fn old_map(&self, raw: &[u8], core: &InodeCore) -> Map {
        let map = Map {
            old: true,
            ..Map::default()
        };
        self.mapped(raw, core, map)
    }

    fn mapped(&self, raw: &[u8], core: &InodeCore, mut map: Map) -> Map {
        let Ok(root) = inode::i_block(raw) else {
            return map;
        };
        if core.flags & flags::EXTENTS != 0 {
            self.tree(&mut map, root, &NodeRules::root(self.geo.blocks_count));
        } else {
            self.block_map(&mut map, root);
        }
        map
    }

    fn tree(&self, map: &mut Map, bytes: &[u8], rules: &NodeRules) {
        map.damaged |= Node::parse(bytes, rules).is_err();
        match Node::salvage(bytes) {
            // Depths fall from node to node, so that the walk ends.
            Ok(node) if rules.depth.is_some_and(|depth| depth != node.depth()) => {
                map.damaged = true;
            }
            Ok(Node::Leaf(leaf)) => leaf.iter().for_each(|e| map.keep(self, e, rules.end)),
            Ok(Node::Index(index)) => {
                for (i, child) in index.iter().enumerate() {
                    if let Some(below) = index.child_rules(i, rules)
                        && let Some(bytes) = map.node(self, child.child)
                    {
                        self.tree(map, &bytes, &below);
                    }
                }
            }
            Err(_) => map.damaged = true,
        }
    }

    fn block_map(&self, map: &mut Map, root: &[u8]) {
        let per = u64::from(indirect::per_block(self.geo.block_size));
        self.direct(map, root, indirect::DIRECT, 0);
        let mut logical = u64::from(indirect::DIRECT);
        for depth in 1..=3 {
            match indirect::get(root, indirect::DIRECT + depth - 1, self.geo.blocks_count) {
                Ok(Some(block)) => self.addresses(map, block, depth, logical),
                Ok(None) => {}
                Err(_) => map.damaged = true,
            }
            logical += per.pow(depth);
        }
    }

    fn direct(&self, map: &mut Map, bytes: &[u8], count: u32, first: u64) {
        for i in 0..count {
            let physical = match indirect::get(bytes, i, self.geo.blocks_count) {
                Ok(Some(physical)) => physical,
                Ok(None) => continue,
                Err(_) => {
                    map.damaged = true;
                    continue;
                }
            };
            let Ok(logical) = u32::try_from(first + u64::from(i)) else {
                return;
            };
            let (len, unwritten) = (1, false);
            let here = Extent {
                logical,
                len,
                physical,
                unwritten,
            };
            map.keep(self, here, LOGICAL_END);
        }
    }

    fn addresses(&self, map: &mut Map, block: BlockNr, depth: u32, first: u64) {
        let Some(bytes) = map.node(self, block) else {
            return;
        };
        let per = indirect::per_block(self.geo.block_size);
        if depth == 1 {
            return self.direct(map, &bytes, per, first);
        }
        let covered = u64::from(per).pow(depth - 1);
        for i in 0..per {
            match indirect::get(&bytes, i, self.geo.blocks_count) {
                Ok(Some(child)) => {
                    self.addresses(map, child, depth - 1, first + u64::from(i) * covered);
                }
                Ok(None) => {}
                Err(_) => map.damaged = true,
            }
        }
    }
}
