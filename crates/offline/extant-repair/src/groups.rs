//! Group descriptors at the beginning; bitmaps, counts and checksums at the end.

use crate::error::Error;
use crate::session::{InodeUse, Session};
use crate::{journal_map, resize};
use ext4_format::extent::Extent;
use ext4_format::features::Incompat;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr, bitmap, inode};
use std::collections::{BTreeMap, BTreeSet};

/// Reads the descriptors; damaged ones are taken from a backup, if its places are possible.
pub(crate) fn read(session: &mut Session<'_, '_>) -> Result<(), Error> {
    resize::shorten_reserved(session)?;
    let geo = session.geo.clone();
    for index in 0..geo.gdt_block_count() {
        let bytes = session.read(geo.gdt_block(index))?;
        let first = index * geo.descs_per_block();
        let end = first.saturating_add(geo.descs_per_block()).min(geo.groups);
        let records = bytes.chunks_exact(geo.desc_size.into());
        for (raw, group) in records.zip((first..end).map(GroupNr)) {
            let desc = read_one(session, raw, group)?;
            session.descs.push(desc);
        }
    }
    part(session)?;
    claim_metadata(session);
    Ok(())
}

/// Takes the places of overlapping structures from a backup if it has other places: the difference identifies the
/// misplaced structure.
fn part(session: &mut Session<'_, '_>) -> Result<(), Error> {
    for group in overlapping(session) {
        let Some((backup, _)) = backup(session, group)? else {
            continue;
        };
        let Some(mut desc) = session.descs.get(group.0 as usize).copied() else {
            continue;
        };
        if places(&desc) == places(&backup)
            || !session.ask(format!("group {group}"), FROM_BACKUP, None)
        {
            continue;
        }
        take_places(&mut desc, &backup);
        session.whole_tables.insert(group.0);
        if let Some(kept) = session.descs.get_mut(group.0 as usize) {
            *kept = desc;
        }
    }
    Ok(())
}

/// Groups with a bitmap or an inode table that overlaps another such structure, or the start of a group.
fn overlapping(session: &Session<'_, '_>) -> BTreeSet<GroupNr> {
    let geo = &session.geo;
    let mut ranges = Vec::new();
    for (desc, group) in session.descs.iter().zip((0..).map(GroupNr)) {
        let table = u64::from(geo.itable_blocks());
        for (first, len) in [
            (
                geo.group_first_block(group),
                geo.group_base_meta_blocks(group).into(),
            ),
            (desc.block_bitmap, 1),
            (desc.inode_bitmap, 1),
            (desc.inode_table, table),
        ] {
            if first.0 != 0 && len > 0 {
                ranges.push((first.0, first.0.saturating_add(len), group));
            }
        }
    }
    ranges.sort_unstable();
    let mut groups = BTreeSet::new();
    let mut last = (0, GroupNr(0));
    for (first, end, group) in ranges {
        if first < last.0 {
            groups.extend([group, last.1]);
        }
        last = last.max((end, group));
    }
    groups
}

const FROM_BACKUP: &str = "the places of its bitmaps and its inode table are taken from a backup";

fn places(desc: &GroupDesc) -> [BlockNr; 3] {
    [desc.block_bitmap, desc.inode_bitmap, desc.inode_table]
}

fn take_places(desc: &mut GroupDesc, from: &GroupDesc) {
    desc.block_bitmap = from.block_bitmap;
    desc.inode_bitmap = from.inode_bitmap;
    desc.inode_table = from.inode_table;
}

fn read_one(session: &mut Session<'_, '_>, raw: &[u8], group: GroupNr) -> Result<GroupDesc, Error> {
    let geo = session.geo.clone();
    if let Ok(desc) = GroupDesc::decode(raw, &geo, group) {
        let uninit = desc.flags & (INODE_UNINIT | BLOCK_UNINIT) != 0;
        // The root and the other reserved inodes are always in use.
        let without_root = desc.used_records(&geo) < geo.reserved_inodes(group);
        if uninit && !geo.features.has_group_csum() || without_root {
            session.whole_tables.insert(group.0);
        }
        if let Some(desc) = with_root(session, desc, group)? {
            return Ok(desc);
        }
        return if geo.features.has_group_csum() {
            Ok(desc)
        } else {
            replaced(session, desc, group)
        };
    }
    session.whole_tables.insert(group.0);
    let desc = GroupDesc::decode_unchecked(raw).unwrap_or_default();
    if desc.check_places(&geo, group).is_ok() {
        return replaced(session, desc, group);
    }
    let mut desc = GroupDesc {
        flags: 0,
        itable_unused: 0,
        ..desc
    };
    let place = format!("group {group}");
    if let Some((backup, _)) = backup(session, group)? {
        if !session.ask(&place, FROM_BACKUP, None) {
            return Err(Error::Declined);
        }
        take_places(&mut desc, &backup);
        return Ok(desc);
    }
    if !geo.features.has_flex_bg() {
        let mut flexible = geo.clone();
        flexible.features.incompat |= Incompat::FLEX_BG;
        if desc.check_places(&flexible, group).is_ok() {
            let text = "flex_bg is set, as structures of groups are in others";
            crate::superblock::need_to_read(session, Incompat::FLEX_BG, text)?;
            return Ok(desc);
        }
    }
    let fits = |first: BlockNr, len: u64| {
        let start = geo.group_first_block(group).0;
        let end = start + u64::from(geo.blocks_in_group(group));
        geo.is_valid_data_range(first, len)
            && (geo.features.has_flex_bg() || (first.0 >= start && first.0 + len <= end))
    };
    let table_len = geo.itable_blocks().into();
    let strayed = !fits(desc.inode_table, table_len)
        && geo.is_valid_data_range(desc.inode_table, table_len)
        && desc.inode_table.0 != 0;
    if strayed && holds_inodes(session, group, desc.inode_table)? {
        let text = "flex_bg is set, as structures of groups are in others";
        crate::superblock::need_to_read(session, Incompat::FLEX_BG, text)?;
    } else if !fits(desc.inode_table, table_len) {
        desc.inode_table = lost_table(session, group, &place)?;
    }
    // A bitmap without a place gets one when the free blocks are known.
    for bitmap in [&mut desc.block_bitmap, &mut desc.inode_bitmap] {
        if !fits(*bitmap, 1) {
            *bitmap = BlockNr(0);
        }
    }
    Ok(desc)
}

/// Returns the first group's descriptor with the place of its inode table, if the block that it names holds no inodes.
fn with_root(
    session: &mut Session<'_, '_>,
    mut desc: GroupDesc,
    group: GroupNr,
) -> Result<Option<GroupDesc>, Error> {
    // Without checksums a damaged root alone would look like this, and all blocks would be read in vain.
    if group.0 > 0 || !session.has_csum() || holds_inodes(session, group, desc.inode_table)? {
        return Ok(None);
    }
    let Some(table) = find_table(session, group, Evidence::Checksums)? else {
        return Ok(None);
    };
    // A copy of a part of a damaged table would have more sound records, too.
    if !has_root(session, table)? || has_root(session, desc.inode_table)? {
        return Ok(None);
    }
    let text = format!("its inode table is at block {table}, where its inodes are");
    if !session.ask("group 0", text, None) {
        return Ok(None);
    }
    session.whole_tables.insert(group.0);
    desc.inode_table = table;
    Ok(Some(desc))
}

/// Returns a descriptor with the places of its backup, if the inodes of the group are there: the descriptor may be that of another
/// group, or its bitmaps may be misplaced.
fn replaced(
    session: &mut Session<'_, '_>,
    mut desc: GroupDesc,
    group: GroupNr,
) -> Result<GroupDesc, Error> {
    // Without checksums, only the root tells its group.
    if !session.has_csum() && group.0 > 0 {
        return Ok(desc);
    }
    let Some((backup, sealed)) = backup(session, group)? else {
        return Ok(desc);
    };
    let (here, there) = (desc.inode_table, backup.inode_table);
    let is_there = if here == there {
        // Both name the same table, and the checksum of this descriptor is wrong.
        session.geo.features.has_group_csum() && sealed && places(&desc) != places(&backup)
    } else if session.has_csum() {
        let evidence = Evidence::Checksums;
        score(session, group, there, evidence)? > score(session, group, here, evidence)?
    } else {
        has_root(session, there)? && !has_root(session, here)?
    };
    if is_there && session.ask(format!("group {group}"), FROM_BACKUP, None) {
        take_places(&mut desc, &backup);
        session.whole_tables.insert(group.0);
    }
    Ok(desc)
}

/// Returns whether a table of the first group has the root.
fn has_root(session: &Session<'_, '_>, table: BlockNr) -> Result<bool, Error> {
    let raw = session.record_in(table, InodeNr::ROOT.0 - 1);
    match raw {
        Ok(raw) => is_root(session, &raw),
        Err(_) => Ok(false),
    }
}

/// Finds the table of a group by its inodes. A table that is lost is at block 0: it gets a place after all blocks in use are known.
fn lost_table(
    session: &mut Session<'_, '_>,
    group: GroupNr,
    place: &str,
) -> Result<BlockNr, Error> {
    let mut table = None;
    if session.has_csum() {
        table = find_table(session, group, Evidence::Checksums)?;
    }
    if table.is_none() {
        // All checksums are wrong where that of the volume is, from which they begin.
        table = find_table(session, group, Evidence::Root)?;
    }
    let (text, loses) = match table {
        Some(table) => (
            format!("its inode table is at block {table}, where its inodes are"),
            None,
        ),
        // The root directory is in the first group.
        None if group.0 == 0 => return Err(Error::Descriptors(group.0)),
        None => (
            "its inode table is lost, and gets a new place".to_owned(),
            Some("its inodes"),
        ),
    };
    if session.ask(place, text, loses) {
        Ok(table.unwrap_or(BlockNr(0)))
    } else {
        Err(Error::Declined)
    }
}

/// Evidence for the inodes of a group.
#[derive(Clone, Copy)]
enum Evidence {
    Checksums,
    Root,
}

/// Returns the place of a group's inodes: the one with most sound records of a whole table. The journal is left out,
/// because its log may hold a copy of the table that is followed by records of other groups.
fn find_table(
    session: &Session<'_, '_>,
    group: GroupNr,
    evidence: Evidence,
) -> Result<Option<BlockNr>, Error> {
    let geo = &session.geo;
    // The journal's inode may be in the table that is searched for.
    let journal = journal_map::known_map(session)?.map_or_else(Vec::new, |map| map.extents);
    let len = u64::from(geo.itable_blocks());
    let in_journal = |block: BlockNr| {
        let meets = |run: &Extent| {
            run.physical.0 < block.0 + len && block.0 < run.physical.0 + u64::from(run.len)
        };
        journal.iter().any(meets)
    };
    let mut best: Option<(i64, BlockNr)> = None;
    for block in (geo.first_data_block..geo.blocks_count).map(BlockNr) {
        if !geo.is_valid_data_range(block, len) || in_journal(block) {
            continue;
        }
        let bytes = session.read(block)?;
        let mut used = used_records(session, group, 0, &bytes);
        let found = match evidence {
            Evidence::Checksums => used.any(|(raw, ino)| inode::decode_core(raw, geo, ino).is_ok()),
            Evidence::Root => used
                .any(|(raw, ino)| ino == InodeNr::ROOT && is_root(session, raw).unwrap_or(false)),
        };
        if !found {
            continue;
        }
        let score = score(session, group, block, evidence)?;
        if best.is_none_or(|(most, _)| score > most) {
            best = Some((score, block));
        }
    }
    Ok(best.map(|(_, block)| block))
}

/// Returns whether more records at a place are sound than not, as in a table of inodes.
fn holds_inodes(session: &Session<'_, '_>, group: GroupNr, table: BlockNr) -> Result<bool, Error> {
    let evidence = if session.has_csum() {
        Evidence::Checksums
    } else {
        Evidence::Root
    };
    Ok(score(session, group, table, evidence)? > 0)
}

/// Returns the records of a block of a group's table that were ever written, with their numbers.
fn used_records<'b>(
    session: &Session<'_, '_>,
    group: GroupNr,
    nth: u32,
    bytes: &'b [u8],
) -> impl Iterator<Item = (&'b [u8], InodeNr)> {
    let geo = &session.geo;
    let first = geo.inode_nr(group, nth * geo.inodes_per_block()).0;
    bytes
        .chunks_exact(geo.inode_size.into())
        .zip((first..).map(InodeNr))
        .filter(|(raw, _)| raw.iter().any(|&b| b != 0))
}

/// Returns the number of sound records minus that of unsound ones, for a table that would begin at a block.
fn score(
    session: &Session<'_, '_>,
    group: GroupNr,
    first: BlockNr,
    evidence: Evidence,
) -> Result<i64, Error> {
    let mut score = 0;
    for nth in 0..session.geo.itable_blocks() {
        let bytes = session.read(BlockNr(first.0 + u64::from(nth)))?;
        for (raw, ino) in used_records(session, group, nth, &bytes) {
            let core = match evidence {
                Evidence::Checksums => inode::decode_core(raw, &session.geo, ino),
                Evidence::Root => inode::decode_verified(raw, &session.geo, ino),
            };
            let sound = core.is_ok_and(|core| core.mode == 0 || core.file_type().is_some());
            score += if sound { 1 } else { -1 };
        }
    }
    Ok(score)
}

/// Returns whether a record is that of the root: a directory whose first names both lead to the root.
fn is_root(session: &Session<'_, '_>, raw: &[u8]) -> Result<bool, Error> {
    let Ok(core) = inode::decode_verified(raw, &session.geo, InodeNr::ROOT) else {
        return Ok(false);
    };
    if core.file_type() != Some(FileType::Directory) {
        return Ok(false);
    }
    let map = crate::mapping::read(session, core.flags, inode::i_block(raw)?, None)?;
    let Some(extent) = map.extents.first() else {
        return Ok(false);
    };
    let bytes = session.read(extent.physical)?;
    Ok([0, 12]
        .iter()
        .all(|&at| bytes.get(at..at + 4) == Some(&[2, 0, 0, 0])))
}

/// Finds places for bitmaps without a place.
fn place_bitmaps(session: &mut Session<'_, '_>) -> Result<(), Error> {
    for group in 0..session.descs.len() {
        let Some(mut desc) = session.descs.get(group).copied() else {
            continue;
        };
        if desc.inode_table.0 == 0 {
            desc.inode_table = new_table(session, group as u32)?;
        }
        for (name, bitmap) in [
            ("block", &mut desc.block_bitmap),
            ("inode", &mut desc.inode_bitmap),
        ] {
            if bitmap.0 != 0 {
                continue;
            }
            let Some(block) = session.allocate_in(group as u32) else {
                return Err(Error::Descriptors(group as u32));
            };
            if !session.ask(
                format!("group {group}"),
                format!("its {name} bitmap is now at block {block}"),
                None,
            ) {
                return Err(Error::Declined);
            }
            *bitmap = block;
        }
        if let Some(kept) = session.descs.get_mut(group) {
            *kept = desc;
        }
    }
    Ok(())
}

/// Takes free blocks for the table of a group, in the group itself, or in another group if that is allowed, and
/// clears them.
fn new_table(session: &mut Session<'_, '_>, group: u32) -> Result<BlockNr, Error> {
    let geo = session.geo.clone();
    let len = u64::from(geo.itable_blocks());
    let groups = if geo.features.has_flex_bg() {
        geo.groups
    } else {
        0
    };
    let first = std::iter::once(group)
        .chain(0..groups)
        .find_map(|group| session.find_free(group, len));
    let Some(first) = first else {
        return Err(Error::Descriptors(group));
    };
    let zeros = vec![0; session.block_size()];
    session.claims.insert(geo.clusters_of(first, len));
    for block in first.0..first.0 + len {
        session.write(BlockNr(block), &zeros)?;
    }
    session.whole_tables.insert(group);
    Ok(first)
}

/// Returns the descriptor of a group in the first backup with possible places, and whether its checksum is right.
fn backup(session: &Session<'_, '_>, group: GroupNr) -> Result<Option<(GroupDesc, bool)>, Error> {
    let geo = &session.geo;
    let (home, offset) = geo.desc_location(group);
    let within = home.0 - geo.first_data_block;
    for holder in (1..geo.groups).map(GroupNr).filter(|&g| geo.has_super(g)) {
        let block = BlockNr(geo.group_first_block(holder).0.saturating_add(within));
        if block.0 >= geo.blocks_count {
            continue;
        }
        let bytes = session.read(block)?;
        let raw = bytes.get(offset as usize..).unwrap_or(&[]);
        let raw = raw.get(..geo.desc_size.into()).unwrap_or(&[]);
        if let Some(desc) = GroupDesc::decode_unchecked(raw)
            && desc.check_places(geo, group).is_ok()
        {
            let sealed = GroupDesc::decode(raw, geo, group).is_ok();
            return Ok(Some((desc, sealed)));
        }
    }
    Ok(None)
}

fn claim_metadata(session: &mut Session<'_, '_>) {
    let geo = session.geo.clone();
    // Structures may share a cluster, but no block. Disjoint runs of blocks that structures have: the first block, and the end.
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    let mut mark = |first: BlockNr, len: u64| {
        let start = first.0.max(geo.first_data_block);
        let end = first.0.saturating_add(len).min(geo.blocks_count);
        let clusters = geo.clusters_of(BlockNr(start), end.saturating_sub(start));
        session.claims.insert(clusters);
        if end <= start {
            return false;
        }
        let (mut free, mut run) = (true, (start, end));
        while let Some((&first, &last)) = seen.range(..run.1).next_back()
            && last > run.0
        {
            seen.remove(&first);
            run = (run.0.min(first), run.1.max(last));
            free = false;
        }
        seen.insert(run.0, run.1);
        free && first.0 == start
    };
    for group in (0..geo.groups).map(GroupNr) {
        mark(
            geo.group_first_block(group),
            geo.group_base_meta_blocks(group).into(),
        );
    }
    let mmp = BlockNr(session.sb.mmp_block.get());
    if geo.features.has_mmp() && mmp.0 != 0 {
        mark(mmp, 1);
    }
    for desc in session.descs.iter().filter(|d| d.inode_table.0 != 0) {
        mark(desc.inode_table, geo.itable_blocks().into());
    }
    // A bitmap that overlaps another structure gets a new place.
    for desc in &mut session.image.descs {
        for bitmap in [&mut desc.block_bitmap, &mut desc.inode_bitmap] {
            if !mark(*bitmap, 1) {
                *bitmap = BlockNr(0);
            }
        }
    }
}

/// Inodes of one group.
#[derive(Clone, Copy, Default)]
struct GroupInodes {
    /// Directories.
    directories: u32,
    /// Highest index in use plus one.
    end: u32,
}

/// Writes bitmaps, descriptors and the superblock's counts where they differ from the actual use.
pub(crate) fn write(session: &mut Session<'_, '_>) -> Result<(), Error> {
    place_bitmaps(session)?;
    let geo = session.geo.clone();
    let mut held: BTreeMap<u32, GroupInodes> = BTreeMap::new();
    let mut maps: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let files = session.inodes.iter().map(|(&ino, used)| {
        let is_directory = used.kind == InodeUse::File(FileType::Directory);
        (ino, is_directory)
    });
    let empty = session.named_empty_inodes.iter().map(|&ino| (ino, false));
    for (ino, is_directory) in files.chain(empty) {
        let Some((group, index)) = geo.group_of_inode(InodeNr(ino)) else {
            continue;
        };
        let inodes = held.entry(group.0).or_default();
        inodes.end = inodes.end.max(index + 1);
        inodes.directories += u32::from(is_directory);
        let map = maps
            .entry(group.0)
            .or_insert_with(|| vec![0; geo.block_size as usize]);
        bitmap::set(map, index);
    }
    let (mut free_blocks, mut free_inodes) = (0u64, 0u64);
    for group in 0..geo.groups {
        let map = maps
            .remove(&group)
            .unwrap_or_else(|| vec![0; geo.block_size as usize]);
        let inodes = held.get(&group).copied().unwrap_or_default();
        let free = write_group(session, GroupNr(group), map, inodes)?;
        free_blocks += free.0;
        free_inodes += free.1;
    }
    let free_blocks = free_blocks * u64::from(geo.cluster_ratio);
    let counts = (
        session.sb.free_blocks(),
        u64::from(session.sb.free_inodes_count.get()),
    );
    if counts != (free_blocks, free_inodes)
        && session.ask(
            "superblock",
            "its counts of free blocks and inodes are set",
            None,
        )
    {
        session.sb.set_free_blocks(free_blocks);
        session.sb.free_inodes_count.set(free_inodes as u32);
        session.write_superblock()?;
    }
    Ok(())
}

fn write_group(
    session: &mut Session<'_, '_>,
    nr: GroupNr,
    mut inode_map: Vec<u8>,
    inodes: GroupInodes,
) -> Result<(u64, u64), Error> {
    let geo = session.geo.clone();
    let Some(old) = session.descs.get(nr.0 as usize).copied() else {
        return Ok((0, 0));
    };
    let mut desc = old;
    let bits = geo.bits_in_group(nr);
    let mut block_map = vec![0; geo.block_size as usize];
    session.claims.write(nr.0, &mut block_map);
    bitmap::pad(&mut block_map, bits);
    let mut bare = vec![0; geo.block_size as usize];
    bitmap::init_block_bitmap(&mut bare, &geo, nr, &desc);
    let reserved = geo.reserved_inodes(nr);
    bitmap::set_range(&mut inode_map, 0, reserved);
    bitmap::pad(&mut inode_map, geo.inodes_per_group);
    desc.free_blocks = bitmap::count_zeros(&block_map, bits);
    desc.free_inodes = bitmap::count_zeros(&inode_map, geo.inodes_per_group);
    desc.used_dirs = inodes.directories;
    let summed = geo.features.has_group_csum();
    let keeps = summed && !session.whole_tables.contains(&nr.0);
    if !keeps || bare != block_map {
        desc.flags &= !BLOCK_UNINIT;
    }
    if !keeps || inodes.end.max(reserved) > 0 {
        desc.flags &= !INODE_UNINIT;
    }
    if summed {
        let end = inodes.end.max(reserved);
        let never = geo.inodes_per_group.saturating_sub(end);
        desc.itable_unused = if keeps {
            never.min(desc.itable_unused)
        } else {
            never
        };
        if desc.flags & INODE_UNINIT != 0 {
            desc.itable_unused = geo.inodes_per_group;
        }
    } else {
        desc.itable_unused = 0;
    }
    write_bitmaps(session, nr, &mut desc, &block_map, &inode_map)?;
    let (block, offset) = geo.desc_location(nr);
    let mut bytes = session.read(block)?;
    let unchanged = bytes.clone();
    let raw = bytes.get_mut(offset as usize..).unwrap_or(&mut []);
    desc.encode(raw, &geo, nr)?;
    let place = format!("group {nr}");
    if bytes != unchanged && session.ask(place, "its descriptor is written", None) {
        session.write(block, &bytes)?;
    }
    if let Some(kept) = session.descs.get_mut(nr.0 as usize) {
        *kept = desc;
    }
    Ok((desc.free_blocks.into(), desc.free_inodes.into()))
}

/// Writes the bitmaps that a group has, and their checksums into its descriptor.
fn write_bitmaps(
    session: &mut Session<'_, '_>,
    nr: GroupNr,
    desc: &mut GroupDesc,
    block_map: &[u8],
    inode_map: &[u8],
) -> Result<(), Error> {
    let geo = session.geo.clone();
    let place = format!("group {nr}");
    if desc.flags & BLOCK_UNINIT == 0 {
        if session.read(desc.block_bitmap)? != block_map
            && session.ask(&place, "its block bitmap is written", None)
        {
            session.write(desc.block_bitmap, block_map)?;
        }
        desc.block_bitmap_csum =
            bitmap::block_bitmap_csum(block_map, &geo).unwrap_or(desc.block_bitmap_csum);
    }
    if desc.flags & INODE_UNINIT == 0 {
        if session.read(desc.inode_bitmap)? != inode_map
            && session.ask(&place, "its inode bitmap is written", None)
        {
            session.write(desc.inode_bitmap, inode_map)?;
        }
        desc.inode_bitmap_csum =
            bitmap::inode_bitmap_csum(inode_map, &geo).unwrap_or(desc.inode_bitmap_csum);
    }
    Ok(())
}
