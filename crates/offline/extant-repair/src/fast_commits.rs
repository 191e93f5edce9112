//! Replay of fast commits: their changes are made in inode records, mappings and directories. Counts and bitmaps are left to the
//! passes that follow.

use crate::error::Error;
use crate::session::Session;
use crate::{connect, dir_blocks, groups, inline_dirs, inode_map, mapping, record};
use ext4_format::extent::{self, Extent};
use ext4_format::group_desc::{BLOCK_UNINIT, INODE_UNINIT};
use ext4_format::inode::{self, flags};
use ext4_format::jbd2::{FastChange, FastName};
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr, bitmap, dir_entry};
use ext4_image::ClusterSet;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Offset of the generation in a record, behind the mapping.
const BEHIND_MAPPING: usize = inode::I_BLOCK_OFFSET + inode::I_BLOCK_SIZE;

/// Mapping of a file that fast commits change.
#[derive(Default)]
struct Mapping {
    extents: Vec<Extent>,
    /// Blocks of the mapping that it had.
    nodes: Vec<BlockNr>,
}

/// Mappings that are changed, by inode.
type Mappings = BTreeMap<u32, Mapping>;

/// Makes the changes, over the log's images, which were written home before.
pub(crate) fn replay(session: &mut Session<'_, '_>, changes: Vec<FastChange>) -> Result<(), Error> {
    // The images may have changed the descriptors.
    session.descs.clear();
    session.claims = ClusterSet::new(&session.geo);
    groups::read(session)?;
    claim_in_use(session, &changes)?;
    let mut mappings = Mappings::new();
    for change in changes {
        one(session, &mut mappings, change)?;
    }
    for (ino, mapping) in mappings {
        let ino = InodeNr(ino);
        if !is_mapped_file(session, ino)? {
            continue;
        }
        inode_map::remap(session, ino, mapping.extents, mapping.nodes)?;
    }
    Ok(())
}

/// Claims the blocks in use by the bitmaps and the blocks that the changes map, so that new blocks are elsewhere.
fn claim_in_use(session: &mut Session<'_, '_>, changes: &[FastChange]) -> Result<(), Error> {
    let geo = session.geo.clone();
    for (group, desc) in session.descs.clone().into_iter().enumerate() {
        if desc.flags & BLOCK_UNINIT != 0 && geo.features.has_group_csum() {
            continue;
        }
        let mut map = session.read(desc.block_bitmap)?;
        bitmap::clear_range(&mut map, geo.bits_in_group(GroupNr(group as u32)), u32::MAX);
        session.claims.insert_map(group as u32, &map);
    }
    for change in changes {
        let FastChange::AddRange(_, extent) = change else {
            continue;
        };
        if geo.is_valid_data_range(extent.physical, extent.len.into()) {
            let clusters = geo.clusters_of(extent.physical, extent.len.into());
            session.claims.insert(clusters);
        }
    }
    Ok(())
}

fn one(
    session: &mut Session<'_, '_>,
    mappings: &mut Mappings,
    change: FastChange,
) -> Result<(), Error> {
    match change {
        FastChange::Inode(ino, record) => set_record(session, mappings, ino, &record),
        FastChange::AddRange(ino, extent) => {
            if session
                .geo
                .is_valid_data_range(extent.physical, extent.len.into())
                && extent.end() <= extent::LOGICAL_END
                && let Some(mapping) = mapping_of(session, mappings, ino)?
            {
                cut(&mut mapping.extents, extent.logical.into(), extent.end());
                let next = mapping
                    .extents
                    .partition_point(|e| e.logical < extent.logical);
                mapping.extents.insert(next, extent);
            }
            Ok(())
        }
        FastChange::RemoveRange(ino, first, len) => {
            if let Some(mapping) = mapping_of(session, mappings, ino)? {
                let (first, len) = (u64::from(first), u64::from(len));
                cut(&mut mapping.extents, first, first + len);
            }
            Ok(())
        }
        FastChange::Create(name) => create(session, mappings, &name),
        FastChange::Link(name) => link(session, &name, 1),
        FastChange::Unlink(name) => unlink(session, mappings, &name),
    }
}

/// Takes the logical blocks from `first` to before `end` out of a mapping.
fn cut(extents: &mut Vec<Extent>, first: u64, end: u64) {
    let mut left = Vec::with_capacity(extents.len() + 1);
    for extent in extents.drain(..) {
        let (start, stop) = (u64::from(extent.logical), extent.end());
        let before = first.clamp(start, stop) - start;
        let behind = end.clamp(start, stop) - start;
        // Both are at most the length of the extent.
        if before > 0 {
            let len = before as u32;
            left.push(Extent { len, ..extent });
        }
        if behind >= before && behind < u64::from(extent.len) && end > start {
            left.push(Extent {
                logical: extent.logical + behind as u32,
                len: extent.len - behind as u32,
                physical: BlockNr(extent.physical.0 + behind),
                unwritten: extent.unwritten,
            });
        } else if end <= start && before == 0 {
            left.push(extent);
        }
    }
    *extents = left;
}

fn is_mapped_file(session: &Session<'_, '_>, ino: InodeNr) -> Result<bool, Error> {
    let raw = session.read_record(ino)?;
    let core = raw.and_then(|raw| inode::decode_verified(&raw, &session.geo, ino).ok());
    Ok(core.is_some_and(|core| {
        let file_type = core.file_type();
        core.links > 0
            && core.flags & flags::INLINE_DATA == 0
            && (file_type == Some(FileType::Regular)
                || file_type == Some(FileType::Symlink) && core.flags & flags::EXTENTS != 0)
    }))
}

/// Returns the mapping of a file or of a symbolic link, read at the first change of it. Blocks of directories are
/// read with their names.
fn mapping_of<'m>(
    session: &Session<'_, '_>,
    mappings: &'m mut Mappings,
    ino: InodeNr,
) -> Result<Option<&'m mut Mapping>, Error> {
    if !is_mapped_file(session, ino)? {
        return Ok(None);
    }
    Ok(Some(match mappings.entry(ino.0) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(read_mapping(session, ino)?),
    }))
}

fn read_mapping(session: &Session<'_, '_>, ino: InodeNr) -> Result<Mapping, Error> {
    let Some(raw) = session.read_record(ino)? else {
        return Ok(Mapping::default());
    };
    let core = inode::decode_verified(&raw, &session.geo, ino)?;
    let root = inode::i_block(&raw)?;
    let seed = session.seed(ino, core.generation);
    let map = mapping::read(session, core.flags, root, seed)?;
    Ok(Mapping {
        extents: map.extents,
        nodes: map.nodes,
    })
}

/// Writes the record of an inode. The mapping of a file stays, because it changes by ranges alone.
fn set_record(
    session: &mut Session<'_, '_>,
    mappings: &mut Mappings,
    ino: InodeNr,
    record: &[u8],
) -> Result<(), Error> {
    let geo = session.geo.clone();
    if ino.0 < geo.first_ino && ino != InodeNr::ROOT || ino.0 > geo.inodes_count {
        return Ok(());
    }
    mark_used(session, ino)?;
    let Some(old) = session.read_record(ino)? else {
        return Ok(());
    };
    let mut raw = old.clone();
    let len = record.len().min(raw.len());
    for (to, from) in raw.iter_mut().zip(record) {
        *to = *from;
    }
    let Ok(core) = inode::decode_verified(&raw, &geo, ino) else {
        return Ok(());
    };
    let before = inode::decode_verified(&old, &geo, ino).ok();
    let same = before.filter(|before| before.links > 0 && before.generation == core.generation);
    let mapped = match core.file_type() {
        Some(FileType::Regular | FileType::Directory) => core.flags & flags::INLINE_DATA == 0,
        _ => core.flags & flags::EXTENTS != 0,
    };
    if mapped {
        let root = inode::i_block_mut(&mut raw)?;
        match same {
            Some(_) => *root = *inode::i_block(&old)?,
            None if core.flags & flags::EXTENTS != 0 => *root = extent::EMPTY_ROOT,
            None => root.fill(0),
        }
    }
    if same.is_none() {
        mappings.remove(&ino.0);
        // No bytes of another file stay behind those of the change.
        if let Some(rest) = raw.get_mut(len.max(BEHIND_MAPPING)..) {
            rest.fill(0);
        }
    }
    Ok(session.write_record(ino, &mut raw)?)
}

/// Extends the used part of a group's inode table to the record of an inode.
fn mark_used(session: &mut Session<'_, '_>, ino: InodeNr) -> Result<(), Error> {
    let geo = session.geo.clone();
    let Some((group, index)) = geo.group_of_inode(ino) else {
        return Ok(());
    };
    let end = session.records_in(group.0);
    if index < end {
        return Ok(());
    }
    for skipped in end..=index {
        let mut raw = vec![0; geo.inode_size.into()];
        session.write_record(geo.inode_nr(group, skipped), &mut raw)?;
    }
    let Some(desc) = session.descs.get_mut(group.0 as usize) else {
        return Ok(());
    };
    desc.itable_unused = geo.inodes_per_group - index - 1;
    desc.flags &= !INODE_UNINIT;
    let desc = *desc;
    let (block, offset) = geo.desc_location(group);
    let mut bytes = session.read(block)?;
    desc.encode(
        bytes.get_mut(offset as usize..).unwrap_or(&mut []),
        &geo,
        group,
    )?;
    Ok(session.write(block, &bytes)?)
}

fn create(
    session: &mut Session<'_, '_>,
    mappings: &mut Mappings,
    name: &FastName,
) -> Result<(), Error> {
    let Some(raw) = session.read_record(name.ino)? else {
        return Ok(());
    };
    let Ok(core) = inode::decode_verified(&raw, &session.geo, name.ino) else {
        return Ok(());
    };
    let directory = core.file_type() == Some(FileType::Directory);
    if directory && core.flags & flags::INLINE_DATA == 0 {
        mappings.remove(&name.ino.0);
        connect::first_block(session, name.ino, name.parent, core.generation)?;
    }
    let links = if directory { 2 } else { 1 };
    record::edit(session, name.ino, |core| core.links = links)?;
    link(session, name, 0)
}

/// Adds a name, which replaces an equal one, and adds `links` to the count of links.
fn link(session: &mut Session<'_, '_>, name: &FastName, links: u32) -> Result<(), Error> {
    remove_name(session, name)?;
    let raw = session.read_record(name.ino)?;
    let core = raw.and_then(|raw| inode::decode_verified(&raw, &session.geo, name.ino).ok());
    let Some(core) = core else {
        return Ok(());
    };
    let target = (name.ino, core.file_type());
    connect::insert_name(session, name.parent, &name.name, target)?;
    record::edit(session, name.ino, |core| core.links += links)
}

/// Removes a name. The inode without a link ends with it.
fn unlink(
    session: &mut Session<'_, '_>,
    mappings: &mut Mappings,
    name: &FastName,
) -> Result<(), Error> {
    remove_name(session, name)?;
    let now = session.now;
    let mut ended = false;
    record::edit(session, name.ino, |core| {
        core.links = match core.file_type() {
            Some(FileType::Directory) => 0,
            _ => core.links.saturating_sub(1),
        };
        if core.links == 0 {
            core.dtime = now;
            ended = true;
        }
    })?;
    if ended {
        mappings.remove(&name.ino.0);
    }
    Ok(())
}

fn remove_name(session: &mut Session<'_, '_>, name: &FastName) -> Result<(), Error> {
    if !inline_dirs::expand(session, name.parent)? {
        return Ok(());
    }
    let Some(dir) = dir_blocks::blocks(session, name.parent)? else {
        return Ok(());
    };
    for block in dir.places {
        let mut bytes = session.read(block)?;
        if let Ok(Some(_)) = dir_entry::remove(&mut bytes, &name.name) {
            if let Some(seed) = dir.seed {
                dir_entry::set_tail(&mut bytes, seed);
            }
            session.write(block, &bytes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_out_wherever_it_lies() {
        let all = [(0, 4), (6, 4)].map(|(logical, len)| Extent {
            logical,
            len,
            physical: BlockNr(100 + u64::from(logical)),
            unwritten: false,
        });
        for first in 0..12u64 {
            for end in first..=12 {
                let mut left = all.to_vec();
                cut(&mut left, first, end);
                let blocks: Vec<u64> = left
                    .iter()
                    .flat_map(|e| (0..e.len).map(|i| e.physical.0 + u64::from(i)))
                    .collect();
                let wanted = [0..4u64, 6..10].into_iter().flatten();
                let wanted: Vec<u64> = wanted
                    .filter(|i| !(first..end).contains(i))
                    .map(|i| 100 + i)
                    .collect();
                assert_eq!(blocks, wanted, "{first}..{end}");
            }
        }
    }
}
