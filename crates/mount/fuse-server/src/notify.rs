//! Notifications of the kernel without a request.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::wire::{self, OutHeader, notice};

/// Invalidates the kernel's caches. Cheap to clone; does nothing once the session is over.
///
/// These calls may wait for requests in progress on the same file, because the kernel locks the inode or the
/// directory. Do not call them while handling a request on that file, nor with locks held that a handler takes.
#[derive(Clone, Debug)]
pub struct Notifier {
    /// Weak: a handler that keeps its notifier must not keep the connection open.
    device: Weak<OwnedFd>,
}

impl Notifier {
    pub(crate) fn new(device: &Arc<OwnedFd>) -> Self {
        Self {
            device: Arc::downgrade(device),
        }
    }

    /// Returns a notifier without a kernel, for tests of handlers.
    pub fn disconnected() -> Self {
        Self {
            device: Weak::new(),
        }
    }

    /// Drops cached attributes of a node, and its data from `offset` on: `length` bytes, 0 for all to the end. With a
    /// negative offset the data are kept.
    pub fn inval_inode(&self, node: u64, offset: i64, length: i64) -> Result<(), Errno> {
        let notice = wire::NotifyInvalInode {
            ino: node,
            off: offset,
            len: length,
        };
        self.tell(notice::INVAL_INODE, notice.as_bytes(), &[])
    }

    /// Drops a name.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let notice = wire::NotifyInvalEntry {
            parent,
            namelen: length(name)?,
            flags: 0,
        };
        self.tell(notice::INVAL_ENTRY, notice.as_bytes(), name)
    }

    /// Drops a removed name if it leads to `child`, and notifies the watchers of the directory.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> Result<(), Errno> {
        let notice = wire::NotifyDelete {
            parent,
            child,
            namelen: length(name)?,
            padding: 0,
        };
        self.tell(notice::DELETE, notice.as_bytes(), name)
    }

    /// Makes the kernel forget a node that no program uses (Linux 6.18; earlier kernels refuse with `EINVAL`).
    pub fn prune(&self, node: u64) -> Result<(), Errno> {
        let notice = wire::NotifyPrune {
            count: 1,
            padding: 0,
            spare: 0,
        };
        let notice = [notice.as_bytes(), node.as_bytes()].concat();
        self.tell(notice::PRUNE, &notice, &[])
    }

    /// Notifies pollers of an event on a file.
    pub fn poll(&self, kernel_handle: u64) -> Result<(), Errno> {
        self.tell(
            notice::POLL,
            wire::NotifyPoll { kh: kernel_handle }.as_bytes(),
            &[],
        )
    }

    fn tell(&self, code: i32, notice: &[u8], name: &[u8]) -> Result<(), Errno> {
        let Some(device) = self.device.upgrade() else {
            return Ok(());
        };
        let end: &[u8] = if name.is_empty() { &[] } else { &[0] };
        let length = size_of::<OutHeader>() + notice.len() + name.len() + end.len();
        let length = u32::try_from(length).map_err(|_| Errno::NAMETOOLONG)?;
        let header = OutHeader {
            len: length,
            error: code,
            unique: 0,
        };
        let parts = [header.as_bytes(), notice, name, end].map(IoSlice::new);
        match rustix::io::writev(&*device, &parts) {
            // The kernel does not know the node or the name, so there is nothing to drop.
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn length(name: &[u8]) -> Result<u32, Errno> {
    u32::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)
}
