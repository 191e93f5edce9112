//! The interface of a file system, and its agreement with the kernel.

use bitflags::bitflags;
use rustix::io::Errno;

use crate::answer::Answer;
use crate::notify::Notifier;
use crate::request::Request;

bitflags! {
    /// Capabilities that kernel and server agree on at INIT (`FUSE_*` of `linux/fuse.h`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// Several concurrent reads of a file.
        const ASYNC_READ = 1 << 0;
        /// The server implements POSIX locks.
        const POSIX_LOCKS = 1 << 1;
        /// `O_TRUNC` reaches `Open`.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// `.` and `..` can be looked up, for NFS.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes longer than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask.
        const DONT_MASK = 1 << 6;
        /// The server implements `flock`.
        const FLOCK_LOCKS = 1 << 10;
        /// Ioctls on directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Cached data are dropped when size or mtime have changed.
        const AUTO_INVAL_DATA = 1 << 12;
        /// `ReadDirPlus` instead of `ReadDir`.
        const DO_READDIRPLUS = 1 << 13;
        /// ... only if the caller is likely to read the attributes.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Several concurrent requests of direct I/O.
        const ASYNC_DIO = 1 << 15;
        /// The page cache writes back later; until then the kernel owns size and mtime.
        const WRITEBACK_CACHE = 1 << 16;
        /// `Open` may return `ENOSYS`; then the kernel stops sending it.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Concurrent lookups and listings of a directory.
        const PARALLEL_DIROPS = 1 << 18;
        /// The older form of `HANDLE_KILLPRIV_V2`.
        const HANDLE_KILLPRIV = 1 << 19;
        /// The kernel checks and caches POSIX ACLs.
        const POSIX_ACL = 1 << 20;
        /// Reads of the device distinguish an abort from an unmount.
        const ABORT_ERROR = 1 << 21;
        /// Requests longer than 32 pages.
        const MAX_PAGES = 1 << 22;
        /// The kernel caches targets of symbolic links.
        const CACHE_SYMLINKS = 1 << 23;
        /// `OpenDir` may return `ENOSYS`; then the kernel stops sending it.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached data are dropped only on the server's notification.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// Automatic submounts.
        const SUBMOUNTS = 1 << 27;
        /// The server removes set-id bits when a request has the flag.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// `SetXattr` has additional flags.
        const SETXATTR_EXT = 1 << 29;
        /// The flags have more than 32 bits.
        const INIT_EXT = 1 << 30;
        /// Requests that create files contain a security context.
        const SECURITY_CTX = 1 << 32;
        /// DAX by inode.
        const HAS_INODE_DAX = 1 << 33;
        /// Requests that create files contain the caller's group.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// Names can be expired instead of dropped.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Files open for direct I/O can be mapped shared.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Open files can be passed through to others.
        const PASSTHROUGH = 1 << 37;
        /// Lookups of `.` and `..` are not supported, so the kernel refuses file handles.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// Requests can be resent.
        const HAS_RESEND = 1 << 39;
        /// Id-mapped mounts.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests through io_uring.
        const OVER_IO_URING = 1 << 41;
        /// Requests can time out.
        const REQUEST_TIMEOUT = 1 << 42;
    }
}

/// The kernel's offer at INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOffer {
    /// Minor version of its protocol; the major one is 7.
    pub minor: u32,
    /// Largest read-ahead.
    pub max_readahead: u32,
    /// The kernel's abilities.
    pub flags: InitFlags,
}

/// The handler's wishes. The session removes flags that the kernel does not offer, and adds those that it needs
/// itself.
///
/// ```
/// use fuse_server::{InitFlags, Wants};
/// let wants = Wants { flags: InitFlags::PARALLEL_DIROPS | InitFlags::ASYNC_READ, ..Wants::default() };
/// assert_eq!(wants.max_write, 1 << 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// Capabilities.
    pub flags: InitFlags,
    /// Largest write in one request, and with it the largest read: 4 KiB to 1 MiB, whole pages.
    pub max_write: u32,
    /// Largest read-ahead, limited by the kernel's offer.
    pub max_readahead: u32,
    /// Largest number of background requests (read-ahead, write-back) in progress.
    pub max_background: u16,
    /// Number of background requests at which the kernel throttles writers.
    pub congestion_threshold: u16,
    /// Granularity of times in nanoseconds; a power of ten.
    pub time_granularity: u32,
}

impl Default for Wants {
    fn default() -> Self {
        Self {
            flags: InitFlags::ASYNC_READ | InitFlags::PARALLEL_DIROPS,
            max_write: 1 << 20,
            max_readahead: u32::MAX,
            max_background: 64,
            congestion_threshold: 48,
            time_granularity: 1,
        }
    }
}

/// A file system. Many threads call it concurrently, and it may block: a session adds threads when all are blocked.
///
/// ```
/// use std::time::Duration;
/// use fuse_server::{Answer, Attr, Errno, Handler, KernelOffer, Notifier, Operation, Request, Wants};
///
/// /// Nothing but an empty root.
/// struct Empty;
///
/// impl Handler for Empty {
///     fn init(&self, _: &KernelOffer, _: Notifier) -> Wants {
///         Wants::default()
///     }
///
///     fn handle(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
///         match request.operation {
///             Operation::GetAttr { .. } if request.node == 1 => {
///                 let attr = Attr { ino: 1, mode: 0o040755, nlink: 2, ..Attr::default() };
///                 answer.attr(&attr, Duration::from_secs(1));
///                 Ok(())
///             }
///             Operation::Lookup { .. } => Err(Errno::NOENT),
///             _ => Err(Errno::NOSYS),
///         }
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Negotiates in the first call: receives the kernel's features and a notifier. Returns the handler's wishes.
    fn init(&self, kernel: &KernelOffer, notifier: Notifier) -> Wants;

    /// Runs a request. An error is the whole answer; for many operations `ENOSYS` makes the kernel stop sending them.
    /// The answer to a request without answer ([`Forget`](crate::Operation::Forget)) is dropped.
    ///
    /// A panic ends the session: the request is answered with `EIO` and the connection is aborted, because the state
    /// after the panic is unknown.
    fn handle(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno>;

    /// Called when the file system is being unmounted; umount(2) waits until this call returns. The kernel sends this
    /// request only if it holds a block device for the mount
    /// ([`MountOptions::block_device`](crate::MountOptions::block_device)), which it releases afterwards. Only forgets
    /// follow.
    fn unmounting(&self) {}

    /// Ends the handler in the last call, when the file system is unmounted and all threads have ended.
    fn destroy(&self) {}
}
