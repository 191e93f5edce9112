//! Freeing inodes without names and handles.

use crate::base::error::Result;
use crate::base::now;
use crate::incore::file::FileMap;
use crate::incore::inode::FAST_SYMLINK_MAX;
use crate::incore::inode::{Content, Inode, InodeState};
use crate::lifecycle::Lifecycle;
use crate::log::Commit;
use ext4_format::FileType;
use ext4_format::timestamp::Timestamp;
use extant_formatter::extent_map::Run;
use extant_formatter::item::{InodeEvent, MiscEvent};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Lifecycle {
    /// Frees the blocks and the number of an inode whose last link and last handle are gone, or that is an orphan found
    /// at open.
    pub(crate) fn reap(&self, inode: &Arc<Inode>) -> Result<()> {
        let _pass = self.store.gate.enter();
        let mut map = inode.file_with_data().map(|f| f.map.write());
        if let Some(map) = &mut map {
            self.data.drop_pages(inode, 0, u32::MAX);
            self.data.load_map(inode, map)?;
            let all: Vec<Run> = map.extents.iter().copied().collect();
            if !self.data.in_one_step(inode, &all) {
                self.data.remove_in_steps(inode, map, 0)?;
            }
        }
        let mapped = self.prepare_free(inode, map.as_deref_mut())?;
        let tx = self.commit.begin_core()?;
        let mut state = inode.state.lock();
        if state.freed {
            return Ok(());
        }
        let seen = state.stamp;
        tx.commit(seen, |c| {
            if state.orphan {
                state.orphan = false;
                c.misc(inode.ino, MiscEvent::OrphanRemove);
            }
            let map = map.as_deref_mut();
            self.log_free(inode, &mut state, map, (&mapped, now()), c);
        });
        drop(state);
        self.forget(inode);
        Ok(())
    }

    /// Reads the blocks that freeing an inode needs, before anything is logged: its data runs and the bitmaps of all
    /// that becomes free.
    pub(crate) fn prepare_free(
        &self,
        inode: &Inode,
        map: Option<&mut FileMap>,
    ) -> Result<Vec<Run>> {
        self.space.inodes.ensure_loaded(inode.ino, &*self.space)?;
        let runs = match (map, inode.ftype) {
            (Some(map), _) => {
                self.data.load_map(inode, map)?;
                map.extents.iter().copied().collect()
            }
            (None, FileType::Symlink) => match &inode.content {
                Content::Symlink(link) if link.block.is_some() => link.block.into_iter().collect(),
                _ if inode.size.load(Ordering::Relaxed) > FAST_SYMLINK_MAX as u64 => {
                    self.inodes.read_mapping(inode)?.iter().copied().collect()
                }
                _ => Vec::new(),
            },
            _ => Vec::new(),
        };
        self.data.load_bitmaps_of(&runs)?;
        Ok(runs)
    }

    /// Prepares an open inode that loses its last name for being freed when it is closed. At that time an error could
    /// not be reported, and without a journal no list would lead to the inode. The inode holds its runs until then.
    pub(crate) fn prepare_death(&self, inode: &Inode) -> Result<Vec<Run>> {
        self.space.inodes.ensure_loaded(inode.ino, &*self.space)?;
        Ok(Vec::new())
    }

    /// Returns true if an inode without data can be freed from memory alone: [`Lifecycle::prepare_free`] would find no
    /// run.
    #[inline]
    pub(crate) fn is_ready_to_free(&self, inode: &Inode) -> bool {
        inode.ftype != FileType::Symlink && self.space.inodes.is_loaded(inode.ino)
    }

    /// Logs that the inode is free from this time on, with the data blocks it held.
    #[inline(always)]
    pub(crate) fn log_free(
        &self,
        inode: &Inode,
        state: &mut InodeState,
        map: Option<&mut FileMap>,
        (runs, time): (&[Run], Timestamp),
        c: &mut Commit<'_>,
    ) {
        for run in runs {
            self.data.log_freed(run, c);
        }
        if let Some(map) = map {
            map.extents = Default::default();
        }
        state.freed = true;
        state.core_dirty = false;
        state.core.links = 0;
        state.core.size = 0;
        state.disk_size = 0;
        // 1970 would read as "never deleted".
        state.core.dtime = (time.secs() as u32).max(1);
        state.stamp = c.stamp;
        c.inode(inode.ino, InodeEvent::Free, state.core);
        inode.logged_in(c.context);
        if inode.directory().is_some() {
            self.space.inodes.count_directory(inode.ino, -1);
        }
        if state.born == c.context {
            self.space
                .inodes
                .release_at_once(inode.ino, c.stamp, c.context);
        } else {
            self.space.inodes.note_leaving();
        }
    }

    /// Removes a freed inode from memory.
    #[inline]
    pub(crate) fn forget(&self, inode: &Arc<Inode>) {
        if inode.touched_file().is_some() {
            self.data.discard_preallocation_of(inode);
            self.data.drop_pages(inode, 0, u32::MAX);
        }
        self.inodes.index.retire(inode);
        self.inodes.delist(inode);
    }
}
