//! Write-back. Dirty pages get their blocks and are written to the device, and only then is the mapping committed. So
//! ordered mode holds by construction: no committed mapping leads to data not written.

use crate::base::error::{Error, Result};
use crate::base::invariants::{Rule, insist};
use crate::base::planted::{self, Fault};
use crate::base::schedule::{self, Point};
use crate::data::Data;
use crate::incore::file::{FileData, FileMap};
use crate::incore::inode::{Inode, InodeState};
use crate::incore::pages::{CHUNK_PAGES, SharedChunk};
use crate::space::guards::PlacedRuns;
use extant_formatter::extent_map::{Found, Run};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Longest run of blocks written by one call.
const MAX_RUN: u32 = 2048;

/// Neighbouring dirty pages.
struct DirtyRun {
    logical: u32,
    pages: Vec<(SharedChunk, usize)>,
}

impl DirtyRun {
    /// Returns the first logical block, and the number of blocks.
    fn blocks(&self) -> (u32, u32) {
        (self.logical, self.pages.len() as u32)
    }
}

/// Condition for write-back to log an inode's core when it logs no mapping.
#[derive(Clone, Copy)]
enum CoreLogged {
    /// If anything in the core changed.
    IfChanged,
    /// If the size changed. Times can wait, and the inode stays on its list of dirty ones for them. So fdatasync of
    /// overwritten blocks needs no push.
    ForSize,
}

impl CoreLogged {
    fn is_needed(self, state: &InodeState) -> bool {
        match self {
            Self::IfChanged => state.core_dirty,
            Self::ForSize => state.disk_size != state.core.size,
        }
    }
}

impl Data {
    /// Writes one inode's dirty pages and logs what changed of it.
    pub(super) fn write_back(&self, inode: &Arc<Inode>) -> Result<()> {
        self.write_back_with(inode, CoreLogged::IfChanged)
    }

    fn write_back_with(&self, inode: &Arc<Inode>, core: CoreLogged) -> Result<()> {
        let _span = lockmeter::span!("write back");
        if let Some(file) = inode.touched_file() {
            if self.is_written_back(inode, file) {
                return Ok(());
            }
            let mut map = file.map.write();
            self.write_back_pages(inode, &mut map, core)?;
            self.drop_pages_kept_above(file);
            return Ok(());
        }
        let mut state = inode.state.lock();
        if !state.core_dirty || state.freed {
            return Ok(());
        }
        drop(state);
        let tx = self.commit.begin_core()?;
        state = inode.state.lock();
        if state.core_dirty && !state.freed {
            let names = inode.directory();
            let seen = state.stamp.max(names.map_or(0, |n| n.last_stamp()));
            tx.commit(seen, |c| {
                self.inodes.log_core_alone(inode, &mut state, seen, c)
            });
        }
        Ok(())
    }

    /// Returns true if a file needs no write-back and holds no unneeded reservation. The check does not disturb threads
    /// that read the file, or have just written it back.
    fn is_written_back(&self, inode: &Inode, file: &FileData) -> bool {
        let _map = file.map.read();
        let state = inode.state.read();
        (state.freed || !state.core_dirty && file.overwrites.latest().is_none())
            && file.promised.load(Ordering::Relaxed) == 0
            && !file.pages.may_be_dirty()
    }

    pub(super) fn write_back_locked(&self, inode: &Arc<Inode>, map: &mut FileMap) -> Result<()> {
        self.write_back_pages(inode, map, CoreLogged::IfChanged)
    }

    fn write_back_pages(
        &self,
        inode: &Arc<Inode>,
        map: &mut FileMap,
        core: CoreLogged,
    ) -> Result<()> {
        let Some(file) = inode.file() else {
            return Ok(());
        };
        let dirty = file.pages.dirty_chunks(0, u32::MAX);
        {
            let mut state = inode.state.lock();
            self.inodes.fold_overwrites(inode, &mut state);
            if state.freed || (dirty.is_empty() && !state.core_dirty) {
                drop(state);
                self.return_promise(file);
                if dirty.is_empty() {
                    file.pages.all_written();
                }
                return Ok(());
            }
        }
        self.store.check_writable()?;
        self.load_map(inode, map)?;
        let runs = gather(&dirty);
        let mut placing = self.space.placing_reserved();
        let late = planted::is(Fault::MappingBeforeData);
        let written = runs.iter().try_for_each(|run| {
            let placed = &mut placing.runs;
            if late {
                // The planted fault allocates the blocks, and writes them after their mapping.
                self.write_blocks(inode, file, map, run.blocks(), placed, |_, _| Ok(()))
            } else {
                self.write_run(inode, file, map, run, placed)
            }
        });
        if let Err(e) = written {
            drop(placing);
            if matches!(e, Error::Io { .. } | Error::Broken { .. }) {
                self.store.stop(&e);
            }
            return Err(e);
        }
        // Existing blocks were overwritten within one tick of the clock, so there is nothing to log.
        if placing.runs.is_empty() && !core.is_needed(&inode.state.lock()) {
            self.return_promise(file);
            self.note_written_back(file, &dirty, u64::from(u32::MAX) + 1);
            return Ok(());
        }
        self.commit_written(inode, file, map, placing, &dirty)?;
        if late {
            planted::wait();
            let mut again = runs.iter();
            return again
                .try_for_each(|run| self.write_run(inode, file, map, run, &mut Vec::new()));
        }
        Ok(())
    }

    /// Logs the mapping of the written runs in steps from the start. After each step the file is as long as its
    /// mapping.
    pub(super) fn commit_written(
        &self,
        inode: &Arc<Inode>,
        file: &FileData,
        map: &mut FileMap,
        mut placing: PlacedRuns<'_>,
        dirty: &[(u32, SharedChunk)],
    ) -> Result<()> {
        let block_size = u64::from(self.store.geometry.first().block_size);
        let mut promised = file.promised.swap(0, Ordering::Relaxed);
        loop {
            let fit = self.first_step(inode, placing.runs.iter()).0.max(1);
            let (step, after) = placing.runs.split_at(fit.min(placing.runs.len()));
            let share = match after {
                [] => promised,
                _ => promised / placing.runs.len() as u32 * step.len() as u32,
            };
            let tx = match self.commit.begin_promised(share) {
                Ok(tx) => tx,
                Err(e) => {
                    file.promised.fetch_add(promised, Ordering::Relaxed);
                    return Err(e);
                }
            };
            promised -= share;
            let mapped_to = step.last().map_or(0, Run::end);
            let mut state = inode.state.lock();
            state.disk_size = match after {
                [] => state.core.size,
                _ => state
                    .disk_size
                    .max((mapped_to * block_size).min(state.core.size)),
            };
            let seen = state.stamp;
            tx.commit(seen, |c| {
                for run in step {
                    // `unwritten` marks a run whose blocks were allocated, unwritten, and are written now.
                    let written = Run {
                        unwritten: false,
                        ..*run
                    };
                    c.map_run(inode.ino, written, !run.unwritten);
                }
                self.inodes.log_core(inode, &mut state, c);
            });
            drop(state);
            self.count_added(inode, &taken(step));
            for run in step {
                let replaced = map.extents.set(Run {
                    unwritten: false,
                    ..*run
                });
                self.store.insist(
                    run.unwritten || replaced.is_empty(),
                    Rule::HoleWasEmpty,
                    || format!("{run:?} of inode {} replaces {replaced:?}", inode.ino),
                );
            }
            self.note_tree(inode, map);
            let logged = step.len();
            let all = after.is_empty();
            placing.keep_first(logged);
            if all {
                self.note_written_back(file, dirty, u64::from(u32::MAX) + 1);
                return Ok(());
            }
            self.note_written_back(file, dirty, mapped_to);
        }
    }

    /// Marks the pages below a logical block clean, and releases their reservations.
    fn note_written_back(&self, file: &FileData, dirty: &[(u32, SharedChunk)], upto: u64) {
        let (mut cleaned, mut kept) = (0, 0);
        for (index, chunk) in dirty {
            let below = upto.saturating_sub(u64::from(*index) * u64::from(CHUNK_PAGES));
            if below == 0 {
                break;
            }
            let pages = ((1u32 << below.min(u64::from(CHUNK_PAGES))) - 1) as u16;
            cleaned += i64::from(chunk.dirty.clear(pages));
            kept += chunk.promised.clear(pages);
        }
        if upto > u64::from(u32::MAX) {
            file.pages.all_written();
        }
        let promised = file.promised_pages.fetch_sub(kept, Ordering::Relaxed);
        self.store
            .insist(promised >= kept, Rule::PromisesCover, || {
                format!("{kept} of {promised}")
            });
        self.dirty_bytes
            .add(-cleaned * i64::from(self.store.geometry.first().block_size));
    }

    /// Returns the reservations of a file without dirty pages that could change the mapping.
    pub(super) fn return_promise(&self, file: &FileData) {
        let promised = file.promised.swap(0, Ordering::Relaxed);
        if promised > 0 {
            self.space.counts.give(u64::from(promised));
        }
    }

    fn write_run(
        &self,
        inode: &Inode,
        file: &FileData,
        map: &FileMap,
        run: &DirtyRun,
        placed: &mut Vec<Run>,
    ) -> Result<()> {
        self.write_blocks(inode, file, map, run.blocks(), placed, |piece, done| {
            self.write_pages(file, piece, &run.pages[done..done + piece.len as usize])
        })
    }

    /// Writes `len` blocks from a logical one on, each piece by `write`, which gets the number of blocks before it.
    /// Blocks in holes are allocated; their number was taken from the count.
    pub(super) fn write_blocks(
        &self,
        inode: &Inode,
        file: &FileData,
        map: &FileMap,
        (first, len): (u32, u32),
        placed: &mut Vec<Run>,
        write: impl Fn(Run, usize) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        while done < len {
            let (logical, left) = (first + done, len - done);
            let piece = match map.extents.at(logical) {
                Found::Mapped(r) => {
                    let piece = Run {
                        len: r.len.min(left),
                        ..r
                    };
                    if r.unwritten {
                        placed.push(piece);
                    }
                    piece
                }
                Found::Hole(n) => {
                    let want = left.min(n).min(MAX_RUN);
                    let newborn = map.extents.is_empty() && placed.is_empty();
                    let preallocated = self
                        .take_preallocated(file, map, logical, want)
                        .or_else(|| newborn.then(|| self.take_for_small_file(inode, want))?);
                    let (physical, len) = match preallocated {
                        Some((start, len)) => {
                            // Return the reservation of these blocks, which are counted as taken already.
                            self.space.counts.give(u64::from(len));
                            (start, len)
                        }
                        None => self.allocate_data(inode, file, map, logical, want, placed)?,
                    };
                    let piece = Run {
                        logical,
                        len,
                        physical,
                        unwritten: false,
                    };
                    placed.push(piece);
                    piece
                }
            };
            write(piece, done as usize)?;
            done += piece.len;
        }
        Ok(())
    }

    fn write_pages(&self, file: &FileData, run: Run, pages: &[(SharedChunk, usize)]) -> Result<()> {
        // The map is held exclusively, so no page changes.
        let held: Vec<_> = pages.iter().map(|(c, i)| c.pages[*i].read()).collect();
        let bytes = held.iter().map(|page| page.as_deref());
        let Some(slices) = bytes.collect::<Option<Vec<&[u8]>>>() else {
            return Err(Rule::DirtyPageIsThere.broken(format!("{run:?}")));
        };
        insist!(
            !self.store.gate.is_shut(),
            FrozenIsStill,
            "write-back of {run:?}"
        );
        self.store
            .device
            .write_vectored_at(
                run.physical.offset(self.store.geometry.first().block_size),
                &slices,
            )
            .map_err(|e| Error::block_io("write", run.physical, e))?;
        self.note_data(file);
        Ok(())
    }

    /// Notes that data of a file have been written to its blocks on the device. The map is held exclusively.
    pub(super) fn note_data(&self, file: &FileData) {
        file.writes.fetch_add(1, Ordering::Relaxed);
        self.note_flush_due(file);
    }

    /// Notes that data of a file are on the device, and not behind a flush yet.
    pub(super) fn note_flush_due(&self, file: &FileData) {
        let written = self.store.flushes.note_data();
        file.written.fetch_max(written, Ordering::SeqCst);
        self.store.unsynced.logged.note();
    }

    /// Returns the mark that a flush must be beyond to cover all data of a file. If pages of the file were dropped
    /// since its last write, that is the mark of the last write of any file. Returns `None` if such a flush is known
    /// of, so that a file without new data reads nothing that flushes write.
    fn mark_of(&self, file: Option<&FileData>) -> Option<u64> {
        let (written, flushed) = file.map_or((0, 0), |file| {
            let written = file.written.load(Ordering::SeqCst);
            (written, file.flushed.load(Ordering::SeqCst))
        });
        match written {
            _ if flushed >= written.max(1) => None,
            0 => Some(self.store.flushes.data_mark()),
            _ => Some(written - 1),
        }
    }

    /// Returns the context that an fsync of the inode makes durable, if it is not durable yet.
    fn context_to_push(&self, inode: &Inode) -> Option<u64> {
        inode.context_to_push(self.commit.synced(), self.log.durable())
    }

    /// Returns the goal for a logical block: behind its neighbour, else in the inode's group.
    pub(super) fn goal_at(
        &self,
        inode: &Inode,
        map: &FileMap,
        logical: u32,
        placed: &[Run],
    ) -> ext4_format::BlockNr {
        let before = placed
            .last()
            .copied()
            .filter(|r| r.end() == u64::from(logical))
            .or_else(|| match logical.checked_sub(1).map(|l| map.extents.at(l)) {
                Some(Found::Mapped(r)) => Some(Run { len: 1, ..r }),
                _ => None,
            })
            .or_else(|| map.extents.iter().next_back().copied());
        match before {
            Some(run) => ext4_format::BlockNr(run.physical.0 + u64::from(run.len)),
            None => self.space.goal_of(inode.ino),
        }
    }

    /// Writes a file that takes another's place by its name: its data go to the device first, and the mapping is
    /// logged before the name. So a program that writes a new version and renames it over the old one without fsync
    /// finds one of the two after a crash, never an empty file (`auto_da_alloc`). Data that cannot be written stay
    /// dirty, and fsync reports the error.
    pub(crate) fn write_replacement(&self, inode: &Arc<Inode>) {
        if !self.store.settings.auto_da_alloc || inode.touched_file().is_none() {
            return;
        }
        // No thread waits here for a thaw: the data of a frozen volume are durable already.
        let Some(_pass) = self.store.gate.try_enter() else {
            return;
        };
        if let Err(error) = self.write_back(inode) {
            tracing::debug!(ino = inode.ino.0, %error, "writing what replaces a file");
            self.inodes.note_dirty(inode);
        }
    }

    /// Like [`write_replacement`](Self::write_replacement), at the end of work on a file that was cut to nothing and
    /// written again.
    #[inline]
    pub(crate) fn finish_replacing(&self, inode: &Arc<Inode>) {
        let replaced = |file: &FileData| file.replaced.load(Ordering::Relaxed);
        if let Some(file) = inode.touched_file().filter(|file| replaced(file))
            && file.replaced.swap(false, Ordering::Relaxed)
            && self.store.check_running().is_ok()
            && !inode.is_gone()
        {
            self.write_replacement(inode);
        }
    }

    /// Syncs an inode: everything of it that a crash must not lose is on disk when this returns.
    pub(crate) fn fsync(&self, inode: &Arc<Inode>, datasync: bool) -> Result<()> {
        self.store.check_running()?;
        if self.store.health.read_only.is_some() {
            return Ok(());
        }
        let pass = self.store.gate.enter_or_shut();
        if pass.is_none() && self.context_to_push(inode).is_none() {
            // The volume was frozen, and is durable since.
            return Ok(());
        }
        let _pass = pass.unwrap_or_else(|| self.store.gate.enter());
        if !datasync {
            self.inodes.make_times_due_of(inode);
        }
        let core = if datasync {
            CoreLogged::ForSize
        } else {
            CoreLogged::IfChanged
        };
        let written = self.write_back_with(inode, core);
        let file = inode.touched_file();
        // An earlier failure is reported once. An error of this call is more precise.
        let failed = file.and_then(|file| file.failed.lock().take());
        written?;
        if let Some(failed) = failed {
            return Err(*failed);
        }
        let mark = self.mark_of(file);
        let context = self.context_to_push(inode);
        schedule::reached(Point::FsyncWritten);
        if let Some(context) = context {
            self.log.budget.note_waiter();
            self.commit.sync_to(context)?;
            if planted::is(Fault::FsyncWithoutFlush) {
                return Ok(());
            }
        }
        // Data may have been written to blocks that existed before. A push that another thread had begun may have
        // flushed before these writes. A push begun for this call has flushed after them, so that nothing is left to
        // do.
        let Some(mark) = mark else {
            return Ok(());
        };
        self.store.flush_since(mark)?;
        if let Some(file) = file {
            file.flushed.fetch_max(mark + 1, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// Returns the runs that write-back took blocks for. Other runs were allocated already, unwritten.
pub(super) fn taken(placed: &[Run]) -> Vec<Run> {
    placed.iter().filter(|r| !r.unwritten).copied().collect()
}

/// Joins dirty pages with neighbouring numbers.
fn gather(chunks: &[(u32, SharedChunk)]) -> Vec<DirtyRun> {
    let mut runs: Vec<DirtyRun> = Vec::new();
    for (index, chunk) in chunks {
        for i in (0..CHUNK_PAGES).filter(|i| chunk.dirty.has(*i as usize)) {
            let logical = index * CHUNK_PAGES + i;
            let page = (Arc::clone(chunk), i as usize);
            match runs.last_mut() {
                Some(run) if run.logical as usize + run.pages.len() == logical as usize => {
                    run.pages.push(page)
                }
                _ => runs.push(DirtyRun {
                    logical,
                    pages: vec![page],
                }),
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    #[test]
    fn an_overwrite_that_changes_no_times_is_synced_without_a_commit() {
        let volume = crate::doc_volume();
        let file = volume.create_new_file("/file").unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        file.sync_all().unwrap();
        let pushes = || volume.guard_engine().log.pushes.load(Ordering::Relaxed);
        let before = pushes();
        let rounds: u8 = 250;
        for n in 0..rounds {
            file.write_all_at(&[n; 4096], 0).unwrap();
            file.sync_all().unwrap();
        }
        // A commit for each tick of the coarse clock. Ticks are milliseconds apart.
        assert!(
            pushes() - before < u64::from(rounds),
            "{}",
            pushes() - before
        );
        assert_eq!(volume.read("/file").unwrap(), [rounds - 1; 4096]);
    }
}
