//! The superblock: the primary one, a backup at a usual place, a backup anywhere, or the primary one with a wrong checksum.

use crate::guess;
use crate::scan;
use crate::{Error, Notes, Progress};
use blockdev::BlockDevice;
use ext4_format::geometry::Geometry;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_format::{FormatError, GroupNr};

/// Where the magic number is in a superblock, and its value.
const MAGIC_AT: usize = 56;
const MAGIC: [u8; 2] = [0x53, 0xef];

pub(crate) fn geometry(
    dev: &dyn BlockDevice,
    notes: &mut Notes,
    progress: Progress<'_>,
) -> Result<Geometry, Error> {
    let geo = whichever(dev, notes, progress)?;
    if u128::from(geo.blocks_count) * u128::from(geo.block_size) > dev.len().into() {
        notes.add(format!(
            "the image ends before the volume: {} bytes of {}",
            dev.len(),
            u128::from(geo.blocks_count) * u128::from(geo.block_size)
        ));
    }
    Ok(geo)
}

fn whichever(
    dev: &dyn BlockDevice,
    notes: &mut Notes,
    progress: Progress<'_>,
) -> Result<Geometry, Error> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let read = dev.read_at(SUPERBLOCK_OFFSET, &mut bytes);
    let error = match read.map_err(Error::Io).and_then(|()| usable(&bytes)) {
        Ok(geo) => return Ok(geo),
        Err(error) => error,
    };
    let found = usual(dev).or_else(|| anywhere(dev, progress));
    if let Some((at, geo)) = found {
        notes.add(format!(
            "the superblock is lost ({error}); the backup at byte {at} stands in for it"
        ));
        return Ok(geo);
    }
    match resealed(&bytes) {
        Some(geo) => {
            notes.add(
                "the superblock's checksum is wrong, and there is no backup: it is used as it is"
                    .into(),
            );
            Ok(geo)
        }
        None => guessed(dev, notes).ok_or(error),
    }
}

fn guessed(dev: &dyn BlockDevice, notes: &mut Notes) -> Option<Geometry> {
    let geo = guess::geometry(dev)?;
    notes.add(format!(
        "all superblocks are lost; the rest fits blocks of {} bytes and {} inodes in a group, and checksums are not verified",
        geo.block_size, geo.inodes_per_group
    ));
    Some(geo)
}

fn usable(bytes: &[u8]) -> Result<Geometry, Error> {
    let sb = RawSuperblock::parse(bytes).map_err(Error::Superblock)?;
    Geometry::new(&sb).map_err(Error::Superblock)
}

/// Returns the geometry of a backup that was found at a byte offset, if that offset fits its own numbers. A volume
/// inside a file is elsewhere.
fn backup(bytes: &[u8], at: u64) -> Option<Geometry> {
    let sb = RawSuperblock::parse(bytes).ok()?;
    let geo = Geometry::new(&sb).ok()?;
    let group = GroupNr(sb.block_group_nr.get().into());
    let place = geo
        .group_first_block(group)
        .0
        .checked_mul(geo.block_size.into())?;
    (group.0 > 0 && geo.has_super(group) && place == at).then_some(geo)
}

/// Returns the first good backup at the start of groups of the usual sizes.
fn usual(dev: &dyn BlockDevice) -> Option<(u64, Geometry)> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    for log in 0..7 {
        let (size, first) = (1024_u64 << log, u64::from(log == 0));
        for group in [1, 3, 5, 7, 9, 25, 27] {
            let at = (group * (8192 << log) + first) * size;
            if dev.read_at(at, &mut bytes).is_ok()
                && let Some(geo) = backup(&bytes, at)
            {
                return Some((at, geo));
            }
        }
    }
    None
}

/// Returns the first good backup on the device.
fn anywhere(dev: &dyn BlockDevice, progress: Progress<'_>) -> Option<(u64, Geometry)> {
    let mut found = None;
    scan::pieces(dev, SUPERBLOCK_SIZE as u64, progress, &mut |at, bytes| {
        let marked = bytes.get(MAGIC_AT..MAGIC_AT + 2) == Some(&MAGIC);
        if marked && let Some(geo) = backup(bytes, at) {
            found = Some((at, geo));
        }
        found.is_none()
    });
    found
}

/// Returns the superblock itself, if only its checksum is wrong.
fn resealed(bytes: &[u8; SUPERBLOCK_SIZE]) -> Option<Geometry> {
    let mut bytes = *bytes;
    let Err(FormatError::Checksum { computed, .. }) = RawSuperblock::parse(&bytes) else {
        return None;
    };
    *bytes.last_chunk_mut::<4>()? = computed.to_le_bytes();
    usable(&bytes).ok()
}
