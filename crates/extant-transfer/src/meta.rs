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
    /// Bytes.
    pub size: u64,
    /// Device number as made by `ext4_format::inode::makedev`.
    pub rdev: u32,
    /// Time of the last access.
    pub atime: Timestamp,
    /// Time of the last modification.
    pub mtime: Timestamp,
    /// Number of names.
    pub links: u64,
    /// Device and inode.
    pub id: (u64, u64),
    /// Whether the file has no holes.
    pub dense: bool,
    /// Flags as chattr sets them, of a file in a volume or an archive.
    pub flags: u32,
}

/// Name and value of an extended attribute.
pub type Xattr = (Vec<u8>, Vec<u8>);
