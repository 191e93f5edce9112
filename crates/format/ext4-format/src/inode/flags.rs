//! Bits of `flags`.

use crate::types::FileType;

/// Secure deletion.
pub const SECRM: u32 = 0x1;
/// Keep for undeletion.
pub const UNRM: u32 = 0x2;
/// Compress.
pub const COMPR: u32 = 0x4;
/// Synchronous updates.
pub const SYNC: u32 = 0x8;
/// The file must not change.
pub const IMMUTABLE: u32 = 0x10;
/// The file may only grow.
pub const APPEND: u32 = 0x20;
/// The file is excluded from dump(8).
pub const NODUMP: u32 = 0x40;
/// Access time is not kept.
pub const NOATIME: u32 = 0x80;
/// Do not compress.
pub const NOCOMPR: u32 = 0x400;
/// Encrypted.
pub const ENCRYPT: u32 = 0x800;
/// A directory with a hashed index.
pub const INDEX: u32 = 0x1000;
/// An AFS directory.
pub const IMAGIC: u32 = 0x2000;
/// Data are written through the journal.
pub const JOURNAL_DATA: u32 = 0x4000;
/// Tails must not be merged.
pub const NOTAIL: u32 = 0x8000;
/// A directory's changes are synchronous.
pub const DIRSYNC: u32 = 0x1_0000;
/// Top of a hierarchy: subdirectories are spread over the groups.
pub const TOPDIR: u32 = 0x2_0000;
/// The count of blocks is in file-system blocks.
pub const HUGE_FILE: u32 = 0x4_0000;
/// Mapped by extents.
pub const EXTENTS: u32 = 0x8_0000;
/// fs-verity.
pub const VERITY: u32 = 0x10_0000;
/// Holds the value of an attribute.
pub const EA_INODE: u32 = 0x20_0000;
/// Blocks beyond the size (long obsolete).
pub const EOFBLOCKS: u32 = 0x40_0000;
/// Direct access to persistent memory.
pub const DAX: u32 = 0x200_0000;
/// Data in the inode.
pub const INLINE_DATA: u32 = 0x1000_0000;
/// Children inherit the project.
pub const PROJINHERIT: u32 = 0x2000_0000;
/// Names ignore case.
pub const CASEFOLD: u32 = 0x4000_0000;
/// Flags that lsattr shows.
pub const USER_VISIBLE: u32 = 0x725b_dfff;
/// Flags that chattr may change. [`EXTENTS`] among them means to change the mapping of the whole
/// file.
pub const USER_MODIFIABLE: u32 = 0x624b_c0ff;
/// Flags that a new inode inherits from its directory, as far as its type has them: see [`of_type`].
pub const INHERITED: u32 = SECRM
    | UNRM
    | COMPR
    | SYNC
    | NODUMP
    | NOATIME
    | NOCOMPR
    | JOURNAL_DATA
    | NOTAIL
    | DIRSYNC
    | DAX
    | PROJINHERIT
    | CASEFOLD;

/// Returns the flags that an inode of this type may have. Some apply to directories only, and inodes that are neither
/// directories nor regular files have just two.
pub const fn of_type(file_type: FileType, flags: u32) -> u32 {
    match file_type {
        FileType::Directory => flags,
        FileType::Regular => flags & !(DIRSYNC | TOPDIR | CASEFOLD | PROJINHERIT),
        _ => flags & (NODUMP | NOATIME),
    }
}
