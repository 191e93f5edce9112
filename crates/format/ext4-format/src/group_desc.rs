//! Group descriptors: where a group's bitmaps and inode table are, and its counts.

use crate::checksum::{crc16, crc32c};
use crate::error::{FormatError, Result, Where};
use crate::geometry::Geometry;
use crate::types::{BlockNr, GroupNr};
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The inode table and bitmap are not initialized: no inode is in use.
pub const INODE_UNINIT: u16 = 1;
/// The block bitmap is not initialized: only the group's own metadata is in use.
pub const BLOCK_UNINIT: u16 = 2;
/// The inode table is all zeros where it is not in use.
pub const INODE_ZEROED: u16 = 4;

/// A descriptor in its stored form; without the `64bit` feature only the first 32 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    block_bitmap_lo: U32,
    inode_bitmap_lo: U32,
    inode_table_lo: U32,
    free_blocks_lo: U16,
    free_inodes_lo: U16,
    used_dirs_lo: U16,
    flags: U16,
    exclude_bitmap_lo: U32,
    block_bitmap_csum_lo: U16,
    inode_bitmap_csum_lo: U16,
    itable_unused_lo: U16,
    checksum: U16,
    block_bitmap_hi: U32,
    inode_bitmap_hi: U32,
    inode_table_hi: U32,
    free_blocks_hi: U16,
    free_inodes_hi: U16,
    used_dirs_hi: U16,
    itable_unused_hi: U16,
    exclude_bitmap_hi: U32,
    block_bitmap_csum_hi: U16,
    inode_bitmap_csum_hi: U16,
    reserved: U32,
}

const SHORT: usize = 32;
const CHECKSUM_AT: usize = offset_of!(Raw, checksum);
const _: () = {
    assert!(size_of::<Raw>() == 64);
    assert!(CHECKSUM_AT == 0x1e);
    assert!(offset_of!(Raw, block_bitmap_hi) == SHORT);
    assert!(offset_of!(Raw, block_bitmap_csum_hi) == 0x38);
};

/// A group's descriptor.
///
/// ```
/// use ext4_format::{GroupNr, group_desc::GroupDesc, layout::{Layout, LayoutParams}};
/// let layout = Layout::new(&LayoutParams::for_size(64 << 20)).unwrap();
/// let mut bytes = [0; 64];
/// layout.groups[0].encode(&mut bytes, &layout.geometry, GroupNr(0)).unwrap();
/// let back = GroupDesc::decode(&bytes, &layout.geometry, GroupNr(0)).unwrap();
/// assert_eq!(back, layout.groups[0]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupDesc {
    /// Block of the block bitmap.
    pub block_bitmap: BlockNr,
    /// Block of the inode bitmap.
    pub inode_bitmap: BlockNr,
    /// First block of the inode table.
    pub inode_table: BlockNr,
    /// Free blocks (clusters, with `bigalloc`).
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub used_dirs: u32,
    /// Inodes at the table's end that were never in use; means something with checksums only.
    pub itable_unused: u32,
    /// [`INODE_UNINIT`], [`BLOCK_UNINIT`], [`INODE_ZEROED`].
    pub flags: u16,
    /// Checksum of the block bitmap (its low 16 bits with short descriptors).
    pub block_bitmap_csum: u32,
    /// Checksum of the inode bitmap (its low 16 bits with short descriptors).
    pub inode_bitmap_csum: u32,
}

const fn join(lo: U16, hi: U16) -> u32 {
    lo.get() as u32 | (hi.get() as u32) << 16
}

fn split(v: u32) -> (U16, U16) {
    (U16::new(v as u16), U16::new((v >> 16) as u16))
}

fn join_block(lo: U32, hi: U32) -> BlockNr {
    BlockNr(u64::from(lo.get()) | u64::from(hi.get()) << 32)
}

fn split_block(b: BlockNr) -> (U32, U32) {
    (U32::new(b.0 as u32), U32::new((b.0 >> 32) as u32))
}

/// Computes the checksum of a descriptor; `None` if the volume does not have descriptor checksums.
fn checksum(bytes: &[u8], geo: &Geometry, group: GroupNr) -> Option<u16> {
    let head = bytes.get(..CHECKSUM_AT)?;
    let tail = bytes.get(CHECKSUM_AT + 2..)?;
    let nr = group.0.to_le_bytes();
    if geo.features.has_metadata_csum() {
        let crc = crc32c(crc32c(geo.csum_seed, &nr), head);
        // The field itself counts as zeros; the low half is stored.
        Some(crc32c(crc32c(crc, &[0; 2]), tail) as u16)
    } else if geo.features.has_gdt_csum() {
        let crc = crc16(crc16(crc16(!0, &geo.uuid), &nr), head);
        // This older checksum skips the field.
        Some(crc16(crc, tail))
    } else {
        None
    }
}

impl GroupDesc {
    /// Reads and checks a descriptor: its checksum, that the places are in the volume (in the group, without
    /// `flex_bg`) and do not overlap superblocks, and that the counts fit the group.
    ///
    /// # Errors
    /// [`FormatError::Checksum`] or [`FormatError::Corrupt`] at the group.
    pub fn decode(bytes: &[u8], geo: &Geometry, group: GroupNr) -> Result<Self> {
        let at = Where::Group(group);
        let bytes = bytes
            .get(..usize::from(geo.desc_size))
            .ok_or(FormatError::corrupt("size of a group descriptor", at))?;
        let desc = Self::decode_unchecked(bytes)
            .ok_or(FormatError::corrupt("size of a group descriptor", at))?;
        if let (Some(computed), Some(stored)) = (
            checksum(bytes, geo, group),
            bytes.get(CHECKSUM_AT..CHECKSUM_AT + 2),
        ) {
            let stored = u16::from_le_bytes([stored[0], stored[1]]);
            if stored != computed {
                return Err(FormatError::Checksum {
                    what: "group descriptor",
                    at,
                    stored: stored.into(),
                    computed: computed.into(),
                });
            }
        }
        desc.check(geo, group)?;
        Ok(desc)
    }

    /// Decodes the fields without checks, from 32 bytes or from 64 and more; `None` for any other length.
    pub fn decode_unchecked(bytes: &[u8]) -> Option<Self> {
        let mut raw = Raw::new_zeroed();
        let n = bytes.len().min(size_of::<Raw>());
        raw.as_mut_bytes()[..n].copy_from_slice(&bytes[..n]);
        (n == SHORT || n == size_of::<Raw>()).then(|| Self {
            block_bitmap: join_block(raw.block_bitmap_lo, raw.block_bitmap_hi),
            inode_bitmap: join_block(raw.inode_bitmap_lo, raw.inode_bitmap_hi),
            inode_table: join_block(raw.inode_table_lo, raw.inode_table_hi),
            free_blocks: join(raw.free_blocks_lo, raw.free_blocks_hi),
            free_inodes: join(raw.free_inodes_lo, raw.free_inodes_hi),
            used_dirs: join(raw.used_dirs_lo, raw.used_dirs_hi),
            itable_unused: join(raw.itable_unused_lo, raw.itable_unused_hi),
            flags: raw.flags.get(),
            block_bitmap_csum: join(raw.block_bitmap_csum_lo, raw.block_bitmap_csum_hi),
            inode_bitmap_csum: join(raw.inode_bitmap_csum_lo, raw.inode_bitmap_csum_hi),
        })
    }

    /// Checks the places and the counts of a descriptor, like [`Self::decode`] after the checksum.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] at the group.
    pub fn check(&self, geo: &Geometry, group: GroupNr) -> Result<()> {
        self.check_places(geo, group)?;
        self.check_counts(geo, group)
    }

    /// Checks that bitmaps and inode table are in the volume (in the group, without `flex_bg`) and do not overlap
    /// superblocks.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] at the group.
    pub fn check_places(&self, geo: &Geometry, group: GroupNr) -> Result<()> {
        let at = Where::Group(group);
        let first = geo.group_first_block(group).0;
        let end = first + u64::from(geo.blocks_in_group(group));
        let itable = u64::from(geo.itable_blocks());
        for (what, start, len) in [
            ("place of the block bitmap", self.block_bitmap, 1),
            ("place of the inode bitmap", self.inode_bitmap, 1),
            ("place of the inode table", self.inode_table, itable),
        ] {
            // is_valid_data_range() has ruled out an overflow of the sum.
            let ok = geo.is_valid_data_range(start, len)
                && (geo.features.has_flex_bg() || (start.0 >= first && start.0 + len <= end));
            if !ok {
                return Err(FormatError::corrupt(what, at));
            }
        }
        Ok(())
    }

    fn check_counts(&self, geo: &Geometry, group: GroupNr) -> Result<()> {
        let at = Where::Group(group);
        for (what, ok) in [
            (
                "count of free blocks",
                self.free_blocks <= geo.bits_in_group(group),
            ),
            (
                "count of free inodes",
                self.free_inodes <= geo.inodes_per_group,
            ),
            (
                "count of directories",
                self.used_dirs <= geo.inodes_per_group,
            ),
            (
                "count of inodes never used",
                !geo.features.has_group_csum() || self.itable_unused <= geo.inodes_per_group,
            ),
        ] {
            if !ok {
                return Err(FormatError::corrupt(what, at));
            }
        }
        Ok(())
    }

    /// Returns the number of records at the start of the group's inode table that may be in use.
    pub const fn used_records(&self, geo: &Geometry) -> u32 {
        if !geo.features.has_group_csum() {
            geo.inodes_per_group
        } else if self.flags & INODE_UNINIT != 0 {
            0
        } else {
            geo.inodes_per_group.saturating_sub(self.itable_unused)
        }
    }

    /// Returns whether a flag marks a bitmap as never written, on a volume whose descriptors have checksums: on others the flags mean nothing.
    pub const fn is_uninit(&self, geo: &Geometry, flag: u16) -> bool {
        geo.features.has_group_csum() && self.flags & flag != 0
    }

    /// Writes the descriptor over `bytes` (a whole descriptor) with its checksum. Bytes unknown to this library stay
    /// unchanged.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] if `bytes` is shorter than a descriptor of the volume.
    pub fn encode(&self, bytes: &mut [u8], geo: &Geometry, group: GroupNr) -> Result<()> {
        let short = FormatError::corrupt("size of a group descriptor", Where::Group(group));
        let bytes = bytes
            .get_mut(..usize::from(geo.desc_size))
            .ok_or(short.clone())?;
        let n = bytes.len().min(size_of::<Raw>());
        let mut raw = Raw::new_zeroed();
        raw.as_mut_bytes()[..n].copy_from_slice(&bytes[..n]);
        (raw.block_bitmap_lo, raw.block_bitmap_hi) = split_block(self.block_bitmap);
        (raw.inode_bitmap_lo, raw.inode_bitmap_hi) = split_block(self.inode_bitmap);
        (raw.inode_table_lo, raw.inode_table_hi) = split_block(self.inode_table);
        (raw.free_blocks_lo, raw.free_blocks_hi) = split(self.free_blocks);
        (raw.free_inodes_lo, raw.free_inodes_hi) = split(self.free_inodes);
        (raw.used_dirs_lo, raw.used_dirs_hi) = split(self.used_dirs);
        (raw.itable_unused_lo, raw.itable_unused_hi) = split(self.itable_unused);
        raw.flags.set(self.flags);
        (raw.block_bitmap_csum_lo, raw.block_bitmap_csum_hi) = split(self.block_bitmap_csum);
        (raw.inode_bitmap_csum_lo, raw.inode_bitmap_csum_hi) = split(self.inode_bitmap_csum);
        bytes[..n].copy_from_slice(&raw.as_bytes()[..n]);
        if let Some(sum) = checksum(bytes, geo, group) {
            bytes
                .get_mut(CHECKSUM_AT..CHECKSUM_AT + 2)
                .ok_or(short)?
                .copy_from_slice(&sum.to_le_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Layout, LayoutParams};

    fn params(features: &str) -> LayoutParams {
        let mut p = LayoutParams::for_size(256 << 20);
        p.features.apply(features).unwrap();
        p
    }

    #[test]
    fn any_flipped_bit_is_seen_by_the_checksum() {
        for features in [
            "",
            "^64bit",
            "^metadata_csum,uninit_bg",
            "^metadata_csum,^64bit,uninit_bg",
        ] {
            let l = Layout::new(&params(features)).unwrap();
            let n = usize::from(l.geometry.desc_size);
            let mut bytes = vec![0; n];
            l.groups[1]
                .encode(&mut bytes, &l.geometry, GroupNr(1))
                .unwrap();
            GroupDesc::decode(&bytes, &l.geometry, GroupNr(1)).unwrap();
            assert!(GroupDesc::decode(&bytes, &l.geometry, GroupNr(0)).is_err());
            assert!(GroupDesc::decode(&bytes[..n - 1], &l.geometry, GroupNr(1)).is_err());
            for bit in 0..n * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let e = GroupDesc::decode(&bytes, &l.geometry, GroupNr(1));
                assert!(
                    matches!(e, Err(FormatError::Checksum { .. })),
                    "{features} {bit}"
                );
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn places_outside_are_refused() {
        let l = Layout::new(&params("^metadata_csum,^flex_bg")).unwrap();
        let good = l.groups[1];
        let check = |change: &dyn Fn(&mut GroupDesc)| {
            let mut d = good;
            change(&mut d);
            let mut bytes = [0; 64];
            d.encode(&mut bytes, &l.geometry, GroupNr(1)).unwrap();
            GroupDesc::decode(&bytes, &l.geometry, GroupNr(1)).is_ok()
        };
        assert!(check(&|_| ()));
        assert!(!check(&|d| d.block_bitmap = BlockNr(u64::MAX)));
        assert!(!check(&|d| d.inode_bitmap = BlockNr(0)));
        assert!(!check(
            &|d| d.inode_table = BlockNr(l.geometry.blocks_count - 1)
        ));
        assert!(!check(&|d| d.inode_table = l.groups[0].inode_table));
        assert!(!check(&|d| d.free_blocks = u32::MAX));
        assert!(!check(&|d| d.free_inodes += 100_000));
    }
}
