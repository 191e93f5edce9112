//! Growth of a volume in place: its new sizes, and the content of its new groups. Existing blocks are not moved, so
//! the descriptors need room in their reserved blocks or in meta groups.

use crate::bitmap;
use crate::error::FormatError;
use crate::geometry::Geometry;
use crate::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT, INODE_ZEROED};
use crate::superblock::RawSuperblock;
use crate::types::{BlockNr, GroupNr};
use std::collections::BTreeMap;

/// Least number of usable blocks in a last group beyond its own metadata.
pub const LAST_GROUP_MIN: u64 = 50;

/// Why a volume cannot grow where it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrowthError {
    /// A rule of the format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The growth is not possible; the reason.
    #[error("{0}")]
    Refused(&'static str),
}

/// Sets the counts of a superblock for `blocks` and `groups`; the reserve keeps its share. `None` if the number of
/// inodes exceeds 32 bits.
pub fn set_counts(sb: &mut RawSuperblock, old: &Geometry, blocks: u64, groups: u32) -> Option<()> {
    sb.set_blocks_count(blocks);
    sb.inodes_count
        .set(groups.checked_mul(old.inodes_per_group)?);
    let share = u128::from(old.reserved_blocks) * u128::from(blocks);
    let kept = share / u128::from(old.blocks_count.max(1));
    // A share of `blocks`.
    sb.set_reserved_blocks((kept as u64).min(blocks / 2));
    Some(())
}

/// The change from one size to a larger one.
///
/// ```
/// use ext4_format::{growth::Growth, layout::{Layout, LayoutParams}};
/// let layout = Layout::new(&LayoutParams::for_size(1 << 30)).unwrap();
/// let growth = Growth::new(&layout.superblock, &layout.geometry, 1 << 19, true).unwrap();
/// assert_eq!((growth.new.groups, growth.groups.len()), (16, 8));
/// ```
#[derive(Clone, Debug)]
pub struct Growth {
    /// The shape before.
    pub old: Geometry,
    /// The shape afterwards.
    pub new: Geometry,
    /// Descriptors of the new groups, in order.
    pub groups: Vec<GroupDesc>,
    /// Whether all of the new part of the device is zeros.
    zeroed: bool,
}

impl Growth {
    /// Plans the growth to `blocks` blocks, or somewhat fewer if the last group would be too short. `zeroed` is true
    /// if everything past the old end is zeros.
    ///
    /// # Errors
    /// [`GrowthError::Refused`] with the reason.
    pub fn new(
        sb: &RawSuperblock,
        old: &Geometry,
        blocks: u64,
        zeroed: bool,
    ) -> Result<Self, GrowthError> {
        let new = shape(sb, old, blocks)?;
        let mut growth = Self {
            old: old.clone(),
            new,
            groups: Vec::new(),
            zeroed,
        };
        for group in (old.groups..growth.new.groups).map(GroupNr) {
            growth.groups.push(growth.start_group(group)?);
        }
        Ok(growth)
    }

    /// Returns the descriptor of a new group, which has its bitmaps and its inode table in itself.
    fn start_group(&self, group: GroupNr) -> Result<GroupDesc, GrowthError> {
        let geo = &self.new;
        let base = geo.group_base_meta_blocks(group);
        let first = geo.group_first_block(group).0 + u64::from(base);
        let own = u64::from(base) + 2 + u64::from(geo.itable_blocks());
        let free = u64::from(geo.blocks_in_group(group)).checked_sub(own);
        let refused = GrowthError::Refused("a group would be too small for its own blocks");
        let mut desc = GroupDesc {
            block_bitmap: BlockNr(first),
            inode_bitmap: BlockNr(first + 1),
            inode_table: BlockNr(first + 2),
            // Less than a group has blocks.
            free_blocks: free.ok_or(refused)? as u32,
            free_inodes: geo.inodes_per_group,
            ..GroupDesc::default()
        };
        if geo.features.has_group_csum() {
            desc.itable_unused = geo.inodes_per_group;
            desc.flags = INODE_UNINIT;
            if group.0 + 1 < geo.groups {
                desc.flags |= BLOCK_UNINIT;
            }
            if self.zeroed {
                desc.flags |= INODE_ZEROED;
            }
        }
        if desc.flags & BLOCK_UNINIT == 0 {
            let csum = bitmap::block_bitmap_csum(&self.block_bitmap(group, &desc), geo);
            desc.block_bitmap_csum = csum.unwrap_or(0);
        }
        Ok(desc)
    }

    fn block_bitmap(&self, group: GroupNr, desc: &GroupDesc) -> Vec<u8> {
        let mut map = vec![0; self.new.block_size as usize];
        bitmap::init_block_bitmap(&mut map, &self.new, group, desc);
        map
    }

    /// Returns the new groups with their descriptors.
    pub fn new_groups(&self) -> impl Iterator<Item = (GroupNr, &GroupDesc)> {
        (self.old.groups..).map(GroupNr).zip(&self.groups)
    }

    /// Returns the number of blocks by which the last old group becomes longer.
    pub fn longer(&self) -> u32 {
        let last = GroupNr(self.old.groups.saturating_sub(1));
        self.new.blocks_in_group(last)
            - self
                .old
                .blocks_in_group(last)
                .min(self.new.blocks_in_group(last))
    }

    /// Returns the blocks and inodes that become free.
    pub fn free(&self) -> (u64, u64) {
        let blocks: u64 = self.groups.iter().map(|d| u64::from(d.free_blocks)).sum();
        let inodes: u64 = self.groups.iter().map(|d| u64::from(d.free_inodes)).sum();
        (blocks + u64::from(self.longer()), inodes)
    }

    /// Returns the blocks past the old end that must be written before the superblock includes them: bitmaps, tables
    /// that no descriptor can mark as unused, and descriptors in meta groups.
    ///
    /// # Errors
    /// `Unrepresentable` for a descriptor out of its range.
    pub fn beyond(&self) -> Result<Vec<(BlockNr, Vec<u8>)>, FormatError> {
        let geo = &self.new;
        let summed = geo.features.has_group_csum();
        let zeros = || vec![0; geo.block_size as usize];
        let mut blocks = BTreeMap::new();
        for (group, desc) in self.new_groups() {
            if desc.flags & BLOCK_UNINIT == 0 {
                blocks.insert(desc.block_bitmap, self.block_bitmap(group, desc));
            }
            if !summed {
                let mut map = zeros();
                bitmap::init_inode_bitmap(&mut map, geo, 0);
                blocks.insert(desc.inode_bitmap, map);
            }
            if !summed && !self.zeroed {
                let table = (0..u64::from(geo.itable_blocks())).map(|i| desc.inode_table.0 + i);
                blocks.extend(table.map(|block| (BlockNr(block), zeros())));
            }
            let (block, offset) = geo.desc_location(group);
            if block.0 >= self.old.blocks_count {
                let bytes = blocks.entry(block).or_insert_with(zeros);
                let bytes = bytes.get_mut(offset as usize..);
                desc.encode(bytes.unwrap_or_default(), geo, group)?;
            }
        }
        Ok(blocks.into_iter().collect())
    }

    /// Returns whether the map of reserved descriptors changes: blocks of it become descriptors, or get more backups.
    pub fn changes_reserved(&self) -> bool {
        self.old.features.has_resize_inode()
            && (self.old.reserved_gdt_blocks != self.new.reserved_gdt_blocks
                || (self.old.groups..self.new.groups).any(|g| self.new.has_super(GroupNr(g))))
    }

    /// Returns the number of blocks of the old volume that change, at most.
    pub fn changed_blocks(&self) -> u64 {
        let descriptors = self.new.gdt_block_count() - self.old.gdt_block_count();
        let reserved = if self.changes_reserved() {
            2 + u64::from(self.new.reserved_gdt_blocks)
        } else {
            0
        };
        // The superblock, the last old group's bitmap and descriptor.
        3 + u64::from(descriptors) + reserved
    }

    /// Gives a superblock the new sizes.
    pub fn set_superblock(&self, sb: &mut RawSuperblock) {
        // The new geometry was made by these very counts.
        let _ = set_counts(sb, &self.old, self.new.blocks_count, self.new.groups);
        sb.reserved_gdt_blocks.set(self.new.reserved_gdt_blocks);
        if sb.overhead_blocks.get() != 0 {
            let own: u64 = self
                .new_groups()
                .map(|(g, _)| {
                    let base = u64::from(self.new.group_base_meta_blocks(g));
                    base + 2 + u64::from(self.new.itable_blocks())
                })
                .sum();
            let sum = u64::from(sb.overhead_blocks.get()) + own;
            sb.overhead_blocks.set(u32::try_from(sum).unwrap_or(0));
        }
    }
}

/// Computes the geometry of `blocks` blocks or somewhat fewer.
fn shape(sb: &RawSuperblock, old: &Geometry, blocks: u64) -> Result<Geometry, GrowthError> {
    let refused = |why| Err(GrowthError::Refused(why));
    let per = u64::from(old.blocks_per_group);
    if old.features.has_bigalloc() || !per.is_multiple_of(8) {
        return refused(
            "volumes with clusters, or with groups that do not fill bytes of a bitmap, do not grow",
        );
    }
    if blocks > u64::from(u32::MAX)
        && (!old.features.has_64bit() || old.features.has_resize_inode())
    {
        return refused(
            "2^32 blocks are too many without 64bit, or with resize_inode: resize it unmounted",
        );
    }
    let mut blocks = blocks;
    loop {
        if blocks <= old.blocks_count {
            return refused("there is no room for more blocks");
        }
        let space = blocks - old.first_data_block;
        let Ok(groups) = u32::try_from(space.div_ceil(per)) else {
            return refused("a volume has fewer than 2^32 groups");
        };
        let geo = sized(sb, old, blocks, groups)?;
        let rest = space % per;
        let last = GroupNr(groups - 1);
        let need = 2 + u64::from(geo.itable_blocks()) + u64::from(geo.group_base_meta_blocks(last));
        if rest == 0 || groups == old.groups || rest >= need + LAST_GROUP_MIN {
            return Ok(geo);
        }
        blocks -= rest;
    }
}

fn sized(
    sb: &RawSuperblock,
    old: &Geometry,
    blocks: u64,
    groups: u32,
) -> Result<Geometry, GrowthError> {
    let refused = |why| GrowthError::Refused(why);
    let mut sb = *sb;
    set_counts(&mut sb, old, blocks, groups).ok_or(refused(
        "at this size the groups would have 2^32 or more inodes",
    ))?;
    if old.features.has_sparse_super2() && groups != old.groups {
        return Err(refused(
            "sparse_super2 has its backup in the last group: resize it unmounted",
        ));
    }
    let descriptors = groups.div_ceil(old.descs_per_block());
    if !old.features.has_meta_bg() {
        let more = descriptors - old.gdt_block_count().min(descriptors);
        let left = u32::from(old.reserved_gdt_blocks).checked_sub(more);
        let left = left.filter(|_| more == 0 || old.features.has_resize_inode());
        // No more than before.
        let left = left.ok_or(refused(
            "more descriptors than blocks were reserved for: resize it unmounted",
        ))?;
        sb.reserved_gdt_blocks.set(left as u16);
    }
    let made = Geometry::new(&sb)?;
    // Temporary features stay as known before.
    Ok(Geometry {
        blocks_count: made.blocks_count,
        reserved_blocks: made.reserved_blocks,
        groups: made.groups,
        inodes_count: made.inodes_count,
        reserved_gdt_blocks: made.reserved_gdt_blocks,
        ..old.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Layout, LayoutParams};

    fn layout(features: &str, size: u64) -> Layout {
        let mut params = LayoutParams::for_size(size);
        params.features.apply(features).unwrap();
        Layout::new(&params).unwrap()
    }

    #[test]
    fn descriptors_take_what_was_reserved_for_them() {
        let old = layout("", 1 << 30);
        let grow = |blocks| Growth::new(&old.superblock, &old.geometry, blocks, true);
        let reserved = old.geometry.reserved_gdt_blocks;
        // 64 descriptors fill a block.
        let growth = grow((65 * 32768) as u64).unwrap();
        assert_eq!(growth.new.reserved_gdt_blocks, reserved - 1);
        assert!(growth.changes_reserved());
        assert_eq!(
            growth.old.group_base_meta_blocks(GroupNr(1)),
            growth.new.group_base_meta_blocks(GroupNr(1))
        );
        let far = u64::from(reserved) + 2;
        assert!(matches!(
            grow(far * 64 * 32768),
            Err(GrowthError::Refused(_))
        ));
        assert!(matches!(grow(1 << 18), Err(GrowthError::Refused(_))));
        // A last group that is too short is left out.
        let growth = grow((9 * 32768 + 20) as u64).unwrap();
        assert_eq!(growth.new.blocks_count, 9 * 32768);
        let none = layout("^resize_inode", 1 << 30);
        let more = Growth::new(&none.superblock, &none.geometry, 65 * 32768, true);
        assert!(matches!(more, Err(GrowthError::Refused(_))));
    }

    #[test]
    fn a_short_last_group_becomes_longer_first() {
        let old = layout("", (1 << 30) + (100 << 20));
        let blocks = old.geometry.blocks_count;
        let growth = Growth::new(&old.superblock, &old.geometry, blocks + 1000, false).unwrap();
        assert_eq!((growth.groups.len(), growth.longer()), (0, 1000));
        assert_eq!(growth.free(), (1000, 0));
        assert!(growth.beyond().unwrap().is_empty());
    }

    #[test]
    fn meta_groups_have_their_own_descriptors() {
        let old = layout("meta_bg,^resize_inode", 8 << 30);
        assert_eq!(old.geometry.groups, 64);
        let growth = Growth::new(&old.superblock, &old.geometry, 130 * 32768, true).unwrap();
        let blocks = growth.beyond().unwrap();
        for group in [64, 128].map(GroupNr) {
            let (block, _) = growth.new.desc_location(group);
            let (_, bytes) = blocks.iter().find(|(b, _)| *b == block).unwrap();
            let desc = GroupDesc::decode(&bytes[..64], &growth.new, group).unwrap();
            assert_eq!(desc.free_inodes, growth.new.inodes_per_group);
        }
    }
}
