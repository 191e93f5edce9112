//! A member of an archive of any format.

use super::stream::Origin;
use crate::source_attributes::RawXattrs;
use crate::tree::Segment;
use ext4_format::timestamp::Timestamp;

/// The kind of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberKind {
    File {
        size: u64,
        origin: Origin,
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
#[derive(Debug)]
pub(crate) struct Member {
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
