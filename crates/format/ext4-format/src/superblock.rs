//! The superblock: 1024 bytes at byte 1024 of the volume, and copies of it at the start of some
//! groups.

use crate::change_mark::ChangeMark;
use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};
pub use crate::types::MAGIC;

use crate::features::{Compat, Features, Incompat, RoCompat};
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Byte offset of the primary superblock in the volume.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Size of a superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;

/// `state`: unmounted cleanly.
pub const STATE_VALID: u16 = 1;
/// `state`: errors were found.
pub const STATE_ERROR: u16 = 2;
/// `s_creator_os` of a volume of the GNU Hurd.
pub const OS_HURD: u32 = 1;
/// `state`: orphans are being recovered.
pub const STATE_ORPHAN: u16 = 4;

/// `errors`: an error is recorded, and the volume stays usable.
pub const ERRORS_CONTINUE: u16 = 1;
/// `errors`: the volume becomes read-only when an error is found.
pub const ERRORS_READ_ONLY: u16 = 2;
/// `errors`: the system panics when an error is found.
pub const ERRORS_PANIC: u16 = 3;

/// `flags`: directory hashes take `char` as signed.
pub const FLAG_SIGNED_HASH: u32 = 1;
/// `flags`: directory hashes take `char` as unsigned.
pub const FLAG_UNSIGNED_HASH: u32 = 2;
/// `flags`: the volume may be mounted by experimental drivers.
pub const FLAG_TEST_VOLUME: u32 = 4;

/// `default_mount_opts`: user attributes.
pub const DEFM_XATTR_USER: u32 = 0x4;
/// `default_mount_opts`: POSIX ACLs.
pub const DEFM_ACL: u32 = 0x8;
/// `default_mount_opts`: mask of the data mode (journal, ordered, writeback).
pub const DEFM_DATA_MODE: u32 = 0x60;

/// The superblock in its stored form. Field names are those of the kernel's documentation without the `s_`.
///
/// ```
/// use ext4_format::superblock::RawSuperblock;
/// assert_eq!(size_of::<RawSuperblock>(), 1024);
/// assert!(RawSuperblock::parse(&[0; 1024]).is_err());
/// ```
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the names are the documented ones
pub struct RawSuperblock {
    pub inodes_count: U32,
    pub blocks_count_lo: U32,
    pub r_blocks_count_lo: U32,
    pub free_blocks_count_lo: U32,
    pub free_inodes_count: U32,
    pub first_data_block: U32,
    pub log_block_size: U32,
    pub log_cluster_size: U32,
    pub blocks_per_group: U32,
    pub clusters_per_group: U32,
    pub inodes_per_group: U32,
    pub mtime: U32,
    pub wtime: U32,
    pub mnt_count: U16,
    pub max_mnt_count: U16,
    pub magic: U16,
    pub state: U16,
    pub errors: U16,
    pub minor_rev_level: U16,
    pub lastcheck: U32,
    pub checkinterval: U32,
    pub creator_os: U32,
    pub rev_level: U32,
    pub def_resuid: U16,
    pub def_resgid: U16,
    pub first_ino: U32,
    pub inode_size: U16,
    pub block_group_nr: U16,
    pub feature_compat: U32,
    pub feature_incompat: U32,
    pub feature_ro_compat: U32,
    pub uuid: [u8; 16],
    pub volume_name: [u8; 16],
    pub last_mounted: [u8; 64],
    pub algorithm_usage_bitmap: U32,
    pub prealloc_blocks: u8,
    pub prealloc_dir_blocks: u8,
    pub reserved_gdt_blocks: U16,
    pub journal_uuid: [u8; 16],
    pub journal_inum: U32,
    pub journal_dev: U32,
    pub last_orphan: U32,
    pub hash_seed: [U32; 4],
    pub def_hash_version: u8,
    pub jnl_backup_type: u8,
    pub desc_size: U16,
    pub default_mount_opts: U32,
    pub first_meta_bg: U32,
    pub mkfs_time: U32,
    pub jnl_blocks: [U32; 17],
    pub blocks_count_hi: U32,
    pub r_blocks_count_hi: U32,
    pub free_blocks_count_hi: U32,
    pub min_extra_isize: U16,
    pub want_extra_isize: U16,
    pub flags: U32,
    pub raid_stride: U16,
    pub mmp_interval: U16,
    pub mmp_block: U64,
    pub raid_stripe_width: U32,
    pub log_groups_per_flex: u8,
    pub checksum_type: u8,
    pub encryption_level: u8,
    pub reserved_pad: u8,
    pub kbytes_written: U64,
    pub snapshot_inum: U32,
    pub snapshot_id: U32,
    pub snapshot_r_blocks_count: U64,
    pub snapshot_list: U32,
    pub error_count: U32,
    pub first_error_time: U32,
    pub first_error_ino: U32,
    pub first_error_block: U64,
    pub first_error_func: [u8; 32],
    pub first_error_line: U32,
    pub last_error_time: U32,
    pub last_error_ino: U32,
    pub last_error_line: U32,
    pub last_error_block: U64,
    pub last_error_func: [u8; 32],
    pub mount_opts: [u8; 64],
    pub usr_quota_inum: U32,
    pub grp_quota_inum: U32,
    pub overhead_blocks: U32,
    pub backup_bgs: [U32; 2],
    pub encrypt_algos: [u8; 4],
    pub encrypt_pw_salt: [u8; 16],
    pub lpf_ino: U32,
    pub prj_quota_inum: U32,
    pub checksum_seed: U32,
    pub wtime_hi: u8,
    pub mtime_hi: u8,
    pub mkfs_time_hi: u8,
    pub lastcheck_hi: u8,
    pub first_error_time_hi: u8,
    pub last_error_time_hi: u8,
    pub first_error_errcode: u8,
    pub last_error_errcode: u8,
    pub encoding: U16,
    pub encoding_flags: U16,
    pub orphan_file_inum: U32,
    pub reserved: [U32; 94],
    pub checksum: U32,
}

const _: () = {
    assert!(size_of::<RawSuperblock>() == SUPERBLOCK_SIZE);
    assert!(offset_of!(RawSuperblock, magic) == 0x38);
    assert!(offset_of!(RawSuperblock, first_ino) == 0x54);
    assert!(offset_of!(RawSuperblock, uuid) == 0x68);
    assert!(offset_of!(RawSuperblock, journal_uuid) == 0xd0);
    assert!(offset_of!(RawSuperblock, hash_seed) == 0xec);
    assert!(offset_of!(RawSuperblock, desc_size) == 0xfe);
    assert!(offset_of!(RawSuperblock, jnl_blocks) == 0x10c);
    assert!(offset_of!(RawSuperblock, blocks_count_hi) == 0x150);
    assert!(offset_of!(RawSuperblock, log_groups_per_flex) == 0x174);
    assert!(offset_of!(RawSuperblock, error_count) == 0x194);
    assert!(offset_of!(RawSuperblock, mount_opts) == 0x200);
    assert!(offset_of!(RawSuperblock, backup_bgs) == 0x24c);
    assert!(offset_of!(RawSuperblock, lpf_ino) == 0x268);
    assert!(offset_of!(RawSuperblock, checksum_seed) == 0x270);
    assert!(offset_of!(RawSuperblock, orphan_file_inum) == 0x280);
    assert!(offset_of!(RawSuperblock, checksum) == 0x3fc);
};

impl core::fmt::Debug for RawSuperblock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RawSuperblock")
            .field("blocks_count", &self.blocks_count())
            .field("inodes_count", &self.inodes_count.get())
            .field("features", &Features::of(self).names())
            .finish_non_exhaustive()
    }
}

impl Features {
    /// Returns the features of a superblock. Unknown bits are kept.
    pub fn of(sb: &RawSuperblock) -> Self {
        Self {
            compat: Compat::from_bits_retain(sb.feature_compat.get()),
            incompat: Incompat::from_bits_retain(sb.feature_incompat.get()),
            ro_compat: RoCompat::from_bits_retain(sb.feature_ro_compat.get()),
        }
    }
}

impl RawSuperblock {
    /// Creates a superblock of all zeros.
    pub fn zeroed() -> Self {
        <Self as FromZeros>::new_zeroed()
    }

    /// Returns whether the volume's journal is on another device.
    ///
    /// ```
    /// use ext4_format::features::Compat;
    /// use ext4_format::superblock::RawSuperblock;
    ///
    /// let mut sb = RawSuperblock::zeroed();
    /// sb.journal_uuid = [1; 16];
    /// assert!(!sb.has_external_journal()); // the feature is missing
    /// sb.feature_compat.set(Compat::HAS_JOURNAL.bits());
    /// assert!(sb.has_external_journal());
    /// ```
    pub fn has_external_journal(&self) -> bool {
        Features::of(self).has_journal()
            && self.journal_inum.get() == 0
            && self.journal_uuid != [0; 16]
    }

    /// Stores a copy of the mapping and the size of the journal's inode, because a repair needs them if that inode is damaged.
    pub fn set_journal_copy(&mut self, map: &[u8; 60], size: u64) {
        self.jnl_backup_type = 1;
        for (to, from) in self.jnl_blocks.iter_mut().zip(map.as_chunks::<4>().0) {
            to.set(u32::from_le_bytes(*from));
        }
        let [.., high, low] = &mut self.jnl_blocks;
        high.set((size >> 32) as u32);
        low.set(size as u32);
    }

    /// Returns the copy that [`set_journal_copy`](Self::set_journal_copy) stores: mapping and size.
    pub fn journal_copy(&self) -> Option<([u8; 60], u64)> {
        let [map @ .., high, low] = &self.jnl_blocks;
        let mut bytes = [0; 60];
        for (to, from) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(map) {
            *to = from.get().to_le_bytes();
        }
        let size = u64::from(high.get()) << 32 | u64::from(low.get());
        (self.jnl_backup_type == 1).then_some((bytes, size))
    }

    /// Returns the superblock with its checksum set, if nothing but the checksum is wrong.
    pub fn resealed(bytes: &[u8; SUPERBLOCK_SIZE]) -> Option<Self> {
        let mut bytes = *bytes;
        let Err(FormatError::Checksum { computed, .. }) = Self::parse(&bytes) else {
            return None;
        };
        *bytes.last_chunk_mut::<4>()? = computed.to_le_bytes();
        Self::parse(&bytes).ok()
    }

    /// Reads a superblock from its 1024 bytes and checks the parts that need no geometry: the magic, the checksum,
    /// the block size, the counts that must not be zero.
    ///
    /// # Errors
    /// [`FormatError::NotExt4`] without the magic; [`FormatError::Interrupted`] while a change in place is under way;
    /// [`FormatError::Checksum`]; [`FormatError::Corrupt`] for a value no ext4 can have;
    /// [`FormatError::Incompatible`] for an external journal.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let sb = Self::read_from_prefix(bytes)
            .map_err(|_| FormatError::NotExt4("shorter than a superblock"))?
            .0;
        if sb.magic.get() != MAGIC {
            return Err(FormatError::NotExt4("no magic number in the superblock"));
        }
        if let Some(mark) = ChangeMark::read(bytes) {
            return Err(FormatError::Interrupted(mark.to_string()));
        }
        let bad = |what| Err(FormatError::corrupt(what, Where::Superblock));
        if Features::of(&sb).has_metadata_csum() {
            if sb.checksum_type != 1 {
                return bad("checksum type of the superblock");
            }
            let computed = sb.computed_checksum();
            if computed != sb.checksum.get() {
                return Err(FormatError::Checksum {
                    what: "superblock",
                    at: Where::Superblock,
                    stored: sb.checksum.get(),
                    computed,
                });
            }
        }
        if Features::of(&sb).incompat.contains(Incompat::JOURNAL_DEV) {
            // This superblock describes an external journal, not a file system.
            return Err(FormatError::Incompatible(
                "journal_dev (an external journal)".into(),
            ));
        }
        if sb.block_size().is_none() {
            return bad("block size of 64 KiB or less");
        }
        if sb.blocks_count() == 0 || sb.inodes_count.get() == 0 {
            return bad("count of blocks and inodes above zero");
        }
        if sb.blocks_per_group.get() == 0 || sb.inodes_per_group.get() == 0 {
            return bad("blocks and inodes per group above zero");
        }
        Ok(sb)
    }

    /// Reads the superblock of a device that is an external journal (`journal_dev`), with the checks of
    /// [`parse`](Self::parse) that concern it.
    ///
    /// # Errors
    /// As of [`parse`](Self::parse); [`FormatError::NotExt4`] for a file system.
    pub fn parse_journal_device(bytes: &[u8]) -> Result<Self> {
        let parsed = Self::parse(bytes);
        let sb = Self::read_from_prefix(bytes).map(|(sb, _)| sb);
        match (parsed, sb) {
            (Err(FormatError::Incompatible(_)), Ok(sb))
                if sb.block_size().is_some()
                    && Features::of(&sb).incompat.contains(Incompat::JOURNAL_DEV) =>
            {
                Ok(sb)
            }
            (Err(error), _) => Err(error),
            _ => Err(FormatError::NotExt4("a file system, not a journal")),
        }
    }

    /// Returns the bytes of a block, or `None` if they are more than 64 KiB, the most that ext4 has.
    pub fn block_size(&self) -> Option<u32> {
        let log = self.log_block_size.get();
        (log <= 6).then(|| 1024 << log)
    }

    /// Returns the bytes of the file system, or `None` if its fields are out of range.
    pub fn volume_len(&self) -> Option<u64> {
        self.blocks_count().checked_mul(self.block_size()?.into())
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8; SUPERBLOCK_SIZE] {
        zerocopy::transmute_ref!(self)
    }

    /// Returns the checksum the bytes should carry. Its seed is always all ones, independent of the volume's.
    pub fn computed_checksum(&self) -> u32 {
        crc32c(!0, &self.bytes()[..offset_of!(Self, checksum)])
    }

    /// Sets the checksum if the volume has metadata checksums. Call it last.
    pub fn set_checksum(&mut self) {
        if Features::of(self).has_metadata_csum() {
            self.checksum.set(self.computed_checksum());
        }
    }

    fn wide(&self, lo: U32, hi: U32) -> u64 {
        // The high halves have a meaning only with the 64bit feature.
        if Features::of(self).has_64bit() {
            u64::from(lo.get()) | u64::from(hi.get()) << 32
        } else {
            u64::from(lo.get())
        }
    }

    /// Sets the checksum after a change to `before` so that a write of the superblock that is torn between its two
    /// sectors never leaves one whose checksum is wrong. The checksum is in the second sector, and must fit the old
    /// and the new first sector. CRC is linear, so four bytes behind the end of the last mount path make up for all
    /// changes in the first sector. A superblock without room for the four bytes, or with a wrong checksum before the
    /// change, gets a plain checksum.
    pub fn set_checksum_untorn(&mut self, before: &Self) {
        const SECTOR: usize = 512;
        /// The last four bytes of `last_mounted`.
        const SPARE: usize = core::mem::offset_of!(RawSuperblock, last_mounted) + 60;
        let path_ends = self.last_mounted.iter().take(60).any(|&b| b == 0);
        let valid_before = before.checksum.get() == before.computed_checksum();
        if Features::of(self).has_metadata_csum() && path_ends && valid_before {
            let target = crc32c(!0, &before.bytes()[..SECTOR]);
            let first = &self.bytes()[..SECTOR];
            if let Some(spare) = crate::checksum::compensate(!0, first, SPARE, target) {
                self.last_mounted[60..].copy_from_slice(&spare);
            }
        }
        self.set_checksum();
    }

    /// Returns the number of blocks of the volume.
    pub fn blocks_count(&self) -> u64 {
        self.wide(self.blocks_count_lo, self.blocks_count_hi)
    }

    /// Returns the number of blocks reserved for the superuser.
    pub fn reserved_blocks(&self) -> u64 {
        self.wide(self.r_blocks_count_lo, self.r_blocks_count_hi)
    }

    /// Returns the number of free blocks.
    pub fn free_blocks(&self) -> u64 {
        self.wide(self.free_blocks_count_lo, self.free_blocks_count_hi)
    }

    /// Sets the count of blocks.
    pub fn set_blocks_count(&mut self, n: u64) {
        (self.blocks_count_lo, self.blocks_count_hi) = split(n);
    }

    /// Sets the count of reserved blocks.
    pub fn set_reserved_blocks(&mut self, n: u64) {
        (self.r_blocks_count_lo, self.r_blocks_count_hi) = split(n);
    }

    /// Sets the count of free blocks.
    pub fn set_free_blocks(&mut self, n: u64) {
        (self.free_blocks_count_lo, self.free_blocks_count_hi) = split(n);
    }

    /// Returns the time of the last write, in seconds.
    pub fn write_time(&self) -> i64 {
        i64::from(self.wtime.get()) | i64::from(self.wtime_hi) << 32
    }

    /// Returns whether a small time of deletion is the number of the next inode in the list of orphans. If the times of the file
    /// system are as small as numbers of inodes, a time of deletion may be that small, too.
    pub fn links_orphans_by_dtime(&self) -> bool {
        let times = [
            (self.mkfs_time, self.mkfs_time_hi),
            (self.mtime, self.mtime_hi),
            (self.wtime, self.wtime_hi),
        ];
        times.iter().all(|(low, high)| {
            let time = u64::from(low.get()) | u64::from(*high) << 32;
            time == 0 || time >= u64::from(self.inodes_count.get())
        })
    }

    /// Sets the time of the last write, in seconds.
    pub fn set_write_time(&mut self, secs: i64) {
        (self.wtime, self.wtime_hi) = split_time(secs);
    }

    /// Sets the time of the last mount, in seconds.
    pub fn set_mount_time(&mut self, secs: i64) {
        (self.mtime, self.mtime_hi) = split_time(secs);
    }

    /// Returns the label without its padding.
    pub fn label(&self) -> &[u8] {
        let end = self.volume_name.iter().position(|&b| b == 0);
        &self.volume_name[..end.unwrap_or(self.volume_name.len())]
    }

    /// Records an error: counts it, keeps the first and the latest, marks the state.
    pub fn record_error(&mut self, error: &ErrorRecord<'_>) {
        let mut name = [0; 32];
        for (to, from) in name.iter_mut().zip(error.function.bytes()) {
            *to = from;
        }
        self.state.set(self.state.get() | STATE_ERROR);
        if self.error_count.get() == 0 {
            (self.first_error_time, self.first_error_time_hi) = split_time(error.secs);
            self.first_error_func = name;
            self.first_error_line.set(error.line);
            self.first_error_ino.set(error.ino);
            self.first_error_block.set(error.block);
            self.first_error_errcode = error.code;
        }
        (self.last_error_time, self.last_error_time_hi) = split_time(error.secs);
        self.last_error_func = name;
        self.last_error_line.set(error.line);
        self.last_error_ino.set(error.ino);
        self.last_error_block.set(error.block);
        self.last_error_errcode = error.code;
        self.error_count
            .set(self.error_count.get().saturating_add(1));
    }

    /// Copies the recorded errors of another copy of this superblock, if that copy has recorded more. Returns whether
    /// it changed this superblock. The caller sets the checksum.
    pub fn keep_errors(&mut self, other: &Self) -> bool {
        let marked = other.state.get() & STATE_ERROR != 0 && self.state.get() & STATE_ERROR == 0;
        if other.error_count.get() <= self.error_count.get() && !marked {
            return false;
        }
        const FIELDS: core::ops::Range<usize> =
            offset_of!(RawSuperblock, error_count)..offset_of!(RawSuperblock, mount_opts);
        let mut bytes = *self.bytes();
        bytes[FIELDS].copy_from_slice(&other.bytes()[FIELDS]);
        let Ok(mut merged) = Self::read_from_bytes(&bytes) else {
            return false;
        };
        merged.state.set(self.state.get() | STATE_ERROR);
        merged.first_error_time_hi = other.first_error_time_hi;
        merged.last_error_time_hi = other.last_error_time_hi;
        merged.first_error_errcode = other.first_error_errcode;
        merged.last_error_errcode = other.last_error_errcode;
        *self = merged;
        true
    }
}

/// An error for [`RawSuperblock::record_error`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ErrorRecord<'a> {
    /// Time of the error, in seconds.
    pub secs: i64,
    /// Function that found it; 32 bytes of it are kept.
    pub function: &'a str,
    /// Line of the source that found it.
    pub line: u32,
    /// Inode it concerns, or 0.
    pub ino: u32,
    /// Block it concerns, or 0.
    pub block: u64,
    /// Kind of error by ext4's numbers: 4 is a wrong checksum, 5 a broken rule.
    pub code: u8,
}

fn split(n: u64) -> (U32, U32) {
    (U32::new(n as u32), U32::new((n >> 32) as u32))
}

/// Splits a time for the superblock, where times have 40 bits.
pub(crate) fn split_time(secs: i64) -> (U32, u8) {
    (U32::new(secs as u32), (secs >> 32) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{Incompat, RoCompat};

    #[test]
    fn checksum_is_checked_only_with_the_feature() {
        let mut sb = RawSuperblock::zeroed();
        sb.magic.set(MAGIC);
        sb.set_blocks_count(100);
        sb.inodes_count.set(8);
        sb.blocks_per_group.set(8192);
        sb.inodes_per_group.set(8);
        assert!(RawSuperblock::parse(sb.bytes()).is_ok());
        sb.feature_ro_compat.set(RoCompat::METADATA_CSUM.bits());
        sb.checksum_type = 1;
        assert!(matches!(
            RawSuperblock::parse(sb.bytes()),
            Err(FormatError::Checksum { .. })
        ));
        sb.set_checksum();
        assert!(RawSuperblock::parse(sb.bytes()).is_ok());
    }

    #[test]
    fn high_halves_need_64bit() {
        let mut sb = RawSuperblock::zeroed();
        sb.set_blocks_count(1 << 33 | 5);
        assert_eq!(sb.blocks_count(), 5);
        sb.feature_incompat.set(Incompat::SIXTY_FOUR_BIT.bits());
        assert_eq!(sb.blocks_count(), 1 << 33 | 5);
    }

    #[test]
    fn errors_keep_first_and_last() {
        let mut sb = RawSuperblock::zeroed();
        let error = |secs, function, ino, block| ErrorRecord {
            secs,
            function,
            ino,
            block,
            line: 7,
            code: 5,
        };
        sb.record_error(&error(10, "first", 1, 2));
        sb.record_error(&error(20, "second", 3, 4));
        assert_eq!(sb.error_count.get(), 2);
        assert_eq!(&sb.first_error_func[..6], b"first\0");
        assert_eq!(
            (sb.first_error_line.get(), sb.first_error_ino.get()),
            (7, 1)
        );
        assert_eq!(sb.last_error_block.get(), 4);
        assert_eq!(sb.state.get() & STATE_ERROR, STATE_ERROR);
    }

    #[test]
    fn errors_of_another_copy_are_kept() {
        let mut newer = RawSuperblock::zeroed();
        let mut older = newer;
        older.set_blocks_count(77);
        newer.record_error(&ErrorRecord {
            secs: 1 << 33,
            function: "find",
            ino: 12,
            ..Default::default()
        });
        assert!(older.keep_errors(&newer));
        assert_eq!((older.blocks_count(), older.error_count.get()), (77, 1));
        assert_eq!(
            (older.last_error_ino.get(), older.first_error_time_hi),
            (12, 2)
        );
        assert_eq!(older.state.get() & STATE_ERROR, STATE_ERROR);
        assert!(!older.keep_errors(&newer), "it has them already");
    }

    /// A torn write leaves one half of the old superblock and one of the new. Both combinations are valid. An error record
    /// changes fields of both halves.
    #[test]
    fn a_torn_write_leaves_a_valid_checksum() {
        let mut before = RawSuperblock::zeroed();
        before.magic.set(MAGIC);
        before.set_blocks_count(100);
        before.inodes_count.set(8);
        before.blocks_per_group.set(8192);
        before.inodes_per_group.set(8);
        before.feature_ro_compat.set(RoCompat::METADATA_CSUM.bits());
        before.checksum_type = 1;
        before.last_mounted[..5].copy_from_slice(b"/home");
        before.set_checksum();
        let changes: [fn(&mut RawSuperblock); 4] = [
            |sb| sb.mnt_count.set(7),
            |sb| sb.orphan_file_inum.set(7),
            |sb| {
                sb.record_error(&ErrorRecord {
                    secs: 1 << 33,
                    function: "read_names",
                    code: 5,
                    ..Default::default()
                });
            },
            |sb| {
                sb.set_write_time(1 << 33);
                sb.encoding.set(1);
            },
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let mut after = before;
            change(&mut after);
            after.set_checksum_untorn(&before);
            for (first, second) in [(&before, &after), (&after, &before), (&after, &after)] {
                let torn = [&first.bytes()[..512], &second.bytes()[512..]].concat();
                let parsed = RawSuperblock::parse(&torn);
                assert!(parsed.is_ok(), "change {n}: {parsed:?}");
            }
            assert_eq!(&after.last_mounted[..6], b"/home\0");
            before = after;
        }
    }
}
