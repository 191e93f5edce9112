//! The blocks of an inode, read without checks, because the image was checked before.

use crate::Error;
use crate::image::Image;
use ext4_format::extent::{Extent, Node, NodeRules};
use ext4_format::inode::flags;
use ext4_format::{BlockNr, indirect};

/// The mapping of an inode.
#[derive(Debug, Default)]
pub(crate) struct Map {
    /// The runs, in logical order.
    pub(crate) runs: Vec<Extent>,
    /// Blocks of the mapping itself.
    pub(crate) nodes: Vec<BlockNr>,
}

impl Map {
    /// Returns the number of mapped blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.len)).sum()
    }

    /// Returns the blocks in logical order.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u32, BlockNr)> + '_ {
        self.runs.iter().flat_map(|run| {
            (0..run.len).map(|i| {
                (
                    run.logical.saturating_add(i),
                    BlockNr(run.physical.0.saturating_add(u64::from(i))),
                )
            })
        })
    }

    fn push(&mut self, extent: Extent) {
        match self
            .runs
            .last_mut()
            .and_then(|last| Some((last.merge(&extent)?, last)))
        {
            Some((longer, last)) => *last = longer,
            None => self.runs.push(extent),
        }
    }
}

/// Reads the mapping of an inode from its flags and the 60 bytes of its root.
pub(crate) fn read(image: &Image<'_, '_>, inode_flags: u32, root: &[u8]) -> Result<Map, Error> {
    let mut map = Map::default();
    if inode_flags & flags::EXTENTS != 0 {
        let rules = NodeRules::root(image.geo.blocks_count);
        node(image, &mut map, root, &rules)?;
        return Ok(map);
    }
    let per = u64::from(indirect::per_block(image.geo.block_size));
    numbers(image, &mut map, root, indirect::DIRECT, 0)?;
    let mut logical = u64::from(indirect::DIRECT);
    for depth in 1..=3 {
        let slot = indirect::DIRECT + depth - 1;
        if let Some(block) = indirect::get(root, slot, image.geo.blocks_count)? {
            addresses(image, &mut map, block, depth, logical)?;
        }
        logical += per.pow(depth);
    }
    Ok(map)
}

fn node(
    image: &Image<'_, '_>,
    map: &mut Map,
    bytes: &[u8],
    rules: &NodeRules,
) -> Result<(), Error> {
    match Node::parse(bytes, rules)? {
        Node::Leaf(leaf) => leaf.iter().for_each(|extent| map.push(extent)),
        Node::Index(index) => {
            for (i, child) in index.iter().enumerate() {
                map.nodes.push(child.child);
                if let Some(below) = index.child_rules(i, rules) {
                    node(image, map, &image.read(child.child)?, &below)?;
                }
            }
        }
    }
    Ok(())
}

fn numbers(
    image: &Image<'_, '_>,
    map: &mut Map,
    bytes: &[u8],
    count: u32,
    first: u64,
) -> Result<(), Error> {
    for i in 0..count {
        let number = indirect::get(bytes, i, image.geo.blocks_count)?;
        if let (Some(physical), Ok(logical)) = (number, u32::try_from(first + u64::from(i))) {
            map.push(Extent {
                logical,
                len: 1,
                physical,
                unwritten: false,
            });
        }
    }
    Ok(())
}

fn addresses(
    image: &Image<'_, '_>,
    map: &mut Map,
    block: BlockNr,
    depth: u32,
    first: u64,
) -> Result<(), Error> {
    let bytes = image.read(block)?;
    let per = indirect::per_block(image.geo.block_size);
    map.nodes.push(block);
    if depth == 1 {
        return numbers(image, map, &bytes, per, first);
    }
    let covered = u64::from(per).pow(depth - 1);
    for i in 0..per {
        if let Some(child) = indirect::get(&bytes, i, image.geo.blocks_count)? {
            addresses(image, map, child, depth - 1, first + u64::from(i) * covered)?;
        }
    }
    Ok(())
}
