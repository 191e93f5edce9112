//! The mapping of an inode in use: claims its blocks, compares it with size and count of blocks, and rewrites it if
//! needed.

use crate::attributes;
use crate::error::Error;
use crate::mapping::{self, MapRead, NodePool};
use crate::record::{self, Record};
use crate::session::Session;
use ext4_format::extent::Extent;
use ext4_format::group_desc::BLOCK_UNINIT;
use ext4_format::htree::{self, IndexBlockKind};
use ext4_format::inode::{self, flags};
use ext4_format::{BlockNr, FileType, InodeNr, dir_entry};
use std::collections::BTreeSet;

/// An inode whose mapping is rewritten when the free blocks are known.
pub(crate) struct Rewrite {
    pub(crate) ino: InodeNr,
    extents: Vec<Extent>,
    /// Blocks that another structure had claimed before: this inode gets a copy.
    shared: Vec<(u32, BlockNr)>,
    pool: Vec<BlockNr>,
}

/// Reads and claims the mapping, sets size and count of blocks, and records a needed rewrite.
pub(crate) fn map(
    session: &mut Session<'_, '_>,
    record: &mut Record,
    attribute_blocks: u64,
    rewrites: &mut Vec<Rewrite>,
) -> Result<MapRead, Error> {
    let root = *inode::i_block(&record.raw).map_err(Error::Format)?;
    let seed = session.seed(record.ino, record.core.generation);
    let mut map = mapping::read(session, record.core.flags, &root, seed)?;
    if session.geo.cluster_ratio > 1
        && !record.has(flags::EXTENTS)
        && map.blocks() + map.nodes.len() as u64 > 0
    {
        map.problem
            .get_or_insert_with(|| "a block map on a bigalloc volume".into());
    }
    let directory = record.core.file_type() == Some(FileType::Directory);
    cut_if_older(session, record, &mut map, attribute_blocks);
    let bad = (map.nodes.clone(), map.blocks());
    let mut anew = map.problem.is_some();
    // Blocks behind a hole are counted from the hole on: a directory has no holes.
    anew |= directory && straighten(&mut map);
    anew |= directory && cut_behind_size(session, record, &mut map, seed)?;
    let (shared, pool) = claim(session, &map);
    anew |= !shared.is_empty() || pool.len() != map.nodes.len();
    if session.orphans.contains(&record.ino.0) && !directory {
        let end = record.core.size.div_ceil(session.geo.block_size.into());
        anew |= cut(session, &mut map, end);
    }
    if !anew {
        seal(session, record, &map.unsealed, seed)?;
        size(session, record, &map);
        sectors(
            session,
            record,
            clusters(session, &map) + bad.0.len() as u64 + attribute_blocks,
        )?;
        return Ok(map);
    }
    let why = map
        .problem
        .clone()
        .unwrap_or_else(|| match shared.is_empty() && !directory {
            false if !shared.is_empty() => {
                "blocks that are claimed twice, of which it gets copies".into()
            }
            _ => "holes, or blocks that are not its own".to_owned(),
        });
    let loses = map
        .problem
        .is_some()
        .then_some("what was mapped by the damaged part");
    if session.ask(
        record.place(),
        format!("its mapping is rewritten: {why}"),
        loses,
    ) {
        let extents = map.extents.clone();
        rewrites.push(Rewrite {
            ino: record.ino,
            extents,
            shared,
            pool,
        });
        if directory {
            record.core.flags &= !flags::INDEX;
        }
        size(session, record, &map);
    }
    Ok(map)
}

/// Sets the checksums of nodes of an extent tree in which only these are wrong.
fn seal(
    session: &mut Session<'_, '_>,
    record: &Record,
    unsealed: &[BlockNr],
    seed: Option<u32>,
) -> Result<(), Error> {
    let text = "checksums of its extent tree are set";
    if unsealed.is_empty() || !session.ask(record.place(), text, None) {
        return Ok(());
    }
    for &block in unsealed {
        let mut bytes = session.read(block)?;
        if let Some(seed) = seed {
            ext4_format::extent::set_tail(&mut bytes, seed).map_err(Error::Format)?;
        }
        session.write(block, &bytes)?;
    }
    Ok(())
}

/// Makes the blocks of a directory written ones without holes; returns whether they were others.
fn straighten(map: &mut MapRead) -> bool {
    let mut changed = map.blocks() != map.end() || map.extents.is_empty();
    let mut next = 0;
    for extent in &mut map.extents {
        // Blocks of a directory were written, even if its extents are marked as unwritten.
        changed |= std::mem::take(&mut extent.unwritten);
        extent.logical = next;
        next = extent.len.saturating_add(next);
    }
    changed
}

/// Cuts the mapping from a logical block on; returns whether it changed.
pub(crate) fn cut(session: &mut Session<'_, '_>, map: &mut MapRead, end: u64) -> bool {
    let gone = map.cut(end);
    for &(first, len) in &gone {
        session.claims.remove(session.geo.clusters_of(first, len));
    }
    !gone.is_empty()
}

/// Cuts the mapping of a file behind its size if the mapping is older than the inode, of before the file was cut: the count of blocks
/// fits the size, and a block behind it is free. A size that is older or damaged does not have both signs.
fn cut_if_older(
    session: &Session<'_, '_>,
    record: &Record,
    map: &mut MapRead,
    attribute_blocks: u64,
) {
    let regular = record.core.file_type() == Some(FileType::Regular);
    let end = record.core.size.div_ceil(session.geo.block_size.into());
    let written = map.extents.iter().rfind(|e| !e.unwritten);
    let behind = written.is_some_and(|e| e.end() > end);
    if !regular || !behind || record.has(flags::VERITY) || map.problem.is_some() {
        return;
    }
    let whole = map.extents.clone();
    let gone = map.cut(end);
    let counted = clusters(session, map) + map.nodes.len() as u64 + attribute_blocks;
    let fits =
        counted * session.geo.sectors_per_cluster() == inode::sectors(&record.raw, &session.geo);
    if fits && gone.iter().any(|&(first, _)| is_free(session, first)) {
        map.problem = Some("blocks behind its size, of which some are free".into());
    } else {
        map.extents = whole;
    }
}

/// Returns whether the block bitmap has a block as free; `false` if the bitmap cannot be read.
fn is_free(session: &Session<'_, '_>, block: BlockNr) -> bool {
    session
        .geo
        .group_of_block(block)
        .is_some_and(|(group, within)| {
            let place = (group, within / session.geo.cluster_ratio);
            session.is_free(place, BLOCK_UNINIT, |desc| desc.block_bitmap)
        })
}

/// Cuts the mapping of a directory behind its size and the blocks with names that follow. An extent with a damaged length reaches over
/// the blocks of other files.
fn cut_behind_size(
    session: &Session<'_, '_>,
    record: &Record,
    map: &mut MapRead,
    seed: Option<u32>,
) -> Result<bool, Error> {
    let end = record.core.size.div_ceil(session.geo.block_size.into());
    if end == 0 {
        return Ok(false);
    }
    let mut keep = end;
    while let Some(block) = u32::try_from(keep).ok().and_then(|at| map.at(at))
        && has_names(&session.read(block)?, seed)
    {
        keep += 1;
    }
    Ok(!map.cut(keep).is_empty())
}

/// Returns whether a block is that of a directory, and not its first one.
fn has_names(bytes: &[u8], seed: Option<u32>) -> bool {
    if let Some(seed) = seed {
        return dir_entry::verify_tail(bytes, seed).is_ok()
            || htree::verify_checksum(bytes, IndexBlockKind::Node, seed).is_ok();
    }
    let mut records = dir_entry::records(bytes, 0, false).peekable();
    let is_first = matches!(records.peek(), Some(Ok(record)) if record.name == b".");
    !is_first && records.all(|record| record.is_ok())
}

/// Claims the blocks of a mapping: returns the data blocks that are shared, and the nodes that are not.
fn claim(session: &mut Session<'_, '_>, map: &MapRead) -> (Vec<(u32, BlockNr)>, Vec<BlockNr>) {
    let mut shared = Vec::new();
    let mut pool = Vec::new();
    for &block in &map.nodes {
        if session.claims.insert(session.geo.clusters_of(block, 1)) {
            pool.push(block);
        }
    }
    // Number of a logical cluster, the cluster of its first block, and whether that cluster is unshared.
    let mut last: Option<(u32, u64, bool)> = None;
    let geo = session.geo.clone();
    for extent in &map.extents {
        for i in 0..extent.len {
            let (logical, block) = (
                extent.logical + i,
                BlockNr(extent.physical.0 + u64::from(i)),
            );
            let (within, cluster) = (logical / geo.cluster_ratio, geo.cluster_of(block));
            let own = geo.is_aligned(logical, block)
                && match last {
                    Some((same, of, own)) if same == within => own && of == cluster,
                    _ => session.claims.insert(cluster..cluster + 1),
                };
            if !own {
                shared.push((logical, block));
            }
            last = Some((within, cluster, own));
        }
    }
    (shared, pool)
}

fn clusters(session: &Session<'_, '_>, map: &MapRead) -> u64 {
    let (mut count, mut last) = (0, None);
    for extent in &map.extents {
        let first = session.geo.cluster_of(extent.physical);
        let end = session
            .geo
            .cluster_of(BlockNr(extent.physical.0 + u64::from(extent.len) - 1));
        count += end - first + u64::from(last != Some(first) || session.geo.cluster_ratio == 1);
        last = Some(end);
    }
    count
}

pub(crate) fn sectors(
    session: &mut Session<'_, '_>,
    record: &mut Record,
    clusters: u64,
) -> Result<(), Error> {
    let each = session.geo.sectors_per_cluster();
    let counted = clusters * each;
    if inode::sectors(&record.raw, &session.geo) != counted
        && session.ask(record.place(), "its count of blocks is set", None)
    {
        inode::set_sectors(&mut record.raw, &session.geo, counted).map_err(Error::Format)?;
        record.core.flags &= !flags::HUGE_FILE;
    }
    Ok(())
}

fn size(session: &mut Session<'_, '_>, record: &mut Record, map: &MapRead) {
    let block = u64::from(session.geo.block_size);
    let size = record.core.size;
    let wanted = match record.core.file_type() {
        Some(FileType::Directory) => map.end().max(1) * block,
        Some(FileType::Regular) => {
            let written = map
                .extents
                .iter()
                .rfind(|e| !e.unwritten)
                .map_or(0, Extent::end);
            if written > 0 && size < (written - 1) * block && !record.has(flags::VERITY) {
                written * block
            } else if size > session.geo.max_addressed_size(record.has(flags::EXTENTS)) {
                map.end() * block
            } else {
                size
            }
        }
        _ => size,
    };
    if wanted != size && session.ask(record.place(), format!("its size is set to {wanted}"), None) {
        record.core.size = wanted;
    }
}

/// Takes a free block for a logical block of a file, in the cluster of its neighbours if the file has blocks there.
pub(crate) fn allocate_at(
    session: &mut Session<'_, '_>,
    extents: &[Extent],
    logical: u32,
) -> Option<BlockNr> {
    let ratio = session.geo.cluster_ratio;
    let first = logical - logical % ratio;
    let end = u64::from(first) + u64::from(ratio);
    let mut others = extents.iter();
    let beside = others.find(|e| u64::from(e.logical) < end && e.end() > u64::from(first));
    let start = match beside {
        Some(e) => {
            let within = u64::from(e.logical.saturating_sub(first));
            let skipped = u64::from(first.saturating_sub(e.logical));
            (e.physical.0 + skipped).checked_sub(within)?
        }
        None => session.allocate()?.0,
    };
    let block = BlockNr(start + u64::from(logical - first));
    // A neighbour that is not aligned in its cluster would lead to a block of another cluster.
    let ok = session.geo.is_aligned(logical, block) && session.geo.is_valid_data_range(block, 1);
    ok.then_some(block)
}

/// Replaces the mapping of an inode.
pub(crate) fn remap(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    extents: Vec<Extent>,
    pool: Vec<BlockNr>,
) -> Result<bool, Error> {
    rewrite(
        session,
        Rewrite {
            ino,
            extents,
            shared: Vec::new(),
            pool,
        },
    )
}

pub(crate) fn rewrite(session: &mut Session<'_, '_>, rewrite: Rewrite) -> Result<bool, Error> {
    let Rewrite {
        ino,
        extents,
        shared,
        pool,
    } = rewrite;
    let Some(mut raw) = session.read_record(ino)? else {
        return Ok(false);
    };
    let Ok(mut core) = inode::decode_verified(&raw, &session.geo, ino) else {
        return Ok(false);
    };
    let mut extents = split(session, extents, &shared)?;
    let directory = core.file_type() == Some(FileType::Directory);
    if directory && extents.is_empty() {
        if let Some(physical) = session.allocate() {
            session.write(physical, &vec![0; session.block_size()])?;
            extents.push(Extent::block(0, physical));
        } else if ino != InodeNr::ROOT {
            drop_directory(session, ino, &raw)?;
            return Ok(false);
        }
    }
    let mut root = [0; inode::I_BLOCK_SIZE];
    let had_extents = core.flags & flags::EXTENTS != 0;
    // Volumes with clusters have no block maps.
    let with_extents = had_extents || session.geo.cluster_ratio > 1;
    let pool = NodePool::new(pool);
    let Some(nodes) = mapping::build(
        session,
        ino,
        core.generation,
        with_extents,
        &extents,
        pool,
        &mut root,
    )?
    else {
        return Ok(false);
    };
    if with_extents && !had_extents {
        core.flags |= flags::EXTENTS;
        inode::encode_core(&core, &mut raw, &session.geo);
    }
    *inode::i_block_mut(&mut raw).map_err(Error::Format)? = root;
    let map = MapRead {
        extents,
        ..MapRead::default()
    };
    let attribute = attributes::clusters(session, &raw)?;
    let each = session.geo.sectors_per_cluster();
    let count = (clusters(session, &map) + nodes + attribute) * each;
    inode::set_sectors(&mut raw, &session.geo, count).map_err(Error::Format)?;
    session.write_record(ino, &mut raw)?;
    Ok(true)
}

/// Clears a directory without blocks, for which none is free.
fn drop_directory(session: &mut Session<'_, '_>, ino: InodeNr, raw: &[u8]) -> Result<(), Error> {
    if record::clear(session, ino, "a directory without blocks, and none is free")? {
        attributes::forget(session, ino, raw);
        session.inodes.remove(&ino.0);
        session.dirs.remove(&ino.0);
    }
    Ok(())
}

/// Gives copies of shared blocks to their second owner; without room the blocks are dropped.
fn split(
    session: &mut Session<'_, '_>,
    extents: Vec<Extent>,
    shared: &[(u32, BlockNr)],
) -> Result<Vec<Extent>, Error> {
    if shared.is_empty() {
        return Ok(extents);
    }
    let shared: BTreeSet<u32> = shared.iter().map(|s| s.0).collect();
    let mut parts: Vec<Extent> = Vec::new();
    let ratio = session.geo.cluster_ratio;
    // The logical cluster of the block before, and the first block of the cluster that it is in.
    let mut last: Option<(u32, BlockNr)> = None;
    for extent in extents {
        for i in 0..extent.len {
            let mut here = Extent {
                logical: extent.logical + i,
                len: 1,
                physical: BlockNr(extent.physical.0 + u64::from(i)),
                unwritten: extent.unwritten,
            };
            let (cluster, within) = (here.logical / ratio, u64::from(here.logical % ratio));
            if shared.contains(&here.logical) {
                // The blocks of a logical cluster stay together.
                let copy = match last {
                    Some((same, first)) if same == cluster => Some(first),
                    _ => session.allocate(),
                };
                let Some(first) = copy else {
                    continue;
                };
                let bytes = session.read(here.physical)?;
                here.physical = BlockNr(first.0 + within);
                session.write(here.physical, &bytes)?;
            }
            last = Some((cluster, BlockNr(here.physical.0.saturating_sub(within))));
            match parts.last().and_then(|last| last.merge(&here)) {
                Some(longer) => *parts.last_mut().unwrap_or(&mut here) = longer,
                None => parts.push(here),
            }
        }
    }
    Ok(parts)
}
