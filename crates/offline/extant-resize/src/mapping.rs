//! The mapping of an inode: read in the old volume, and written for the new one.

use crate::error::Error;
use crate::session::Session;
use ext4_format::extent::Extent;
use ext4_format::inode::flags;
use ext4_format::remapping::{MapSink, build};
use ext4_format::{BlockNr, InodeNr};
use ext4_image::Mapping;

/// Reads the mapping of an inode of the old volume, which was checked.
pub(crate) fn read(session: &Session<'_, '_>, flags: u32, root: &[u8]) -> Result<Mapping, Error> {
    let geo = &session.old.shape.geo;
    Mapping::read(geo, flags, root, |block| {
        let mut bytes = vec![0; geo.block_size as usize];
        let offset = block.offset(geo.block_size);
        session.view.read_old(offset, &mut bytes)?;
        Ok(bytes)
    })
}

/// Returns the extents at their places in the new volume.
pub(crate) fn moved(session: &Session<'_, '_>, extents: &[Extent]) -> Vec<Extent> {
    let mut all = Mapping::default();
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
                all.push(part);
            });
    }
    all.extents
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
        Ok(self.session.write(block, bytes)?)
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
