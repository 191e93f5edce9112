//! The blocks of one inode: read as far as they can be, and written anew where something is wrong with them.

use crate::Error;
use crate::session::Session;
use ext4_format::extent::{self, Extent, ExtentHeader, ExtentIndex, Node, NodeRules};
use ext4_format::indirect;
use ext4_format::inode::flags;
use ext4_format::{BlockNr, InodeNr};
use std::collections::BTreeSet;

/// What was read of a mapping.
#[derive(Debug, Default)]
pub(crate) struct MapRead {
    /// The runs that obey the rules, in logical order.
    pub(crate) extents: Vec<Extent>,
    /// Blocks of the mapping itself.
    pub(crate) nodes: Vec<BlockNr>,
    /// Nodes whose checksum alone is wrong.
    pub(crate) unsealed: Vec<BlockNr>,
    /// The first thing that is wrong otherwise: the mapping is to be written anew.
    pub(crate) problem: Option<String>,
    pub(crate) seen: BTreeSet<BlockNr>,
}

impl MapRead {
    fn tell(&mut self, what: impl Into<String>) {
        self.problem.get_or_insert_with(|| what.into());
    }

    /// One past the last block that is mapped.
    pub(crate) fn end(&self) -> u64 {
        self.extents.last().map_or(0, Extent::end)
    }

    /// Blocks that are mapped.
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
    let node = match Node::view(bytes) {
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
    if wild > good && wild > 1 {
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

/// Blocks for the nodes of a mapping that is written anew: those of the old one first.
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

/// Writes a mapping of these extents into `root`; returns its blocks beside the data, or `None` without the room for it.
/// Blocks of the pool that are left over are free.
pub(crate) fn build(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    generation: u32,
    with_extents: bool,
    extents: &[Extent],
    mut pool: NodePool,
    root: &mut [u8],
) -> Result<Option<u64>, Error> {
    root.fill(0);
    let built = if with_extents {
        let seed = session.seed(ino, generation);
        build_tree(session, seed, extents, &mut pool, root)?
    } else {
        build_block_map(session, extents, &mut pool, root)?
    };
    for block in pool.blocks.drain(..) {
        session.free(block);
    }
    if built.is_none() {
        for block in pool.fresh {
            session.free(block);
        }
        return Ok(None);
    }
    Ok(Some(pool.used))
}

fn build_tree(
    session: &mut Session<'_, '_>,
    seed: Option<u32>,
    extents: &[Extent],
    pool: &mut NodePool,
    root: &mut [u8],
) -> Result<Option<()>, Error> {
    let in_root = extent::capacity(extent::ROOT_LEN);
    if extents.len() <= in_root {
        extent::write_leaf(root, 0, extents.iter().copied()).map_err(Error::Format)?;
        return Ok(Some(()));
    }
    let in_block = extent::capacity(session.block_size());
    let mut level = Vec::new();
    for part in extents.chunks(in_block) {
        let Some(child) = pool.take(session) else {
            return Ok(None);
        };
        let mut bytes = vec![0; session.block_size()];
        extent::write_leaf(&mut bytes, 0, part.iter().copied()).map_err(Error::Format)?;
        seal_and_write(session, seed, child, &mut bytes)?;
        level.push(ExtentIndex {
            logical: part.first().map_or(0, |e| e.logical),
            child,
        });
    }
    let mut depth = 1;
    while level.len() > in_root {
        let mut above = Vec::new();
        for part in level.chunks(in_block) {
            let Some(child) = pool.take(session) else {
                return Ok(None);
            };
            let mut bytes = vec![0; session.block_size()];
            extent::write_index(&mut bytes, depth, 0, part.iter().copied())
                .map_err(Error::Format)?;
            seal_and_write(session, seed, child, &mut bytes)?;
            above.push(ExtentIndex {
                logical: part.first().map_or(0, |e| e.logical),
                child,
            });
        }
        level = above;
        depth += 1;
    }
    extent::write_index(root, depth, 0, level).map_err(Error::Format)?;
    Ok(Some(()))
}

fn seal_and_write(
    session: &Session<'_, '_>,
    seed: Option<u32>,
    block: BlockNr,
    bytes: &mut [u8],
) -> Result<(), Error> {
    if let Some(seed) = seed {
        extent::set_tail(bytes, seed).map_err(Error::Format)?;
    }
    session.write(block, bytes)
}

fn build_block_map(
    session: &mut Session<'_, '_>,
    extents: &[Extent],
    pool: &mut NodePool,
    root: &mut [u8],
) -> Result<Option<()>, Error> {
    // The address blocks on the way to the block before, each with its slot above it.
    let mut open: Vec<(u32, BlockNr, Vec<u8>)> = Vec::new();
    for extent in extents {
        for i in 0..extent.len {
            let physical = BlockNr(extent.physical.0 + u64::from(i));
            let Some(path) = indirect::path(
                u64::from(extent.logical) + u64::from(i),
                session.geo.block_size,
            ) else {
                return Ok(None);
            };
            let steps = path.steps();
            let (Some(&last), above) = (steps.last(), steps.get(..steps.len() - 1).unwrap_or(&[]))
            else {
                return Ok(None);
            };
            let same = open
                .iter()
                .zip(above)
                .take_while(|(o, s)| o.0 == **s)
                .count();
            for (_, block, bytes) in open.drain(same..) {
                session.write(block, &bytes)?;
            }
            for &step in above.get(same..).unwrap_or(&[]) {
                let Some(block) = pool.take(session) else {
                    return Ok(None);
                };
                let parent = open.last_mut().map_or(&mut *root, |o| &mut o.2);
                indirect::set(parent, step, Some(block)).map_err(Error::Format)?;
                open.push((step, block, vec![0; session.geo.block_size as usize]));
            }
            let parent = open.last_mut().map_or(&mut *root, |o| &mut o.2);
            indirect::set(parent, last, Some(physical)).map_err(Error::Format)?;
        }
    }
    for (_, block, bytes) in open {
        session.write(block, &bytes)?;
    }
    Ok(Some(()))
}
