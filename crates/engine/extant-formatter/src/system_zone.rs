//! The blocks that belong to the volume itself. A tree of a damaged image that leads into them is
//! refused before anything is read, changed or freed there.
//!
//! On a large volume (see [`crate::groups::ALL`]) only the flex group of a block is examined: bitmaps and
//! inode tables of a flex group lie in it, unless the image was made by hand. Descriptors are read when they are
//! first needed.

use crate::error::{Error, Result};
use crate::groups::{self, DescTable};
use crate::image::BlockImages;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::{BlockNr, FormatError, GroupNr, Where};
use std::ops::Range;
use std::sync::OnceLock;

/// Superblocks, descriptors, bitmaps and inode tables, as sorted ranges: start, and one past the end.
type Ranges = Box<[(u64, u64)]>;

/// The volume's own blocks.
pub struct SystemZone {
    geometry: Geometry,
    /// Blocks of the journal, as sorted ranges.
    journal: Ranges,
    /// Groups of a part.
    per_part: u32,
    parts: Box<[OnceLock<Part>]>,
    /// Whether damaged descriptors are skipped, which is safe on a read-only volume alone.
    leaves_out_damage: bool,
}

/// The volume's own blocks in a part of its groups.
struct Part {
    ranges: Ranges,
    /// The first group whose metadata overlap other metadata of the volume.
    overlap: Option<GroupNr>,
}

fn part(geometry: &Geometry, descs: impl Iterator<Item = (GroupNr, GroupDesc)>) -> Part {
    let mut all = Vec::new();
    for (group, desc) in descs {
        let first = geometry.group_first_block(group).0;
        let base = u64::from(geometry.group_base_meta_blocks(group));
        let table = u64::from(geometry.itable_blocks());
        for (start, len) in [
            (first, base),
            (desc.block_bitmap.0, 1),
            (desc.inode_bitmap.0, 1),
            (desc.inode_table.0, table),
        ] {
            all.push((start, start.saturating_add(len), group));
        }
    }
    all.retain(|(start, end, _)| start < end);
    all.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut overlap = None;
    for (start, end, group) in all {
        match ranges.last_mut() {
            Some(last) if start <= last.1 => {
                if start < last.1 {
                    overlap.get_or_insert(group);
                }
                last.1 = last.1.max(end);
            }
            _ => ranges.push((start, end)),
        }
    }
    let ranges = ranges.into();
    Part { ranges, overlap }
}

/// Finds the first of these sorted ranges that has a block in `[start, end)`.
fn first_in(ranges: &[(u64, u64)], start: u64, end: u64) -> Option<(u64, u64)> {
    let next = ranges.partition_point(|r| r.1 <= start);
    ranges.get(next).copied().filter(|r| r.0 < end)
}

/// Finds the first group of which a superblock, descriptors, a bitmap or the inode table lies in one of these ranges.
/// Groups whose descriptor breaks a rule are skipped: before a journal is replayed a descriptor may be half written.
pub fn met_by(
    geometry: &Geometry,
    images: &dyn BlockImages,
    own: &[(u64, u64)],
) -> Option<GroupNr> {
    let table = DescTable::new(geometry);
    let mut own = own.to_vec();
    own.sort_unstable();
    (0..geometry.groups.min(groups::ALL))
        .map(GroupNr)
        .find(|&group| {
            let Ok(&desc) = table.get(geometry, images, group) else {
                return false;
            };
            part(geometry, [(group, desc)].into_iter())
                .ranges
                .iter()
                .any(|&(start, end)| first_in(&own, start, end).is_some())
        })
}

impl SystemZone {
    /// Makes the zone of a volume whose journal lies in these ranges of blocks.
    pub fn new(geometry: &Geometry, journal: &[(u64, u64)]) -> Self {
        let per_part = match geometry.groups {
            few if few <= groups::ALL => few,
            _ => 1 << geometry.log_groups_per_flex.min(10),
        };
        let per_part = per_part.max(1);
        let mut journal = journal.to_vec();
        journal.sort_unstable();
        Self {
            geometry: geometry.clone(),
            journal: journal.into(),
            per_part,
            parts: (0..geometry.groups.div_ceil(per_part))
                .map(|_| OnceLock::new())
                .collect(),
            leaves_out_damage: false,
        }
    }

    /// Skips damaged descriptors, for a read-only volume.
    #[must_use]
    pub fn leaving_out_damage(mut self) -> Self {
        self.leaves_out_damage = true;
        self
    }

    /// Makes the zone of the volume after it has grown.
    pub fn grown(&self, geometry: &Geometry) -> Self {
        Self::new(geometry, &self.journal)
    }

    /// Makes a zone without any blocks of the volume's own.
    #[cfg(test)]
    pub fn empty(geometry: &Geometry) -> Self {
        Self {
            leaves_out_damage: false,
            parts: Box::new([OnceLock::from(Part {
                ranges: Ranges::default(),
                overlap: None,
            })]),
            journal: Ranges::default(),
            per_part: u32::MAX,
            geometry: geometry.clone(),
        }
    }

    fn part(&self, n: u32, images: &dyn BlockImages) -> Result<&Part, FormatError> {
        let outside = || FormatError::corrupt("group number", Where::Group(GroupNr(n)));
        let part = self.parts.get(n as usize).ok_or_else(outside)?;
        if let Some(found) = part.get() {
            return Ok(found);
        }
        // Positions never change, so this table is used once and dropped.
        let table = DescTable::new(&self.geometry);
        let first = n.saturating_mul(self.per_part);
        let last = first
            .saturating_add(self.per_part)
            .min(self.geometry.groups);
        let mut descs = Vec::with_capacity((last - first) as usize);
        for group in (first..last).map(GroupNr) {
            let desc = table.get(&self.geometry, images, group);
            if self.leaves_out_damage && matches!(desc, Err(Error::Format(_))) {
                continue;
            }
            let desc = desc.map_err(|e| match e {
                Error::Format(e) => e,
                _ => FormatError::corrupt("descriptor that cannot be read", Where::Group(group)),
            })?;
            descs.push((group, *desc));
        }
        Ok(part.get_or_init(|| self::part(&self.geometry, descs.into_iter())))
    }

    /// Fails if any of the blocks is outside the volume or one of the volume's own.
    pub fn check(
        &self,
        images: &dyn BlockImages,
        start: BlockNr,
        len: u64,
    ) -> Result<(), FormatError> {
        let outside =
            || FormatError::corrupt("block outside the data area", Where::Block(start, 0));
        let end = start
            .0
            .checked_add(len)
            .filter(|&end| start.0 > 0 && len > 0 && end <= self.geometry.blocks_count)
            .ok_or_else(outside)?;
        let part = |block: u64| {
            let group = self.geometry.group_of_block(BlockNr(block));
            Ok(group.ok_or_else(outside)?.0.0 / self.per_part)
        };
        for n in part(start.0)?..=part(end - 1)? {
            let part = self.part(n, images)?;
            if first_in(&part.ranges, start.0, end).is_some() {
                return Err(outside());
            }
        }
        match first_in(&self.journal, start.0, end) {
            Some(_) => Err(outside()),
            None => Ok(()),
        }
    }

    /// Finds the first group whose bitmaps or inode table overlap other metadata of the volume. On a volume that is
    /// examined in parts only the first part is checked.
    pub fn overlap(&self, images: &dyn BlockImages) -> Result<Option<GroupNr>, FormatError> {
        Ok(self.part(0, images)?.overlap)
    }

    /// Fails if one of the volume's own blocks is free by a group's bitmap, given as words.
    pub fn check_bitmap(
        &self,
        images: &dyn BlockImages,
        group: GroupNr,
        words: &[u64],
    ) -> Result<(), FormatError> {
        let first = self.geometry.group_first_block(group).0;
        let end = first + u64::from(self.geometry.blocks_in_group(group));
        let part = self.part(group.0 / self.per_part, images)?;
        for ranges in [&part.ranges, &self.journal] {
            let mut at = first;
            while let Some((start, stop)) = first_in(ranges, at, end) {
                let stop = stop.min(end);
                // Both are inside the group, which has at most 2^19 blocks.
                let bits = (start.max(first) - first) as u32..(stop - first) as u32;
                if let Some(bit) = first_clear(words, bits) {
                    let block = BlockNr(first + u64::from(bit));
                    return Err(FormatError::corrupt(
                        "bitmap that says a block of the volume's own is free",
                        Where::Block(block, 0),
                    ));
                }
                at = stop;
            }
        }
        Ok(())
    }
}

/// Finds the first clear bit of a range. Bits beyond the words are set.
fn first_clear(words: &[u64], bits: Range<u32>) -> Option<u32> {
    let mut at = bits.start;
    while at < bits.end {
        let word = words.get((at / 64) as usize).copied().unwrap_or(u64::MAX);
        let clear = !word & (u64::MAX << (at % 64));
        if clear != 0 {
            let found = at / 64 * 64 + clear.trailing_zeros();
            return (found < bits.end).then_some(found);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::image::Image;
    use ext4_format::layout::{Layout, LayoutParams};
    use std::sync::Arc;

    /// The descriptors of a layout, as blocks of the device would have them.
    struct Table<'l>(&'l Layout);

    impl BlockImages for Table<'_> {
        fn image(&self, block: BlockNr) -> Result<Arc<Image>> {
            let geometry = &self.0.geometry;
            let mut bytes = vec![0; geometry.block_size as usize];
            for (group, desc) in (0..).map(GroupNr).zip(&self.0.groups) {
                let (at, offset) = geometry.desc_location(group);
                if at == block {
                    desc.encode(&mut bytes[offset as usize..], geometry, group)?;
                }
            }
            Ok(Image::made(bytes))
        }
    }

    #[test]
    fn every_block_in_use_in_a_new_layout_is_the_volumes_own() {
        let layout = Layout::new(&LayoutParams::for_size(600 << 20)).unwrap();
        let (geometry, descs, images) = (&layout.geometry, &layout.groups, &Table(&layout));
        let first = geometry.group_first_block(GroupNr(2));
        assert_eq!(geometry.group_base_meta_blocks(GroupNr(2)), 0);
        let mut by_flex = SystemZone::new(geometry, &[]);
        by_flex.per_part = 1 << geometry.log_groups_per_flex;
        let parts = geometry.groups.div_ceil(by_flex.per_part);
        by_flex.parts = (0..parts).map(|_| OnceLock::new()).collect();
        for zone in [SystemZone::new(geometry, &[]), by_flex] {
            assert!(
                zone.check(images, BlockNr(first.0 - 3), 6).is_ok(),
                "over a border without a superblock"
            );
            for block in [
                0,
                1,
                descs[1].inode_table.0,
                descs[0].block_bitmap.0,
                u64::MAX,
                geometry.blocks_count,
            ] {
                assert!(zone.check(images, BlockNr(block), 1).is_err());
            }
            assert!(
                zone.check(images, BlockNr(descs[0].block_bitmap.0 - 2), 3)
                    .is_err()
            );
            assert!(zone.check(images, first, 0).is_err());
            assert!(zone.check(images, first, u64::MAX).is_err());
        }
    }

    #[test]
    fn a_bitmap_must_name_the_volumes_own_blocks() {
        let layout = Layout::new(&LayoutParams::for_size(600 << 20)).unwrap();
        let (geometry, descs, images) = (&layout.geometry, &layout.groups, &Table(&layout));
        let journal = (30_000, 30_100);
        let zone = SystemZone::new(geometry, &[journal]);
        assert_eq!(zone.overlap(images).unwrap(), None);
        assert!(zone.check(images, BlockNr(journal.0 - 1), 2).is_err());
        let mut words = vec![u64::MAX; geometry.blocks_per_group as usize / 64];
        let check = |words: &[u64]| zone.check_bitmap(images, GroupNr(0), words);
        check(&words).unwrap();
        let table = descs[3].inode_table.0;
        for (block, own) in [
            (0, true),
            (table, true),
            (journal.0, true),
            (journal.1 - 1, true),
            (journal.1, false),
        ] {
            words[block as usize / 64] ^= 1 << (block % 64);
            assert_eq!(check(&words).is_err(), own, "block {block}");
            words[block as usize / 64] ^= 1 << (block % 64);
        }
    }

    #[test]
    fn tables_that_overlap_are_found() {
        let mut layout = Layout::new(&LayoutParams::for_size(600 << 20)).unwrap();
        layout.groups[2].inode_table.0 = layout.groups[1].inode_table.0 + 1;
        let zone = SystemZone::new(&layout.geometry, &[]);
        let found = zone.overlap(&Table(&layout)).unwrap();
        assert_eq!(found, Some(GroupNr(2)));
    }
}
