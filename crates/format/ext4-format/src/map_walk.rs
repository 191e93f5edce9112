//! Walks the mapping of an inode, an extent tree or a block map, in logical order. The visitor reads the blocks of the mapping. At damage it
//! ends the walk, skips the damaged part, or salvages the readable entries.

use crate::error::FormatError;
use crate::extent::{Extent, LOGICAL_END, Node, NodeRules};
use crate::geometry::Geometry;
use crate::indirect;
use crate::inode::flags;
use crate::types::BlockNr;
use core::ops::Deref;

/// A block of a mapping itself: a node of an extent tree, or an address block of a block map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapNode {
    /// The place of the node.
    pub block: BlockNr,
    /// Levels from the node down to the data: 1 for a leaf, and for a block with the addresses of data.
    pub height: u32,
    /// First logical block below the node.
    pub logical: u64,
    /// The rules of a node of an extent tree; `None` for an address block.
    pub rules: Option<NodeRules>,
}

/// The action of a walk at a node whose bytes break a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// Skip the node with everything below it. Of a block map only the damaged number is skipped.
    Skip,
    /// Visit the entries of the node as far as its header can be read. Entries may break any rule.
    Salvage,
}

/// Receives the parts of a mapping. A walk visits a block again if the mapping leads to it again; so a visitor of hostile bytes bounds
/// its work, such as by the blocks that it has seen.
///
/// ```
/// use ext4_format::extent::{self, Extent};
/// use ext4_format::layout::{Layout, LayoutParams};
/// use ext4_format::map_walk::{MapNode, MapVisitor, OnDamage, walk};
/// use ext4_format::{BlockNr, FormatError, inode::flags};
/// struct Blocks(u64);
/// impl MapVisitor for Blocks {
///     type Error = FormatError;
///     type Block = Vec<u8>;
///     fn node(&mut self, _: &MapNode) -> Result<Option<Vec<u8>>, FormatError> {
///         Ok(None)
///     }
///     fn extent(&mut self, extent: Extent, _: u64) -> Result<(), FormatError> {
///         self.0 += u64::from(extent.len);
///         Ok(())
///     }
///     fn damage(&mut self, _: Option<&MapNode>, error: FormatError) -> Result<OnDamage, FormatError> {
///         Err(error)
///     }
/// }
/// let geo = Layout::new(&LayoutParams::for_size(64 << 20))?.geometry;
/// let (mut root, mut blocks) = ([0; 60], Blocks(0));
/// extent::write_leaf(&mut root, 0, [Extent { logical: 4, len: 2, physical: BlockNr(900), unwritten: false }])?;
/// walk(&mut blocks, &geo, flags::EXTENTS, &root)?;
/// assert_eq!(blocks.0, 2);
/// # Ok::<(), FormatError>(())
/// ```
pub trait MapVisitor {
    /// Why a walk ends early.
    type Error;
    /// The bytes of a node.
    type Block: Deref<Target = [u8]>;

    /// Returns the bytes of a node; `None` skips the node with everything below it.
    ///
    /// # Errors
    /// Any that end the walk.
    fn node(&mut self, node: &MapNode) -> Result<Option<Self::Block>, Self::Error>;

    /// Receives a node of an extent tree whose bytes obey the rules; returns whether to visit its entries. The root is not
    /// passed.
    ///
    /// # Errors
    /// Any that end the walk.
    fn parsed(&mut self, _node: &MapNode, _bytes: &[u8]) -> Result<bool, Self::Error> {
        Ok(true)
    }

    /// Receives a run of blocks: an extent, or a run of adjacent addresses of one address block. `end` is the end of the logical
    /// blocks that its node may have.
    ///
    /// # Errors
    /// Any that end the walk.
    fn extent(&mut self, extent: Extent, end: u64) -> Result<(), Self::Error>;

    /// Receives a broken rule; the node is `None` for the root.
    ///
    /// # Errors
    /// Any that end the walk.
    fn damage(
        &mut self,
        node: Option<&MapNode>,
        error: FormatError,
    ) -> Result<OnDamage, Self::Error>;
}

/// Walks the mapping of an inode, given its flags and the 60 bytes of its root.
///
/// # Errors
/// The errors of the visitor.
#[inline]
pub fn walk<V: MapVisitor>(
    visitor: &mut V,
    geo: &Geometry,
    inode_flags: u32,
    root: &[u8],
) -> Result<(), V::Error> {
    let mut walk = Walk { visitor, geo };
    if inode_flags & flags::EXTENTS != 0 {
        walk.tree(root, &NodeRules::root(geo.blocks_count), None)
    } else {
        walk.block_map(root)
    }
}

/// Returns the first block of a file, if its number is in the root.
pub fn first_block(geo: &Geometry, inode_flags: u32, root: &[u8]) -> Option<BlockNr> {
    if inode_flags & flags::EXTENTS == 0 {
        return indirect::get(root, 0, geo.blocks_count).ok()?;
    }
    match Node::parse(root, &NodeRules::root(geo.blocks_count)).ok()? {
        Node::Leaf(leaf) => leaf.find(0)?.map(0),
        Node::Index(_) => None,
    }
}

struct Walk<'w, V> {
    visitor: &'w mut V,
    geo: &'w Geometry,
}

impl<V: MapVisitor> Walk<'_, V> {
    fn tree(
        &mut self,
        bytes: &[u8],
        rules: &NodeRules,
        at: Option<&MapNode>,
    ) -> Result<(), V::Error> {
        let node = match (Node::parse(bytes, rules), at) {
            (Ok(_), Some(at)) if !self.visitor.parsed(at, bytes)? => return Ok(()),
            (Ok(node), _) => node,
            (Err(error), _) => match (self.visitor.damage(at, error)?, Node::salvage(bytes)) {
                // Depths fall from node to node, so that the walk ends.
                (OnDamage::Salvage, Ok(node))
                    if rules.depth.is_none_or(|depth| depth == node.depth()) =>
                {
                    node
                }
                _ => return Ok(()),
            },
        };
        let index = match node {
            Node::Leaf(leaf) => {
                return leaf
                    .iter()
                    .try_for_each(|extent| self.visitor.extent(extent, rules.end));
            }
            Node::Index(index) => index,
        };
        for (i, child) in index.iter().enumerate() {
            let Some(below) = index.child_rules(i, rules) else {
                continue;
            };
            let node = MapNode {
                block: child.child,
                height: index.depth().into(),
                logical: child.logical.into(),
                rules: Some(below),
            };
            if let Some(bytes) = self.visitor.node(&node)? {
                self.tree(&bytes, &below, Some(&node))?;
            }
        }
        Ok(())
    }

    fn block_map(&mut self, root: &[u8]) -> Result<(), V::Error> {
        self.numbers(root, indirect::DIRECT, 0, None)?;
        let mut logical = indirect::DIRECT.into();
        for height in 1..=3 {
            self.child(root, indirect::DIRECT + height - 1, height, logical, None)?;
            logical += self.covered(height);
        }
        Ok(())
    }

    /// Returns the number of logical blocks below an address block of this height.
    fn covered(&self, height: u32) -> u64 {
        u64::from(indirect::per_block(self.geo.block_size)).pow(height)
    }

    /// Visits the address block of this height in a slot.
    fn child(
        &mut self,
        bytes: &[u8],
        slot: u32,
        height: u32,
        logical: u64,
        parent: Option<&MapNode>,
    ) -> Result<(), V::Error> {
        let block = match indirect::get(bytes, slot, self.geo.blocks_count) {
            Ok(Some(block)) => block,
            Ok(None) => return Ok(()),
            Err(error) => return self.visitor.damage(parent, error).map(drop),
        };
        let node = MapNode {
            block,
            height,
            logical,
            rules: None,
        };
        let Some(bytes) = self.visitor.node(&node)? else {
            return Ok(());
        };
        let per = indirect::per_block(self.geo.block_size);
        if height == 1 {
            return self.numbers(&bytes, per, logical, Some(&node));
        }
        let covered = self.covered(height - 1);
        (0..per).try_for_each(|i| {
            let first = logical + u64::from(i) * covered;
            self.child(&bytes, i, height - 1, first, Some(&node))
        })
    }

    /// Visits the data blocks whose numbers are the first `count` of `bytes`.
    fn numbers(
        &mut self,
        bytes: &[u8],
        count: u32,
        first: u64,
        at: Option<&MapNode>,
    ) -> Result<(), V::Error> {
        let mut run: Option<Extent> = None;
        for i in 0..count {
            let physical = match indirect::get(bytes, i, self.geo.blocks_count) {
                Ok(Some(physical)) => physical,
                Ok(None) => continue,
                Err(error) => {
                    self.visitor.damage(at, error)?;
                    continue;
                }
            };
            let logical = first + u64::from(i);
            if logical >= LOGICAL_END {
                // Three levels of blocks of 64 KiB lead to more blocks than a file can have.
                self.visitor.damage(at, indirect::beyond(i))?;
                break;
            }
            let here = Extent {
                logical: logical as u32, // below the end, which fits 32 bits
                len: 1,
                physical,
                unwritten: false,
            };
            match run.map(|run| (run, run.merge(&here))) {
                Some((_, Some(longer))) => run = Some(longer),
                Some((done, None)) => {
                    self.visitor.extent(done, LOGICAL_END)?;
                    run = Some(here);
                }
                None => run = Some(here),
            }
        }
        run.map_or(Ok(()), |run| self.visitor.extent(run, LOGICAL_END))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::{self, ExtentIndex};
    use crate::layout::{Layout, LayoutParams};
    use std::collections::BTreeMap;

    /// Blocks in memory, the steps of a walk in words, and what happens at damage.
    struct RecordedWalk {
        blocks: BTreeMap<u64, Vec<u8>>,
        on_damage: Option<OnDamage>,
        steps: Vec<String>,
    }

    impl MapVisitor for RecordedWalk {
        type Error = FormatError;
        type Block = Vec<u8>;

        fn node(&mut self, node: &MapNode) -> Result<Option<Vec<u8>>, FormatError> {
            let MapNode {
                block,
                height,
                logical,
                ..
            } = node;
            self.steps
                .push(format!("node {block} of {height} for {logical}"));
            Ok(self.blocks.get(&block.0).cloned())
        }

        fn extent(&mut self, extent: Extent, _: u64) -> Result<(), FormatError> {
            let Extent {
                logical,
                len,
                physical,
                ..
            } = extent;
            self.steps.push(format!("{logical}+{len} at {physical}"));
            Ok(())
        }

        fn damage(
            &mut self,
            at: Option<&MapNode>,
            error: FormatError,
        ) -> Result<OnDamage, FormatError> {
            self.steps
                .push(format!("damage below {}", at.map_or(0, |at| at.block.0)));
            self.on_damage.ok_or(error)
        }
    }

    fn told(
        blocks: &[(u64, Vec<u8>)],
        on_damage: Option<OnDamage>,
        inode_flags: u32,
        root: &[u8],
    ) -> (Vec<String>, bool) {
        let geo = Layout::new(&LayoutParams::for_size(64 << 20))
            .unwrap()
            .geometry;
        assert_eq!((geo.block_size, geo.blocks_count), (1024, 65536));
        let mut told = RecordedWalk {
            blocks: blocks.iter().cloned().collect(),
            on_damage,
            steps: Vec::new(),
        };
        let whole = walk(&mut told, &geo, inode_flags, root).is_ok();
        (told.steps, whole)
    }

    fn run(logical: u32, physical: u64) -> Extent {
        Extent {
            logical,
            len: 2,
            physical: BlockNr(physical),
            unwritten: false,
        }
    }

    #[test]
    fn damage_of_a_tree_ends_the_walk_or_is_skipped_or_salvaged() {
        let (mut root, mut good, mut bad) = ([0; 60], vec![0; 1024], vec![0; 1024]);
        let index = [(0, 700), (10, 701), (20, 702)];
        let index = index.map(|(logical, child)| ExtentIndex {
            logical,
            child: BlockNr(child),
        });
        extent::write_index(&mut root, 1, 0, index).unwrap();
        extent::write_leaf(&mut good, 0, [run(0, 800)]).unwrap();
        extent::write_leaf(&mut bad, 0, [run(10, 900), run(12, 80_000)]).unwrap();
        let blocks = [(700, good), (701, bad)];
        let visited = |on_damage| told(&blocks, on_damage, flags::EXTENTS, &root);
        let first = [
            "node 700 of 1 for 0",
            "0+2 at 800",
            "node 701 of 1 for 10",
            "damage below 701",
        ];
        assert_eq!(visited(None), (first.map(String::from).to_vec(), false));
        let (skipped, whole) = visited(Some(OnDamage::Skip));
        assert!(whole);
        assert_eq!(skipped[4..], ["node 702 of 1 for 20"]);
        let (salvaged, _) = visited(Some(OnDamage::Salvage));
        assert_eq!(
            salvaged[4..],
            ["10+2 at 900", "12+2 at 80000", "node 702 of 1 for 20"]
        );
    }

    #[test]
    fn a_block_map_is_visited_in_runs() {
        let (mut root, mut single, mut double) = ([0; 60], vec![0; 1024], vec![0; 1024]);
        let set = |bytes: &mut [u8], i, to| indirect::set(bytes, i, Some(BlockNr(to))).unwrap();
        for (i, to) in [
            (0, 500),
            (1, 501),
            (3, 502),
            (11, 510),
            (12, 600),
            (13, 601),
        ] {
            set(&mut root, i, to);
        }
        set(&mut single, 0, 511);
        set(&mut single, 1, 90_000);
        set(&mut single, 2, 513);
        set(&mut double, 255, 602);
        let blocks = [(600, single), (601, double)];
        let (steps, whole) = told(&blocks, Some(OnDamage::Skip), 0, &root);
        assert!(whole);
        let expected = [
            "0+2 at 500",
            "3+1 at 502",
            "11+1 at 510",
            "node 600 of 1 for 12",
            "damage below 600",
            "12+1 at 511",
            "14+1 at 513",
            "node 601 of 2 for 268",
            "node 602 of 1 for 65548",
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn a_block_map_beyond_the_largest_file_is_damage() {
        let mut geo = Layout::new(&LayoutParams::for_size(64 << 20))
            .unwrap()
            .geometry;
        geo.block_size = 65536;
        let (mut root, zeros) = ([0; 60], vec![0; 65536]);
        let (mut triple, mut double, mut single) = (zeros.clone(), zeros.clone(), zeros);
        let set = |bytes: &mut [u8], i, to| indirect::set(bytes, i, Some(BlockNr(to))).unwrap();
        set(&mut root, 14, 600);
        // Each number here leads to 2^28 blocks.
        set(&mut triple, 14, 601);
        set(&mut double, 0, 602);
        set(&mut double, 16383, 603);
        set(&mut single, 16383, 500);
        let blocks = [
            (600, triple),
            (601, double),
            (602, single.clone()),
            (603, single),
        ]
        .into();
        let on_damage = Some(OnDamage::Skip);
        let mut told = RecordedWalk {
            blocks,
            on_damage,
            steps: Vec::new(),
        };
        walk(&mut told, &geo, 0, &root).unwrap();
        let data = told.steps.iter().filter(|step| !step.starts_with("node"));
        assert_eq!(
            data.collect::<Vec<_>>(),
            ["4026564619+1 at 500", "damage below 603"]
        );
    }
}
