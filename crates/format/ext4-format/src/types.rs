//! The numbers of the format, each with its own type, so that a block number cannot be used as an inode number.

use core::fmt;

/// Magic number of a superblock (`s_magic`).
pub const MAGIC: u16 = 0xef53;

/// A physical block of the volume, counted in file-system blocks from its start.
///
/// ```
/// use ext4_format::BlockNr;
/// assert_eq!(BlockNr(7).offset(4096), 28_672);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNr(pub u64);

impl BlockNr {
    /// Returns the byte offset of the block in the volume. Saturates: a block number that was checked against the
    /// volume never does.
    pub const fn offset(self, block_size: u32) -> u64 {
        self.0.saturating_mul(block_size as u64)
    }
}

impl fmt::Display for BlockNr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An inode number; the first is 1, the root directory is 2.
///
/// ```
/// use ext4_format::InodeNr;
/// assert_eq!(InodeNr::ROOT, InodeNr(2));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeNr(pub u32);

impl InodeNr {
    /// The root directory.
    pub const ROOT: Self = Self(2);
    /// The resize inode, which holds the reserved group descriptor blocks.
    pub const RESIZE: Self = Self(7);
    /// The internal journal.
    pub const JOURNAL: Self = Self(8);
}

impl fmt::Display for InodeNr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A block group, counted from 0.
///
/// ```
/// use ext4_format::GroupNr;
/// assert_eq!(format!("{}", GroupNr(3)), "3");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNr(pub u32);

impl fmt::Display for GroupNr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The type of an inode; the values are those of a directory entry's type byte.
///
/// ```
/// use ext4_format::FileType;
/// assert_eq!(FileType::from_mode(0o100644), Some(FileType::Regular));
/// assert_eq!(FileType::Directory.mode_bits(), 0o040000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FileType {
    /// Regular file.
    Regular = 1,
    /// Directory.
    Directory = 2,
    /// Character device.
    CharDevice = 3,
    /// Block device.
    BlockDevice = 4,
    /// Named pipe.
    Fifo = 5,
    /// Socket.
    Socket = 6,
    /// Symbolic link.
    Symlink = 7,
}

impl FileType {
    /// Returns the name of the type.
    ///
    /// ```
    /// assert_eq!(ext4_format::FileType::Fifo.name(), "fifo");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::Regular => "regular file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::CharDevice => "character device",
            Self::BlockDevice => "block device",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
        }
    }

    /// Decodes the type byte of a directory entry; `None` for 0 (unknown) and undefined values.
    pub const fn from_dir_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => return None,
        })
    }

    /// Decodes the high four bits of an inode's mode.
    pub const fn from_mode(mode: u16) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o120_000 => Self::Symlink,
            _ => return None,
        })
    }

    /// Returns the high four bits of an inode's mode.
    pub const fn mode_bits(self) -> u16 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
            Self::Symlink => 0o120_000,
        }
    }
}
