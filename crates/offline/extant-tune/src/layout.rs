//! Effects of features on the places of metadata: backups, reserved descriptors, tables that were never written.

use crate::error::{Error, refused};
use crate::image::Image;
use blockdev::BlockDevice;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{BLOCK_UNINIT, INODE_UNINIT, INODE_ZEROED};
use ext4_format::{GroupNr, InodeNr, indirect, inode};
use ext4_image::ClusterSet;

/// Formats a UUID.
pub(crate) fn shown_uuid(uuid: &[u8; 16]) -> String {
    let mut text = String::new();
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Frees the blocks that are reserved for descriptors, and their map.
pub(crate) fn remove_reserved_descriptors(image: &mut Image<'_, '_>) -> Result<(), Error> {
    let raw = image.read_record(InodeNr::RESIZE)?;
    let root = inode::i_block(&raw)?;
    if let Some(map) = indirect::get(root, indirect::DIRECT + 1, image.geo.blocks_count)? {
        image.free(map, 1)?;
    }
    let geo = image.geo.clone();
    let mut without = geo.clone();
    without.reserved_gdt_blocks = 0;
    let freed = free_structures(image, &geo, &without)?;
    let mut zeros = vec![0; geo.inode_size.into()];
    image.write_record(InodeNr::RESIZE, &mut zeros)?;
    image.sb.reserved_gdt_blocks.set(0);
    // The map has a cluster, too.
    subtract_overhead(image, freed + u64::from(geo.cluster_ratio));
    image.tell("inode 7", "the blocks reserved for descriptors are freed");
    Ok(())
}

/// Frees the clusters that only superblocks and descriptors of the old layout have; returns the number of their blocks.
fn free_structures(
    image: &mut Image<'_, '_>,
    old: &Geometry,
    new: &Geometry,
) -> Result<u64, Error> {
    let gone = ClusterSet::of_structures(old, &image.descs);
    gone.subtract(&ClusterSet::of_structures(new, &image.descs));
    let mut freed = 0;
    for (start, len) in gone.runs_in(&gone, u64::MAX) {
        let blocks = len * u64::from(old.cluster_ratio);
        image.free(old.cluster_start(start), blocks)?;
        freed += blocks;
    }
    Ok(freed)
}

/// Subtracts blocks from the count of overhead clusters.
pub(crate) fn subtract_overhead(image: &mut Image<'_, '_>, blocks: u64) {
    let clusters = blocks.div_ceil(image.geo.cluster_ratio.into());
    let overhead = u64::from(image.sb.overhead_blocks.get());
    let rest = overhead
        .checked_sub(clusters)
        .and_then(|rest| u32::try_from(rest).ok());
    image.sb.overhead_blocks.set(rest.unwrap_or(0)); // 0: the kernel counts for itself
}

/// Adds blocks to that count.
pub(crate) fn add_overhead(image: &mut Image<'_, '_>, blocks: u64) {
    let overhead = image.sb.overhead_blocks.get();
    if overhead != 0 {
        let clusters = blocks.div_ceil(image.geo.cluster_ratio.into());
        let sum = u32::try_from(u64::from(overhead) + clusters);
        image.sb.overhead_blocks.set(sum.unwrap_or(0));
    }
}

/// Applies the features to the groups.
pub(crate) fn follow(image: &mut Image<'_, '_>) -> Result<(), Error> {
    let (had, has) = (image.old.features, image.geo.features);
    if had.has_flex_bg() && !has.has_flex_bg() {
        check_places(image)?;
    }
    if !had.has_sparse_super() && has.has_sparse_super() {
        free_backups(image)?;
    }
    if had.has_group_csum() && !has.has_group_csum() {
        write_unused(image)?;
    }
    Ok(())
}

/// Frees the backups that `sparse_super` does without.
fn free_backups(image: &mut Image<'_, '_>) -> Result<(), Error> {
    let (old, new) = (image.old.clone(), image.geo.clone());
    let freed = free_structures(image, &old, &new)?;
    if image.sb.overhead_blocks.get() != 0 {
        subtract_overhead(image, freed);
    }
    image.tell("groups", format!("{freed} blocks of backups are freed"));
    Ok(())
}

/// Writes the tables and bitmaps that were never written, because their flags are removed.
fn write_unused(image: &mut Image<'_, '_>) -> Result<(), Error> {
    let geo = image.geo.clone();
    let zeros = vec![0; usize::from(geo.inode_size)];
    for group in (0..geo.groups).map(GroupNr) {
        let (used, desc) = (image.records_in(group)?, image.desc(group)?);
        if desc.flags & BLOCK_UNINIT != 0 {
            image.block_map(group)?;
        }
        if desc.flags & INODE_UNINIT != 0 {
            image.inode_map(group)?;
        }
        if desc.flags & INODE_ZEROED == 0 {
            for index in used..geo.inodes_per_group {
                let (block, at) = geo.inode_place(desc.inode_table, index);
                let at = block.offset(geo.block_size) + at as u64;
                image.dev.write_at(at, &zeros)?;
            }
        }
        if let Some(desc) = image.descs.get_mut(group.0 as usize) {
            desc.flags = 0;
            desc.itable_unused = 0;
        }
    }
    image.tell("groups", "tables that were never used are written");
    Ok(())
}

/// Checks that the tables of every group are inside it.
pub(crate) fn check_places(image: &Image<'_, '_>) -> Result<(), Error> {
    for (group, desc) in (0..).map(GroupNr).zip(&image.descs) {
        if desc.check_places(&image.geo, group).is_err() {
            return refused(format!(
                "flex_bg is needed by group {group}, whose tables are in another"
            ));
        }
    }
    Ok(())
}
