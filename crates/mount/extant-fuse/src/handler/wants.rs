//! Negotiation with the kernel.

use super::Filesystem;
use crate::options::MountOptions;
use fuse_server::{InitFlags, Wants};

/// Size of an inode without room for fractions of seconds, in bytes.
const SHORT_INODE: u16 = 128;

impl Filesystem {
    /// Returns whether the kernel delays writes of data, and keeps the times of files itself.
    pub(super) fn writes_back(&self) -> bool {
        !self.read_only && !self.write_through
    }

    /// Returns the features wanted of the kernel's offer.
    pub(super) fn wants(&self) -> Wants {
        let short_times = self.shared.volume.geometry().inode_size <= SHORT_INODE;
        Wants {
            time_granularity: if short_times { 1_000_000_000 } else { 1 },
            ..wanted(self.read_only, self.writes_back())
        }
    }
}

impl MountOptions {
    /// Returns the features that a mount with these options agrees on with the kernel, for other servers that need the
    /// same.
    ///
    /// ```
    /// use fuse_server::InitFlags;
    /// let options = extant_fuse::MountOptions::default();
    /// assert!(options.wants().flags.contains(InitFlags::WRITEBACK_CACHE));
    /// ```
    pub fn wants(&self) -> Wants {
        wanted(self.read_only, !self.read_only && !self.writes_through())
    }

    /// Returns whether data are sent to the server at once.
    pub(super) fn writes_through(&self) -> bool {
        self.write_through || self.sync
    }
}

fn wanted(read_only: bool, writes_back: bool) -> Wants {
    type F = InitFlags;
    // Data: few large requests, several at a time.
    let mut flags = F::ASYNC_READ | F::ASYNC_DIO | F::BIG_WRITES | F::MAX_PAGES;
    // Names: several threads in one directory, attributes in listings if the caller is likely to need them.
    flags |= F::PARALLEL_DIROPS | F::DO_READDIRPLUS | F::READDIRPLUS_AUTO;
    // Only this kernel makes changes, so its cache stays valid until it changes something itself.
    flags |= F::CACHE_SYMLINKS | F::EXPLICIT_INVAL_DATA;
    // A node number is sufficient: directories need not be opened, nor, on read-only mounts, files.
    flags |= F::NO_OPENDIR_SUPPORT | F::EXPORT_SUPPORT;
    // Permissions: the kernel checks them and ACLs; the mask of a new file depends on the directory's ACL.
    flags |= F::POSIX_ACL | F::DONT_MASK | F::HANDLE_KILLPRIV_V2 | F::SETXATTR_EXT;
    // Without ATOMIC_O_TRUNC: with it, the open of a running program to read and truncate it would empty the file here, and then
    // fail in the kernel.
    flags |= F::HAS_IOCTL_DIR;
    if read_only {
        flags |= F::NO_OPEN_SUPPORT;
    }
    if writes_back {
        flags |= F::WRITEBACK_CACHE;
    }
    Wants {
        flags,
        ..Wants::default()
    }
}
