//! The mapping of an inode: read in the old volume, and written for the new one.

use crate::Error;
use crate::session::Session;
use ext4_format::extent::{Extent, LOGICAL_END, Node, NodeRules};
use ext4_format::inode::flags;
use ext4_format::remapping::{MapSink, build};
use ext4_format::{BlockNr, FormatError, InodeNr, Where, indirect};

/// A mapping: its extents in logical order, and its own blocks.
#[derive(Default)]
pub(crate) struct MapRead {
    pub(crate) extents: Vec<Extent>,
    pub(crate) nodes: Vec<BlockNr>,
}

/// Reads the mapping of an inode of the old volume, which was checked.
pub(crate) fn read(session: &Session<'_, '_>, flags: u32, root: &[u8]) -> Result<MapRead, Error> {
    let blocks = session.old.shape.geo.blocks_count;
    let mut map = MapRead::default();
    if flags & flags::EXTENTS != 0 {
        node(session, &mut map, root, &NodeRules::root(blocks))?;
        return Ok(map);
    }
    numbers(session, &mut map, root, indirect::DIRECT, 0)?;
    let per = u64::from(indirect::per_block(session.geo.block_size));
    let mut logical = u64::from(indirect::DIRECT);
    for depth in 1..=3 {
        if let Some(block) = indirect::get(root, indirect::DIRECT + depth - 1, blocks)? {
            addresses(session, &mut map, block, depth, logical)?;
        }
        logical += per.pow(depth);
    }
    Ok(map)
}

/// Reads a block of the old volume.
fn read_old(session: &Session<'_, '_>, block: BlockNr) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; session.geo.block_size as usize];
    let offset = block.offset(session.geo.block_size);
    session.view.read_old(offset, &mut bytes)?;
    Ok(bytes)
}

fn note(session: &Session<'_, '_>, map: &mut MapRead, block: BlockNr) -> Result<(), Error> {
    map.nodes.push(block);
    // The image was checked before, but this limit also ends a mapping that grew since.
    if map.nodes.len() as u64 > session.old.shape.geo.blocks_count {
        return Err(FormatError::corrupt("a mapping without end", Where::Block(block, 0)).into());
    }
    Ok(())
}

fn node(
    session: &Session<'_, '_>,
    map: &mut MapRead,
    bytes: &[u8],
    rules: &NodeRules,
) -> Result<(), Error> {
    match Node::parse(bytes, rules)? {
        Node::Leaf(leaf) => map.extents.extend(leaf.iter()),
        Node::Index(index) => {
            for (i, child) in index.iter().enumerate() {
                let Some(below) = index.child_rules(i, rules) else {
                    continue;
                };
                note(session, map, child.child)?;
                node(session, map, &read_old(session, child.child)?, &below)?;
            }
        }
    }
    Ok(())
}

fn numbers(
    session: &Session<'_, '_>,
    map: &mut MapRead,
    bytes: &[u8],
    count: u32,
    first: u64,
) -> Result<(), Error> {
    for i in 0..count {
        let Some(physical) = indirect::get(bytes, i, session.old.shape.geo.blocks_count)? else {
            continue;
        };
        let logical = first + u64::from(i);
        if logical < LOGICAL_END {
            let logical = logical as u32;
            push(
                &mut map.extents,
                Extent {
                    logical,
                    len: 1,
                    physical,
                    unwritten: false,
                },
            );
        }
    }
    Ok(())
}

/// Appends an extent, or makes the last one longer.
fn push(extents: &mut Vec<Extent>, next: Extent) {
    match extents.last_mut() {
        Some(last) if last.merge(&next).is_some() => last.len += next.len,
        _ => extents.push(next),
    }
}

fn addresses(
    session: &Session<'_, '_>,
    map: &mut MapRead,
    block: BlockNr,
    depth: u32,
    first: u64,
) -> Result<(), Error> {
    note(session, map, block)?;
    let bytes = read_old(session, block)?;
    let per = indirect::per_block(session.geo.block_size);
    if depth == 1 {
        return numbers(session, map, &bytes, per, first);
    }
    let covered = u64::from(per).pow(depth - 1);
    for child in indirect::mapped(&bytes, session.old.shape.geo.blocks_count) {
        let (i, child) = child?;
        addresses(
            session,
            map,
            child,
            depth - 1,
            first + u64::from(i) * covered,
        )?;
    }
    Ok(())
}

/// Returns the extents at their places in the new volume.
pub(crate) fn moved(session: &Session<'_, '_>, extents: &[Extent]) -> Vec<Extent> {
    let mut all = Vec::with_capacity(extents.len());
    for extent in extents {
        let mut logical = extent.logical;
        session
            .view
            .moves
            .parts(extent.physical.0, extent.len.into(), |to, n| {
                let part = Extent {
                    logical,
                    len: n as u32,
                    physical: BlockNr(to),
                    unwritten: extent.unwritten,
                };
                logical = logical.saturating_add(n as u32);
                push(&mut all, part);
            });
    }
    all
}

struct Sink<'a, 's, 'd> {
    session: &'a mut Session<'s, 'd>,
    pool: Vec<BlockNr>,
    used: u64,
}

impl MapSink for Sink<'_, '_, '_> {
    type Error = Error;

    fn take(&mut self) -> Option<BlockNr> {
        let block = self.pool.pop().or_else(|| self.session.allocate())?;
        self.used += 1;
        Some(block)
    }

    fn write(&mut self, block: BlockNr, bytes: &[u8]) -> Result<(), Error> {
        self.session.write(block, bytes)
    }
}

/// Writes a mapping of the new volume over the blocks of the old one; returns how many it has.
pub(crate) fn write(
    session: &mut Session<'_, '_>,
    (ino, generation, inode_flags): (InodeNr, u32, u32),
    extents: &[Extent],
    nodes: &[BlockNr],
    root: &mut [u8],
) -> Result<u64, Error> {
    let pool = nodes
        .iter()
        .rev()
        .map(|n| BlockNr(session.view.moves.place(n.0)));
    let pool: Vec<_> = pool.collect();
    let seed = session.seed(ino, generation);
    let tree = (inode_flags & flags::EXTENTS != 0).then_some(seed);
    let block_size = session.geo.block_size;
    let mut sink = Sink {
        session,
        pool,
        used: 0,
    };
    if !build(&mut sink, block_size, tree, extents, root)? {
        return Err(Error::NoRoom);
    }
    let (left, used) = (std::mem::take(&mut sink.pool), sink.used);
    for block in left {
        let clusters = session.geo.clusters_of(block, 1);
        session.layout.files.remove(clusters);
    }
    Ok(used)
}
