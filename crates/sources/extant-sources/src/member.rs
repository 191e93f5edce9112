//! A member of an archive of any format.

use ext4_format::timestamp::Timestamp;
use ext4_format::xattr::{ACL_ACCESS, ACL_DEFAULT};

/// Where member data can be read later: the file, and the offset in it.
pub(crate) type Origin = u64;

/// Attributes of a source: full names, ACLs in the form of system calls.
pub type RawXattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Name spaces of extended attributes that ext4 can store. Others, such as those of NFS, CIFS and btrfs, are dropped.
const KEPT: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// Returns true if ext4 can store an extended attribute of this name. Network file systems and others have further name
/// spaces.
pub fn is_kept_xattr(name: &[u8]) -> bool {
    name == ACL_ACCESS || name == ACL_DEFAULT || KEPT.iter().any(|p| name.starts_with(p))
}

/// A stretch of bytes of a file that is not a hole.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub start: u64,
    pub len: u64,
}

/// The kind of a member.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberKind {
    File {
        size: u64,
        origin: u64,
        map: Option<Box<[Segment]>>,
    },
    HardLink(Vec<u8>),
    Symlink(Vec<u8>),
    CharDevice(u32, u32),
    BlockDevice(u32, u32),
    Directory,
    Fifo,
    Socket,
}

/// One member.
#[doc(hidden)]
#[derive(Debug)]
pub struct Member {
    pub path: Vec<u8>,
    pub kind: MemberKind,
    /// Permissions.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Timestamp,
    pub atime: Timestamp,
    pub ctime: Timestamp,
    pub xattrs: RawXattrs,
    /// Part of an ACL could not be kept: it names people, not numbers.
    pub unresolved_acl: bool,
    /// Names of attributes that could not be read.
    pub malformed: Vec<Vec<u8>>,
    /// The type byte, if it is unknown; the member is taken for a file.
    pub unknown_type: Option<u8>,
    /// Flags as chattr sets them.
    pub flags: u32,
    /// Project.
    pub project: u32,
}
