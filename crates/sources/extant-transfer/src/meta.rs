//! Attributes of a file.

use ext4_format::FileType;
use ext4_format::timestamp::Timestamp;

/// Attributes of an inode, on either side.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Type of the file.
    pub kind: FileType,
    /// Permissions, set-id and sticky bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Device number in the encoding of `ext4_format::inode::makedev`.
    pub rdev: u32,
    /// Time of the last access.
    pub atime: Timestamp,
    /// Time of the last modification.
    pub mtime: Timestamp,
    /// Number of names (hard links).
    pub links: u64,
    /// Device number and inode number.
    pub id: (u64, u64),
    /// True if the file has no holes.
    pub dense: bool,
    /// Flags of chattr(1), for a file of a volume or an archive.
    pub flags: u32,
}

/// Name and value of an extended attribute.
pub type Xattr = (Vec<u8>, Vec<u8>);
