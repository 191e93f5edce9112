//! The superblock: the primary one, a backup at a usual place, a backup anywhere, or the primary one with a wrong checksum.

use crate::error::Error;
use crate::notes::{Notes, Progress};
use crate::{guess, scan};
use blockdev::BlockDevice;
use ext4_format::GroupNr;
use ext4_format::geometry::Geometry;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_SIZE};
use ext4_image::Image;

/// Where the magic number is in a superblock, and its value.
const MAGIC_AT: usize = 56;
const MAGIC: [u8; 2] = [0x53, 0xef];

pub(crate) fn image<'d>(
    dev: &'d dyn BlockDevice,
    notes: &mut Notes,
    progress: Progress<'_>,
) -> Result<Image<&'d dyn BlockDevice>, Error> {
    let sb = whichever(dev, notes, progress)?;
    let geo = Geometry::new(&sb).map_err(Error::Superblock)?;
    if u128::from(geo.blocks_count) * u128::from(geo.block_size) > dev.len().into() {
        notes.add(format!(
            "the image ends before the volume: {} bytes of {}",
            dev.len(),
            u128::from(geo.blocks_count) * u128::from(geo.block_size)
        ));
    }
    Ok(Image {
        dev,
        sb,
        geo,
        descs: Vec::new(),
    })
}

fn whichever(
    dev: &dyn BlockDevice,
    notes: &mut Notes,
    progress: Progress<'_>,
) -> Result<RawSuperblock, Error> {
    let read = ext4_image::superblock_bytes(dev);
    let bytes = read.as_ref().ok().copied();
    let error = match read.map_err(Error::Io).and_then(|bytes| usable(&bytes)) {
        Ok(sb) => return Ok(sb),
        Err(error) => error,
    };
    let found = usual(dev).or_else(|| anywhere(dev, progress));
    if let Some((at, sb)) = found {
        notes.add(format!(
            "the superblock is lost ({error}); the backup at byte {at} stands in for it"
        ));
        return Ok(sb);
    }
    match resealed(bytes) {
        Some(sb) => {
            notes.add(
                "the superblock's checksum is wrong, and there is no backup: it is used as it is"
                    .into(),
            );
            Ok(sb)
        }
        None => guessed(dev, notes).ok_or(error),
    }
}

fn guessed(dev: &dyn BlockDevice, notes: &mut Notes) -> Option<RawSuperblock> {
    let sb = guess::superblock(dev)?;
    notes.add(format!(
        "all superblocks are lost; the rest fits blocks of {} bytes and {} inodes in a group, and checksums are not verified",
        sb.block_size()?, sb.inodes_per_group
    ));
    Some(sb)
}

fn usable(bytes: &[u8]) -> Result<RawSuperblock, Error> {
    let sb = RawSuperblock::parse(bytes).map_err(Error::Superblock)?;
    let geometry = Geometry::new(&sb);
    geometry.map(|_| sb).map_err(Error::Superblock)
}

/// Returns a backup that was found at a byte offset, if that offset fits its own numbers. A volume
/// inside a file is elsewhere.
fn backup(bytes: &[u8], at: u64) -> Option<RawSuperblock> {
    let sb = RawSuperblock::parse(bytes).ok()?;
    let geo = Geometry::new(&sb).ok()?;
    let group = GroupNr(sb.block_group_nr.get().into());
    let place = geo
        .group_first_block(group)
        .0
        .checked_mul(geo.block_size.into())?;
    (group.0 > 0 && geo.has_super(group) && place == at).then_some(sb)
}

/// Returns the first good backup at the start of groups of the usual sizes.
fn usual(dev: &dyn BlockDevice) -> Option<(u64, RawSuperblock)> {
    let mut backups = ext4_image::usual_backups(dev);
    backups.find_map(|(at, sb)| Some((at, backup(sb.bytes(), at)?)))
}

/// Returns the first good backup on the device.
fn anywhere(dev: &dyn BlockDevice, progress: Progress<'_>) -> Option<(u64, RawSuperblock)> {
    let mut found = None;
    scan::pieces(dev, SUPERBLOCK_SIZE as u64, progress, &mut |at, bytes| {
        let marked = bytes.get(MAGIC_AT..MAGIC_AT + 2) == Some(&MAGIC);
        if marked && let Some(sb) = backup(bytes, at) {
            found = Some((at, sb));
        }
        found.is_none()
    });
    found
}

/// Returns the superblock itself, if only its checksum is wrong.
fn resealed(bytes: Option<[u8; SUPERBLOCK_SIZE]>) -> Option<RawSuperblock> {
    let sb = RawSuperblock::resealed(&bytes?)?;
    Geometry::new(&sb).is_ok().then_some(sb)
}
