//! The kernel's requests, as handlers see them.

use crate::attr::{FileLock, Time};
use crate::wire;
use zerocopy::FromBytes;

/// A request: the caller, the node, the operation.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Identifies the request while it is in progress.
    pub unique: u64,
    /// Node of the request; 1 is the root, 0 none.
    pub node: u64,
    /// User of the caller. Requests of the page cache (write-back) have no caller.
    pub uid: u32,
    /// Group of the caller.
    pub gid: u32,
    /// Thread of the caller; 0 if it is the kernel's own or outside the server's pid namespace.
    pub pid: u32,
    /// The operation.
    pub operation: Operation<'a>,
}

/// The operation on [`Request::node`].
///
/// Names are bytes without a NUL; the kernel makes sure that they are not empty and hold no slash.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Find a name in the directory. Answer: [`entry`](crate::Answer::entry).
    Lookup {
        /// The name.
        name: &'a [u8],
    },
    /// The kernel forgets lookups of the node. No answer.
    Forget {
        /// Number of lookups.
        lookups: u64,
    },
    /// The kernel forgets lookups of several nodes. No answer.
    BatchForget(Forgets<'a>),
    /// Attributes. Answer: [`attr`](crate::Answer::attr).
    GetAttr {
        /// The open file `fstat` was called on.
        handle: Option<u64>,
    },
    /// Attributes with the time of birth. Answer: [`statx`](crate::Answer::statx).
    Statx {
        /// The open file it was called on.
        handle: Option<u64>,
        /// `AT_STATX_*`.
        flags: u32,
        /// `STATX_*`: the requested fields.
        mask: u32,
    },
    /// Change attributes. Answer: [`attr`](crate::Answer::attr).
    SetAttr(SetAttr),
    /// The target of a symbolic link. Answer: [`bytes`](crate::Answer::bytes).
    ReadLink,
    /// Make a symbolic link. Answer: [`entry`](crate::Answer::entry).
    Symlink {
        /// Its name.
        name: &'a [u8],
        /// The link's target.
        target: &'a [u8],
    },
    /// Make a file of any type but directory and symbolic link. Answer: [`entry`](crate::Answer::entry).
    Mknod {
        /// Its name.
        name: &'a [u8],
        /// Type and permissions.
        mode: u32,
        /// Device number.
        rdev: u32,
        /// The caller's umask; already applied to `mode` unless `DONT_MASK` was agreed on.
        umask: u32,
    },
    /// Make a directory. Answer: [`entry`](crate::Answer::entry).
    Mkdir {
        /// Its name.
        name: &'a [u8],
        /// Permissions.
        mode: u32,
        /// The caller's umask; already applied to `mode` unless `DONT_MASK` was agreed on.
        umask: u32,
    },
    /// Remove a name of a file that is not a directory.
    Unlink {
        /// The name.
        name: &'a [u8],
    },
    /// Remove an empty directory.
    Rmdir {
        /// Its name.
        name: &'a [u8],
    },
    /// Give a file another name.
    Rename {
        /// The old name.
        name: &'a [u8],
        /// Node of the new directory.
        new_parent: u64,
        /// The new name.
        new_name: &'a [u8],
        /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
        flags: u32,
    },
    /// Give a file one more name; [`Request::node`] is the directory. Answer: [`entry`](crate::Answer::entry).
    Link {
        /// Node of the file.
        target: u64,
        /// Its new name.
        name: &'a [u8],
    },
    /// Open a file. Answer: [`opened`](crate::Answer::opened).
    Open {
        /// `O_*`, without those that create.
        flags: u32,
        /// With `O_TRUNC`: remove set-id bits and file capabilities.
        kill_suidgid: bool,
    },
    /// Make and open a file. Answer: [`created`](crate::Answer::created).
    Create {
        /// Its name.
        name: &'a [u8],
        /// Permissions and type.
        mode: u32,
        /// The caller's umask; already applied to `mode` unless `DONT_MASK` was agreed on.
        umask: u32,
        /// `O_*`.
        flags: u32,
        /// With `O_TRUNC`: remove set-id bits and file capabilities.
        kill_suidgid: bool,
    },
    /// Make and open a file without a name. Answer: [`created`](crate::Answer::created).
    Tmpfile {
        /// The name that the kernel uses for it, which has no meaning.
        name: &'a [u8],
        /// Permissions and type.
        mode: u32,
        /// The caller's umask; already applied to `mode` unless `DONT_MASK` was agreed on.
        umask: u32,
        /// `O_*`.
        flags: u32,
    },
    /// Read. Answer: [`fill`](crate::Answer::fill) or [`bytes`](crate::Answer::bytes); fewer bytes mean the end of the
    /// file.
    Read {
        /// The open file.
        handle: u64,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        size: u32,
        /// `O_*` of the open file.
        flags: u32,
    },
    /// Write. Answer: [`written`](crate::Answer::written).
    Write {
        /// The open file; an arbitrary one if `cached`.
        handle: u64,
        /// First byte.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
        /// Whether the page cache writes back: then `uid`, `gid` and `pid` name no caller.
        cached: bool,
        /// Whether to remove set-id bits and file capabilities.
        kill_suidgid: bool,
        /// `O_*` of the open file.
        flags: u32,
    },
    /// A descriptor of an open file was closed.
    Flush {
        /// The open file.
        handle: u64,
        /// The owner whose POSIX locks end.
        lock_owner: u64,
    },
    /// The last descriptor of an open file was closed. The answer is dropped.
    Release {
        /// The open file.
        handle: u64,
        /// `O_*` it was opened with.
        flags: u32,
        /// The owner whose locks end.
        lock_owner: u64,
        /// Whether to run the operations of `Flush`, too.
        flush: bool,
        /// Whether the lock of the whole file (`flock`) ends.
        unlock: bool,
    },
    /// Make a file durable.
    Fsync {
        /// The open file.
        handle: u64,
        /// `fdatasync`.
        datasync: bool,
    },
    /// Open a directory. Answer: [`opened`](crate::Answer::opened).
    OpenDir {
        /// `O_*`.
        flags: u32,
    },
    /// List a directory. Answer: [`directory`](crate::Answer::directory) and `push`.
    ReadDir {
        /// The open directory.
        handle: u64,
        /// The `next_offset` of the last name received; 0 at the start.
        offset: u64,
        /// Room for the answer.
        size: u32,
    },
    /// List a directory with attributes. Answer: [`directory`](crate::Answer::directory) and `push_plus`.
    ReadDirPlus {
        /// The open directory.
        handle: u64,
        /// The `next_offset` of the last name received; 0 at the start.
        offset: u64,
        /// Room for the answer.
        size: u32,
    },
    /// The last descriptor of an open directory is gone.
    ReleaseDir {
        /// The open directory.
        handle: u64,
        /// `O_*` it was opened with.
        flags: u32,
    },
    /// Make a directory durable.
    FsyncDir {
        /// The open directory.
        handle: u64,
        /// `fdatasync`.
        datasync: bool,
    },
    /// Sizes of the file system. Answer: [`statfs`](crate::Answer::statfs).
    StatFs,
    /// Set an extended attribute.
    SetXattr {
        /// Its name with the prefix.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// `XATTR_CREATE`, `XATTR_REPLACE`.
        flags: u32,
        /// Whether a caller that sets the access ACL loses the set-group-id bit.
        acl_kill_sgid: bool,
    },
    /// An extended attribute. Answer: [`xattr_size`](crate::Answer::xattr_size) if `size` is 0, else
    /// [`bytes`](crate::Answer::bytes) or `ERANGE`.
    GetXattr {
        /// Its name with the prefix.
        name: &'a [u8],
        /// Room for the value.
        size: u32,
    },
    /// Names of all extended attributes, each with a NUL behind it. Answer: as for `GetXattr`.
    ListXattr {
        /// Room for the names.
        size: u32,
    },
    /// Remove an extended attribute.
    RemoveXattr {
        /// Its name with the prefix.
        name: &'a [u8],
    },
    /// Check whether the caller may do this. Only without `default_permissions`.
    Access {
        /// `R_OK`, `W_OK`, `X_OK`.
        mask: u32,
    },
    /// Return the lock that would block this one. Answer: [`lock`](crate::Answer::lock).
    GetLock {
        /// The open file.
        handle: u64,
        /// The lock's owner.
        owner: u64,
        /// The wanted lock.
        lock: FileLock,
    },
    /// Set or clear a lock.
    SetLock {
        /// The open file.
        handle: u64,
        /// The lock's owner.
        owner: u64,
        /// The lock.
        lock: FileLock,
        /// Wait until it is free.
        wait: bool,
        /// A lock of the whole file (`flock`).
        flock: bool,
    },
    /// A control request. Answer: [`ioctl`](crate::Answer::ioctl).
    Ioctl {
        /// The open file or directory.
        handle: u64,
        /// `FUSE_IOCTL_*`.
        flags: u32,
        /// The request's number.
        command: u32,
        /// Its argument, usually an address in the caller.
        argument: u64,
        /// The argument's bytes, with the length that the number specifies.
        input: &'a [u8],
        /// Room for the answer.
        output: u32,
    },
    /// `SEEK_DATA` and `SEEK_HOLE`. Answer: [`offset`](crate::Answer::offset).
    Seek {
        /// The open file.
        handle: u64,
        /// First byte.
        offset: u64,
        /// `SEEK_DATA` (3) or `SEEK_HOLE` (4).
        whence: u32,
    },
    /// Allocate space, punch holes, and so on.
    Fallocate {
        /// The open file.
        handle: u64,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// `FALLOC_FL_*`.
        mode: u32,
    },
    /// Copy between files inside the server. Answer: [`copied`](crate::Answer::copied).
    CopyFileRange {
        /// The open source, which is [`Request::node`].
        handle: u64,
        /// First byte in the source.
        offset: u64,
        /// Node of the destination.
        to_node: u64,
        /// Its open file.
        to_handle: u64,
        /// First byte in the destination.
        to_offset: u64,
        /// Number of bytes.
        length: u64,
        /// Reserved; no flags are defined.
        flags: u64,
    },
    /// Return the pending events. Answer: [`poll`](crate::Answer::poll).
    Poll {
        /// The open file.
        handle: u64,
        /// The handle for notifying the kernel ([`Notifier::poll`](crate::Notifier::poll)).
        kernel_handle: u64,
        /// Bit 0: the kernel wants a notification.
        flags: u32,
        /// Requested events.
        events: u32,
    },
    /// Return the block of the device that holds this block of the file. Answer: [`block`](crate::Answer::block).
    Bmap {
        /// The file's block.
        block: u64,
        /// Size of a block.
        block_size: u32,
    },
    /// Make everything durable.
    SyncFs,
    /// The caller of that request has stopped waiting. A session handles this itself: the request continues and is
    /// answered as usual.
    Interrupt {
        /// The request's `unique`.
        unique: u64,
    },
    /// The file system is unmounted. A session handles this itself and calls
    /// [`Handler::destroy`](crate::Handler::destroy).
    Destroy,
    /// An operation that is newer than this crate, with its number. A session answers with `ENOSYS`.
    Unknown(u32),
}

/// The nodes of a [`BatchForget`](Operation::BatchForget), each with its number of lookups.
#[derive(Clone, Copy, Debug)]
pub struct Forgets<'a> {
    pub(crate) bytes: &'a [u8],
}

impl Iterator for Forgets<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let (one, rest) = wire::ForgetOne::read_from_prefix(self.bytes).ok()?;
        self.bytes = rest;
        Some((one.nodeid, one.nlookup))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.bytes.len() / size_of::<wire::ForgetOne>();
        (count, Some(count))
    }
}

impl ExactSizeIterator for Forgets<'_> {}

/// Attributes to change; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// The open file of the call, for example of `ftruncate`.
    pub handle: Option<u64>,
    /// New size.
    pub size: Option<u64>,
    /// New type and permissions; the type never changes.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New time of the last read.
    pub atime: Option<SetTime>,
    /// New time of the last change of the content.
    pub mtime: Option<SetTime>,
    /// New change time: only the write-back cache sets it, for its own changes.
    pub ctime: Option<Time>,
    /// Whether to remove set-id bits and file capabilities.
    pub kill_suidgid: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock at this moment.
    Now,
    /// The given time.
    At(Time),
}
