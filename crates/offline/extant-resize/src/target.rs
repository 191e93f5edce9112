//! The new shape of the volume.

use crate::error::Error;
use crate::options::ResizeOptions;
use ext4_format::GroupNr;
use ext4_format::features::{Compat, Features, Incompat};
use ext4_format::geometry::Geometry;
use ext4_format::growth::{LAST_GROUP_MIN, set_counts};
use ext4_format::superblock::RawSuperblock;

/// Bytes behind the first 128 of an inode that have a meaning, as new volumes have them.
const EXTRA_ISIZE: u16 = 32;

/// A superblock and its geometry.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) sb: RawSuperblock,
    pub(crate) geo: Geometry,
}

/// Changes other than the count of blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Conversion {
    /// Whether the new volume has `64bit`.
    pub(crate) wide: Option<bool>,
    /// Bytes of an inode.
    pub(crate) inode_size: Option<u16>,
}

impl Conversion {
    /// Returns the changes to a volume of this shape.
    pub(crate) fn of(options: &ResizeOptions, geo: &Geometry) -> Result<Self, Error> {
        let wide = options.wide;
        let inode_size = options.inode_size.filter(|&size| size != geo.inode_size);
        if let Some(size) = inode_size {
            let is_size = size.is_power_of_two() && u32::from(size) <= geo.block_size;
            if !is_size || size < geo.inode_size {
                let (old, most) = (geo.inode_size, geo.block_size);
                return Err(Error::InodeSize { size, old, most });
            }
        }
        Ok(Self {
            wide: wide.filter(|&wide| wide != geo.features.has_64bit()),
            inode_size,
        })
    }

    fn enter(self, sb: &mut RawSuperblock, geo: &Geometry) {
        if let Some(wide) = self.wide {
            let mut incompat = Incompat::from_bits_retain(sb.feature_incompat.get());
            incompat.set(Incompat::SIXTY_FOUR_BIT, wide);
            sb.feature_incompat.set(incompat.bits());
            sb.desc_size.set(if wide { 64 } else { 0 });
            // The high halves mean something from now on, or nothing.
            sb.blocks_count_hi.set(0);
            sb.r_blocks_count_hi.set(0);
            sb.free_blocks_count_hi.set(0);
        }
        if sb.rev_level.get() == 0 && (self.wide.is_some() || self.inode_size.is_some()) {
            // The original revision has no features, and does not name these numbers.
            sb.rev_level.set(1);
            sb.first_ino.set(geo.first_ino);
            sb.inode_size.set(geo.inode_size);
        }
        if let Some(size) = self.inode_size {
            sb.inode_size.set(size);
            if sb.want_extra_isize.get() == 0 {
                sb.min_extra_isize.set(EXTRA_ISIZE);
                sb.want_extra_isize.set(EXTRA_ISIZE);
            }
        }
    }
}

impl Shape {
    /// Returns the shape with `blocks` blocks, or somewhat fewer if the last group would be too short.
    pub(crate) fn with(&self, blocks: u64, conversion: Conversion) -> Result<Self, Error> {
        let too_small = || Error::TooSmall(blocks * u64::from(self.geo.block_size));
        let mut sb = self.sb;
        let mut blocks = blocks;
        conversion.enter(&mut sb, &self.geo);
        let has_wide = sb.feature_incompat.get() & Incompat::SIXTY_FOUR_BIT.bits() != 0;
        if !has_wide && blocks > u64::from(u32::MAX) {
            return Err(self.too_large(
                blocks,
                has_wide,
                "a volume without 64bit has fewer than 2^32 blocks (-b sets 64bit)",
            ));
        }
        if blocks > u64::from(u32::MAX) && self.geo.features.has_resize_inode() {
            // The map of reserved descriptors has 32 bits for a block.
            Self::to_meta_bg(&mut sb);
        }
        if blocks != self.geo.blocks_count {
            blocks -= blocks % u64::from(self.geo.cluster_ratio);
        }
        let per = u64::from(self.geo.blocks_per_group);
        loop {
            let space = blocks
                .checked_sub(self.geo.first_data_block)
                .filter(|&n| n > 0);
            let space = space.ok_or_else(too_small)?;
            let groups = u32::try_from(space.div_ceil(per)).unwrap_or(u32::MAX);
            if groups > self.most_groups() {
                let each = self.geo.inodes_per_group;
                let why = format!("fewer than 2^32 inodes fit, and each group has {each}");
                return Err(self.too_large(blocks, has_wide, &why));
            }
            let geo = self.sized(&mut sb, blocks, groups)?;
            let rest = space % per;
            let last = GroupNr(groups - 1);
            let need =
                2 + u64::from(geo.itable_blocks()) + u64::from(geo.group_base_meta_blocks(last));
            let short = rest != 0 && rest < need + LAST_GROUP_MIN;
            if !short || blocks == self.geo.blocks_count {
                return Ok(Self { sb, geo });
            }
            if groups == 1 {
                return Err(too_small());
            }
            blocks -= rest;
        }
    }

    /// Switches to `meta_bg`: further descriptors are in the groups that they describe, existing ones stay, and no
    /// blocks are reserved for more.
    fn to_meta_bg(sb: &mut RawSuperblock) {
        let mut features = Features::of(sb);
        features.compat.remove(Compat::RESIZE_INODE);
        features.incompat.insert(Incompat::META_BG);
        sb.feature_compat.set(features.compat.bits());
        sb.feature_incompat.set(features.incompat.bits());
        sb.reserved_gdt_blocks.set(0);
    }

    /// Returns the number of groups whose inodes have numbers of 32 bits.
    const fn most_groups(&self) -> u32 {
        match u32::MAX.checked_div(self.geo.inodes_per_group) {
            Some(groups) => groups,
            None => u32::MAX,
        }
    }

    /// Returns the error of a volume of `blocks` blocks, which breaks a limit of the format.
    fn too_large(&self, blocks: u64, has_wide: bool, why: &str) -> Error {
        let Geometry {
            block_size,
            blocks_per_group,
            first_data_block,
            ..
        } = self.geo;
        let grouped = u64::from(self.most_groups()) * u64::from(blocks_per_group);
        let mut most = grouped.saturating_add(first_data_block);
        if !has_wide {
            most = most.min(u32::MAX.into());
        }
        let bytes = |blocks: u64| blocks.saturating_mul(block_size.into());
        Error::TooLarge {
            size: bytes(blocks),
            most: bytes(most),
            why: why.into(),
        }
    }

    fn sized(&self, sb: &mut RawSuperblock, blocks: u64, groups: u32) -> Result<Geometry, Error> {
        let old = &self.geo;
        let wide = sb.feature_incompat.get() & Incompat::SIXTY_FOUR_BIT.bits() != 0;
        set_counts(sb, old, blocks, groups)
            .ok_or_else(|| self.too_large(blocks, wide, "a volume has fewer than 2^32 inodes"))?;
        let size = if wide {
            u32::from(sb.desc_size.get().max(64))
        } else {
            32
        };
        let descriptors = groups.div_ceil((old.block_size / size).max(1));
        // A group with a copy of all descriptors must still have room for its structures.
        let copies = 1 + u64::from(descriptors);
        if groups > old.groups && copies * 4 > u64::from(old.blocks_per_group) * 3 {
            Self::to_meta_bg(sb);
        }
        if Features::of(sb).has_meta_bg() {
            let first = if old.features.has_meta_bg() {
                self.sb.first_meta_bg.get()
            } else {
                old.gdt_block_count()
            };
            sb.first_meta_bg.set(first.min(descriptors));
        } else if old.reserved_gdt_blocks > 0 || old.features.has_resize_inode() {
            // The blocks that the descriptors do not need stay reserved, so that nothing has to move.
            let all = old.gdt_block_count() + u32::from(old.reserved_gdt_blocks);
            let reserved = all.saturating_sub(descriptors).min(old.block_size / 4);
            sb.reserved_gdt_blocks.set(reserved as u16);
        }
        if old.features.has_sparse_super2() && groups != old.groups {
            let [first, last] = &mut sb.backup_bgs;
            if first.get() >= groups {
                first.set(u32::from(groups > 1));
            }
            if last.get() != 0 {
                last.set(if groups > 2 { groups - 1 } else { 0 });
            }
            if old.groups <= 2 && groups > 2 && first.get() != 0 {
                last.set(groups - 1);
            }
        }
        Geometry::new(sb).map_err(|e| {
            if blocks < old.blocks_count {
                Error::TooSmall(blocks * u64::from(old.block_size))
            } else {
                Error::Refused(format!("to that size ({e}): it"))
            }
        })
    }

    /// Returns the number of blocks of the groups' own structures.
    fn fixed(&self) -> u64 {
        let geo = &self.geo;
        let own = 2 + u64::from(geo.itable_blocks());
        (0..geo.groups)
            .map(|group| own + u64::from(geo.group_base_meta_blocks(GroupNr(group))))
            .sum()
    }

    /// Returns the smallest shape for these numbers of clusters of files and of inodes. With `bigalloc` it may be too
    /// small, because structures do not fill their clusters.
    pub(crate) fn smallest(
        &self,
        files: u64,
        inodes: u32,
        conversion: Conversion,
    ) -> Result<Self, Error> {
        let per = u64::from(self.geo.blocks_per_group);
        let first = self.geo.first_data_block;
        let ratio = u64::from(self.geo.cluster_ratio);
        let files = files.saturating_mul(ratio);
        let least = inodes.div_ceil(self.geo.inodes_per_group).max(1);
        for groups in least..=self.geo.groups {
            let end = (first + per * u64::from(groups)).min(self.geo.blocks_count);
            let Ok(whole) = self.with(end, conversion) else {
                continue;
            };
            let room = (whole.geo.blocks_count - first).saturating_sub(whole.fixed());
            if room < files || whole.geo.groups < least {
                continue;
            }
            let blocks = whole.geo.blocks_count - (room - files) / ratio * ratio;
            // A last group has a least length; a smaller rest does without it.
            let floor = first + per * u64::from(whole.geo.groups - 1);
            let last = GroupNr(whole.geo.groups - 1);
            let need = 2
                + u64::from(whole.geo.itable_blocks())
                + u64::from(whole.geo.group_base_meta_blocks(last))
                + LAST_GROUP_MIN;
            let need = need.next_multiple_of(ratio);
            let blocks = blocks.max(floor + need).min(whole.geo.blocks_count);
            return self.with(blocks, conversion);
        }
        self.with(self.geo.blocks_count, conversion)
    }
}
