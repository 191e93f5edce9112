//! Bitmaps, group descriptors and superblocks, which follow from everything else and are written last.

use super::error::{MkfsError, Result};
use super::gather::Gather;
use super::plan::Plan;
use super::tree::{Body, ROOT, Tree};
use blockdev::BlockDevice;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT, INODE_ZEROED};
use ext4_format::superblock::{RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET};
use ext4_format::{BlockNr, GroupNr, InodeNr, bitmap};

/// Writes the bitmaps and returns the descriptors that go with them.
pub(super) fn write_bitmaps(
    device: &dyn BlockDevice,
    plan: &Plan,
    tree: &Tree,
    tables_zeroed: bool,
) -> Result<Vec<GroupDesc>> {
    let geo = &plan.layout.geometry;
    let mut descs = plan.layout.groups.clone();
    count_dirs(plan, tree, &mut descs);
    let mut used = UsedInodes::new(plan);
    let mut block_maps = Gather::new(device, geo.block_size);
    let mut inode_maps = Gather::new(device, geo.block_size);
    let mut map = vec![0; geo.block_size as usize];
    let checksummed = geo.features.has_group_csum();
    let mut free = &plan.free[..];
    for (g, desc) in (0..).map(GroupNr).zip(&mut descs) {
        let expected = desc.free_blocks;
        desc.free_blocks = fill_block_map(&mut map, geo, g, &mut free);
        if desc.free_blocks != expected {
            desc.flags &= !BLOCK_UNINIT;
        }
        if desc.flags & BLOCK_UNINIT == 0 {
            desc.block_bitmap_csum = bitmap::block_bitmap_csum(&map, geo).unwrap_or(0);
            block_maps.push(desc.block_bitmap.0, &map)?;
        }

        let (count, end) = used.fill(&mut map, geo, g);
        desc.free_inodes = geo.inodes_per_group - count;
        if checksummed {
            desc.itable_unused = geo.inodes_per_group - end;
            if count > 0 {
                desc.flags &= !INODE_UNINIT;
            }
            if tables_zeroed {
                desc.flags |= INODE_ZEROED;
            }
        }
        if desc.flags & INODE_UNINIT == 0 {
            desc.inode_bitmap_csum = bitmap::inode_bitmap_csum(&map, geo).unwrap_or(0);
            inode_maps.push(desc.inode_bitmap.0, &map)?;
        }
    }
    block_maps.flush()?;
    inode_maps.flush()?;
    Ok(descs)
}

/// Sets every bit but those of free blocks; returns how many are free. `free` are the ranges from
/// this group on.
fn fill_block_map(
    map: &mut [u8],
    geo: &ext4_format::geometry::Geometry,
    g: GroupNr,
    free: &mut &[(u64, u64)],
) -> u32 {
    map.fill(0xff);
    let first = geo.group_first_block(g).0;
    let end = first + u64::from(geo.blocks_in_group(g));
    let mut count = 0;
    while let Some((&(from, to), rest)) = free.split_first() {
        let (a, b) = (from.max(first), to.min(end));
        if a < b {
            clear_range(map, (a - first) as usize, (b - first) as usize);
            count += (b - a) as u32; // at most the blocks of a group
        }
        if to > end {
            break;
        }
        *free = rest;
    }
    count
}

fn clear_range(map: &mut [u8], from: usize, to: usize) {
    let (first, last) = (from.div_ceil(8), to / 8);
    if first < last {
        map[first..last].fill(0); // bits of the group, which the map has
    }
    for bit in (from..to.min(first * 8)).chain(from.max(last * 8)..to) {
        bitmap::clear(map, bit as u32);
    }
}

/// Inodes in use, group by group.
struct UsedInodes<'a> {
    plan: &'a Plan,
    at: usize,
}

impl<'a> UsedInodes<'a> {
    const fn new(plan: &'a Plan) -> Self {
        Self { plan, at: 0 }
    }

    /// Fills the bitmap of the next group; returns how many are in use, and one past the last.
    fn fill(
        &mut self,
        map: &mut [u8],
        geo: &ext4_format::geometry::Geometry,
        g: GroupNr,
    ) -> (u32, u32) {
        let first = geo.inode_nr(g, 0).0;
        let reserved = geo
            .first_ino
            .saturating_sub(first)
            .min(geo.inodes_per_group);
        bitmap::init_inode_bitmap(map, geo, reserved);
        let (mut count, mut last) = (reserved, reserved);
        while let Some(s) = self.plan.stretches.get(self.at) {
            let end = first + geo.inodes_per_group; // checked as the volume's count
            let (a, b) = (s.first.max(first), (s.first + s.count).min(end));
            if a < b {
                bitmap::set_range(map, a - first, b - a);
                count += b - a;
                last = b - first;
            }
            if s.first + s.count > end {
                break;
            }
            self.at += 1;
        }
        (count, last)
    }
}

fn count_dirs(plan: &Plan, tree: &Tree, descs: &mut [GroupDesc]) {
    let geo = &plan.layout.geometry;
    let dirs = plan.order.iter().chain([&(InodeNr::ROOT.0, ROOT)]);
    for &(ino, index) in dirs {
        if matches!(tree.inodes[index as usize].body, Body::Directory(_))
            && let Some((g, _)) = geo.group_of_inode(InodeNr(ino))
        {
            descs[g.0 as usize].used_dirs += 1; // a group of the volume
        }
    }
}

/// Writes all descriptors, with their backups.
pub(super) fn write_descriptors(
    device: &dyn BlockDevice,
    plan: &Plan,
    descs: &[GroupDesc],
) -> Result<()> {
    let geo = &plan.layout.geometry;
    let size = usize::from(geo.desc_size);
    let mut table = vec![0; geo.gdt_block_count() as usize * geo.block_size as usize];
    for ((g, desc), bytes) in (0..).map(GroupNr).zip(descs).zip(table.chunks_mut(size)) {
        desc.encode(bytes, geo, g)?;
    }
    let mut out = Gather::new(device, geo.block_size);
    let meta_bg = geo.features.has_meta_bg();
    let per_block = geo.descs_per_block();
    let blocks = || (0..).zip(table.chunks(geo.block_size as usize));
    for (i, bytes) in blocks() {
        out.push(geo.gdt_block(i).0, bytes)?;
    }
    if !meta_bg {
        for g in plan.layout.super_groups().filter(|g| g.0 != 0) {
            for (i, bytes) in blocks() {
                let block = geo.group_first_block(g).0 + 1 + u64::from(i);
                out.push(block, bytes)?;
            }
        }
    } else {
        // A meta group's block of descriptors has copies in its second and its last group.
        for (i, bytes) in blocks() {
            for g in [i * per_block + 1, i * per_block + per_block - 1] {
                if g < geo.groups && g != i * per_block {
                    let g = GroupNr(g);
                    let block = geo.group_first_block(g).0 + u64::from(geo.has_super(g));
                    out.push(block, bytes)?;
                }
            }
        }
    }
    out.flush()
}

/// Enters the counts into the superblock.
pub(super) fn finish_superblock(sb: &mut RawSuperblock, plan: &Plan, descs: &[GroupDesc]) {
    let free_blocks = descs.iter().map(|d| u64::from(d.free_blocks)).sum();
    let free_inodes = descs.iter().map(|d| d.free_inodes).sum();
    sb.set_free_blocks(free_blocks);
    sb.free_inodes_count.set(free_inodes);
    let overhead = plan.layout.overhead + u64::from(plan.layout.journal_blocks);
    // 0: the kernel counts for itself.
    sb.overhead_blocks.set(u32::try_from(overhead).unwrap_or(0));
}

/// Writes the superblock's backups. They are marked as not cleanly unmounted, as by mke2fs, so that a volume is
/// checked if one of them has to be used.
pub(super) fn write_backups(
    device: &dyn BlockDevice,
    plan: &Plan,
    sb: &RawSuperblock,
) -> Result<()> {
    let geo = &plan.layout.geometry;
    for g in plan.layout.super_groups().filter(|g| g.0 != 0) {
        let mut copy = *sb;
        copy.state.set(sb.state.get() & !STATE_VALID);
        copy.block_group_nr.set(g.0.min(u16::MAX.into()) as u16);
        copy.set_checksum();
        let at = BlockNr(geo.group_first_block(g).0).offset(geo.block_size);
        device
            .write_at(at, copy.bytes())
            .map_err(|e| MkfsError::io(format!("writing the superblock of group {g}"), e))?;
    }
    Ok(())
}

/// Writes the primary superblock: from here on, the volume is valid.
pub(super) fn write_primary(device: &dyn BlockDevice, sb: &mut RawSuperblock) -> Result<()> {
    sb.set_checksum();
    device
        .write_at(SUPERBLOCK_OFFSET, sb.bytes())
        .map_err(|e| MkfsError::io("writing the superblock", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cleared_exactly() {
        for from in 0..40 {
            for to in from..40 {
                let mut map = [0xff; 5];
                clear_range(&mut map, from, to);
                for bit in 0..40 {
                    let free = (from..to).contains(&bit);
                    assert_eq!(bitmap::test(&map, bit as u32), !free, "{from}..{to} {bit}");
                }
            }
        }
    }
}
