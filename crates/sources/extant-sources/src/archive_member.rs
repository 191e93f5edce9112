//! Public type of a member of an archive or a tree.

use crate::member::{Member, MemberKind, Segment};
use ext4_format::timestamp::Timestamp;

/// The kind of an archive's member.
///
/// ```
/// use extant_sources::ArchiveKind;
/// assert_ne!(ArchiveKind::Directory, ArchiveKind::Fifo);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveKind {
    /// A regular file.
    File {
        /// Bytes of the file.
        size: u64,
        /// Ranges of the data in the file, start and length, in order; all else is a hole. The data is that of all
        /// stretches together.
        stretches: Vec<(u64, u64)>,
    },
    /// Another name of an earlier member, by its path.
    HardLink(Vec<u8>),
    /// A symbolic link and where it leads.
    Symlink(Vec<u8>),
    /// A directory.
    Directory,
    /// A character device, major and minor number.
    CharDevice(u32, u32),
    /// A block device, likewise.
    BlockDevice(u32, u32),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// A member of an archive, with everything its headers say.
///
/// ```
/// use extant_sources::{SourceError, ArchiveInput, read_archive};
/// let empty = ArchiveInput::Reader { name: "zeros".into(), reader: Box::new(&[0; 1024][..]) };
/// read_archive(empty, None, |member, _data| {
///     println!("{}", String::from_utf8_lossy(&member.path));
///     Ok::<(), SourceError>(())
/// })?;
/// # Ok::<(), SourceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ArchiveMember {
    /// Path in the archive, unchanged.
    pub path: Vec<u8>,
    /// The kind.
    pub kind: ArchiveKind,
    /// Permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access; the last change if the archive does not say.
    pub atime: Timestamp,
    /// Last change.
    pub mtime: Timestamp,
    /// Last change of the attributes.
    pub ctime: Timestamp,
    /// Extended attributes, full names; ACLs in the form of system calls.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Flags of ext4 as chattr sets them; others are left out, and `F` is kept where the new volume has the feature `casefold`.
    pub flags: u32,
    /// Project of ext4; kept where the new volume has the feature `project`.
    pub project: u32,
    /// Something that could not be kept.
    pub warning: Option<&'static str>,
}

impl ArchiveMember {
    /// Creates a member of this path, kind and permissions: root's, from 1970, without extended attributes.
    pub fn new(path: impl Into<Vec<u8>>, kind: ArchiveKind, mode: u16) -> Self {
        let time = Timestamp::new(0, 0);
        Self {
            path: path.into(),
            kind,
            mode,
            uid: 0,
            gid: 0,
            atime: time,
            mtime: time,
            ctime: time,
            xattrs: Vec::new(),
            flags: 0,
            project: 0,
            warning: None,
        }
    }

    /// Converts to a member for layers, with the origin of its data.
    #[doc(hidden)]
    pub fn into_member(self, origin: u64) -> Member {
        Member {
            path: self.path,
            kind: match self.kind {
                ArchiveKind::File { size, stretches } => MemberKind::File {
                    size,
                    origin,
                    map: (stretches != [(0, size)]).then(|| {
                        let segment = |&(start, len): &(u64, u64)| Segment { start, len };
                        stretches.iter().map(segment).collect()
                    }),
                },
                ArchiveKind::HardLink(to) => MemberKind::HardLink(to),
                ArchiveKind::Symlink(to) => MemberKind::Symlink(to),
                ArchiveKind::Directory => MemberKind::Directory,
                ArchiveKind::CharDevice(major, minor) => MemberKind::CharDevice(major, minor),
                ArchiveKind::BlockDevice(major, minor) => MemberKind::BlockDevice(major, minor),
                ArchiveKind::Fifo => MemberKind::Fifo,
                ArchiveKind::Socket => MemberKind::Socket,
            },
            mode: self.mode & 0o7777,
            uid: self.uid,
            gid: self.gid,
            mtime: self.mtime,
            atime: self.atime,
            ctime: self.ctime,
            xattrs: self.xattrs,
            unresolved_acl: false,
            malformed: Vec::new(),
            unknown_type: None,
            flags: self.flags,
            project: self.project,
        }
    }

    pub(crate) fn of(m: Member) -> Self {
        let warning = match (m.unresolved_acl, m.unknown_type) {
            (true, _) => Some("its ACL names users or groups without numbers, and is left out"),
            (_, Some(_)) => Some("a member of a type that nobody knows, taken for a file"),
            _ if !m.malformed.is_empty() => Some("an attribute is malformed, and is left out"),
            _ => None,
        };
        Self {
            path: m.path,
            kind: match m.kind {
                MemberKind::File { size, map, .. } => ArchiveKind::File {
                    size,
                    stretches: match map {
                        Some(map) => map.iter().map(|s| (s.start, s.len)).collect(),
                        None if size == 0 => Vec::new(),
                        None => vec![(0, size)],
                    },
                },
                MemberKind::HardLink(to) => ArchiveKind::HardLink(to),
                MemberKind::Symlink(to) => ArchiveKind::Symlink(to),
                MemberKind::Directory => ArchiveKind::Directory,
                MemberKind::CharDevice(major, minor) => ArchiveKind::CharDevice(major, minor),
                MemberKind::BlockDevice(major, minor) => ArchiveKind::BlockDevice(major, minor),
                MemberKind::Fifo => ArchiveKind::Fifo,
                MemberKind::Socket => ArchiveKind::Socket,
            },
            mode: m.mode,
            uid: m.uid,
            gid: m.gid,
            atime: m.atime,
            mtime: m.mtime,
            ctime: m.ctime,
            xattrs: m.xattrs,
            flags: m.flags,
            project: m.project,
            warning,
        }
    }
}
