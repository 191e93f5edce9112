//! Changing a file's size, and removing blocks.
//!
//! A removal that is too large for one operation is done in steps (see [`crate::data::step_limits`]), from the end. Meanwhile
//! the inode is on the orphan list, so that the removal is finished at open after a crash.

use crate::base::error::{Error, Result};
use crate::data::Data;
use crate::incore::file::{FileData, FileMap};
use crate::incore::inode::Inode;
use crate::log::Commit;
use crate::types::credentials::Credentials;
use ext4_format::inode::flags;
use ext4_format::{BlockNr, FileType};
use extant_formatter::extent_map::Run;
use extant_formatter::item::{MapItem, MiscEvent};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Data {
    /// Sets the size of a regular file.
    pub(crate) fn truncate(&self, who: &Credentials, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let _span = lockmeter::span!("truncate");
        let _pass = self.store.gate.enter();
        self.store.check_writable()?;
        let file = inode.file().ok_or(match inode.ftype {
            FileType::Directory => Error::IsDirectory,
            _ => Error::Invalid("not a regular file"),
        })?;
        let mut map = file.map.write();
        self.load_map(inode, &mut map)?;
        let (old, inode_flags) = {
            let state = inode.state.lock();
            if state.freed {
                return Err(Error::BadHandle("the file was removed"));
            }
            (state.core.size, state.core.flags)
        };
        if size > self.max_size(inode_flags) {
            return Err(Error::FileTooLarge);
        }
        self.inodes.drop_capability(who, inode)?;
        let bs = u64::from(self.store.geometry.first().block_size);
        let first_gone = u32::try_from(size.div_ceil(bs)).map_err(|_| Error::FileTooLarge)?;
        let gone = self.prepare_size(who, inode, &map, (old, size), first_gone)?;
        let in_steps = !self.in_one_step(inode, &gone);
        let tx = self.commit.begin_core()?;
        // Nothing fails from here on.
        if size < old {
            self.drop_pages(inode, first_gone, u32::MAX);
        }
        let mut state = inode.state.lock();
        self.inodes.fold_overwrites(inode, &mut state);
        let (mtime, ctime) = who.times_of_change(&state.core);
        let seen = state.stamp;
        let mut taken = Vec::new();
        let mut struck_out = false;
        tx.commit(seen, |c| {
            state.core.size = size;
            state.disk_size = if size < old {
                state.disk_size.min(size)
            } else {
                self.size_to_log(file, state.disk_size, size)
            };
            state.core.mtime = mtime;
            state.core.ctime = ctime;
            state.core.mode = who.mode_after_write(state.core.mode, state.core.gid);
            inode.mirror(&state.core);
            if in_steps {
                state.orphan = true;
                c.misc(inode.ino, MiscEvent::OrphanAdd);
            } else if !gone.is_empty() {
                self.inodes.note_core(inode, &mut state, c);
                let core = state.disk_core();
                struck_out = c.strike_out(inode.ino, &gone, first_gone, core, &mut map.relog, seen);
                if struck_out {
                    taken = map.extents.remove(first_gone, u32::MAX - first_gone);
                    return self.note_tree(inode, &map);
                }
                taken = self.log_removal(inode, &mut map, first_gone, u32::MAX - first_gone, c);
            }
            self.inodes.log_core(inode, &mut state, c);
        });
        let size_pending = state.core_dirty;
        drop(state);
        if size == 0 && old > 0 {
            file.replaced.store(true, Ordering::Relaxed);
        }
        if size_pending {
            self.inodes.note_dirty(inode);
        }
        self.count_cut(inode, file, &taken, struck_out);
        self.watch.tell_written(inode);
        if in_steps {
            // Under the same lock: no other caller may grow the file over blocks that must still be removed.
            self.finish_truncate_locked(inode, &mut map, first_gone)?;
        }
        Ok(())
    }

    /// Counts the runs that a cut took from a file. Runs that were struck out of the log are free at once.
    fn count_cut(&self, inode: &Arc<Inode>, file: &FileData, taken: &[Run], struck_out: bool) {
        self.count_removed(inode, taken);
        if struck_out {
            for run in taken {
                self.reclaim(inode, file, *run);
            }
        }
    }

    /// Makes the bytes behind the end fit a new size; returns the runs that are beyond it, their bitmaps loaded.
    fn prepare_size(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        map: &FileMap,
        (old, size): (u64, u64),
        first_gone: u32,
    ) -> Result<Vec<Run>> {
        let gone = if size <= old {
            map.extents.range(first_gone, u32::MAX - first_gone)
        } else {
            // Growing keeps the blocks preallocated past the end.
            Vec::new()
        };
        self.load_bitmaps_of(&gone)?;
        if size != old {
            self.zero_tail(who, inode, map, size.min(old))?;
        }
        Ok(gone)
    }

    /// Drops pages from `from` to `to` inclusive, and returns their reserved blocks.
    pub(crate) fn drop_pages(&self, inode: &Inode, from: u32, to: u32) {
        if let Some(file) = inode.touched_file().filter(|f| !f.pages.is_empty()) {
            let dropped = file.pages.drop_range(from, to);
            let bs = i64::from(self.store.geometry.first().block_size);
            self.cached_bytes.add(-i64::from(dropped.pages) * bs);
            self.dirty_bytes.add(-i64::from(dropped.dirty) * bs);
            if dropped.promised > 0 {
                self.space.counts.give(u64::from(dropped.promised));
                file.promised_pages
                    .fetch_sub(dropped.promised, Ordering::Relaxed);
            }
            if (from, to) == (0, u32::MAX) {
                self.return_promise(file);
            }
        }
    }

    /// Takes the mapping of a range away from the map and logs that; the bitmaps of the blocks are in core.
    pub(super) fn log_removal(
        &self,
        inode: &Inode,
        map: &mut FileMap,
        from: u32,
        len: u32,
        c: &mut Commit<'_>,
    ) -> Vec<Run> {
        let runs = map.extents.remove(from, len);
        self.note_tree(inode, map);
        for run in &runs {
            self.log_freed(run, c);
        }
        if !runs.is_empty() {
            c.map(MapItem {
                ino: inode.ino,
                stamp: 0,
                logical: from,
                len,
                physical: BlockNr(0),
                unwritten: false,
            });
        }
        runs
    }

    /// Notes that the mapping in core has changed, so that stat shows its new size.
    pub(super) fn note_tree(&self, inode: &Inode, map: &FileMap) {
        if let Some(file) = inode.touched_file() {
            let by_extents = inode.has_flag(flags::EXTENTS);
            file.tree.note_needed(
                map.extents
                    .tree_blocks(by_extents, self.store.geometry.first().block_size),
            );
        }
    }

    /// Logs that blocks of data are free.
    pub(crate) fn log_freed(&self, run: &Run, c: &mut Commit<'_>) {
        self.space.counts.note_leaving(u64::from(run.len));
        c.bits(run.physical, run.len, false);
    }

    pub(crate) fn load_bitmaps_of(&self, runs: &[Run]) -> Result<()> {
        runs.iter()
            .try_for_each(|r| self.space.load_bitmaps(r.physical, r.len))
    }

    /// Adds blocks to the count that stat shows.
    pub(crate) fn count_added(&self, inode: &Inode, runs: &[Run]) {
        inode
            .sectors
            .fetch_add(self.sectors_of(runs), Ordering::Relaxed);
    }

    /// Takes blocks off the count that stat shows.
    pub(super) fn count_removed(&self, inode: &Inode, runs: &[Run]) {
        inode
            .sectors
            .fetch_sub(self.sectors_of(runs), Ordering::Relaxed);
    }

    fn sectors_of(&self, runs: &[Run]) -> i64 {
        let blocks: u64 = runs.iter().map(|r| u64::from(r.len)).sum();
        (blocks * u64::from(self.store.geometry.first().sectors_per_block())) as i64
    }

    /// Removes everything from `first` on, the last runs first; the inode is on the orphan list.
    pub(crate) fn remove_in_steps(
        &self,
        inode: &Inode,
        map: &mut FileMap,
        first: u32,
    ) -> Result<()> {
        loop {
            let gone = || {
                let runs = map.extents.iter().rev();
                runs.take_while(|r| r.end() > u64::from(first))
            };
            let Some(last) = gone().next() else {
                return Ok(());
            };
            let (fit, piece) = self.first_step(inode, gone());
            let from = match fit.checked_sub(1).and_then(|i| gone().nth(i)) {
                Some(run) => run.logical,
                None => last.logical + (last.len - last.len.min(piece)),
            };
            let from = from.max(first);
            self.load_bitmaps_of(&map.extents.range(from, u32::MAX - from))?;
            let tx = self.commit.begin_core()?;
            let mut state = inode.state.lock();
            let seen = state.stamp;
            let mut gone = Vec::new();
            tx.commit(seen, |c| {
                gone = self.log_removal(inode, map, from, u32::MAX - from, c);
                state.stamp = c.stamp;
                inode.logged_in(c.context);
            });
            drop(state);
            self.count_removed(inode, &gone);
        }
    }

    /// Finishes a truncation that a crash interrupted, by removing everything past the size.
    pub(crate) fn finish_truncate(&self, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let _pass = self.store.gate.enter();
        if let Some(file) = inode.file() {
            let bs = u64::from(self.store.geometry.first().block_size);
            let first = u32::try_from(size.div_ceil(bs)).map_err(|_| Error::FileTooLarge)?;
            let mut map = file.map.write();
            self.load_map(inode, &mut map)?;
            return self.finish_truncate_locked(inode, &mut map, first);
        }
        self.leave_orphans(inode)
    }

    fn finish_truncate_locked(
        &self,
        inode: &Arc<Inode>,
        map: &mut FileMap,
        first: u32,
    ) -> Result<()> {
        self.remove_in_steps(inode, map, first)?;
        self.leave_orphans(inode)
    }

    fn leave_orphans(&self, inode: &Arc<Inode>) -> Result<()> {
        let tx = self.commit.begin_core()?;
        let mut state = inode.state.lock();
        let seen = state.stamp;
        // An inode without a name stays there until it is freed.
        let leaves = state.core.links > 0;
        tx.commit(seen, |c| {
            if leaves {
                c.misc(inode.ino, MiscEvent::OrphanRemove);
            }
            self.inodes.log_core(inode, &mut state, c);
        });
        state.orphan = !leaves;
        Ok(())
    }
}
