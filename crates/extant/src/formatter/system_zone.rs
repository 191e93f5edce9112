//! The blocks that belong to the volume itself. A tree of a damaged image that leads into them is
//! refused before anything is read, changed or freed there.

use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::{BlockNr, FormatError, GroupNr, Where};

/// Superblocks, descriptors, bitmaps and inode tables, as sorted ranges.
pub(super) struct SystemZone {
    /// Start and one past the end.
    ranges: Vec<(u64, u64)>,
    blocks: u64,
}

impl SystemZone {
    pub fn new(geometry: &Geometry, descs: &[GroupDesc]) -> Self {
        let mut all = Vec::with_capacity(descs.len() * 4);
        for (desc, group) in descs.iter().zip((0..).map(GroupNr)) {
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
        Self {
            ranges,
            blocks: geometry.blocks_count,
        }
    }

    /// Fails if any of the blocks is outside the volume or the volume's own.
    pub fn check(&self, start: BlockNr, len: u64) -> Result<(), FormatError> {
        let end = start
            .0
            .checked_add(len)
            .filter(|&end| start.0 > 0 && len > 0 && end <= self.blocks);
        let free = end.is_some_and(|end| {
            let next = self.ranges.partition_point(|r| r.1 <= start.0);
            self.ranges.get(next).is_none_or(|r| r.0 >= end)
        });
        if free {
            Ok(())
        } else {
            Err(FormatError::corrupt(
                "block outside the data area",
                Where::Block(start, 0),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ext4_format::layout::{Layout, LayoutParams};

    #[test]
    fn every_block_in_use_in_a_new_layout_is_the_volumes_own() {
        let layout = Layout::new(&LayoutParams::for_size(600 << 20)).unwrap();
        let (geometry, descs) = (&layout.geometry, &layout.groups);
        let zone = SystemZone::new(geometry, descs);
        let first = geometry.group_first_block(GroupNr(2));
        assert_eq!(geometry.group_base_meta_blocks(GroupNr(2)), 0);
        assert!(
            zone.check(BlockNr(first.0 - 3), 6).is_ok(),
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
            assert!(zone.check(BlockNr(block), 1).is_err());
        }
        assert!(zone.check(BlockNr(descs[0].block_bitmap.0 - 2), 3).is_err());
        assert!(zone.check(first, 0).is_err() && zone.check(first, u64::MAX).is_err());
    }
}
