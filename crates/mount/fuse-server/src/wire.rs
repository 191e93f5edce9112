//! The structures of the protocol as the kernel lays them out (`linux/fuse.h`, 7.31 to 7.45).
//!
//! Native byte order; the size of every structure is a multiple of eight bytes. Sizes are checked at the end of the
//! file, because a missing field would shift all later ones.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const MAJOR: u32 = 7;
/// The newest minor version whose messages the decoder knows.
pub const MINOR: u32 = 45;
/// The oldest supported kernel protocol (Linux 5.4): earlier versions have other structure sizes.
pub const OLDEST_MINOR: u32 = 31;

pub mod opcode {
    //! The codes of the kernel's requests.
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

pub mod bits {
    //! Flags inside single structures.
    pub const GETATTR_FH: u32 = 1 << 0;

    pub const FATTR_MODE: u32 = 1 << 0;
    pub const FATTR_UID: u32 = 1 << 1;
    pub const FATTR_GID: u32 = 1 << 2;
    pub const FATTR_SIZE: u32 = 1 << 3;
    pub const FATTR_ATIME: u32 = 1 << 4;
    pub const FATTR_MTIME: u32 = 1 << 5;
    pub const FATTR_FH: u32 = 1 << 6;
    pub const FATTR_ATIME_NOW: u32 = 1 << 7;
    pub const FATTR_MTIME_NOW: u32 = 1 << 8;
    pub const FATTR_CTIME: u32 = 1 << 10;
    pub const FATTR_KILL_SUIDGID: u32 = 1 << 11;

    pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;

    pub const WRITE_CACHE: u32 = 1 << 0;
    pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;

    pub const RELEASE_FLUSH: u32 = 1 << 0;
    pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;

    pub const FSYNC_DATASYNC: u32 = 1 << 0;
    pub const LK_FLOCK: u32 = 1 << 0;
    pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

    /// The fields of `struct statx` that this server always fills: the basic fields and the time of birth.
    pub const STATX_BASIC_STATS: u32 = 0x7ff;
    pub const STATX_BTIME: u32 = 0x800;
}

pub mod notice {
    //! Codes of notifications: a message with one of these as its error answers no request.
    pub const POLL: i32 = 1;
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const DELETE: i32 = 6;
    pub const PRUNE: i32 = 9;
}

macro_rules! wire {
    ($($(#[$meta:meta])* $name:ident = $size:literal { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $(pub $field: $type),* }
        const _: () = assert!(size_of::<$name>() == $size && align_of::<$name>() <= 8);
    )*};
}

wire! {
    InHeader = 40 { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16 }
    OutHeader = 16 { len: u32, error: i32, unique: u64 }

    InitIn = 16 { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    /// Follows `InitIn` when the kernel sets `INIT_EXT`.
    InitInExt = 48 { flags2: u32, unused: [u32; 11] }
    InitOut = 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }

    FuseAttr = 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut = 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: FuseAttr,
    }
    AttrOut = 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: FuseAttr }
    OpenOut = 16 { fh: u64, open_flags: u32, backing_id: i32 }
    WriteOut = 8 { size: u32, padding: u32 }
    CopyFileRangeOut = 8 { bytes_copied: u64 }
    StatFsOut = 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    GetXattrOut = 8 { size: u32, padding: u32 }
    LseekOut = 8 { offset: u64 }
    BmapOut = 8 { block: u64 }
    PollOut = 8 { revents: u32, padding: u32 }
    IoctlOut = 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    FileLockWire = 24 { start: u64, end: u64, kind: u32, pid: u32 }
    StatxTime = 16 { seconds: i64, nanoseconds: u32, reserved: i32 }
    Statx = 256 {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16, ino: u64,
        size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime, btime: StatxTime, ctime: StatxTime,
        mtime: StatxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut = 288 { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    Dirent = 24 { ino: u64, off: u64, namelen: u32, kind: u32 }

    ForgetIn = 8 { nlookup: u64 }
    ForgetOne = 16 { nodeid: u64, nlookup: u64 }
    BatchForgetIn = 8 { count: u32, dummy: u32 }
    GetAttrIn = 16 { flags: u32, dummy: u32, fh: u64 }
    StatxIn = 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    SetAttrIn = 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn = 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn = 8 { mode: u32, umask: u32 }
    RenameIn = 8 { newdir: u64 }
    Rename2In = 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn = 8 { oldnodeid: u64 }
    OpenIn = 8 { flags: u32, open_flags: u32 }
    CreateIn = 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReleaseIn = 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn = 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn = 40 { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteIn = 40 { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    FsyncIn = 16 { fh: u64, fsync_flags: u32, padding: u32 }
    /// The kernel's form without `SETXATTR_EXT`.
    SetXattrInShort = 8 { size: u32, flags: u32 }
    SetXattrIn = 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetXattrIn = 8 { size: u32, padding: u32 }
    LkIn = 48 { fh: u64, owner: u64, lk: FileLockWire, lk_flags: u32, padding: u32 }
    AccessIn = 8 { mask: u32, padding: u32 }
    InterruptIn = 8 { unique: u64 }
    BmapIn = 16 { block: u64, blocksize: u32, padding: u32 }
    IoctlIn = 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    PollIn = 24 { fh: u64, kh: u64, flags: u32, events: u32 }
    FallocateIn = 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn = 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    CopyFileRangeIn = 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }

    NotifyInvalInode = 24 { ino: u64, off: i64, len: i64 }
    NotifyInvalEntry = 16 { parent: u64, namelen: u32, flags: u32 }
    NotifyDelete = 24 { parent: u64, child: u64, namelen: u32, padding: u32 }
    NotifyPoll = 8 { kh: u64 }
    /// Before `count` node numbers.
    NotifyPrune = 16 { count: u32, padding: u32, spare: u64 }

    /// The middle of a ring entry's header: the identity of the request and the length of its payload.
    UringEntry = 32 { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    /// The header that the kernel writes to and reads from the first buffer of a ring entry.
    UringHeader = 288 { in_out: [u8; 128], op_in: [u8; 128], entry: UringEntry }
    /// The command area of a submission.
    UringCommand = 24 { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
}

/// Records of a directory listing are aligned to this.
pub const RECORD_ALIGN: usize = 8;
/// Size of `UringHeader::op_in`; no operation's structure is longer.
pub const URING_OPERATION_SIZE: usize = 128;
/// Commands of the ring: the first registers an entry, the second answers its request and waits for the next.
pub const URING_REGISTER: u32 = 1;
pub const URING_COMMIT_AND_FETCH: u32 = 2;

const _: () = assert!(size_of::<SetAttrIn>() <= URING_OPERATION_SIZE);
const _: () = assert!(std::mem::offset_of!(UringHeader, entry) == 256);
const _: () = assert!(
    std::mem::offset_of!(Statx, atime) == 64 && std::mem::offset_of!(Statx, rdev_major) == 128
);
