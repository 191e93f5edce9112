//! The shape of a volume: the places of all structures, derived from the superblock. Derived once, validated once;
//! later arithmetic relies on the rules checked in [`Geometry::new`].

use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};
use crate::features::Features;
use crate::fold::Comparison;
use crate::superblock::{FLAG_UNSIGNED_HASH, RawSuperblock};
use crate::types::{BlockNr, GroupNr, InodeNr};

/// The shape of a volume.
///
/// The fields are public so that tests and formatters can make variants. A value made by [`Geometry::new`] keeps
/// these rules. The block size is 1 KiB to 64 KiB. Groups, blocks and inodes per group are above zero and fit one
/// bitmap block. The inode size is a power of two from 128 to the block size.
/// `groups * inodes_per_group == inodes_count`.
///
/// ```
/// use ext4_format::{GroupNr, InodeNr, geometry::Geometry, layout::{Layout, LayoutParams}};
/// let g = Layout::new(&LayoutParams::for_size(1 << 30)).unwrap().geometry;
/// assert_eq!((g.block_size, g.groups), (4096, 8));
/// assert_eq!(g.group_of_inode(InodeNr::ROOT), Some((GroupNr(0), 1)));
/// assert!(g.has_super(GroupNr(3)) && !g.has_super(GroupNr(2)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // those without a comment are named in the superblock
pub struct Geometry {
    /// Bytes of a block.
    pub block_size: u32,
    /// First block of group 0: 1 with blocks of 1 KiB, else 0.
    pub first_data_block: u64,
    pub blocks_count: u64,
    pub reserved_blocks: u64,
    /// Blocks per cluster; 1 without `bigalloc`. Bits of block bitmaps stand for clusters.
    pub cluster_ratio: u32,
    /// Count of groups.
    pub groups: u32,
    pub blocks_per_group: u32,
    pub inodes_per_group: u32,
    pub inodes_count: u32,
    /// Bytes of an inode record.
    pub inode_size: u16,
    /// First inode that is not reserved.
    pub first_ino: u32,
    /// Bytes of a group descriptor.
    pub desc_size: u16,
    pub reserved_gdt_blocks: u16,
    /// Binary logarithm of the groups in a flex group; 0 without `flex_bg`.
    pub log_groups_per_flex: u8,
    pub features: Features,
    /// Seed of all metadata checksums but the superblock's.
    pub csum_seed: u32,
    pub uuid: [u8; 16],
    pub hash_seed: [u32; 4],
    pub def_hash_version: u8,
    /// Directory hashes take the bytes of names as unsigned.
    pub unsigned_hash: bool,
    /// How directories that fold case compare names; [`Geometry::comparison`] is that of a particular directory.
    pub folding: Comparison,
    /// Bytes beyond 128 that a new inode's fixed part takes; 0 with 128-byte inodes.
    pub want_extra_isize: u16,
    pub first_meta_bg: u32,
    pub backup_bgs: [u32; 2],
    pub journal_ino: u32,
    pub last_orphan: u32,
    pub orphan_file_ino: u32,
    pub default_mount_opts: u32,
}

/// Fails with the violated rule `what` of the superblock.
const fn rule(what: &'static str) -> FormatError {
    FormatError::corrupt(what, Where::Superblock)
}

fn ensure(ok: bool, what: &'static str) -> Result<()> {
    if ok { Ok(()) } else { Err(rule(what)) }
}

/// The superblock's fields on blocks and groups.
struct Blocks {
    first: u64,
    cluster_ratio: u32,
    groups: u32,
    per_group: u32,
}

impl Blocks {
    fn of(sb: &RawSuperblock, features: Features, block_size: u32) -> Result<Self> {
        let bits = block_size * 8; // at most 2^19
        let cluster_ratio = if features.has_bigalloc() {
            let (log, log_cluster) = (sb.log_block_size.get(), sb.log_cluster_size.get());
            ensure(
                log_cluster >= log && log_cluster - log <= 16,
                "cluster size from one block to 2^16 blocks",
            )?;
            1u32 << (log_cluster - log)
        } else {
            1
        };

        let blocks_count = sb.blocks_count();
        let first = u64::from(sb.first_data_block.get());
        let expected_first = u64::from(block_size == 1024 && !features.has_bigalloc());
        ensure(first == expected_first, "first data block")?;
        ensure(blocks_count > first, "count of blocks")?;
        ensure(sb.reserved_blocks() <= blocks_count, "reserved blocks")?;

        let per_group = sb.blocks_per_group.get();
        ensure(
            per_group > 0
                && per_group.is_multiple_of(cluster_ratio)
                && per_group / cluster_ratio <= bits,
            "blocks per group that one bitmap block can count",
        )?;
        ensure(
            u64::from(sb.clusters_per_group.get()) * u64::from(cluster_ratio)
                == u64::from(per_group),
            "clusters per group as many as its blocks make",
        )?;
        let groups = (blocks_count - first).div_ceil(u64::from(per_group));
        let groups =
            u32::try_from(groups).map_err(|_| rule("count of groups that fits 32 bits"))?;
        Ok(Self {
            first,
            cluster_ratio,
            groups,
            per_group,
        })
    }
}

/// The superblock's fields on inodes.
struct Inodes {
    size: u16,
    first: u32,
    per_group: u32,
    want_extra_isize: u16,
}

impl Inodes {
    fn of(sb: &RawSuperblock, features: Features, block_size: u32, groups: u32) -> Result<Self> {
        let bits = block_size * 8; // at most 2^19
        let (inode_size, first_ino) = if sb.rev_level.get() == 0 {
            (128, 11)
        } else {
            (sb.inode_size.get(), sb.first_ino.get())
        };
        ensure(
            inode_size.is_power_of_two()
                && inode_size >= 128
                && u32::from(inode_size) <= block_size,
            "inode size a power of two from 128 to the block size",
        )?;
        let inodes_per_group = sb.inodes_per_group.get();
        ensure(
            inodes_per_group > 0 && inodes_per_group <= bits,
            "inodes per group that one bitmap block can count",
        )?;
        ensure(
            inodes_per_group >= block_size / u32::from(inode_size),
            "inodes per group that fill a block",
        )?;
        let inodes_count = sb.inodes_count.get();
        ensure(
            u64::from(groups) * u64::from(inodes_per_group) == u64::from(inodes_count),
            "count of inodes equal to groups times inodes per group",
        )?;
        ensure(
            first_ino >= 11 && first_ino <= inodes_count,
            "first inode that is not reserved",
        )?;
        let room = inode_size - 128; // inode_size >= 128 is checked above
        let want_extra_isize = if room == 0 {
            0
        } else {
            let want = sb.want_extra_isize.get().max(sb.min_extra_isize.get());
            // A nonsensical wish gets the usual 32 bytes, as the kernel does.
            if features.has_extra_isize() && want <= room && want.is_multiple_of(4) && want >= 4 {
                want
            } else {
                32
            }
        };
        Ok(Self {
            size: inode_size,
            first: first_ino,
            per_group: inodes_per_group,
            want_extra_isize,
        })
    }
}

/// The superblock's fields on group descriptors.
struct Descriptors {
    size: u16,
    reserved_blocks: u16,
    log_groups_per_flex: u8,
}

impl Descriptors {
    fn of(sb: &RawSuperblock, features: Features, block_size: u32) -> Result<Self> {
        let size = if features.has_64bit() {
            let size = sb.desc_size.get();
            ensure(
                size.is_power_of_two() && (64..=1024).contains(&size),
                "group descriptor size a power of two from 64 to 1024",
            )?;
            size
        } else {
            32
        };
        // Counted at the groups' starts even without resize_inode, as others do.
        let reserved_blocks = sb.reserved_gdt_blocks.get();
        ensure(
            u32::from(reserved_blocks) <= block_size / 4,
            "reserved descriptor blocks that one indirect block can map",
        )?;
        let log_groups_per_flex = if features.has_flex_bg() {
            ensure(sb.log_groups_per_flex <= 31, "groups per flex group")?;
            sb.log_groups_per_flex
        } else {
            0
        };
        Ok(Self {
            size,
            reserved_blocks,
            log_groups_per_flex,
        })
    }
}

impl Geometry {
    /// Derives and validates the geometry. Whether the features are supported is the caller's
    /// question; whether the device is large enough too.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] with the rule that the superblock breaks.
    pub fn new(sb: &RawSuperblock) -> Result<Self> {
        let features = Features::of(sb);
        let too_large = || FormatError::corrupt("block size of 64 KiB or less", Where::Superblock);
        let block_size = sb.block_size().ok_or_else(too_large)?;
        let blocks = Blocks::of(sb, features, block_size)?;
        let inodes = Inodes::of(sb, features, block_size, blocks.groups)?;
        let descriptors = Descriptors::of(sb, features, block_size)?;
        let csum_seed = if features.has_csum_seed() {
            sb.checksum_seed.get()
        } else {
            crc32c(!0, &sb.uuid)
        };
        let geometry = Self {
            block_size,
            first_data_block: blocks.first,
            blocks_count: sb.blocks_count(),
            reserved_blocks: sb.reserved_blocks(),
            cluster_ratio: blocks.cluster_ratio,
            groups: blocks.groups,
            blocks_per_group: blocks.per_group,
            inodes_per_group: inodes.per_group,
            inodes_count: sb.inodes_count.get(),
            inode_size: inodes.size,
            first_ino: inodes.first,
            desc_size: descriptors.size,
            reserved_gdt_blocks: descriptors.reserved_blocks,
            log_groups_per_flex: descriptors.log_groups_per_flex,
            features,
            csum_seed,
            uuid: sb.uuid,
            hash_seed: sb.hash_seed.map(|w| w.get()),
            def_hash_version: sb.def_hash_version,
            unsigned_hash: sb.flags.get() & FLAG_UNSIGNED_HASH != 0,
            folding: Comparison::of(sb),
            want_extra_isize: inodes.want_extra_isize,
            first_meta_bg: sb.first_meta_bg.get(),
            backup_bgs: sb.backup_bgs.map(|g| g.get()),
            journal_ino: sb.journal_inum.get(),
            last_orphan: sb.last_orphan.get(),
            orphan_file_ino: sb.orphan_file_inum.get(),
            default_mount_opts: sb.default_mount_opts.get(),
        };
        geometry.check_descriptors()?;
        Ok(geometry)
    }

    /// Returns the comparison of names in a directory with these flags.
    #[inline]
    pub const fn comparison(&self, directory: u32) -> Comparison {
        self.folding.within(directory)
    }

    /// Checks that the group descriptors are inside the volume, and those of the first group inside that group.
    fn check_descriptors(&self) -> Result<()> {
        if self.features.has_meta_bg() {
            ensure(
                self.first_meta_bg <= self.gdt_block_count(),
                "first meta group",
            )?;
        }
        let base = u64::from(self.group_base_meta_blocks(GroupNr(0)));
        ensure(
            base < u64::from(self.blocks_per_group)
                && base <= self.blocks_count - self.first_data_block,
            "group descriptors that fit the first group",
        )?;
        // Descriptors in meta groups are at the starts of groups, and every group starts before the end. A superblock
        // backup in the last group may move a descriptor block past the end.
        let (last_desc, _) = self.desc_location(GroupNr(self.groups - 1));
        ensure(
            last_desc.0 < self.blocks_count,
            "group descriptors inside the volume",
        )
    }

    /// Returns the group of a block, and the block's bit in the group's bitmap (its cluster, with `bigalloc`).
    #[inline]
    pub fn group_of_block(&self, block: BlockNr) -> Option<(GroupNr, u32)> {
        if block.0 >= self.blocks_count {
            return None;
        }
        let rel = block.0.checked_sub(self.first_data_block)?;
        let bpg = u64::from(self.blocks_per_group);
        // Below the count of blocks, so the quotient is a group; the remainder is below bpg.
        let group = (rel / bpg) as u32;
        Some((GroupNr(group), (rel % bpg) as u32 / self.cluster_ratio))
    }

    /// Returns the cluster of a block, counted from the first group's start; without `bigalloc` a cluster is a block.
    #[inline]
    pub fn cluster_of(&self, block: BlockNr) -> u64 {
        block.0.saturating_sub(self.first_data_block) / u64::from(self.cluster_ratio)
    }

    /// Returns the clusters of `len` blocks from `start` on, counted as [`cluster_of`](Self::cluster_of) does.
    #[inline]
    pub fn clusters_of(&self, start: BlockNr, len: u64) -> core::ops::Range<u64> {
        let first = self.cluster_of(start);
        match len.checked_sub(1) {
            Some(rest) => first..self.cluster_of(BlockNr(start.0.saturating_add(rest))) + 1,
            None => first..first,
        }
    }

    /// Returns the first block of a cluster, as counted by [`cluster_of`](Self::cluster_of).
    #[inline]
    pub const fn cluster_start(&self, cluster: u64) -> BlockNr {
        let blocks = cluster.saturating_mul(self.cluster_ratio as u64);
        BlockNr(self.first_data_block.saturating_add(blocks))
    }

    /// Returns the block of the primary superblock, which is at byte 1024 of the volume.
    pub const fn superblock_place(&self) -> BlockNr {
        BlockNr((self.block_size == 1024) as u64)
    }

    /// Returns the first block of a group.
    #[inline]
    pub fn group_first_block(&self, group: GroupNr) -> BlockNr {
        BlockNr(self.first_data_block + u64::from(group.0) * u64::from(self.blocks_per_group))
    }

    /// Returns the number of blocks in a group: `blocks_per_group` except in the last group; 0 beyond it.
    pub fn blocks_in_group(&self, group: GroupNr) -> u32 {
        let left = self
            .blocks_count
            .saturating_sub(self.group_first_block(group).0);
        left.min(u64::from(self.blocks_per_group)) as u32
    }

    /// Bits in use in the block bitmap of a group: its blocks, or clusters with `bigalloc`.
    pub fn bits_in_group(&self, group: GroupNr) -> u32 {
        self.blocks_in_group(group).div_ceil(self.cluster_ratio)
    }

    /// Returns the group of an inode, and its index there.
    #[inline]
    pub fn group_of_inode(&self, ino: InodeNr) -> Option<(GroupNr, u32)> {
        if ino.0 == 0 || ino.0 > self.inodes_count {
            return None;
        }
        let rel = ino.0 - 1;
        Some((
            GroupNr(rel / self.inodes_per_group),
            rel % self.inodes_per_group,
        ))
    }

    /// Returns the number of the inode at an index of a group. Saturates outside the volume.
    #[inline]
    pub fn inode_nr(&self, group: GroupNr, index: u32) -> InodeNr {
        InodeNr(
            group
                .0
                .saturating_mul(self.inodes_per_group)
                .saturating_add(index)
                .saturating_add(1),
        )
    }

    /// Returns whether a group starts with a superblock (the primary or a backup).
    pub fn has_super(&self, group: GroupNr) -> bool {
        let g = group.0;
        if g == 0 {
            return true;
        }
        if self.features.has_sparse_super2() {
            return self.backup_bgs.contains(&g);
        }
        if g == 1 || !self.features.has_sparse_super() {
            return true;
        }
        g % 2 == 1 && [3, 5, 7].into_iter().any(|base| is_power_of(g, base))
    }

    /// Returns the number of group descriptors in a block.
    #[inline]
    pub fn descs_per_block(&self) -> u32 {
        self.block_size / u32::from(self.desc_size)
    }

    /// Returns the number of blocks that the descriptors of all groups fill.
    pub fn gdt_block_count(&self) -> u32 {
        self.groups.div_ceil(self.descs_per_block())
    }

    /// Returns the block and byte offset of the primary descriptor of a group.
    pub fn desc_location(&self, group: GroupNr) -> (BlockNr, u32) {
        let per_block = self.descs_per_block();
        let index = group.0 / per_block;
        let offset = group.0 % per_block * u32::from(self.desc_size);
        (self.gdt_block(index), offset)
    }

    /// Returns the place of the primary copy of the `index`th block of group descriptors.
    pub fn gdt_block(&self, index: u32) -> BlockNr {
        let super_block = self.superblock_place().0;
        if !self.features.has_meta_bg() || index < self.first_meta_bg {
            return BlockNr(super_block + 1 + u64::from(index));
        }
        let first = u64::from(index) * u64::from(self.descs_per_block());
        if first == 0 {
            return BlockNr(super_block + 1);
        }
        // At most one past the last group's number rounded down, which fits.
        let group = GroupNr(first.min(u64::from(u32::MAX)) as u32);
        BlockNr(self.group_first_block(group).0 + u64::from(self.has_super(group)))
    }

    /// Returns the number of blocks of descriptors at a group's start, without those reserved for growth.
    pub fn gdt_blocks_in_group(&self, group: GroupNr) -> u32 {
        let per_block = self.descs_per_block();
        if !self.features.has_meta_bg() {
            return if self.has_super(group) {
                self.gdt_block_count()
            } else {
                0
            };
        }
        if group.0 / per_block < self.first_meta_bg {
            return if self.has_super(group) {
                self.first_meta_bg
            } else {
                0
            };
        }
        // First, second and last group of a meta group hold the one block of its descriptors.
        let place = group.0 % per_block;
        u32::from(place == 0 || place == 1 || place == per_block - 1)
    }

    /// Returns the number of blocks of metadata at a group's start: superblock, descriptors, descriptor blocks
    /// reserved for growth. Bitmaps and inode table are not counted. With `bigalloc` and blocks of 1 KiB, the first
    /// group has one more block, which comes before the superblock.
    pub fn group_base_meta_blocks(&self, group: GroupNr) -> u32 {
        let has_super = self.has_super(group);
        let before = group.0 == 0 && self.first_data_block < self.superblock_place().0;
        let old =
            !self.features.has_meta_bg() || group.0 / self.descs_per_block() < self.first_meta_bg;
        let reserved = if has_super && old {
            u32::from(self.reserved_gdt_blocks)
        } else {
            0
        };
        (u32::from(before) + u32::from(has_super))
            .saturating_add(self.gdt_blocks_in_group(group))
            .saturating_add(reserved)
    }

    /// Returns whether a physical block has the same offset in its cluster as its logical block has in a logical
    /// cluster. Always true without `bigalloc`.
    pub fn is_aligned(&self, logical: u32, physical: BlockNr) -> bool {
        let ratio = u64::from(self.cluster_ratio);
        let within = physical.0.saturating_sub(self.first_data_block) % ratio;
        within == u64::from(logical) % ratio
    }

    /// Returns the number of inodes at the beginning of a group's table that no file may have. Groups of few inodes
    /// share the reserved numbers among them, so groups behind the first one can have some, too.
    pub fn reserved_inodes(&self, group: GroupNr) -> u32 {
        let before = group.0.saturating_mul(self.inodes_per_group);
        let reserved = self.first_ino.saturating_sub(1);
        reserved.saturating_sub(before).min(self.inodes_per_group)
    }

    /// Returns the block of the inode at an index of a group whose table begins at `table`, and its offset in the
    /// block.
    #[inline]
    pub fn inode_place(&self, table: BlockNr, index: u32) -> (BlockNr, usize) {
        let per_block = self.inodes_per_block();
        let offset = (index % per_block) as usize * usize::from(self.inode_size);
        (BlockNr(table.0 + u64::from(index / per_block)), offset)
    }

    /// Returns the number of blocks of a group's inode table.
    pub fn itable_blocks(&self) -> u32 {
        self.inodes_per_group.div_ceil(self.inodes_per_block())
    }

    /// Returns the number of inodes in a block.
    #[inline]
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size / u32::from(self.inode_size)
    }

    /// Returns the number of 512-byte sectors in a cluster; without `bigalloc` a cluster is a block.
    #[inline]
    pub fn sectors_per_cluster(&self) -> u64 {
        u64::from(self.sectors_per_block()) * u64::from(self.cluster_ratio)
    }

    /// Returns the number of 512-byte sectors in a block.
    #[inline]
    pub fn sectors_per_block(&self) -> u32 {
        self.block_size / 512
    }

    /// Returns the flex group of a group.
    #[inline]
    pub fn flex_of(&self, group: GroupNr) -> u32 {
        group.0 >> self.log_groups_per_flex
    }

    /// Returns whether `len` blocks from `start` are inside the volume and touch no superblock and no group
    /// descriptor. (Bitmaps and inode tables are known to the descriptors only.)
    pub fn is_valid_data_range(&self, start: BlockNr, len: u64) -> bool {
        let Some(end) = start.0.checked_add(len) else {
            return false;
        };
        if len == 0 || end > self.blocks_count {
            return false;
        }
        let (Some((first, _)), Some((last, _))) = (
            self.group_of_block(start),
            self.group_of_block(BlockNr(end - 1)),
        ) else {
            return false;
        };
        (first.0..=last.0).map(GroupNr).all(|g| {
            let at = self.group_first_block(g).0;
            // A range that reaches into a group from before covers the group's first block.
            let meta_end = at + u64::from(self.group_base_meta_blocks(g));
            start.0 >= meta_end || end <= at || meta_end == at
        })
    }

    /// Returns the largest size in bytes that a mapping can address: by the width of logical block numbers with
    /// extents, by three levels of indirection without.
    pub fn max_addressed_size(&self, extents: bool) -> u64 {
        let bs = u64::from(self.block_size);
        let blocks = if extents {
            u64::from(u32::MAX)
        } else {
            let p = bs / 4;
            (12 + p + p * p + p * p * p).min(u64::from(u32::MAX)) // p is at most 2^14
        };
        blocks * bs
    }

    /// Returns whether the superblock may name this length of the fields behind the first 128 bytes of inodes. Linux does not mount
    /// a volume with a length beyond the inode.
    pub fn is_extra_isize(&self, len: u16) -> bool {
        let room = self.inode_size.saturating_sub(128);
        len == 0 || room == 0 || (4..=room).contains(&len) && len.is_multiple_of(4)
    }

    /// Returns the largest size in bytes to which a file without holes may grow. The limit is that of its mapping. Without
    /// `huge_file` the sectors of the file, of its mapping and of an attribute block must also fit 32 bits.
    pub fn max_file_size(&self, extents: bool) -> u64 {
        let addressed = self.max_addressed_size(extents);
        if self.features.has_huge_file() {
            return addressed;
        }
        let bs = u64::from(self.block_size);
        let counted = u64::from(u32::MAX) / u64::from(self.sectors_per_block());
        let mapping = if extents {
            // An extent for each block, in nodes that are half full: as many as this on all levels together.
            let half = (bs / 12 / 2).saturating_sub(1).max(2);
            counted.div_ceil(half - 1) + 5
        } else {
            let p = bs / 4;
            let singly = counted.div_ceil(p);
            singly + singly.div_ceil(p) + 3
        };
        addressed.min(counted.saturating_sub(mapping + 1) * bs)
    }
}

/// Returns whether `n` is a power of `base`, which is above 1.
fn is_power_of(mut n: u32, base: u32) -> bool {
    while n > 1 && n.is_multiple_of(base) {
        n /= base;
    }
    n == 1
}

#[cfg(test)]
mod tests;
