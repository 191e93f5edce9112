//! Writes the metadata of the new volume: bitmaps, descriptors, reserved descriptors, superblocks.

use crate::error::Error;
use crate::session::Session;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT, INODE_ZEROED};
use ext4_format::resize_inode::{self, DOUBLE, ReservedMap};
use ext4_format::{BlockNr, GroupNr, InodeNr, bitmap, indirect, inode};

pub(crate) fn make(session: &mut Session<'_, '_>, now: i64) -> Result<(), Error> {
    reserved_descriptors(session)?;
    let geo = session.geo.clone();
    let (mut free_blocks, mut free_inodes) = (0, 0);
    let mut table = vec![vec![0; geo.block_size as usize]; geo.gdt_block_count() as usize];
    for nr in (0..geo.groups).map(GroupNr) {
        let desc = group(session, nr)?;
        free_blocks += u64::from(desc.free_blocks) * u64::from(geo.cluster_ratio);
        free_inodes += desc.free_inodes;
        let index = (nr.0 / geo.descs_per_block()) as usize;
        let within = (nr.0 % geo.descs_per_block()) as usize * usize::from(geo.desc_size);
        let block = table
            .get_mut(index)
            .and_then(|block| block.get_mut(within..));
        desc.encode(block.unwrap_or(&mut []), &geo, nr)?;
    }
    descriptors(session, &table)?;
    let sb = &mut session.image.sb;
    sb.set_free_blocks(free_blocks);
    sb.free_inodes_count.set(free_inodes);
    if now != 0 {
        sb.set_write_time(now);
    }
    if sb.overhead_blocks.get() != 0 {
        let journal = u64::from(sb.overhead_blocks.get()).saturating_sub(session.old.fixed.count());
        let overhead = session.layout.places.fixed.count() + journal;
        sb.overhead_blocks.set(u32::try_from(overhead).unwrap_or(0));
    }
    superblocks(session)
}

/// Writes the bitmaps of a group, and makes its descriptor.
fn group(session: &mut Session<'_, '_>, nr: GroupNr) -> Result<GroupDesc, Error> {
    let geo = session.geo.clone();
    let index = nr.0 as usize;
    let summed = geo.features.has_group_csum();
    let is_new = nr.0 >= session.old.shape.geo.groups;
    let mut desc = session.descs.get(index).copied().unwrap_or_default();
    if is_new {
        start_group(session, &mut desc)?;
    } else if session.layout.places.moved_tables.contains(&nr.0) {
        desc.flags &= !INODE_ZEROED;
    }
    let bits = geo.bits_in_group(nr);
    let mut map = vec![0; geo.block_size as usize];
    session.layout.files.add_to(nr.0, &mut map);
    session.layout.places.fixed.add_to(nr.0, &mut map);
    bitmap::pad(&mut map, bits);
    desc.free_blocks = bitmap::count_zeros(&map, bits);
    // A reader makes the bitmap that is not there of the group's own structures, and knows of no others.
    let mut own = vec![0; geo.block_size as usize];
    bitmap::init_block_bitmap(&mut own, &geo, nr, &desc);
    if own != map || nr.0 + 1 == geo.groups || !summed {
        desc.flags &= !BLOCK_UNINIT;
    }
    if desc.flags & BLOCK_UNINIT == 0 {
        desc.block_bitmap_csum =
            bitmap::block_bitmap_csum(&map, &geo).unwrap_or(desc.block_bitmap_csum);
        session.write(desc.block_bitmap, &map)?;
    }
    let Some(Some(inodes)) = session.inodes.get(index).filter(|_| !is_new) else {
        desc.free_inodes = geo.inodes_per_group;
        if !summed {
            bitmap::init_inode_bitmap(&mut map, &geo, 0);
            session.write(desc.inode_bitmap, &map)?;
        }
        return Ok(desc);
    };
    desc.flags &= !INODE_UNINIT;
    desc.free_inodes = bitmap::count_zeros(inodes, geo.inodes_per_group);
    desc.used_dirs += session.new_dirs.get(&nr.0).copied().unwrap_or(0);
    if summed && let Some(&end) = session.ends.get(&nr.0) {
        let unused = geo.inodes_per_group.saturating_sub(end);
        desc.itable_unused = desc.itable_unused.min(unused);
    }
    desc.inode_bitmap_csum =
        bitmap::inode_bitmap_csum(inodes, &geo).unwrap_or(desc.inode_bitmap_csum);
    session.write(desc.inode_bitmap, inodes)?;
    Ok(desc)
}

/// Starts a group without inodes. Its table is marked as uninitialized if descriptors have that flag; otherwise it is
/// zeroed.
fn start_group(session: &Session<'_, '_>, desc: &mut GroupDesc) -> Result<(), Error> {
    let geo = &session.geo;
    let start = desc.inode_table.offset(geo.block_size);
    let beyond = start >= session.view.device.len();
    if geo.features.has_group_csum() {
        desc.itable_unused = geo.inodes_per_group;
        desc.flags = INODE_UNINIT | BLOCK_UNINIT | if beyond { INODE_ZEROED } else { 0 };
    } else if !beyond {
        let zeros = vec![0; geo.block_size as usize];
        for i in 0..u64::from(geo.itable_blocks()) {
            session.write(BlockNr(desc.inode_table.0 + i), &zeros)?;
        }
    }
    Ok(())
}

/// Writes the descriptors and their backups.
fn descriptors(session: &Session<'_, '_>, table: &[Vec<u8>]) -> Result<(), Error> {
    let geo = &session.geo;
    for (index, bytes) in (0..).zip(table) {
        session.write(geo.gdt_block(index), bytes)?;
    }
    for nr in (1..geo.groups).map(GroupNr) {
        let first = geo.group_first_block(nr).0 + u64::from(geo.has_super(nr));
        let meta = nr.0 / geo.descs_per_block();
        let count = geo.gdt_blocks_in_group(nr) as usize;
        let from = if geo.features.has_meta_bg() && meta >= geo.first_meta_bg {
            meta as usize
        } else {
            0
        };
        let copies = table.iter().skip(from).take(count);
        for (block, bytes) in (first..).map(BlockNr).zip(copies) {
            session.write(block, bytes)?;
        }
    }
    Ok(())
}

fn superblocks(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let geo = session.geo.clone();
    if session.geo.features.has_mmp() {
        let block = session.layout.moves.place(session.sb.mmp_block.get());
        session.sb.mmp_block.set(block);
    }
    session.write_superblock()?;
    for nr in (1..geo.groups).map(GroupNr).filter(|&nr| geo.has_super(nr)) {
        let mut copy = session.sb;
        copy.block_group_nr.set(nr.0 as u16);
        copy.set_checksum();
        let mut bytes = vec![0; geo.block_size as usize];
        if let Some(start) = bytes.first_chunk_mut() {
            *start = *copy.bytes();
        }
        session.write(geo.group_first_block(nr), &bytes)?;
    }
    Ok(())
}

/// Rebuilds the map of reserved descriptors.
fn reserved_descriptors(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let geo = session.geo.clone();
    let had = session.old.shape.geo.features.has_resize_inode();
    if !had {
        return Ok(());
    }
    let first = session
        .old
        .descs
        .first()
        .map_or(BlockNr(0), |desc| desc.inode_table);
    let before = &session.old.shape.geo;
    let (block, at) = before.inode_place(first, InodeNr::RESIZE.0 - 1);
    let mut raw = vec![0; before.inode_size.into()];
    session
        .view
        .read_old(block.offset(geo.block_size) + at as u64, &mut raw)?;
    let core = inode::decode_verified(&raw, &session.old.shape.geo, InodeNr::RESIZE)?;
    let mut raw = session.widened(&raw);
    let blocks = session.old.shape.geo.blocks_count;
    let place = indirect::get(inode::i_block(&raw)?, DOUBLE, blocks)?;
    let place = place.map(|place| BlockNr(session.view.moves.place(place.0)));
    if !geo.features.has_resize_inode() {
        if let Some(map) = place {
            session.layout.files.remove(geo.clusters_of(map, 1));
        }
        raw.fill(0);
        return Ok(session.write_record(InodeNr::RESIZE, &mut raw)?);
    }
    let place = match place {
        Some(place) => place,
        None => session.allocate().ok_or(Error::NoRoom)?,
    };
    let reserved = ReservedMap::new(&geo)?;
    session.write(place, &reserved.map)?;
    for (block, bytes) in &reserved.below {
        session.write(*block, bytes)?;
    }
    resize_inode::write_record(&mut raw, &geo, core, place, reserved.sectors)?;
    inode::set_checksum(&mut raw, &geo, InodeNr::RESIZE);
    Ok(session.write_record(InodeNr::RESIZE, &mut raw)?)
}
