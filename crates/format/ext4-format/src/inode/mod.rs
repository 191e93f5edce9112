//! Inode records: the fixed part, its extra part, the checksum. The contents of `i_block` and of
//! the space for attributes belong to other modules.
//!
//! A record is a slice of exactly `inode_size` bytes; all functions are views of it. A shorter slice counts as
//! corrupt or empty, and never panics.

pub mod encryption;
pub mod flags;
pub mod inline;
pub mod reserved;
pub mod value;

use crate::checksum::{crc32c, inode_seed};
use crate::error::{FormatError, Result, Where};
use crate::geometry::Geometry;
use crate::superblock::{OS_HURD, RawSuperblock};
use crate::timestamp::Timestamp;
use crate::types::{BlockNr, FileType, InodeNr};
use core::ops::Range;
use extant_checksum::{RECORD, crc32c_record};

/// Bytes of the part every inode has.
pub const GOOD_OLD_SIZE: usize = 128;
/// Bytes of `i_block`.
pub const I_BLOCK_SIZE: usize = 60;
/// Where `i_block` begins in the record.
pub const I_BLOCK_OFFSET: usize = at::BLOCK;
/// Limit of a directory's link count; a larger count is stored as 1.
pub const LINK_MAX: u32 = 65_000;

/// Byte offsets in a record.
mod at {
    pub const MODE: usize = 0;
    pub const UID: usize = 2;
    pub const SIZE: usize = 4;
    pub const ATIME: usize = 8;
    pub const CTIME: usize = 12;
    pub const MTIME: usize = 16;
    pub const DTIME: usize = 20;
    pub const GID: usize = 24;
    pub const LINKS: usize = 26;
    pub const BLOCKS: usize = 28;
    pub const FLAGS: usize = 32;
    pub const TRANSLATOR: usize = 36;
    pub const BLOCK: usize = 40;
    pub const GENERATION: usize = 100;
    pub const FILE_ACL: usize = 104;
    pub const SIZE_HI: usize = 108;
    pub const FADDR: usize = 112;
    pub const BLOCKS_HI: usize = 116;
    pub const FILE_ACL_HI: usize = 118;
    pub const UID_HI: usize = 120;
    pub const GID_HI: usize = 122;
    pub const CSUM: usize = 124;
    pub const EXTRA_ISIZE: usize = 128;
    pub const CSUM_HI: usize = 130;
    pub const CTIME_EXTRA: usize = 132;
    pub const MTIME_EXTRA: usize = 136;
    pub const ATIME_EXTRA: usize = 140;
    pub const CRTIME: usize = 144;
    pub const CRTIME_EXTRA: usize = 148;
    pub const PROJID: usize = 156;
    /// End of the extra part that has all fields.
    pub const FULL: usize = 160;
}

/// The fields that stat shows, and that the engine keeps in memory.
///
/// ```
/// use ext4_format::{FileType, inode::InodeCore};
/// let core = InodeCore { mode: 0o40755, ..InodeCore::default() };
/// assert_eq!(core.file_type(), Some(FileType::Directory));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeCore {
    /// Type and permissions.
    pub mode: u16,
    /// Links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// [`flags`].
    pub flags: u32,
    /// Generation of the inode number, for file handles and checksums.
    pub generation: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Time of creation; zero if inodes have no room for it.
    pub crtime: Timestamp,
    /// Time of deletion, or the next inode of the orphan list.
    pub dtime: u32,
    /// Device number of a device, as [`makedev`] makes it; else 0.
    pub rdev: u32,
    /// Project, on volumes with the feature `project`; else 0.
    pub project: u32,
}

impl InodeCore {
    /// Returns the fields of a file that belongs to the volume itself, such as the journal.
    pub fn of_volume(size: u64, time: Timestamp) -> Self {
        Self {
            mode: FileType::Regular.mode_bits() | 0o600,
            links: 1,
            size,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            ..Self::default()
        }
    }

    /// Returns the type, from the mode.
    pub const fn file_type(&self) -> Option<FileType> {
        FileType::from_mode(self.mode)
    }
}

/// Returns a device number of 12 + 20 bits in 32, as Linux encodes it for user space.
///
/// ```
/// use ext4_format::inode::{dev_major, dev_minor, makedev};
/// let dev = makedev(259, 70_000);
/// assert_eq!((dev_major(dev), dev_minor(dev)), (259, 70_000));
/// assert_eq!(makedev(8, 1), 0x801);
/// ```
pub const fn makedev(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xfff00) << 12
}

/// Returns the major part of a device number.
pub const fn dev_major(dev: u32) -> u32 {
    (dev >> 8) & 0xfff
}

/// Returns the minor part of a device number.
pub const fn dev_minor(dev: u32) -> u32 {
    (dev & 0xff) | (dev >> 12) & 0xfff00
}

#[inline]
fn u16_at(raw: &[u8], at: usize) -> u16 {
    raw.get(at..at + 2)
        .map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

#[inline]
fn u32_at(raw: &[u8], at: usize) -> u32 {
    raw.get(at..at + 4)
        .map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

#[inline]
fn put<const N: usize>(raw: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = raw.get_mut(at..at + N) {
        place.copy_from_slice(&bytes);
    }
}

/// Returns the end of a record's fixed part: 128 plus `i_extra_isize`, or 128 where that is absent or impossible.
///
/// ```
/// assert_eq!(ext4_format::inode::fixed_end(&[0; 128]), 128);
/// ```
#[inline]
pub fn fixed_end(raw: &[u8]) -> usize {
    let end = GOOD_OLD_SIZE + usize::from(u16_at(raw, at::EXTRA_ISIZE));
    if end <= raw.len() { end } else { GOOD_OLD_SIZE }
}

/// Returns the word at `at` of the extra part, if the extra part includes it.
#[inline]
fn extra_at(raw: &[u8], end: usize, at: usize) -> Option<u32> {
    (at + 4 <= end).then(|| u32_at(raw, at))
}

fn has_wide_size(mode: u16, geo: &Geometry) -> bool {
    let ft = FileType::from_mode(mode);
    // The high word has another meaning in directories of old volumes.
    ft == Some(FileType::Regular)
        || (ft == Some(FileType::Directory) && geo.features.has_large_dir())
}

fn is_device(mode: u16) -> bool {
    matches!(
        FileType::from_mode(mode),
        Some(FileType::CharDevice | FileType::BlockDevice)
    )
}

/// Reads an inode and checks its checksum and the size of its extra part.
///
/// # Errors
/// [`FormatError::Checksum`] or [`FormatError::Corrupt`] at the inode.
pub fn decode_core(raw: &[u8], geo: &Geometry, ino: InodeNr) -> Result<InodeCore> {
    check_sizes(raw, geo, ino)?;
    verify_checksum(raw, geo, ino)?;
    decode_verified(raw, geo, ino)
}

fn check_sizes(raw: &[u8], geo: &Geometry, ino: InodeNr) -> Result<()> {
    let bad = |what| Err(FormatError::corrupt(what, Where::Inode(ino)));
    if raw.len() != usize::from(geo.inode_size) {
        return bad("size of the inode record");
    }
    if geo.inode_size > 128 {
        let extra = u16_at(raw, at::EXTRA_ISIZE);
        if extra > geo.inode_size - 128 || !extra.is_multiple_of(4) {
            return bad("size of the extra part");
        }
    }
    Ok(())
}

/// Returns the times of access, modification, change and birth, of a record whose fixed part ends here.
#[inline(always)]
fn times_of(base: &[u8; GOOD_OLD_SIZE], raw: &[u8], end: usize) -> [Timestamp; 4] {
    let time = |low, extra| Timestamp::decode(u32_at(base, low), extra_at(raw, end, extra));
    let crtime = match extra_at(raw, end, at::CRTIME) {
        Some(low) => Timestamp::decode(low, extra_at(raw, end, at::CRTIME_EXTRA)),
        None => Timestamp::default(),
    };
    [
        time(at::ATIME, at::ATIME_EXTRA),
        time(at::MTIME, at::MTIME_EXTRA),
        time(at::CTIME, at::CTIME_EXTRA),
        crtime,
    ]
}

/// Like [`decode_core`], for a record whose checksum was verified or set after reading.
///
/// # Errors
/// [`FormatError::Corrupt`] at the inode.
#[inline(always)]
pub fn decode_verified(raw: &[u8], geo: &Geometry, ino: InodeNr) -> Result<InodeCore> {
    check_sizes(raw, geo, ino)?;
    let bad = |what| Err(FormatError::corrupt(what, Where::Inode(ino)));
    let end = fixed_end(raw);
    // Of known length: no access to it is checked.
    let Some(base) = raw.first_chunk::<GOOD_OLD_SIZE>() else {
        return bad("size of the inode record");
    };
    let mode = u16_at(base, at::MODE);
    let mut size = u64::from(u32_at(base, at::SIZE));
    if has_wide_size(mode, geo) {
        size |= u64::from(u32_at(base, at::SIZE_HI)) << 32;
    }
    if size > i64::MAX as u64 {
        return bad("file size");
    }
    let rdev = if is_device(mode) {
        // The first word has the 16-bit form; if it is zero, the second has the 32-bit form.
        match u32_at(base, at::BLOCK) {
            0 => u32_at(base, at::BLOCK + 4),
            old => old & 0xffff,
        }
    } else {
        0
    };
    let (times, project) = match raw.first_chunk::<{ at::FULL }>() {
        // All fields are there, in a part of known length.
        Some(full) if end >= at::FULL => (times_of(base, full, at::FULL), u32_at(full, at::PROJID)),
        _ => {
            let project = extra_at(raw, end, at::PROJID).unwrap_or(0);
            (times_of(base, raw, end), project)
        }
    };
    let [atime, mtime, ctime, crtime] = times;
    Ok(InodeCore {
        mode,
        links: u16_at(base, at::LINKS).into(),
        uid: u32::from(u16_at(base, at::UID)) | u32::from(u16_at(base, at::UID_HI)) << 16,
        gid: u32::from(u16_at(base, at::GID)) | u32::from(u16_at(base, at::GID_HI)) << 16,
        size,
        flags: u32_at(base, at::FLAGS),
        generation: u32_at(base, at::GENERATION),
        atime,
        mtime,
        ctime,
        crtime,
        dtime: u32_at(base, at::DTIME),
        rdev,
        project: if geo.features.has_project() {
            project
        } else {
            0
        },
    })
}

/// Makes a record empty: zeros, and the size of the extra part that new inodes have.
#[inline]
pub fn init(raw: &mut [u8], geo: &Geometry) {
    raw.fill(0);
    init_blank(raw, geo);
}

/// Like [`init`], for a record of zeros.
#[inline]
pub fn init_blank(raw: &mut [u8], geo: &Geometry) {
    if raw.len() > GOOD_OLD_SIZE {
        put(raw, at::EXTRA_ISIZE, geo.want_extra_isize.to_le_bytes());
    }
}

/// Writes the core into a record made by [`init`] or read from disk. Not changed: `i_block` (except for devices), the
/// count of sectors and its [`flags::HUGE_FILE`] bit, the attribute block, the checksum. A directory with more than
/// [`LINK_MAX`] links is stored with 1, as `dir_nlink` wants.
pub fn encode_core(core: &InodeCore, raw: &mut [u8], geo: &Geometry) {
    if raw.len() > GOOD_OLD_SIZE && u16_at(raw, at::EXTRA_ISIZE) == 0 {
        // An inode of a writer that knew no extra part: nothing is there, so it can be used.
        raw[GOOD_OLD_SIZE..].fill(0);
        put(raw, at::EXTRA_ISIZE, geo.want_extra_isize.to_le_bytes());
    }
    let end = fixed_end(raw);
    // Of known length: no access to it is checked.
    let Some((base, extra)) = raw.split_first_chunk_mut::<GOOD_OLD_SIZE>() else {
        return;
    };
    put(base, at::MODE, core.mode.to_le_bytes());
    put(base, at::UID, (core.uid as u16).to_le_bytes());
    put(base, at::UID_HI, ((core.uid >> 16) as u16).to_le_bytes());
    put(base, at::GID, (core.gid as u16).to_le_bytes());
    put(base, at::GID_HI, ((core.gid >> 16) as u16).to_le_bytes());
    put(base, at::SIZE, (core.size as u32).to_le_bytes());
    if has_wide_size(core.mode, geo) {
        put(base, at::SIZE_HI, ((core.size >> 32) as u32).to_le_bytes());
    }
    let links = if core.links > LINK_MAX && core.file_type() == Some(FileType::Directory) {
        1
    } else {
        core.links.min(u32::from(u16::MAX)) as u16
    };
    put(base, at::LINKS, links.to_le_bytes());
    let huge = u32_at(base, at::FLAGS) & flags::HUGE_FILE;
    let word = core.flags & !flags::HUGE_FILE | huge;
    put(base, at::FLAGS, word.to_le_bytes());
    put(base, at::GENERATION, core.generation.to_le_bytes());
    put(base, at::DTIME, core.dtime.to_le_bytes());
    match extra.first_chunk_mut::<{ at::FULL - GOOD_OLD_SIZE }>() {
        // All fields are there, in a part of known length.
        Some(full) if end >= at::FULL => put_extra(core, base, full, at::FULL, geo),
        _ => put_extra(core, base, extra, end, geo),
    }
    if is_device(core.mode) {
        let (old, new) = if core.rdev <= 0xffff {
            (core.rdev, 0)
        } else {
            (0, core.rdev)
        };
        put(raw, at::BLOCK, old.to_le_bytes());
        put(raw, at::BLOCK + 4, new.to_le_bytes());
    }
}

/// Writes the times, and the project, into a record whose fixed part ends here.
#[inline(always)]
fn put_extra(
    core: &InodeCore,
    base: &mut [u8; GOOD_OLD_SIZE],
    extra: &mut [u8],
    end: usize,
    geo: &Geometry,
) {
    for (low, high, time) in [
        (at::ATIME, at::ATIME_EXTRA, core.atime),
        (at::MTIME, at::MTIME_EXTRA, core.mtime),
        (at::CTIME, at::CTIME_EXTRA, core.ctime),
    ] {
        if high + 4 <= end {
            let (seconds, more) = time.encode();
            put(base, low, seconds.to_le_bytes());
            put(extra, high - GOOD_OLD_SIZE, more.to_le_bytes());
        } else {
            put(base, low, time.encode_short().to_le_bytes());
        }
    }
    if at::CRTIME_EXTRA + 4 <= end {
        let (seconds, more) = core.crtime.encode();
        put(extra, at::CRTIME - GOOD_OLD_SIZE, seconds.to_le_bytes());
        put(extra, at::CRTIME_EXTRA - GOOD_OLD_SIZE, more.to_le_bytes());
    } else if at::CRTIME + 4 <= end {
        let seconds = core.crtime.encode_short();
        put(extra, at::CRTIME - GOOD_OLD_SIZE, seconds.to_le_bytes());
    }
    if geo.features.has_project() && at::PROJID + 4 <= end {
        let project = core.project.to_le_bytes();
        put(extra, at::PROJID - GOOD_OLD_SIZE, project);
    }
}

/// Marks a record as freed: clears links, size, sectors and attribute block, and sets these times. The mapping and
/// the checksum are left to the caller.
#[inline]
pub fn encode_freed(raw: &mut [u8], geo: &Geometry, ctime: Timestamp, dtime: u32) {
    let end = fixed_end(raw);
    let Some((base, extra)) = raw.split_first_chunk_mut::<GOOD_OLD_SIZE>() else {
        return;
    };
    put(base, at::LINKS, 0u16.to_le_bytes());
    put(base, at::SIZE, 0u32.to_le_bytes());
    if has_wide_size(u16_at(base, at::MODE), geo) {
        put(base, at::SIZE_HI, 0u32.to_le_bytes());
    }
    put(base, at::BLOCKS, 0u32.to_le_bytes());
    if geo.features.has_huge_file() {
        put(base, at::BLOCKS_HI, 0u16.to_le_bytes());
    }
    let word = u32_at(base, at::FLAGS) & !flags::HUGE_FILE;
    put(base, at::FLAGS, word.to_le_bytes());
    set_file_acl(base, BlockNr(0));
    put(base, at::DTIME, dtime.to_le_bytes());
    if at::CTIME_EXTRA + 4 <= end {
        let (seconds, more) = ctime.encode();
        put(base, at::CTIME, seconds.to_le_bytes());
        put(extra, at::CTIME_EXTRA - GOOD_OLD_SIZE, more.to_le_bytes());
    } else {
        put(base, at::CTIME, ctime.encode_short().to_le_bytes());
    }
}

/// Returns the 60 bytes that map the file: extent root, block pointers, or a short symbolic link.
///
/// # Errors
/// [`FormatError::Corrupt`] if the record is too short.
#[inline]
pub fn i_block(raw: &[u8]) -> Result<&[u8; I_BLOCK_SIZE]> {
    raw.get(at::BLOCK..at::BLOCK + I_BLOCK_SIZE)
        .and_then(|b| b.try_into().ok())
        .ok_or(FormatError::corrupt(
            "size of the inode record",
            Where::Buffer(0),
        ))
}

/// Returns [`i_block`] for writing.
///
/// # Errors
/// [`FormatError::Corrupt`] if the record is too short.
#[inline]
pub fn i_block_mut(raw: &mut [u8]) -> Result<&mut [u8; I_BLOCK_SIZE]> {
    raw.get_mut(at::BLOCK..at::BLOCK + I_BLOCK_SIZE)
        .and_then(|b| b.try_into().ok())
        .ok_or(FormatError::corrupt(
            "size of the inode record",
            Where::Buffer(0),
        ))
}

/// Returns the space the file takes, in units of 512 bytes.
pub fn sectors(raw: &[u8], geo: &Geometry) -> u64 {
    let lo = u64::from(u32_at(raw, at::BLOCKS));
    if !geo.features.has_huge_file() {
        return lo;
    }
    let n = lo | u64::from(u16_at(raw, at::BLOCKS_HI)) << 32;
    if u32_at(raw, at::FLAGS) & flags::HUGE_FILE != 0 {
        n * u64::from(geo.sectors_per_block()) // 48 bits times at most 2^7
    } else {
        n
    }
}

/// Stores the space the file takes, in units of 512 bytes, and sets or clears
/// [`flags::HUGE_FILE`] as needed.
///
/// # Errors
/// [`FormatError::Unrepresentable`] if the format of the volume has no room for it.
pub fn set_sectors(raw: &mut [u8], geo: &Geometry, sectors: u64) -> Result<()> {
    let mut n = sectors;
    let mut word = u32_at(raw, at::FLAGS) & !flags::HUGE_FILE;
    if n >> 32 != 0 && !geo.features.has_huge_file() {
        return Err(FormatError::Unrepresentable(
            "file of 2 TiB without huge_file",
        ));
    }
    if n >> 48 != 0 {
        word |= flags::HUGE_FILE;
        n /= u64::from(geo.sectors_per_block());
        if n >> 48 != 0 {
            return Err(FormatError::Unrepresentable(
                "count of blocks beyond 48 bits",
            ));
        }
    }
    put(raw, at::FLAGS, word.to_le_bytes());
    put(raw, at::BLOCKS, (n as u32).to_le_bytes());
    if geo.features.has_huge_file() {
        put(raw, at::BLOCKS_HI, ((n >> 32) as u16).to_le_bytes());
    }
    Ok(())
}

/// Returns the block of the extended attributes, or 0.
#[inline]
pub fn file_acl(raw: &[u8], geo: &Geometry) -> BlockNr {
    let lo = u64::from(u32_at(raw, at::FILE_ACL));
    if geo.features.has_64bit() {
        BlockNr(lo | u64::from(u16_at(raw, at::FILE_ACL_HI)) << 32)
    } else {
        BlockNr(lo)
    }
}

/// Returns the address of a fragment, which ext4 does not use: 0 in a sound inode.
pub fn fragment(raw: &[u8]) -> u32 {
    u32_at(raw, at::FADDR)
}

/// Returns the block of an inode's translator on a volume of the Hurd, or 0. Linux keeps a version in this field.
pub fn hurd_translator(raw: &[u8], sb: &RawSuperblock) -> u32 {
    if sb.creator_os.get() == OS_HURD {
        u32_at(raw, at::TRANSLATOR)
    } else {
        0
    }
}

/// Returns the high half of the count of sectors without `huge_file`, and above it that of the attribute block's
/// number without `64bit`: 0 in a sound inode.
pub fn unused_halves(raw: &[u8], geo: &Geometry) -> u32 {
    let unless = |used, at| if used { 0 } else { u32::from(u16_at(raw, at)) };
    let blocks = unless(geo.features.has_huge_file(), at::BLOCKS_HI);
    blocks | unless(geo.features.has_64bit(), at::FILE_ACL_HI) << 16
}

/// Returns the high half of the size of inodes with a size of 32 bits: 0 in a sound inode.
pub fn unused_size_half(raw: &[u8], geo: &Geometry) -> u32 {
    if has_wide_size(u16_at(raw, at::MODE), geo) {
        0
    } else {
        u32_at(raw, at::SIZE_HI)
    }
}

/// Makes [`unused_size_half`] 0.
pub fn clear_unused_size_half(raw: &mut [u8], geo: &Geometry) {
    if !has_wide_size(u16_at(raw, at::MODE), geo) {
        put(raw, at::SIZE_HI, [0; 4]);
    }
}

/// Makes [`fragment`] and [`unused_halves`] 0.
pub fn clear_unused(raw: &mut [u8], geo: &Geometry) {
    put(raw, at::FADDR, [0; 4]);
    if !geo.features.has_huge_file() {
        put(raw, at::BLOCKS_HI, [0; 2]);
    }
    if !geo.features.has_64bit() {
        put(raw, at::FILE_ACL_HI, [0; 2]);
    }
}

/// Sets the block of the extended attributes.
#[inline]
pub fn set_file_acl(raw: &mut [u8], block: BlockNr) {
    put(raw, at::FILE_ACL, (block.0 as u32).to_le_bytes());
    put(raw, at::FILE_ACL_HI, ((block.0 >> 32) as u16).to_le_bytes());
}

/// Returns the project of the inode, or 0 if records lack room for one.
pub fn project(raw: &[u8]) -> u32 {
    extra_at(raw, fixed_end(raw), at::PROJID).unwrap_or(0)
}

/// Returns whether a record has room for a project, or will have it when it is written; and whether new records have
/// it.
///
/// ```
/// # use ext4_format::{geometry::Geometry, inode, superblock::RawSuperblock};
/// # fn shown(geo: &Geometry, raw: &[u8]) {
/// let (old, new) = (inode::has_project_room(raw, geo), inode::has_project_room(&[], geo));
/// # let _ = (old, new);
/// # }
/// ```
pub fn has_project_room(raw: &[u8], geo: &Geometry) -> bool {
    if !geo.features.has_project() {
        return false;
    }
    let end = match u16_at(raw, at::EXTRA_ISIZE) {
        0 if usize::from(geo.inode_size) > GOOD_OLD_SIZE => {
            GOOD_OLD_SIZE + usize::from(geo.want_extra_isize)
        }
        _ => fixed_end(raw),
    };
    at::PROJID + 4 <= end
}

/// Returns the part of the record for extended attributes: from the end of the extra part to the end of the record.
/// `None` if the record lacks room or an extra part.
pub fn xattr_area(raw: &[u8], geo: &Geometry) -> Option<Range<usize>> {
    let end = usize::from(geo.inode_size).min(raw.len());
    let start = fixed_end(raw);
    // The area needs room for a header and a terminator.
    (start > GOOD_OLD_SIZE && start.is_multiple_of(4) && start + 8 <= end).then_some(start..end)
}

/// Returns whether the record has room for the high half of the checksum.
fn has_csum_hi(raw: &[u8]) -> bool {
    fixed_end(raw) >= at::CSUM_HI + 2
}

/// Returns the checksum over number and generation of an inode and its record, whose own fields for it are zeros.
#[inline]
fn sum_of_zeroed(raw: &[u8], geo: &Geometry, ino: InodeNr) -> u32 {
    let generation = u32_at(raw, at::GENERATION);
    match <&[u8; RECORD]>::try_from(raw) {
        Ok(record) => {
            let key = u64::from(ino.0) | u64::from(generation) << 32;
            crc32c_record(geo.csum_seed, key, record)
        }
        Err(_) => crc32c(inode_seed(geo.csum_seed, ino, generation), raw),
    }
}

/// Returns the checksum the record should carry; its own fields count as zeros.
fn computed_checksum(raw: &[u8], geo: &Geometry, ino: InodeNr) -> Option<u32> {
    let whole = has_csum_hi(raw);
    let crc = if let Ok(mut record) = <[u8; RECORD]>::try_from(raw) {
        put(&mut record, at::CSUM, [0; 2]);
        if whole {
            put(&mut record, at::CSUM_HI, [0; 2]);
        }
        sum_of_zeroed(&record, geo, ino)
    } else {
        let (base, extra) = raw.split_at_checked(GOOD_OLD_SIZE)?;
        let (zero, half) = ([0; 2], at::CSUM_HI - GOOD_OLD_SIZE);
        let seed = inode_seed(geo.csum_seed, ino, u32_at(raw, at::GENERATION));
        let low = [&base[..at::CSUM], &zero, &base[at::CSUM + 2..]];
        let high = match extra.split_at_checked(half + 2).filter(|_| whole) {
            Some((before, behind)) => [&before[..half], &zero, behind],
            None => [extra, &[], &[]],
        };
        low.into_iter().chain(high).fold(seed, crc32c)
    };
    Some(if whole { crc } else { crc & 0xffff })
}

/// Sets the checksum if the volume has metadata checksums. Call it last.
#[inline]
pub fn set_checksum(raw: &mut [u8], geo: &Geometry, ino: InodeNr) {
    if !geo.features.has_metadata_csum() || raw.len() < GOOD_OLD_SIZE {
        return;
    }
    let whole = has_csum_hi(raw);
    put(raw, at::CSUM, [0; 2]);
    if whole {
        put(raw, at::CSUM_HI, [0; 2]);
    }
    let crc = sum_of_zeroed(raw, geo, ino);
    put(raw, at::CSUM, (crc as u16).to_le_bytes());
    if whole {
        put(raw, at::CSUM_HI, ((crc >> 16) as u16).to_le_bytes());
    }
}

/// Checks the checksum if the volume has metadata checksums.
///
/// # Errors
/// [`FormatError::Checksum`] at the inode; [`FormatError::Corrupt`] for a record too short.
pub fn verify_checksum(raw: &[u8], geo: &Geometry, ino: InodeNr) -> Result<()> {
    if !geo.features.has_metadata_csum() {
        return Ok(());
    }
    let place = Where::Inode(ino);
    let computed = computed_checksum(raw, geo, ino)
        .ok_or(FormatError::corrupt("size of the inode record", place))?;
    let mut stored = u32::from(u16_at(raw, at::CSUM));
    if has_csum_hi(raw) {
        stored |= u32::from(u16_at(raw, at::CSUM_HI)) << 16;
    }
    if stored == computed {
        Ok(())
    } else {
        Err(FormatError::Checksum {
            what: "inode",
            at: place,
            stored,
            computed,
        })
    }
}

#[cfg(test)]
mod tests;
