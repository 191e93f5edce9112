//! Orphans that a crash left are freed, or cut to size.

use crate::base::error::Result;
use crate::volume::engine::Engine;
use ext4_format::InodeNr;

impl Engine {
    /// Finishes what a crash interrupted: orphans without links are freed, others truncated to size.
    pub(super) fn process_orphans(&self, orphans: &[InodeNr]) -> Result<()> {
        for &ino in orphans {
            let inode = match self.inodes.inode(ino) {
                Ok(inode) => inode,
                Err(e) => {
                    tracing::error!(ino = ino.0, error = %e, "orphan");
                    return Err(e);
                }
            };
            let (links, size) = {
                let mut state = inode.state.lock();
                state.orphan = true;
                (state.core.links, state.core.size)
            };
            if links == 0 {
                self.lifecycle.reap(&inode)?;
            } else {
                self.data.finish_truncate(&inode, size)?;
            }
        }
        if orphans.is_empty() {
            Ok(())
        } else {
            self.commit.push_all()
        }
    }
}
