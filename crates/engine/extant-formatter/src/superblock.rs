//! The primary superblock: its place, and its changes inside a batch. The backups are left as mkfs made them, as the kernel
//! leaves them.

use super::workspace::Workspace;
use crate::error::Result;
use crate::image::BlockImages;
use ext4_format::features::{Compat, Features, RoCompat};
use ext4_format::geometry::Geometry;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_format::{BlockNr, FormatError, Where};

/// Returns the block of the primary superblock, and its byte offset there.
pub fn location(geometry: &Geometry) -> (BlockNr, usize) {
    let block_size = u64::from(geometry.block_size.max(1));
    (
        BlockNr(SUPERBLOCK_OFFSET / block_size),
        (SUPERBLOCK_OFFSET % block_size) as usize,
    )
}

/// Reads the primary superblock in its newest image, checked.
///
/// # Errors
/// `Format` when a rule is broken, `Read` when its block cannot be read.
pub fn read(geometry: &Geometry, images: &dyn BlockImages) -> Result<RawSuperblock> {
    let (block, offset) = location(geometry);
    let image = images.image(block)?;
    Ok(RawSuperblock::parse(image.get(offset..).unwrap_or(&[]))?)
}

pub(super) fn edit(
    bytes: &mut [u8],
    offset: usize,
    change: impl FnOnce(&mut RawSuperblock),
) -> Result<()> {
    let short = FormatError::corrupt("superblock position", Where::Superblock);
    let place = bytes
        .get_mut(offset..offset + SUPERBLOCK_SIZE)
        .ok_or(short)?;
    let mut sb = RawSuperblock::parse(place)?;
    let before = sb;
    change(&mut sb);
    sb.set_checksum_untorn(&before);
    place.copy_from_slice(sb.bytes());
    Ok(())
}

/// Changes the superblock in a batch.
pub(super) fn change(
    ws: &mut Workspace<'_>,
    change: impl FnOnce(&mut RawSuperblock),
) -> Result<()> {
    let (block, offset) = location(ws.geometry);
    edit(ws.get_mut(block)?, offset, change)
}

/// Features that come with the first thing that needs them, as the kernel lets them come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    pub compat: Compat,
    pub ro_compat: RoCompat,
}

/// Sees to it that the volume has what a batch needs.
pub(super) fn provide(ws: &mut Workspace<'_>, needs: Needs) -> Result<()> {
    let found = ws.geometry.features;
    if found.compat.contains(needs.compat) && found.ro_compat.contains(needs.ro_compat) {
        return Ok(());
    }
    // The feature was missing at open; an earlier batch may have added it.
    let sb = read(ws.geometry, ws.images())?;
    let now = Features::of(&sb);
    if now.compat.contains(needs.compat) && now.ro_compat.contains(needs.ro_compat) {
        return Ok(());
    }
    let (first_ino, inode_size) = (ws.geometry.first_ino, ws.geometry.inode_size);
    change(ws, |sb| {
        sb.feature_compat.set((now.compat | needs.compat).bits());
        sb.feature_ro_compat
            .set((now.ro_compat | needs.ro_compat).bits());
        // The first revision knows no features, and the other fields of the second were fixed in it.
        if sb.rev_level.get() == 0 {
            sb.rev_level.set(1);
            sb.first_ino.set(first_ino);
            sb.inode_size.set(inode_size);
        }
    })
}
