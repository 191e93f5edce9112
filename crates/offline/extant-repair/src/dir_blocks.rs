//! The blocks of a directory, and its index.

use crate::error::Error;
use crate::session::Session;
use crate::{mapping, record};
use ext4_format::extent::Extent;
use ext4_format::hash::DirHasher;
use ext4_format::htree::{self, IndexBlockKind};
use ext4_format::inode::{self, flags};
use ext4_format::{BlockNr, InodeNr, dir_entry};
use std::collections::BTreeMap;

/// State of a directory while its blocks are read.
pub(crate) struct Blocks {
    pub(crate) places: Vec<BlockNr>,
    pub(crate) extents: Vec<Extent>,
    pub(crate) nodes: Vec<BlockNr>,
    pub(crate) seed: Option<u32>,
    pub(crate) flags: u32,
}

/// Returns the blocks of a directory, in logical order.
pub(crate) fn blocks(session: &Session<'_, '_>, ino: InodeNr) -> Result<Option<Blocks>, Error> {
    let Some(raw) = session.read_record(ino)? else {
        return Ok(None);
    };
    let Ok(core) = inode::decode_verified(&raw, &session.geo, ino) else {
        return Ok(None);
    };
    if core.flags & flags::INLINE_DATA != 0 {
        return Ok(None);
    }
    let seed = session.seed(ino, core.generation);
    let root = inode::i_block(&raw).map_err(Error::Format)?;
    let map = mapping::read(session, core.flags, root, seed)?;
    let places = map
        .extents
        .iter()
        .flat_map(|e| (0..e.len).map(|i| BlockNr(e.physical.0 + u64::from(i))));
    Ok(Some(Blocks {
        places: places.collect(),
        extents: map.extents,
        nodes: map.nodes,
        seed,
        flags: core.flags,
    }))
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum IndexUse {
    Node(IndexBlockKind),
    Leaf,
}

/// Returns the use of each block of an indexed directory; `None` if the index or the order of names breaks a rule.
pub(crate) fn read_index(
    session: &Session<'_, '_>,
    dir: &Blocks,
) -> Result<Option<BTreeMap<u32, IndexUse>>, Error> {
    let (geo, csum) = (&session.geo, session.has_csum());
    let count = dir.places.len() as u32;
    let Some(&first) = dir.places.first() else {
        return Ok(None);
    };
    let bytes = session.read(first)?;
    let Ok(root) = htree::parse_root(&bytes, csum, geo.features.has_large_dir(), count) else {
        return Ok(None);
    };
    let encrypted = dir.flags & flags::ENCRYPT != 0;
    let compared = geo.comparison(dir.flags);
    let hasher = DirHasher::new(root.hash_version, geo.unsigned_hash, geo.hash_seed).ok();
    let hasher = hasher.map(|hasher| hasher.comparing(compared));
    if hasher.is_none() || bytes.get(9..12) != Some(&[0; 3]) || bytes.get(22..24) != Some(&[0; 2]) {
        return Ok(None);
    }
    let mut uses = BTreeMap::from([(0, IndexUse::Node(IndexBlockKind::Root))]);
    let mut work: Vec<(u32, u8, u32, u64)> = Vec::new();
    let spread = |index: &htree::Index<'_>, levels: u8, low: u32, end: u64, work: &mut Vec<_>| {
        index.ranges(low, end).all(|(entry, from, to)| {
            work.push((entry.block, levels, from, to));
            from >= low && to <= end
        })
    };
    if !spread(&root.index, root.levels, 0, 1 << 32, &mut work) {
        return Ok(None);
    }
    while let Some((logical, levels, low, end)) = work.pop() {
        let kind = if levels == 0 {
            IndexUse::Leaf
        } else {
            IndexUse::Node(IndexBlockKind::Node)
        };
        let Some(&place) = dir.places.get(logical as usize) else {
            return Ok(None);
        };
        if uses.insert(logical, kind).is_some() {
            return Ok(None);
        }
        let bytes = session.read(place)?;
        if levels > 0 {
            let Ok(index) = htree::parse_node(&bytes, csum, count) else {
                return Ok(None);
            };
            if !spread(&index, levels - 1, low, end, &mut work) {
                return Ok(None);
            }
            continue;
        }
        for record in dir_entry::records(&bytes, 0, true).map_while(Result::ok) {
            let Some(hasher) = hasher.as_ref().filter(|_| !encrypted) else {
                break;
            };
            // A name that will change loses its place, too.
            let renamed = !compared.allows(record.name);
            let hash = hasher.hash(record.name).0;
            if renamed || hash < low & !1 || u64::from(hash) >= end {
                return Ok(None);
            }
        }
    }
    Ok((uses.len() == count as usize).then_some(uses))
}

/// Clears the flag of an index, and makes its blocks leaves: the root keeps the two names before it.
pub(crate) fn give_up_index(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    dir: &Blocks,
) -> Result<(), Error> {
    record::edit(session, ino, |core| core.flags &= !flags::INDEX)?;
    let Some(seed) = dir.seed else {
        return Ok(());
    };
    for &block in &dir.places {
        let mut bytes = session.read(block)?;
        if dir_entry::space(&bytes, true).is_ok() {
            continue;
        }
        // A block of the index: one record covers it, or the part of the root behind its dots.
        if dir_entry::make_leaf(&mut bytes).is_ok() {
            dir_entry::set_tail(&mut bytes, seed);
            session.write(block, &bytes)?;
        }
    }
    Ok(())
}

/// Returns the leaf in which the index of a directory searches a name.
pub(crate) fn leaf_of(
    session: &Session<'_, '_>,
    dir: &Blocks,
    name: &[u8],
) -> Result<Option<BlockNr>, Error> {
    let (geo, csum, count) = (&session.geo, session.has_csum(), dir.places.len() as u32);
    let Some(&first) = dir.places.first() else {
        return Ok(None);
    };
    let bytes = session.read(first)?;
    let Ok(root) = htree::parse_root(&bytes, csum, geo.features.has_large_dir(), count) else {
        return Ok(None);
    };
    let Ok(hasher) = DirHasher::new(root.hash_version, geo.unsigned_hash, geo.hash_seed) else {
        return Ok(None);
    };
    let hasher = hasher.comparing(geo.comparison(dir.flags));
    // Encrypted names that fold case are hashed with the key.
    if dir.flags & flags::CASEFOLD != 0 && dir.flags & flags::ENCRYPT != 0 {
        return Ok(None);
    }
    let hash = hasher.hash(name).0;
    let child = |index: &htree::Index<'_>| index.get(index.search(hash)).map(|e| e.block);
    let (mut at, mut levels) = (child(&root.index), root.levels);
    while let Some(logical) = at {
        let Some(&place) = dir.places.get(logical as usize) else {
            return Ok(None);
        };
        if levels == 0 {
            return Ok(Some(place));
        }
        let bytes = session.read(place)?;
        let Ok(index) = htree::parse_node(&bytes, csum, count) else {
            return Ok(None);
        };
        (at, levels) = (child(&index), levels - 1);
    }
    Ok(None)
}
