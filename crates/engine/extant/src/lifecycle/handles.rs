//! Counting of the handles on inodes.

use crate::base::error::{Error, Result};
use crate::incore::file::FileData;
use crate::incore::handles::Closed;
use crate::incore::inode::Inode;
use crate::inodes::open_files::Opened;
use crate::lifecycle::Lifecycle;
use ext4_format::InodeNr;
use std::sync::Arc;

impl Lifecycle {
    /// Closes a handle. The last handle of a file without a name frees the file.
    #[inline]
    pub(crate) fn closed(&self, inode: &Arc<Inode>) -> Result<()> {
        let closed = inode.handles.close();
        if closed == Closed::OneOfSeveral {
            return Ok(());
        }
        crate::base::jitter::point();
        self.data.discard_preallocation_of(inode);
        match closed {
            Closed::LastOfNameless => self.reap_closed(inode),
            _ => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    fn reap_closed(&self, inode: &Arc<Inode>) -> Result<()> {
        let dead = {
            let state = inode.state.lock();
            // The inode may have been given a name, or another handle.
            state.core.links == 0 && !state.freed && inode.handles.count() == 0
        };
        if !dead {
            return Ok(());
        }
        match self.store.check_writable() {
            Ok(()) => self.reap(inode),
            Err(_) => Ok(()),
        }
    }

    /// Opens a handle on the inode of a number that a caller kept.
    pub(crate) fn open_number(&self, ino: InodeNr) -> Result<Arc<Inode>> {
        let inode = self.inodes.numbered_inode(ino)?;
        match self.opened(&inode) {
            // The inode was removed since it was found.
            Err(Error::NotFound) => Err(Error::StaleInode(ino.0)),
            opened => opened.map(|()| inode),
        }
    }

    /// Opens a handle: the inode stays until the handle is closed, even if its names are removed.
    pub(crate) fn opened(&self, inode: &Inode) -> Result<()> {
        crate::base::jitter::point();
        let state = inode.state.lock();
        if state.freed || state.core.links == 0 {
            return Err(Error::NotFound);
        }
        inode.handles.add(1);
        Ok(())
    }
}

impl Lifecycle {
    /// Closes a handle of a file. Only its slot's count changes, unless blocks may be preallocated for the file,
    /// which the last handle returns.
    pub(crate) fn close(&self, handle: &Opened) -> Result<()> {
        let Opened::BySlot(own) = handle else {
            return self.closed(handle);
        };
        let set_aside = |file: &FileData| !file.preallocation.read().is_empty();
        match own.count(-1) {
            None => self.closed(handle),
            Some(0) if own.inode.touched_file().is_some_and(set_aside) => {
                let state = own.inode.state.lock();
                self.inodes.gather_opens(&own.inode, &state);
                if own.inode.handles.count() == 0 {
                    drop(state);
                    self.data.discard_preallocation_of(&own.inode);
                }
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }
}
