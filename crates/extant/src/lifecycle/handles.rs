//! Handles on inodes, counted.

use crate::base::error::{Error, Result};
use crate::incore::file::FileData;
use crate::incore::inode::Inode;
use crate::inodes::open_files::Opened;
use crate::lifecycle::Lifecycle;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Lifecycle {
    /// A handle was closed; the last one of a file without a name frees it.
    #[inline]
    pub(crate) fn closed(&self, inode: &Arc<Inode>) -> Result<()> {
        if inode.opens.fetch_sub(1, Ordering::AcqRel) != 1 {
            return Ok(());
        }
        crate::base::jitter::point();
        self.data.discard_preallocation_of(inode);
        let dead = {
            let state = inode.state.lock();
            state.core.links == 0 && !state.freed && inode.opens.load(Ordering::Acquire) == 0
        };
        match dead {
            true => self.reap_closed(inode),
            false => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    fn reap_closed(&self, inode: &Arc<Inode>) -> Result<()> {
        match self.store.check_writable() {
            Ok(()) => self.reap(inode),
            Err(_) => Ok(()),
        }
    }

    /// A handle is opened: the inode stays until it is closed, whatever happens to its names.
    pub(crate) fn opened(&self, inode: &Inode) -> Result<()> {
        crate::base::jitter::point();
        let state = inode.state.lock();
        if state.freed || state.core.links == 0 {
            return Err(Error::NotFound);
        }
        inode.opens.fetch_add(1, Ordering::AcqRel);
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
                if own.inode.opens.load(Ordering::Acquire) == 0 {
                    drop(state);
                    self.data.discard_preallocation_of(&own.inode);
                }
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }
}
