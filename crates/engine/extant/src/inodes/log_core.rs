//! Logging an inode's core, with the changes that are noted for it elsewhere.

use crate::base::invariants::Rule;
use crate::incore::directory::Directory;
use crate::incore::inode::Inode;
use crate::inodes::Inodes;
use ext4_format::inode::InodeCore;
use extant_formatter::item::InodeEvent;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Inodes {
    /// Remembers that write-back must visit the inode, which the caller has made dirty.
    pub(crate) fn note_dirty(&self, inode: &Arc<Inode>) {
        if inode.listed.is_missing() {
            self.list_dirty(inode);
        }
    }

    #[inline(never)]
    fn list_dirty(&self, inode: &Arc<Inode>) {
        let mut list = self.dirty_inodes.local().lock();
        if inode.listed.join() {
            list.push(Arc::clone(inode));
            self.store.unsynced.dirty.note();
        }
    }

    /// Copies the times of overwriting that slots noted into the core.
    pub(crate) fn fold_overwrites(
        &self,
        inode: &Inode,
        state: &mut crate::incore::inode::InodeState,
    ) {
        let file = inode.touched_file();
        if let Some(time) = file.and_then(|f| f.overwrites.take()) {
            state.core.mtime = time;
            state.core.ctime = state.core.ctime.max(time);
            state.core_dirty = true;
        }
    }

    /// Adds the noted overwrites to a copy of the core, for reading.
    pub(super) fn add_overwrites(&self, inode: &Inode, core: &mut InodeCore) {
        let file = inode.touched_file();
        if let Some(time) = file.and_then(|f| f.overwrites.latest()) {
            core.mtime = time;
            core.ctime = core.ctime.max(time);
        }
    }

    /// Logs an inode's core as it is now.
    pub(crate) fn log_core(
        &self,
        inode: &Inode,
        state: &mut crate::incore::inode::InodeState,
        c: &mut crate::log::Commit<'_>,
    ) {
        self.note_core(inode, state, c);
        c.inode(inode.ino, InodeEvent::Update, state.disk_core());
    }

    /// Logs the core in a commit that logs nothing else. `seen` is the stamp of the inode's last item.
    pub(crate) fn log_core_alone(
        &self,
        inode: &Inode,
        state: &mut crate::incore::inode::InodeState,
        seen: extant_formatter::item::Stamp,
        c: &mut crate::log::Commit<'_>,
    ) {
        self.note_core(inode, state, c);
        c.core_alone(inode.ino, state.disk_core(), seen);
    }

    /// Notes that the inode's core as it is now is being logged.
    pub(crate) fn note_core(
        &self,
        inode: &Inode,
        state: &mut crate::incore::inode::InodeState,
        c: &crate::log::Commit<'_>,
    ) {
        state.stamp = c.stamp;
        self.fold_overwrites(inode, state);
        self.store.insist(!state.freed, Rule::FreedIsNotLogged, || {
            format!("inode {}", inode.ino)
        });
        self.store.insist(
            state.disk_size <= state.core.size,
            Rule::SizeHasItsData,
            || {
                format!(
                    "inode {}: {} of {}",
                    inode.ino, state.disk_size, state.core.size
                )
            },
        );
        // A size not yet backed by data on the device is not logged here, but by write-back.
        state.core_dirty = state.disk_size != state.core.size;
        state.lazy_times = false;
        if let Some(dir) = inode.directory() {
            dir.core_stamp.store(c.stamp, Ordering::Relaxed);
            // This item outranks those of earlier names, so it must know their times.
            self.fold_times(dir, &mut state.core);
        }
        inode.logged_in(c.context);
    }
}

impl Inodes {
    /// Folds the per-slot change times into a directory's core, which is about to be logged; the present change has
    /// been noted. They are later than any time that a caller has set.
    pub(crate) fn fold_times(&self, names: &Directory, core: &mut InodeCore) {
        if let Some(newest) = names.last_change() {
            core.mtime = newest;
            core.ctime = core.ctime.max(newest);
        }
    }
}
