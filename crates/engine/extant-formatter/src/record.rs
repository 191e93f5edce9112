//! Inode records: the cores that a batch stores, targets of short links, and counts of sectors.

use crate::error::{Error, Result};
use crate::item::InodeItem;
use ext4_format::geometry::Geometry;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::{FileType, InodeNr};

/// Flags for the layout of an inode's content, which only the formatter sets.
pub(super) const LAYOUT: u32 = flags::EXTENTS | flags::INDEX | flags::INLINE_DATA | flags::EA_INODE;

/// From this size on a file or directory needs the feature `large_file`.
pub(super) const LARGE: u64 = 1 << 31;

/// Returns the core of an inode born in this batch.
pub(super) fn first_core(
    last: &InodeItem,
    init: &InodeItem,
    has_target: bool,
    extents: bool,
) -> InodeCore {
    let mut core = InodeCore {
        dtime: 0,
        ..last.core
    };
    core.flags &= !LAYOUT;
    match core.file_type() {
        Some(FileType::Directory) => {
            core.size = 0;
            core.flags |= if extents { flags::EXTENTS } else { 0 };
        }
        Some(FileType::Regular) => core.flags |= init.core.flags & flags::EXTENTS,
        Some(FileType::Symlink) if !has_target => core.flags |= init.core.flags & flags::EXTENTS,
        _ => {}
    }
    core
}

/// Returns the core of an inode that existed before. The fields that the formatter keeps stay.
pub(super) fn next_core(
    last: &InodeItem,
    old: &InodeCore,
    geometry: &Geometry,
) -> Result<InodeCore> {
    if last.core.file_type() != old.file_type() {
        return Err(Error::corrupt_inode("type of an inode changed", last.ino));
    }
    let is_dir = old.file_type() == Some(FileType::Directory);
    Ok(InodeCore {
        flags: last.core.flags & !LAYOUT | old.flags & LAYOUT,
        // Checksums of blocks that belong to the inode depend on it.
        generation: if geometry.features.has_metadata_csum() {
            old.generation
        } else {
            last.core.generation
        },
        // The field links the orphan list, if the inode is on it.
        dtime: old.dtime,
        size: if is_dir { old.size } else { last.core.size },
        ..last.core
    })
}

/// Stores a short link's target in its inode.
pub(super) fn put_target(raw: &mut [u8], target: &[u8], ino: InodeNr) -> Result<()> {
    let place = inode::i_block_mut(raw)?;
    place.fill(0);
    place
        .get_mut(..target.len())
        .filter(|p| p.len() < inode::I_BLOCK_SIZE)
        .ok_or_else(|| Error::corrupt_inode("symbolic link's target", ino))?
        .copy_from_slice(target);
    Ok(())
}

/// Adds a number of blocks, which may be negative, to an inode's count.
pub(super) fn add_sectors(
    raw: &mut [u8],
    geometry: &Geometry,
    ino: InodeNr,
    blocks: i64,
) -> Result<()> {
    if blocks == 0 {
        return Ok(());
    }
    let sectors = blocks
        .checked_mul(i64::from(geometry.sectors_per_block()))
        .and_then(|d| inode::sectors(raw, geometry).checked_add_signed(d))
        .ok_or_else(|| Error::corrupt_inode("count of sectors", ino))?;
    Ok(inode::set_sectors(raw, geometry, sectors)?)
}
