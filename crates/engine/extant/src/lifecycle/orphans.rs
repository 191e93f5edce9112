//! Files without a name: the ones that a crash left, and the ones that are still open when the volume is closed.

use crate::base::error::Result;
use crate::inodes::load::Origin;
use crate::lifecycle::Lifecycle;
use ext4_format::InodeNr;

impl Lifecycle {
    /// Finishes what a crash interrupted: orphans without links are freed, others cut to their size.
    pub(crate) fn finish_orphans(&self, orphans: &[InodeNr]) -> Result<()> {
        for &ino in orphans {
            let inode = match self.inodes.inode(ino, Origin::OrphanList) {
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
                self.reap(&inode)?;
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

    /// Frees the files without a name that are still open: their handles end with the volume.
    pub(crate) fn free_open_orphans(&self) -> Result<()> {
        let mut freed = Ok(());
        for inode in self.inodes.in_core.iter() {
            let orphan = {
                let state = inode.state.lock();
                state.orphan && state.core.links == 0 && !state.freed
            };
            if orphan {
                freed = freed.and(self.reap(&inode));
            }
        }
        freed
    }
}
