//! The undo record of a change on the device itself, for block devices: a device has no directory that outlives the
//! system, and moves to other systems. The record is in one run of blocks that are free before and after the change
//! and not written by it, or behind the volume's end. On a full volume the record is in the log of an empty journal. The
//! mark has the offset of the record. After the change the record is not needed, and its blocks are free again.

use crate::error::Error;
use crate::image::Image;
use blockdev::BlockDevice;
use ext4_format::features::Incompat;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::{BlockNr, GroupNr, bitmap};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// A device in the state after a change.
struct After<'a> {
    device: &'a dyn BlockDevice,
    changes: &'a BTreeMap<u64, Vec<u8>>,
}

impl BlockDevice for After<'_> {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, buf)?;
        let end = offset.saturating_add(buf.len() as u64);
        for (&at, new) in self.changes.range(..end).rev() {
            let new_end = at.saturating_add(new.len() as u64);
            if new_end <= offset {
                // Pieces do not overlap, so those before it end earlier.
                break;
            }
            let (from, to) = (at.max(offset), new_end.min(end));
            let source = new.get((from - at) as usize..(to - at) as usize);
            let target = buf.get_mut((from - offset) as usize..(to - offset) as usize);
            if let (Some(source), Some(target)) = (source, target) {
                target.copy_from_slice(source);
            }
        }
        Ok(())
    }

    blockdev::only_read!();
}

/// Returns the block bitmap of a group. `None` if it cannot be read; then nothing in the group counts as free.
fn used<D: BlockDevice>(image: &Image<D>, group: GroupNr) -> Option<Vec<u8>> {
    let raw = image.descriptor_bytes(group).ok()?;
    let desc = GroupDesc::decode(&raw, &image.geo, group).ok()?;
    image.block_bitmap(group, &desc).ok()
}

/// Marks the blocks of a group that the change writes.
fn mark_written(
    map: &mut [u8],
    geo: &Geometry,
    (group, bits): (GroupNr, u32),
    changes: &BTreeMap<u64, Vec<u8>>,
) {
    let cluster = u64::from(geo.block_size) * u64::from(geo.cluster_ratio);
    let first = geo.group_first_block(group).offset(geo.block_size);
    let end = first.saturating_add(u64::from(bits) * cluster);
    // A piece may begin in the group before.
    let before = changes.range(..first).next_back();
    for (&at, new) in before.into_iter().chain(changes.range(first..end)) {
        let from = at.max(first);
        let to = at.saturating_add(new.len() as u64).min(end);
        if from < to {
            let bit = ((from - first) / cluster) as u32;
            let behind = (to - first).div_ceil(cluster) as u32;
            bitmap::set_range(
                map,
                bit,
                behind.saturating_sub(bit).min(bits - bit.min(bits)),
            );
        }
    }
}

/// Returns the blocks of a group that are in use before the change or after it, or are written by it, and how many
/// bits count. `None` if a bitmap cannot be read.
fn taken(
    volumes: &[Image<&dyn BlockDevice>],
    group: GroupNr,
    changes: &BTreeMap<u64, Vec<u8>>,
) -> Option<(Vec<u8>, u32)> {
    let (mut map, mut all) = (Vec::new(), 0);
    for image in volumes.iter().filter(|image| group.0 < image.geo.groups) {
        let mut used = used(image, group)?;
        let bits = image.geo.bits_in_group(group);
        // The padding of a bitmap does not stand for blocks.
        let padding = (used.len() as u32 * 8).saturating_sub(bits);
        bitmap::clear_range(&mut used, bits, padding);
        map.resize(used.len(), 0);
        for (bits, more) in map.iter_mut().zip(&used) {
            *bits |= more;
        }
        all = all.max(bits);
    }
    // Blocks and groups have one size in both.
    let first = volumes.first()?;
    mark_written(&mut map, &first.geo, (group, all), changes);
    Some((map, all))
}

/// Returns the offset of the first run that holds `len` bytes and is free before and after the change: blocks of the
/// volume, or of the device behind it.
pub(crate) fn find(
    device: &dyn BlockDevice,
    changes: &BTreeMap<u64, Vec<u8>>,
    len: u64,
) -> Option<u64> {
    let after: &dyn BlockDevice = &After { device, changes };
    let image = Image::open(after).ok()?;
    let new = image.geo.clone();
    let volumes = [before(device, &image)?, image];
    let most = |of: fn(&Geometry) -> u64| volumes.iter().map(|image| of(&image.geo)).max();
    let groups = u32::try_from(most(|geo| geo.groups.into())?).ok()?;
    let fits = |start: u64, end: u64| end.min(device.len()).saturating_sub(start) >= len;
    let (mut start, mut end) = (0, 0);
    for group in (0..groups).map(GroupNr) {
        let Some((map, bits)) = taken(&volumes, group, changes) else {
            continue;
        };
        let first = new.group_first_block(group).0;
        let mut bit = 0;
        while let Some(from) = bitmap::find_zero(&map, bit, bits) {
            bit = bitmap::find_one(&map, from, bits).unwrap_or(bits);
            let place = |bit: u32| {
                let blocks = u64::from(bit) * u64::from(new.cluster_ratio);
                BlockNr(first.saturating_add(blocks)).offset(new.block_size)
            };
            if place(from) != end {
                start = place(from);
            }
            end = place(bit);
            if fits(start, end) {
                return Some(start);
            }
        }
    }
    let behind = BlockNr(most(|geo| geo.blocks_count)?).offset(new.block_size);
    let start = if end == behind { start } else { behind };
    fits(start, device.len()).then_some(start)
}

/// Returns the volume before a change. If its superblock is damaged, or has other groups than the mended one, the volume is read by the
/// superblock after the change.
fn before<'d>(
    device: &'d dyn BlockDevice,
    after: &Image<&dyn BlockDevice>,
) -> Option<Image<&'d dyn BlockDevice>> {
    let groups = |geo: &Geometry| (geo.block_size, geo.blocks_per_group, geo.cluster_ratio);
    let old = Image::open(device).ok();
    let old = old.filter(|old| groups(&old.geo) == groups(&after.geo));
    old.or_else(|| Image::new(device, after.sb).ok())
}

/// Returns the blocks of the log in order. Returns `None` if the journal needs a replay, or has blocks outside the volume. The
/// descriptors must not have been read.
fn empty_log(image: &mut Image<&dyn BlockDevice>) -> Option<Vec<BlockNr>> {
    if image.sb.feature_incompat.get() & Incompat::NEEDS_RECOVERY.bits() != 0 {
        return None;
    }
    image.read_descriptors().ok()?;
    let (sb, places) = image.journal().ok()??;
    let range = sb.log_range();
    let log = places.get(range.start as usize..range.end as usize)?;
    (sb.is_clean() && sb.block_size == image.geo.block_size).then(|| log.to_vec())
}

/// Returns whether the bitmaps have all of these blocks in use. A damaged inode of the journal may map blocks that are free,
/// and that the next change allocates.
fn are_in_use(image: &Image<&dyn BlockDevice>, blocks: &[BlockNr]) -> bool {
    let mut map = Vec::new();
    let mut of = None;
    blocks.iter().all(|&block| {
        let Some((group, bit)) = image.geo.group_of_block(block) else {
            return false;
        };
        if of != Some(group) {
            match used(image, group) {
                Some(bits) => (map, of) = (bits, Some(group)),
                None => return false,
            }
        }
        bitmap::test(&map, bit)
    })
}

/// Returns the offset of the first run of blocks of an empty log that holds `len` bytes and that the change does not write.
/// Before and after the change, the log must be empty, and the bitmaps must have its blocks in use. The change may write
/// other parts of the log: a piece of a change may be larger than the block next to the log that it is for.
fn find_in_log(
    device: &dyn BlockDevice,
    changes: &BTreeMap<u64, Vec<u8>>,
    len: u64,
) -> Option<u64> {
    let after: &dyn BlockDevice = &After { device, changes };
    let mut new = Image::open(after).ok()?;
    let mut old = before(device, &new)?;
    let log = empty_log(&mut old)?;
    if empty_log(&mut new).as_ref() != Some(&log) {
        return None;
    }
    if !are_in_use(&old, &log) || !are_in_use(&new, &log) {
        return None;
    }
    let block_size = new.geo.block_size;
    log.chunk_by(|a, b| a.0.checked_add(1) == Some(b.0))
        .find_map(|run| {
            let start = run.first()?.offset(block_size);
            let end = start.checked_add(run.len() as u64 * u64::from(block_size))?;
            first_gap(changes, start..end.min(device.len()), len)
        })
}

/// Returns the first part of a range that holds `len` bytes and that the change does not write.
fn first_gap(changes: &BTreeMap<u64, Vec<u8>>, range: Range<u64>, len: u64) -> Option<u64> {
    let mut from = range.start;
    let before = changes.range(..range.start).next_back();
    for (&at, new) in before.into_iter().chain(changes.range(range.clone())) {
        if at.saturating_sub(from) >= len {
            return Some(from);
        }
        from = from.max(at.saturating_add(new.len() as u64));
    }
    (range.end.saturating_sub(from) >= len).then_some(from)
}

/// Writes a record, and returns its place when it is durable.
///
/// # Errors
/// [`Error::NoRoomForUndo`]; those of the device.
pub(crate) fn write(
    device: &dyn BlockDevice,
    changes: &BTreeMap<u64, Vec<u8>>,
    record: &[u8],
) -> Result<u64, Error> {
    let len = record.len() as u64;
    let place = find(device, changes, len).or_else(|| find_in_log(device, changes, len));
    let place = place.ok_or(Error::NoRoomForUndo(len))?;
    let written = device.write_at(place, record);
    let written = written.and_then(|()| device.flush());
    if let Err(error) = written {
        // Give the space back to a full host. Report the error of the write, not that of the discard.
        let _ = device.discard(place, len);
        return Err(error.into());
    }
    Ok(place)
}
