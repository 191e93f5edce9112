//! Growth of a volume with a batch: the changes in the blocks that it had before.

use crate::error::Result;
use crate::groups::DescTable;
use crate::superblock;
use crate::workspace::Workspace;
use ext4_format::group_desc::BLOCK_UNINIT;
use ext4_format::growth::Growth;
use ext4_format::resize_inode::{self, DOUBLE, ReservedMap};
use ext4_format::{BlockNr, FormatError, GroupNr, InodeNr, Where, bitmap, indirect, inode};

/// Changes the superblock, the last old group, the map of reserved descriptors, and writes the new groups' descriptors;
/// after all other changes of the batch. Returns the blocks of descriptors.
pub(super) fn apply(
    ws: &mut Workspace<'_>,
    descs: &mut DescTable,
    growth: &Growth,
) -> Result<Vec<BlockNr>> {
    let mut changed = Vec::new();
    // Change the map while the blocks that become descriptors still belong to it.
    if growth.changes_reserved() {
        reserved_map(ws, descs, growth)?;
    }
    if growth.longer() > 0 {
        changed.push(last_group(ws, descs, growth)?);
    }
    let first_new = growth.old.gdt_block_count();
    let per_block = growth.new.descs_per_block();
    for (group, desc) in growth.new_groups() {
        let (block, offset) = growth.new.desc_location(group);
        if block.0 >= growth.old.blocks_count {
            continue;
        }
        if group.0.is_multiple_of(per_block) && group.0 / per_block >= first_new {
            ws.fresh(block);
        }
        let bytes = ws.get_mut(block)?.get_mut(offset as usize..);
        desc.encode(bytes.unwrap_or_default(), &growth.new, group)?;
        changed.push(block);
    }
    superblock::change(ws, |sb| growth.set_superblock(sb))?;
    Ok(changed)
}

/// Extends the last old group: the blocks behind its end are free.
fn last_group(ws: &mut Workspace<'_>, descs: &mut DescTable, growth: &Growth) -> Result<BlockNr> {
    let (old, new) = (&growth.old, &growth.new);
    let group = GroupNr(old.groups - 1);
    let desc = descs.get_mut(old, ws.images(), group)?;
    let more = growth.longer();
    desc.free_blocks += more;
    // A missing bitmap is made with the new size.
    if !old.features.has_group_csum() || desc.flags & BLOCK_UNINIT == 0 {
        if let Some(image) = ws.unverified(desc.block_bitmap)? {
            bitmap::verify_block_bitmap(&image, desc, old, group)?;
            image.set_verified();
        }
        let mut map = ws.take(desc.block_bitmap)?;
        let cleared = bitmap::clear_range(&mut map, old.blocks_in_group(group), more);
        if cleared != more {
            let what = "bitmap with free blocks behind the end of its group";
            return Err(FormatError::corrupt(what, Where::Group(group)).into());
        }
        let csum = bitmap::block_bitmap_csum(&map, new);
        desc.block_bitmap_csum = csum.unwrap_or(desc.block_bitmap_csum);
        ws.put(desc.block_bitmap, map);
    }
    let (block, offset) = old.desc_location(group);
    let bytes = ws.get_mut(block)?.get_mut(offset as usize..);
    desc.encode(bytes.unwrap_or_default(), new, group)?;
    Ok(block)
}

/// Removes the descriptors that come into use from the inode of reserved descriptors, and gives the others places for
/// their backups in new groups.
fn reserved_map(ws: &mut Workspace<'_>, descs: &DescTable, growth: &Growth) -> Result<()> {
    let (old, new) = (&growth.old, &growth.new);
    let (block, offset) = descs.inode_location(old, ws.images(), InodeNr::RESIZE)?;
    let bad = || {
        FormatError::corrupt(
            "inode of reserved descriptors",
            Where::Inode(InodeNr::RESIZE),
        )
    };
    let place = offset..offset + usize::from(old.inode_size);
    let mut raw = ws.get(block)?.get(place.clone()).ok_or_else(bad)?.to_vec();
    let core = inode::decode_verified(&raw, old, InodeNr::RESIZE)?;
    let map = indirect::get(inode::i_block(&raw)?, DOUBLE, old.blocks_count)?.ok_or_else(bad)?;
    let reserved = ReservedMap::new(new)?;
    let all = reserved.below.into_iter().chain([(map, reserved.map)]);
    for (block, bytes) in all {
        if *ws.get(block)? != bytes[..] {
            ws.put(block, bytes);
        }
    }
    resize_inode::write_record(&mut raw, new, core, map, reserved.sectors)?;
    inode::set_checksum(&mut raw, new, InodeNr::RESIZE);
    let bytes = ws.get_mut(block)?.get_mut(place).ok_or_else(bad)?;
    bytes.copy_from_slice(&raw);
    Ok(())
}
