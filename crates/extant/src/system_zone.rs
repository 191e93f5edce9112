//! The blocks that belong to the volume itself. A tree of a damaged image that leads into them is
//! refused before anything is read, changed or freed there.
//!
//! Of a large volume (see [`crate::groups::ALL`]) only the flex group is looked at in which a block lies: bitmaps and
//! inode tables of a flex group lie in it, unless the image was made by hand. Nothing is read before it is asked for.

use super::BlockImages;
use crate::error::Error;
use crate::groups::{self, DescTable};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::{BlockNr, FormatError, GroupNr, Where};
use std::sync::OnceLock;

/// Superblocks, descriptors, bitmaps and inode tables, as sorted ranges: start, and one past the end.
type Ranges = Box<[(u64, u64)]>;

/// The volume's own blocks.
pub(super) struct SystemZone {
    geometry: Geometry,
    /// Groups of a part.
    per_part: u32,
    parts: Box<[OnceLock<Ranges>]>,
}

fn ranges(geometry: &Geometry, descs: impl Iterator<Item = (GroupNr, GroupDesc)>) -> Ranges {
    let mut all = Vec::new();
    for (group, desc) in descs {
        let first = geometry.group_first_block(group).0;
        let table = desc.inode_table.0;
        all.extend([
            (
                first,
                first + u64::from(geometry.group_base_meta_blocks(group)),
            ),
            (desc.block_bitmap.0, desc.block_bitmap.0.saturating_add(1)),
            (desc.inode_bitmap.0, desc.inode_bitmap.0.saturating_add(1)),
            (
                table,
                table.saturating_add(u64::from(geometry.itable_blocks())),
            ),
        ]);
    }
    all.retain(|(start, end)| start < end);
    all.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (start, end) in all {
        match ranges.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => ranges.push((start, end)),
        }
    }
    ranges.into()
}

impl SystemZone {
    pub fn new(geometry: &Geometry) -> Self {
        let per_part = match geometry.groups {
            few if few <= groups::ALL => few,
            _ => 1 << geometry.log_groups_per_flex.min(10),
        };
        let per_part = per_part.max(1);
        Self {
            geometry: geometry.clone(),
            per_part,
            parts: (0..geometry.groups.div_ceil(per_part))
                .map(|_| OnceLock::new())
                .collect(),
        }
    }

    /// A zone without any blocks of the volume's own.
    #[cfg(test)]
    pub fn empty(geometry: &Geometry) -> Self {
        Self {
            parts: Box::new([OnceLock::from(Ranges::default())]),
            per_part: u32::MAX,
            geometry: geometry.clone(),
        }
    }

    fn part(&self, n: u32, images: &dyn BlockImages) -> Result<&Ranges, FormatError> {
        let outside = || FormatError::corrupt("group number", Where::Group(GroupNr(n)));
        let part = self.parts.get(n as usize).ok_or_else(outside)?;
        if let Some(ranges) = part.get() {
            return Ok(ranges);
        }
        // Positions never change: the table is for this moment only.
        let table = DescTable::new(&self.geometry);
        let first = n.saturating_mul(self.per_part);
        let last = first
            .saturating_add(self.per_part)
            .min(self.geometry.groups);
        let mut descs = Vec::with_capacity((last - first) as usize);
        for group in (first..last).map(GroupNr) {
            let desc = table.get(&self.geometry, images, group);
            let desc = desc.map_err(|e| match e {
                Error::Format(e) => e,
                _ => FormatError::corrupt("descriptor that cannot be read", Where::Group(group)),
            })?;
            descs.push((group, *desc));
        }
        Ok(part.get_or_init(|| ranges(&self.geometry, descs.into_iter())))
    }

    /// Fails if any of the blocks is outside the volume or the volume's own.
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
            let ranges = self.part(n, images)?;
            let next = ranges.partition_point(|r| r.1 <= start.0);
            if ranges.get(next).is_some_and(|r| r.0 < end) {
                return Err(outside());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Image;
    use crate::error::Result;
    use ext4_format::layout::{Layout, LayoutParams};
    use std::sync::Arc;

    /// The descriptors of a layout, as blocks of the device would hold them.
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
        let mut by_flex = SystemZone::new(geometry);
        by_flex.per_part = 1 << geometry.log_groups_per_flex;
        let parts = geometry.groups.div_ceil(by_flex.per_part);
        by_flex.parts = (0..parts).map(|_| OnceLock::new()).collect();
        for zone in [SystemZone::new(geometry), by_flex] {
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
}
