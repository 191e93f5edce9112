//! A name in its directory's order, and its inode.

use ext4_format::{FileType, InodeNr};
use extant_formatter::name::Name;

/// Place of a name in the directory's order: hash, then minor hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameHash {
    /// Hash, low bit clear.
    pub major: u32,
    /// Minor hash.
    pub minor: u32,
}

impl NameHash {
    /// Returns the readdir cookie: 63 bits. 0 is the start, and 1 and 2 are left for "." and "..".
    pub fn cookie(self) -> u64 {
        (u64::from(self.major >> 1) << 32 | u64::from(self.minor)).max(3)
    }

    /// Returns eight bits that differ between names of one bucket.
    pub(crate) fn tag(self) -> u8 {
        (self.minor ^ self.major >> 1) as u8
    }
}

/// One name.
#[derive(Clone, Debug)]
pub struct Dentry {
    /// Hash of the name: its place in the order.
    pub hash: NameHash,
    /// The inode it leads to.
    pub ino: InodeNr,
    /// Type of the inode.
    pub ftype: FileType,
    /// The name.
    pub name: Name,
}
