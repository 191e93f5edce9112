//! The layout of a new file system, as mke2fs 1.47 would make it: a pure calculation from
//! parameters to a superblock, a geometry and the places of all fixed metadata.
//!
//! The values depend on each other: the reserved descriptors on the groups, and the groups on the blocks. The blocks
//! shrink if the last group is too small for its metadata. So the sizing repeats until it is consistent.

mod group_places;
mod params;

pub use params::{Inodes, LayoutParams, Usage, default_journal_blocks};

use crate::checksum::crc32c;
use crate::error::{FormatError, Result};
use crate::features::{Compat, Incompat, RoCompat};
use crate::geometry::Geometry;
use crate::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use crate::superblock::{
    DEFM_ACL, DEFM_XATTR_USER, FLAG_SIGNED_HASH, MAGIC, RawSuperblock, STATE_VALID, split_time,
};
use crate::types::{BlockNr, GroupNr};

/// First inode that is not reserved, in a new file system.
const FIRST_INO: u32 = 11;
/// Least number of usable blocks in a last group beyond its own metadata.
const LAST_GROUP_MIN: u64 = 50;
/// Short descriptors count a group's free blocks in 16 bits.
const MAX_BLOCKS_PER_GROUP: u32 = 65_528;
/// Version of the directory hash: half MD4.
const HASH_HALF_MD4: u8 = 1;

/// The layout of a new file system in which only the reserved inodes are allocated.
///
/// ```
/// use ext4_format::layout::{Layout, LayoutParams};
/// let l = Layout::new(&LayoutParams::for_size(1 << 30)).unwrap();
/// assert_eq!(l.geometry.inodes_count, 65_536);
/// assert_eq!(l.groups[0].block_bitmap.0, 129);
/// assert_eq!(l.journal_blocks, 8192);
/// ```
#[derive(Clone, Debug)]
pub struct Layout {
    /// The superblock, with the free counts of this state, not yet a checksum. Journal, orphan
    /// file and the overhead of the journal are the caller's to enter.
    pub superblock: RawSuperblock,
    /// The geometry of that superblock.
    pub geometry: Geometry,
    /// Descriptors: places, free counts with the fixed metadata and the reserved inodes taken,
    /// flags of uninitialized groups. Without checksums of bitmaps.
    pub groups: Vec<GroupDesc>,
    /// Fixed metadata: superblocks, descriptors, reserved descriptors, bitmaps, inode tables.
    /// Start and length; sorted, disjoint.
    pub metadata: Vec<(BlockNr, u64)>,
    /// Blocks of metadata, with those before the first group; without the journal.
    pub overhead: u64,
    /// Blocks of the new journal, including those for fast commits; 0 for none.
    pub journal_blocks: u32,
    /// Blocks at the end of the journal for fast commits.
    pub fast_commit_blocks: u32,
    /// Requested blocks of the orphan file.
    pub orphan_file_blocks: Option<u32>,
    /// Requested place of the journal.
    journal_goal: Option<BlockNr>,
}

/// Number of groups up to which volumes get `meta_bg` if their descriptors crowd a group. Searches for a size try larger and larger volumes, and end
/// only if layouts fail before their groups take much memory.
const MAX_SMALL_GROUPS: u32 = 1 << 20;

const MANY_GROUPS: &str = "2^32 or more inodes: larger blocks (-b) make fewer groups";
const MANY_INODES: &str = "inodes that fill their groups: smaller inodes (-I), fewer inodes (-N) or more bytes per inode (-i) \
                           leave room";
const CROWDED: &str =
    "group descriptors that do not fit the first group: -O meta_bg,^resize_inode spreads them";

/// Sizes that depend on each other.
struct Sizing {
    blocks_count: u64,
    reserved_blocks: u64,
    blocks_per_group: u32,
    groups: u32,
    inodes_per_group: u32,
    itable_blocks: u32,
    gdt_blocks: u32,
    reserved_gdt: u32,
    desc_per_block: u32,
}

const fn cannot(what: &'static str) -> FormatError {
    FormatError::Unrepresentable(what)
}

impl Layout {
    /// Calculates the layout.
    ///
    /// # Errors
    /// [`FormatError::Unrepresentable`] for parameters no file system can have.
    pub fn new(params: &LayoutParams) -> Result<Self> {
        let mut params = params.clone();
        resolve_features(&mut params)?;
        check_values(&params)?;
        let mut sizing = Sizing::new(&params)?;
        let is_small = sizing.groups <= MAX_SMALL_GROUPS;
        if is_small && !params.features.has_meta_bg() && sizing.descriptors_crowd_a_group() {
            params.features.incompat.insert(Incompat::META_BG);
            params.features.compat.remove(Compat::RESIZE_INODE);
            sizing = Sizing::new(&params)?;
        }
        let mut superblock = fill_superblock(&params, &sizing)?;
        let geometry = Geometry::new(&superblock).map_err(|_| cannot(CROWDED))?;
        let (mut groups, used) = group_places::place(&geometry)?;
        let metadata: Vec<_> = used
            .0
            .iter()
            .map(|&(start, end)| (BlockNr(start), end - start))
            .collect();
        count_free(&geometry, &mut groups, &metadata);
        let overhead =
            geometry.first_data_block + metadata.iter().map(|&(_, len)| len).sum::<u64>();

        superblock.set_free_blocks(geometry.blocks_count - overhead);
        superblock
            .free_inodes_count
            .set(geometry.inodes_count - (FIRST_INO - 1));
        superblock
            .overhead_blocks
            .set(u32::try_from(overhead).unwrap_or(0)); // 0: the kernel counts for itself
        let mut journal_blocks = journal_blocks(&params, &geometry, overhead)?;
        let mut fast_commit_blocks = 0;
        if geometry.features.has_fast_commit() {
            let asked = params.fast_commit_blocks.unwrap_or(journal_blocks / 64);
            fast_commit_blocks = asked;
            // The sum is at most twice 10 240 000.
            journal_blocks += asked.min(journal_blocks);
            if asked > journal_blocks / 2 {
                return Err(cannot("more blocks for fast commits than for the journal"));
            }
        }
        Ok(Self {
            superblock,
            geometry,
            groups,
            metadata,
            overhead,
            journal_blocks,
            fast_commit_blocks,
            journal_goal: params.journal_goal.map(BlockNr),
            orphan_file_blocks: params.orphan_file_blocks,
        })
    }

    /// Groups that start with a superblock; the first is the primary's.
    pub fn super_groups(&self) -> impl Iterator<Item = GroupNr> + '_ {
        (0..self.geometry.groups)
            .map(GroupNr)
            .filter(|&g| self.geometry.has_super(g))
    }

    /// Returns the goal of the search for room for the journal: the requested block, or the middle of the volume on the border of
    /// a flex group, so that no file is far from the journal.
    pub fn journal_goal(&self) -> BlockNr {
        if let Some(goal) = self.journal_goal {
            return goal;
        }
        let g = &self.geometry;
        let log = g.log_groups_per_flex;
        let middle = (g.groups / 2) >> log << log;
        g.group_first_block(GroupNr(middle))
    }
}

/// Features that imply or exclude each other.
fn resolve_features(params: &mut LayoutParams) -> Result<()> {
    let f = &mut params.features;
    if f.has_metadata_csum() {
        f.ro_compat.remove(RoCompat::GDT_CSUM);
    } else {
        f.incompat.remove(Incompat::CSUM_SEED);
    }
    if !f.has_journal() {
        f.compat.remove(Compat::ORPHAN_FILE);
    }
    if params.blocks_count > u64::from(u32::MAX) {
        if !f.has_64bit() {
            return Err(cannot(
                "2^32 or more blocks without the feature 64bit: larger blocks (-b) make fewer",
            ));
        }
        // The resize inode maps 32-bit block numbers only.
        f.compat.remove(Compat::RESIZE_INODE);
    }
    if params.journal_blocks.is_none() && default_journal_blocks(params.blocks_count) == 0 {
        // Too small for a journal: mke2fs continues without one.
        f.compat
            .remove(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE | Compat::FAST_COMMIT);
    }
    for (bad, what) in [
        (f.has_bigalloc(), "a new file system with bigalloc"),
        (
            f.has_meta_bg() && f.has_resize_inode(),
            "resize_inode with meta_bg",
        ),
        (
            f.has_resize_inode() && !f.has_sparse_super() && !f.has_sparse_super2(),
            "resize_inode without sparse_super",
        ),
        (
            f.has_fast_commit() && !f.has_journal(),
            "fast_commit without has_journal",
        ),
        (
            f.has_project() && params.inode_size == 128,
            "project with 128-byte inodes",
        ),
        (
            f.has_inline_data() && params.inode_size == 128,
            "inline_data with 128-byte inodes",
        ),
    ] {
        if bad {
            return Err(cannot(what));
        }
    }
    Ok(())
}

fn check_values(p: &LayoutParams) -> Result<()> {
    let max_bpg = (u64::from(p.block_size) * 8).min(MAX_BLOCKS_PER_GROUP.into());
    for (ok, what) in [
        (
            p.block_size.is_power_of_two() && (1024..=65_536).contains(&p.block_size),
            "a block size that is not a power of two from 1024 to 65536",
        ),
        (
            p.inode_size.is_power_of_two()
                && p.inode_size >= 128
                && u32::from(p.inode_size) <= p.block_size,
            "inode size other than a power of two from 128 to the block size",
        ),
        (
            p.flex_bg_size.is_power_of_two(),
            "flex group size other than a power of two",
        ),
        (
            p.blocks_per_group
                .is_none_or(|n| n >= 256 && n % 8 == 0 && u64::from(n) <= max_bpg),
            "blocks per group other than a multiple of 8 that one bitmap block counts",
        ),
        (
            (0.0..=50.0).contains(&p.reserved_percent),
            "reserved percentage outside 0 to 50",
        ),
        (p.label.len() <= 16, "label of more than 16 bytes"),
        (p.inodes != Inodes::BytesPerInode(0), "zero bytes per inode"),
    ] {
        if !ok {
            return Err(cannot(what));
        }
    }
    Ok(())
}

impl Sizing {
    fn new(p: &LayoutParams) -> Result<Self> {
        let wanted = wanted_inodes(p)?;
        let mut blocks_count = p.blocks_count;
        // The reserve is a percentage of all blocks. If blocks are cut off at the end, it shrinks by their share, as
        // in mke2fs.
        let asked = (p.reserved_percent * p.blocks_count as f64 / 100.0) as u64;
        let mut reserved = asked;
        let mut bpg = p
            .blocks_per_group
            .unwrap_or((p.block_size * 8).min(MAX_BLOCKS_PER_GROUP));
        loop {
            let s = Self::of(p, wanted, blocks_count, bpg)?;
            let Some(s) = s else {
                // Too many inodes for a group: make more groups, of all the blocks there are. A last
                // group that was cut off may be large enough now.
                bpg = bpg
                    .checked_sub(8)
                    .filter(|&n| n >= 248) // where mke2fs ends
                    .ok_or(cannot(MANY_INODES))?;
                blocks_count = p.blocks_count;
                continue;
            };
            let rest = (blocks_count - first_data_block(p)) % u64::from(bpg);
            let need = s.last_group_overhead(p);
            if rest != 0 && s.groups == 1 && rest < need {
                return Err(cannot("a volume without room for its structures"));
            }
            if rest != 0 && s.groups > 1 && rest < need + LAST_GROUP_MIN {
                blocks_count -= rest;
                let share = u128::from(asked) * u128::from(blocks_count);
                // At most `asked`, as `blocks_count` is at most all blocks.
                reserved = (share / u128::from(p.blocks_count)) as u64;
                continue;
            }
            return Ok(Self {
                reserved_blocks: reserved.min(blocks_count / 2),
                ..s
            });
        }
    }

    /// Sizes for given blocks; `None` if a group's inodes do not fit one bitmap block.
    fn of(p: &LayoutParams, wanted: u32, blocks_count: u64, bpg: u32) -> Result<Option<Self>> {
        let space = blocks_count
            .checked_sub(first_data_block(p))
            .filter(|&n| n > 0)
            .ok_or(cannot("a volume without room for its structures"))?;
        let groups =
            u32::try_from(space.div_ceil(u64::from(bpg))).map_err(|_| cannot(MANY_GROUPS))?;
        let desc_size = if p.features.has_64bit() { 64 } else { 32 };
        let desc_per_block = p.block_size / desc_size;
        let gdt_blocks = groups.div_ceil(desc_per_block);

        let isize = u32::from(p.inode_size);
        let ipg = wanted.div_ceil(groups);
        if ipg > p.block_size * 8 {
            return Ok(None);
        }
        // Free inodes of a group are counted in 16 bits; the tables are filled to whole blocks;
        // the bitmaps are checksummed by whole bytes.
        let per_block = p.block_size / isize;
        let ipg = ipg.min(65_536 - per_block.max(8));
        let mut ipg = ((ipg.div_ceil(per_block) * per_block) & !7).max(8);
        if u64::from(ipg) * u64::from(groups) <= u64::from(FIRST_INO) {
            ipg = 16; // the reserved inodes, and lost+found
        }
        while u64::from(ipg) * u64::from(groups) > u64::from(u32::MAX) {
            ipg = ipg
                .checked_sub(per_block.max(8))
                .filter(|&n| n > 0)
                .ok_or(cannot(MANY_GROUPS))?;
        }
        let mut sizing = Self {
            blocks_count,
            reserved_blocks: 0,
            blocks_per_group: bpg,
            groups,
            inodes_per_group: ipg,
            itable_blocks: ipg.div_ceil(per_block),
            gdt_blocks,
            reserved_gdt: 0,
            desc_per_block,
        };
        if p.features.has_resize_inode() {
            sizing.reserved_gdt = sizing.reserve_gdt(p);
        }
        Ok(Some(sizing))
    }

    /// Returns the number of descriptor blocks to reserve for growth to 1024 times the size (or to the requested
    /// size), as far as 32-bit block numbers and one indirect block reach.
    fn reserve_gdt(&self, p: &LayoutParams) -> u32 {
        let target = p
            .resize_to
            .unwrap_or(self.blocks_count.saturating_mul(1024))
            .min(u64::from(u32::MAX));
        let groups = target
            .saturating_sub(first_data_block(p))
            .div_ceil(u64::from(self.blocks_per_group));
        let blocks = groups
            .div_ceil(u64::from(self.desc_per_block))
            .saturating_sub(u64::from(self.gdt_blocks));
        blocks.min(u64::from(p.block_size / 4)) as u32
    }

    /// Returns whether all descriptors, with those reserved for growth, take more than three quarters of a group. mke2fs
    /// then spreads the descriptors over the groups.
    fn descriptors_crowd_a_group(&self) -> bool {
        let descriptors = u64::from(self.gdt_blocks) + u64::from(self.reserved_gdt);
        descriptors * 4 > u64::from(self.blocks_per_group) * 3
    }

    /// Returns the number of blocks of metadata that the last group must be able to hold.
    fn last_group_overhead(&self, p: &LayoutParams) -> u64 {
        let last = self.groups - 1; // at least one group
        let f = &p.features;
        let has_super = if f.has_sparse_super2() || last <= 1 || !f.has_sparse_super() {
            true // sparse_super2 keeps a backup in the last group
        } else {
            [3u32, 5, 7]
                .into_iter()
                .any(|b| core::iter::successors(Some(b), |n| n.checked_mul(b)).any(|n| n == last))
        };
        let base = if has_super {
            1 + u64::from(self.gdt_blocks) + u64::from(self.reserved_gdt)
        } else {
            0
        };
        2 + u64::from(self.itable_blocks) + base
    }
}

fn first_data_block(p: &LayoutParams) -> u64 {
    u64::from(p.block_size == 1024)
}

fn wanted_inodes(p: &LayoutParams) -> Result<u32> {
    let n = match p.inodes {
        Inodes::Count(n) => u64::from(n),
        Inodes::BytesPerInode(ratio) => {
            let bytes = p.blocks_count.saturating_mul(u64::from(p.block_size));
            match bytes / u64::from(ratio.max(1)) {
                // Fewer bytes than the ratio: an inode for every 4 KiB, as in mke2fs.
                0 => p.blocks_count / u64::from(4096 / p.block_size.clamp(1024, 4096)),
                count => count,
            }
        }
    };
    let n = match u32::try_from(n) {
        Ok(n) => n,
        Err(_) if p.features.has_64bit() => u32::MAX,
        Err(_) => {
            return Err(cannot(
                "2^32 or more inodes: more bytes per inode (-i) make fewer",
            ));
        }
    };
    Ok(n.max(FIRST_INO + 1))
}

fn fill_superblock(p: &LayoutParams, s: &Sizing) -> Result<RawSuperblock> {
    let mut sb = RawSuperblock::zeroed();
    let log = p.block_size.trailing_zeros() - 10; // checked: a power of two from 2^10
    sb.magic.set(MAGIC);
    sb.rev_level.set(1);
    sb.set_blocks_count(s.blocks_count);
    sb.set_reserved_blocks(s.reserved_blocks);
    sb.inodes_count
        .set(s.inodes_per_group.checked_mul(s.groups).ok_or(cannot(
            "2^32 or more inodes: more bytes per inode (-i) make fewer",
        ))?);
    sb.first_data_block.set(first_data_block(p) as u32);
    sb.log_block_size.set(log);
    sb.log_cluster_size.set(log);
    sb.blocks_per_group.set(s.blocks_per_group);
    sb.clusters_per_group.set(s.blocks_per_group);
    sb.inodes_per_group.set(s.inodes_per_group);
    sb.max_mnt_count.set(u16::MAX); // no check by count of mounts
    sb.state.set(STATE_VALID);
    sb.errors.set(1); // go on; the engine stops a volume by its own rule
    sb.first_ino.set(FIRST_INO);
    sb.inode_size.set(p.inode_size);
    sb.feature_compat.set(p.features.compat.bits());
    sb.feature_incompat.set(p.features.incompat.bits());
    sb.feature_ro_compat.set(p.features.ro_compat.bits());
    sb.uuid = p.uuid;
    sb.volume_name
        .get_mut(..p.label.len())
        .ok_or(cannot("label of more than 16 bytes"))?
        .copy_from_slice(p.label.as_bytes());
    sb.reserved_gdt_blocks.set(s.reserved_gdt as u16); // at most block_size / 4
    for (word, bytes) in sb.hash_seed.iter_mut().zip(p.hash_seed.as_chunks().0) {
        word.set(u32::from_le_bytes(*bytes));
    }
    sb.def_hash_version = HASH_HALF_MD4;
    sb.flags.set(FLAG_SIGNED_HASH);
    sb.default_mount_opts.set(DEFM_XATTR_USER | DEFM_ACL);
    if p.features.has_64bit() {
        sb.desc_size.set(64);
    }
    if p.inode_size > 128 {
        sb.min_extra_isize.set(32);
        sb.want_extra_isize.set(32);
    }
    if p.features.has_flex_bg() {
        sb.log_groups_per_flex = p.flex_bg_size.trailing_zeros() as u8;
    }
    if p.features.has_metadata_csum() {
        sb.checksum_type = 1;
    }
    if p.features.has_csum_seed() {
        sb.checksum_seed.set(crc32c(!0, &p.uuid));
    }
    if p.features.has_sparse_super2() {
        // Group 1 and the last, as far as there are such groups.
        let (first, last) = (p.backup_superblocks > 0, p.backup_superblocks > 1);
        sb.backup_bgs[0].set(u32::from(first && s.groups > 1));
        sb.backup_bgs[1].set(if last && s.groups > 2 {
            s.groups - 1
        } else {
            0
        });
    }
    let (lo, hi) = split_time(p.time);
    (sb.mkfs_time, sb.mkfs_time_hi) = (lo, hi);
    (sb.wtime, sb.wtime_hi) = (lo, hi);
    (sb.lastcheck, sb.lastcheck_hi) = (lo, hi);
    Ok(sb)
}

/// Counts and flags of all groups, with the fixed metadata and the reserved inodes taken.
fn count_free(geo: &Geometry, groups: &mut [GroupDesc], metadata: &[(BlockNr, u64)]) {
    let checksummed = geo.features.has_group_csum();
    let places: Vec<_> = groups
        .iter()
        .map(|d| [d.block_bitmap, d.inode_bitmap, d.inode_table])
        .collect();
    let mut reserved = FIRST_INO - 1;
    for (g, desc) in (0..).map(GroupNr).zip(groups.iter_mut()) {
        let taken = reserved.min(geo.inodes_per_group);
        reserved -= taken;
        desc.free_blocks = geo.blocks_in_group(g);
        desc.free_inodes = geo.inodes_per_group - taken;
        if checksummed {
            desc.itable_unused = desc.free_inodes;
            desc.flags = if taken == 0 { INODE_UNINIT } else { 0 };
            // The kernel builds an absent bitmap without padding knowledge of a short last group
            // in old versions, so that group always has a real one.
            // The first group gets the root directory.
            if g.0 != 0 && g.0 + 1 < geo.groups {
                desc.flags |= BLOCK_UNINIT;
            }
        }
    }
    for &(start, len) in metadata {
        let mut at = start.0;
        let end = start.0 + len;
        // Metadata is in the volume by construction: every block of it has a group.
        while at < end
            && let Some((g, _)) = geo.group_of_block(BlockNr(at))
        {
            let group_end = geo.group_first_block(GroupNr(g.0 + 1)).0;
            let here = end.min(group_end) - at;
            groups[g.0 as usize].free_blocks -= here as u32;
            at += here;
        }
    }
    if !checksummed {
        return;
    }
    // Readers know of an absent block bitmap that the group's own bitmaps and table are in use,
    // not that another group's are.
    let lens = [1, 1, u64::from(geo.itable_blocks())];
    for (owner, places) in (0u32..).zip(&places) {
        for (start, len) in places.iter().zip(lens) {
            let last = BlockNr(start.0 + len - 1);
            let (Some((a, _)), Some((b, _))) =
                (geo.group_of_block(*start), geo.group_of_block(last))
            else {
                continue;
            };
            for g in (a.0..=b.0).filter(|&g| g != owner) {
                groups[g as usize].flags &= !BLOCK_UNINIT;
            }
        }
    }
}

fn journal_blocks(p: &LayoutParams, geo: &Geometry, overhead: u64) -> Result<u32> {
    if !p.features.has_journal() {
        return Ok(0);
    }
    let free = geo.blocks_count - overhead;
    match p.journal_blocks {
        None => Ok(default_journal_blocks(geo.blocks_count)),
        Some(n) if n < 1024 => Err(cannot("journal of less than 1024 blocks")),
        // mke2fs leaves half to files.
        Some(n)
            if n > 10_240_000 || u64::from(n) > if p.large_journal { free } else { free / 2 } =>
        {
            Err(cannot("journal of more than half the volume"))
        }
        Some(n) => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn beyond_32_bits_of_blocks() {
        let l = Layout::new(&LayoutParams::for_size(20 << 40)).unwrap();
        assert_eq!(l.superblock.blocks_count(), 5 << 30);
        assert!(!l.geometry.features.has_resize_inode());
        assert!(l.groups.iter().any(|d| d.inode_table.0 > 1 << 32));
        let mut p = LayoutParams::for_size(20 << 40);
        p.features.apply("^64bit").unwrap();
        assert!(Layout::new(&p).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_parameters_give_a_sound_layout_or_an_error(
            (bits, low) in (0u32..28, any::<u64>()),
            (log_block, log_inode, log_flex) in (10u32..17, 7u32..13, 0u32..32),
            inodes in prop_oneof![
                any::<u32>().prop_map(Inodes::Count),
                (0u32..100_000).prop_map(Inodes::BytesPerInode),
            ],
            list in proptest::sample::subsequence(vec![
                "^64bit", "^metadata_csum", "uninit_bg", "^flex_bg", "^resize_inode", "meta_bg",
                "sparse_super2", "^sparse_super", "^has_journal", "^orphan_file", "fast_commit",
                "^metadata_csum_seed",
            ], 0..6),
            bpg in proptest::option::of((0u32..9000).prop_map(|n| n * 8)),
        ) {
            let mut p = LayoutParams::for_size(0);
            p.blocks_count = 1 << bits | low & ((1 << bits) - 1);
            p.block_size = 1 << log_block;
            p.inode_size = 1 << log_inode;
            p.flex_bg_size = 1 << log_flex;
            p.inodes = inodes;
            p.blocks_per_group = bpg;
            p.features.apply(&list.join(",")).unwrap();
            // Not a matter of layout, and very slow: hundreds of thousands of tiny groups.
            prop_assume!(p.blocks_count / u64::from(bpg.unwrap_or(8192).max(8)) < 100_000);
            if let Ok(l) = Layout::new(&p) {
                let end = BlockNr(l.geometry.blocks_count);
                for pair in l.metadata.windows(2) {
                    prop_assert!(pair[0].0.0 + pair[0].1 < pair[1].0.0);
                }
                prop_assert!(l.metadata.iter().all(|&(b, n)| n > 0 && b.0 + n <= end.0));
                let free: u64 = l.groups.iter().map(|d| u64::from(d.free_blocks)).sum();
                prop_assert_eq!(free, l.geometry.blocks_count - l.overhead);
                let mut bytes = [0; 64];
                for (g, d) in (0..).map(GroupNr).zip(&l.groups) {
                    d.encode(&mut bytes, &l.geometry, g).unwrap();
                    prop_assert_eq!(&GroupDesc::decode(&bytes, &l.geometry, g).unwrap(), d);
                }
            }
        }
    }
}
