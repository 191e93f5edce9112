//! The mapping of an inode: read as far as possible, and rewritten if it is damaged.

use crate::Error;
use crate::session::Session;
use ext4_format::extent::{self, Extent, ExtentHeader, Node, NodeRules};
use ext4_format::indirect;
use ext4_format::inode::flags;
use ext4_format::remapping::MapSink;
use ext4_format::{BlockNr, InodeNr};
use std::collections::BTreeSet;

/// Count of invalid numbers up to which a block of addresses is accepted even if they outnumber the valid ones, as in
/// e2fsck for an inode.
const MOST_WILD: u32 = 11;

/// Result of reading a mapping.
#[derive(Debug, Default)]
pub(crate) struct MapRead {
    /// The runs that obey the rules, in logical order.
    pub(crate) extents: Vec<Extent>,
    /// Blocks of the mapping itself.
    pub(crate) nodes: Vec<BlockNr>,
    /// Nodes whose checksum alone is wrong.
    pub(crate) unsealed: Vec<BlockNr>,
    /// The first other damage: the mapping must be rewritten.
    pub(crate) problem: Option<String>,
    pub(crate) seen: BTreeSet<BlockNr>,
}

impl MapRead {
    fn tell(&mut self, what: impl Into<String>) {
        self.problem.get_or_insert_with(|| what.into());
    }

    /// Returns the end of the mapped blocks: the last one plus one.
    pub(crate) fn end(&self) -> u64 {
        self.extents.last().map_or(0, Extent::end)
    }

    /// Returns the number of mapped blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.extents.iter().map(|e| u64::from(e.len)).sum()
    }

    fn keep(&mut self, extent: Extent, session: &Session<'_, '_>, end: u64) {
        let valid = extent.len > 0
            && u64::from(extent.logical) >= self.end()
            && extent.end() <= end
            && session
                .geo
                .is_valid_data_range(extent.physical, extent.len.into());
        if valid {
            self.extents.push(extent);
        } else {
            self.tell("an extent out of order or beyond the volume");
        }
    }
}

/// Reads the mapping of an inode.
pub(crate) fn read(
    session: &Session<'_, '_>,
    inode_flags: u32,
    root: &[u8],
    seed: Option<u32>,
) -> Result<MapRead, Error> {
    let mut map = MapRead::default();
    if inode_flags & flags::EXTENTS != 0 {
        let rules = NodeRules::root(session.geo.blocks_count);
        node(session, &mut map, root, &rules, seed, false)?;
    } else {
        block_map(session, &mut map, root)?;
    }
    Ok(map)
}

fn node(
    session: &Session<'_, '_>,
    map: &mut MapRead,
    bytes: &[u8],
    rules: &NodeRules,
    seed: Option<u32>,
    whole: bool,
) -> Result<(), Error> {
    if let Err(error) = Node::parse(bytes, rules) {
        map.tell(error.to_string());
    }
    let node = match Node::salvage(bytes) {
        Ok(node) if rules.depth.is_none_or(|depth| depth == node.depth()) => node,
        Ok(_) => {
            map.tell("a node of another depth");
            return Ok(());
        }
        Err(error) => {
            map.tell(error.to_string());
            return Ok(());
        }
    };
    if whole {
        let room = ExtentHeader::parse(bytes).map_or(0, |h| usize::from(h.max) + 2);
        if room < extent::capacity(bytes.len()) {
            map.tell("a node with room for fewer entries than there is");
        }
        if ExtentHeader::parse(bytes).is_ok_and(|h| h.entries == 0) {
            map.tell("a node without entries");
        }
    }
    match node {
        Node::Leaf(leaf) => leaf.iter().for_each(|e| map.keep(e, session, rules.end)),
        Node::Index(index) => {
            for (i, child) in index.iter().enumerate() {
                let Some(below) = index.child_rules(i, rules) else {
                    continue;
                };
                if !session.geo.is_valid_data_range(child.child, 1) || !map.seen.insert(child.child)
                {
                    map.tell("an extent index that leads astray");
                    continue;
                }
                let bytes = session.read(child.child)?;
                let sealed = seed.is_none_or(|seed| extent::verify_tail(&bytes, seed).is_ok());
                if !sealed {
                    if Node::parse(&bytes, &below).is_err() {
                        map.tell("a node that cannot be read");
                        continue;
                    }
                    map.unsealed.push(child.child);
                }
                map.nodes.push(child.child);
                self::node(session, map, &bytes, &below, seed, true)?;
            }
        }
    }
    Ok(())
}

fn block_map(session: &Session<'_, '_>, map: &mut MapRead, root: &[u8]) -> Result<(), Error> {
    let per = u64::from(indirect::per_block(session.geo.block_size));
    numbers(session, map, root, indirect::DIRECT, 0);
    let mut logical = u64::from(indirect::DIRECT);
    for depth in 1..=3 {
        let slot = indirect::DIRECT + depth - 1;
        match indirect::get(root, slot, session.geo.blocks_count) {
            Ok(Some(block)) => addresses(session, map, block, depth, logical)?,
            Ok(None) => {}
            Err(error) => map.tell(error.to_string()),
        }
        logical += per.pow(depth);
    }
    Ok(())
}

fn numbers(session: &Session<'_, '_>, map: &mut MapRead, bytes: &[u8], count: u32, first: u64) {
    for i in 0..count {
        match indirect::get(bytes, i, session.geo.blocks_count) {
            Ok(Some(physical)) => {
                let Ok(logical) = u32::try_from(first + u64::from(i)) else {
                    return;
                };
                let here = Extent {
                    logical,
                    len: 1,
                    physical,
                    unwritten: false,
                };
                let longer = map.extents.last().and_then(|last| last.merge(&here));
                match (longer, map.extents.last_mut()) {
                    (Some(longer), Some(last)) if session.geo.is_valid_data_range(physical, 1) => {
                        *last = longer
                    }
                    _ => map.keep(here, session, extent::LOGICAL_END),
                }
            }
            Ok(None) => {}
            Err(error) => map.tell(error.to_string()),
        }
    }
}

fn addresses(
    session: &Session<'_, '_>,
    map: &mut MapRead,
    block: BlockNr,
    depth: u32,
    first: u64,
) -> Result<(), Error> {
    if !session.geo.is_valid_data_range(block, 1) || !map.seen.insert(block) {
        map.tell("an address block that leads astray");
        return Ok(());
    }
    let bytes = session.read(block)?;
    let per = indirect::per_block(session.geo.block_size);
    // An address block of wild numbers was something else.
    let used = (0..per).map(|i| indirect::get(&bytes, i, session.geo.blocks_count));
    let (mut good, mut wild) = (0, 0);
    used.for_each(|nr| match nr {
        Ok(Some(_)) => good += 1,
        Err(_) => wild += 1,
        Ok(None) => {}
    });
    if wild > good && wild > MOST_WILD {
        map.tell("an address block that is none");
        return Ok(());
    }
    map.nodes.push(block);
    if depth == 1 {
        numbers(session, map, &bytes, per, first);
        return Ok(());
    }
    let covered = u64::from(per).pow(depth - 1);
    for i in 0..per {
        match indirect::get(&bytes, i, session.geo.blocks_count) {
            Ok(Some(child)) => addresses(
                session,
                map,
                child,
                depth - 1,
                first + u64::from(i) * covered,
            )?,
            Ok(None) => {}
            Err(error) => map.tell(error.to_string()),
        }
    }
    Ok(())
}

/// Blocks for the nodes of a rewritten mapping: those of the old one first.
pub(crate) struct NodePool {
    pub(crate) blocks: Vec<BlockNr>,
    used: u64,
    fresh: Vec<BlockNr>,
}

impl NodePool {
    pub(crate) const fn new(blocks: Vec<BlockNr>) -> Self {
        Self {
            blocks,
            used: 0,
            fresh: Vec::new(),
        }
    }

    fn take(&mut self, session: &mut Session<'_, '_>) -> Option<BlockNr> {
        let block = match self.blocks.pop() {
            Some(block) => block,
            None => {
                let block = session.allocate()?;
                self.fresh.push(block);
                block
            }
        };
        self.used += 1;
        Some(block)
    }
}

/// Writes a mapping of these extents into `root`; returns its blocks without the data, or `None` if there is not
/// enough room. Unused blocks of the pool are free.
pub(crate) fn build(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    generation: u32,
    with_extents: bool,
    extents: &[Extent],
    mut pool: NodePool,
    root: &mut [u8],
) -> Result<Option<u64>, Error> {
    let seed = session.seed(ino, generation);
    let block_size = session.geo.block_size;
    let tree = with_extents.then_some(seed);
    let mut sink = Sink {
        session,
        pool: &mut pool,
    };
    let built = ext4_format::remapping::build(&mut sink, block_size, tree, extents, root)?;
    for block in pool.blocks.drain(..) {
        session.free(block);
    }
    if !built {
        for block in pool.fresh {
            session.free(block);
        }
        return Ok(None);
    }
    Ok(Some(pool.used))
}

/// Gives a mapping its blocks, and writes them.
struct Sink<'s, 'a, 'd> {
    session: &'s mut Session<'a, 'd>,
    pool: &'s mut NodePool,
}

impl MapSink for Sink<'_, '_, '_> {
    type Error = Error;

    fn take(&mut self) -> Option<BlockNr> {
        self.pool.take(self.session)
    }

    fn write(&mut self, block: BlockNr, bytes: &[u8]) -> Result<(), Error> {
        self.session.write(block, bytes)
    }
}
