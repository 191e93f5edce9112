//! Answers about files: attributes, entries, open files, the whole file system.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bitflags::bitflags;

use crate::wire;

/// A moment: seconds since 1970, which may be negative, and nanoseconds within that second.
///
/// ```
/// use fuse_server::Time;
/// let before = Time { seconds: -1, nanoseconds: 999_999_999 };
/// assert!(before < Time::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: i64,
    /// 0 to 999 999 999.
    pub nanoseconds: u32,
}

impl Time {
    /// Returns the present time by the system's clock.
    pub fn now() -> Self {
        SystemTime::now().into()
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self {
                seconds: after.as_secs().cast_signed(),
                nanoseconds: after.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let whole = -before.as_secs().cast_signed();
                match before.subsec_nanos() {
                    0 => Self {
                        seconds: whole,
                        nanoseconds: 0,
                    },
                    part => Self {
                        seconds: whole - 1,
                        nanoseconds: 1_000_000_000 - part,
                    },
                }
            }
        }
    }
}

/// The attributes of a file, as `stat` shows them.
///
/// ```
/// use fuse_server::Attr;
/// let attr = Attr { ino: 2, mode: 0o040755, nlink: 2, ..Attr::default() };
/// assert_eq!(attr.size, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number shown to callers.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Time of the last read.
    pub atime: Time,
    /// Time of the last change of the content.
    pub mtime: Time,
    /// Time of the last change of content or attributes.
    pub ctime: Time,
    /// Time of creation; only `statx` shows it.
    pub btime: Time,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file, as the kernel encodes it in 32 bits.
    pub rdev: u32,
    /// Preferred I/O size.
    pub blksize: u32,
    /// Flags of `fuse_attr` (submount, DAX); usually 0.
    pub flags: u32,
}

impl Attr {
    pub(crate) fn to_wire(self) -> wire::FuseAttr {
        wire::FuseAttr {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.seconds.cast_unsigned(),
            mtime: self.mtime.seconds.cast_unsigned(),
            ctime: self.ctime.seconds.cast_unsigned(),
            atimensec: self.atime.nanoseconds,
            mtimensec: self.mtime.nanoseconds,
            ctimensec: self.ctime.nanoseconds,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.blksize,
            flags: self.flags,
        }
    }
}

/// The node that a name leads to. With `node` 0 it is a negative entry: the name does not exist, and the kernel may
/// cache that.
///
/// Every answered entry, unless it is negative, counts as one lookup of its node; the kernel returns the lookups with
/// [`Forget`](crate::Operation::Forget).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The node's id in later requests; 1 is the root.
    pub node: u64,
    /// Generation of the id: (node, generation) is unique for the life of the file system.
    pub generation: u64,
    /// Attributes of the node.
    pub attr: Attr,
    /// How long the name may be cached.
    pub entry_ttl: Duration,
    /// How long the attributes may be cached.
    pub attr_ttl: Duration,
}

impl Entry {
    /// Makes an entry for a missing name, to be cached for `ttl`.
    pub fn negative(ttl: Duration) -> Self {
        Self {
            entry_ttl: ttl,
            ..Self::default()
        }
    }

    pub(crate) fn to_wire(self) -> wire::EntryOut {
        let (entry_valid, entry_valid_nsec) = valid(self.entry_ttl);
        let (attr_valid, attr_valid_nsec) = valid(self.attr_ttl);
        wire::EntryOut {
            nodeid: self.node,
            generation: self.generation,
            entry_valid,
            attr_valid,
            entry_valid_nsec,
            attr_valid_nsec,
            attr: self.attr.to_wire(),
        }
    }
}

/// Returns a time to live for the kernel, at most 68 years.
pub(crate) fn valid(ttl: Duration) -> (u64, u32) {
    (ttl.as_secs().min(i32::MAX as u64), ttl.subsec_nanos())
}

bitflags! {
    /// Treatment of an open file by the kernel.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenedFlags: u32 {
        /// Reads and writes bypass the page cache.
        const DIRECT_IO = 1 << 0;
        /// Cached data are kept when the file is opened.
        const KEEP_CACHE = 1 << 1;
        /// The file cannot seek.
        const NONSEEKABLE = 1 << 2;
        /// The kernel may cache this directory's listing.
        const CACHE_DIR = 1 << 3;
        /// The file has no position.
        const STREAM = 1 << 4;
        /// The kernel sends no `FLUSH` when a descriptor is closed (not with the write-back cache).
        const NOFLUSH = 1 << 5;
        /// Direct writes to a file may run in parallel.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }
}

/// An open file or directory: the handle of its later requests, and its treatment by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Value of `handle` in requests on this open file.
    pub handle: u64,
    /// Treatment by the kernel.
    pub flags: OpenedFlags,
}

impl Opened {
    pub(crate) fn to_wire(self) -> wire::OpenOut {
        wire::OpenOut {
            fh: self.handle,
            open_flags: self.flags.bits(),
            backing_id: 0,
        }
    }
}

/// The file system as a whole, as `statfs` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Size in units of `fragment_size`.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Blocks available to unprivileged users.
    pub available: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub free_files: u64,
    /// Preferred I/O size.
    pub block_size: u32,
    /// Unit of the counts.
    pub fragment_size: u32,
    /// Longest name in bytes.
    pub name_length: u32,
}

/// A byte-range lock, or with the whole range a lock of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileLock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: u32,
    /// Process that holds it.
    pub pid: u32,
}
