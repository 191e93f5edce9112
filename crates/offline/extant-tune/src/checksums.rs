//! Checksums of everything, as the volume is going to have them; bitmaps and descriptors.

use crate::error::{Error, refused};
use crate::image::Image;
use crate::options::TuneOptions;
use crate::{orphans, values};
use blockdev::BlockDevice;
use ext4_format::htree::IndexBlockKind;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::{
    BlockNr, FileType, GroupNr, InodeNr, bitmap, dir_entry, extent, htree, jbd2, mmp, orphan_file,
    xattr,
};
use std::collections::BTreeSet;

/// Writes the changed checksums, then bitmaps, descriptors and the journal's copy of the volume's properties.
pub(crate) fn finish(image: &mut Image<'_, '_>, options: &TuneOptions) -> Result<(), Error> {
    values::follow(image)?;
    let (old, new) = (&image.old, &image.geo);
    let sealed = new.features.has_metadata_csum();
    let changed = sealed != old.features.has_metadata_csum() || new.csum_seed != old.csum_seed;
    if sealed && changed {
        let count = seal_inodes(image)?;
        seal_mmp(image)?;
        image.tell(
            "checksums",
            format!("those of {count} inodes and their blocks are written"),
        );
    }
    if !sealed && changed && image.geo.features.has_orphan_file() {
        orphans::unseal(image)?;
    }
    if image.geo.features.has_journal() && (options.uuid.is_some() || !sealed) {
        follow_journal(image)?;
    }
    write_groups(image, sealed && changed)
}

/// Writes the checksums of all inodes; returns the number of inodes.
fn seal_inodes(image: &mut Image<'_, '_>) -> Result<u64, Error> {
    let mut attributes = BTreeSet::new();
    let used: BTreeSet<InodeNr> = image.used_inodes()?.into_iter().collect();
    let mut count = 0;
    for group in (0..image.geo.groups).map(GroupNr) {
        for index in 0..image.records_in(group)? {
            let ino = image.geo.inode_nr(group, index);
            let mut raw = image.read_record(ino)?;
            if blockdev::is_zero(&raw) {
                continue;
            }
            if used.contains(&ino) {
                seal_blocks(image, ino, &raw, &mut attributes)?;
            }
            image.write_record(ino, &mut raw)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Writes the checksums of the blocks of an inode.
fn seal_blocks(
    image: &Image<'_, '_>,
    ino: InodeNr,
    raw: &[u8],
    attributes: &mut BTreeSet<BlockNr>,
) -> Result<(), Error> {
    let core = inode::decode_verified(raw, &image.geo, ino)?;
    let seed = image.seed(ino, core.generation);
    let block = inode::file_acl(raw, &image.geo);
    if block.0 != 0 && attributes.insert(block) {
        let mut bytes = image.read(block)?;
        xattr::set_checksum(&mut bytes, image.geo.csum_seed, block);
        image.write(block, &bytes)?;
    }
    let kind = core.file_type();
    let maps = kind == Some(FileType::Directory) || core.flags & flags::EXTENTS != 0;
    let orphans = ino.0 == image.geo.orphan_file_ino && image.geo.features.has_orphan_file();
    if core.flags & flags::INLINE_DATA != 0 || !(maps || orphans) {
        return Ok(());
    }
    let map = image.mapping(core.flags, raw)?;
    if core.flags & flags::EXTENTS != 0 {
        for node in &map.nodes {
            let mut bytes = image.read(*node)?;
            extent::set_tail(&mut bytes, seed)?;
            image.write(*node, &bytes)?;
        }
    }
    for (logical, block) in map.places() {
        if !orphans && kind != Some(FileType::Directory) {
            break;
        }
        let mut bytes = image.read(block)?;
        if orphans {
            orphan_file::set_checksum(&mut bytes, seed, block);
        } else {
            seal_directory_block(&mut bytes, &core, logical, seed)?;
        }
        image.write(block, &bytes)?;
    }
    Ok(())
}

fn seal_directory_block(
    bytes: &mut [u8],
    core: &InodeCore,
    logical: u32,
    seed: u32,
) -> Result<(), Error> {
    let has_index = core.flags & flags::INDEX != 0;
    match IndexBlockKind::of(logical.into(), bytes).filter(|_| has_index) {
        Some(kind) => htree::set_checksum(bytes, kind, seed)?,
        None => dir_entry::set_tail(bytes, seed),
    }
    Ok(())
}

fn seal_mmp(image: &Image<'_, '_>) -> Result<(), Error> {
    let block = BlockNr(image.sb.mmp_block.get());
    if !image.geo.features.has_mmp() || block.0 == 0 {
        return Ok(());
    }
    let mut bytes = image.read(block)?;
    mmp::set_checksum(&mut bytes, image.geo.csum_seed);
    Ok(image.write(block, &bytes)?)
}

/// Sets the journal's UUID to that of its volume, and removes its checksums if the volume has no checksums.
fn follow_journal(image: &Image<'_, '_>) -> Result<(), Error> {
    let ino = InodeNr(image.geo.journal_ino);
    let raw = image.read_record(ino)?;
    let core = inode::decode_verified(&raw, &image.geo, ino)?;
    let map = image.mapping(core.flags, &raw)?;
    let Some((_, first)) = map.places().next() else {
        return refused("the journal has no blocks");
    };
    let mut bytes = image.read(first)?;
    let mut sb = jbd2::Superblock::parse(&bytes)?;
    sb.uuid = image.sb.uuid;
    if !image.geo.features.has_metadata_csum() {
        use jbd2::features::Incompat;
        sb.features
            .incompat
            .remove(Incompat::CSUM_V2 | Incompat::CSUM_V3);
    }
    sb.write(&mut bytes)?;
    Ok(image.write(first, &bytes)?)
}

/// Writes bitmaps that were read, and all descriptors with their backups.
pub(crate) fn write_groups(image: &mut Image<'_, '_>, all: bool) -> Result<(), Error> {
    let geo = image.geo.clone();
    if all {
        for group in (0..geo.groups).map(GroupNr) {
            let flags = image.desc(group)?.flags;
            if flags & ext4_format::group_desc::BLOCK_UNINIT == 0 {
                image.block_map(group)?;
            }
            if flags & ext4_format::group_desc::INODE_UNINIT == 0 {
                image.inode_map(group)?;
            }
        }
    }
    for group in (0..geo.groups).map(GroupNr) {
        let Some(mut desc) = image.descs.get(group.0 as usize).copied() else {
            continue;
        };
        if let Some(map) = image.block_maps.get(&group.0) {
            image.write(desc.block_bitmap, map)?;
            desc.block_bitmap_csum = bitmap::block_bitmap_csum(map, &geo).unwrap_or(0);
        } else if !geo.features.has_metadata_csum() {
            desc.block_bitmap_csum = 0;
        }
        let uninit = desc.flags & ext4_format::group_desc::INODE_UNINIT != 0;
        match image.inode_maps.get(&group.0) {
            Some(map) if !uninit => {
                image.write(desc.inode_bitmap, map)?;
                desc.inode_bitmap_csum = bitmap::inode_bitmap_csum(map, &geo).unwrap_or(0);
            }
            _ if !geo.features.has_metadata_csum() => desc.inode_bitmap_csum = 0,
            _ => {}
        }
        write_descriptor(image, group, &desc)?;
    }
    Ok(())
}

fn write_descriptor(
    image: &Image<'_, '_>,
    group: GroupNr,
    desc: &ext4_format::group_desc::GroupDesc,
) -> Result<(), Error> {
    let geo = &image.geo;
    let (block, offset) = geo.desc_location(group);
    let at = block.offset(geo.block_size) + u64::from(offset);
    let mut raw = vec![0; geo.desc_size.into()];
    image.dev.read_at(at, &mut raw)?;
    desc.encode(&mut raw, geo, group)?;
    image.dev.write_at(at, &raw)?;
    if geo.features.has_meta_bg() {
        // Their backups are in the other groups of each meta group, and the check does not ask for them.
        return Ok(());
    }
    let within = block.0.saturating_sub(geo.first_data_block);
    for backup in (1..geo.groups).map(GroupNr).filter(|&g| geo.has_super(g)) {
        let block = BlockNr(geo.group_first_block(backup).0 + within);
        let at = block.offset(geo.block_size) + u64::from(offset);
        image.dev.write_at(at, &raw)?;
    }
    Ok(())
}
