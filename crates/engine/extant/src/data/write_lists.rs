//! Write-back of all dirty files: the lists of dirty inodes, and the bound on dirty data. A file that cannot be written
//! back does not keep others from being written.

use crate::base::error::{Error, Result};
use crate::base::in_flight::{InFlight, Piece};
use crate::base::planted::{self, Fault};
use crate::base::schedule::{self, Point};
use crate::base::{locks, parallel};
use crate::data::Data;
use crate::incore::inode::Inode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Lists of dirty inodes that threads have taken and are writing back: a caller that must not return before all is
/// written waits for lists taken earlier.
#[derive(Default)]
pub(crate) struct WritingBack {
    lists: InFlight<locks::WritingBack>,
    /// Number of the last list.
    last: AtomicU64,
    /// Inodes that could not be written back and are dirty still.
    failed: AtomicU64,
}

impl WritingBack {
    /// Begins write-back of a list. Called before the list is taken. The result is kept until the list is written back.
    fn begin(&self) -> Piece<'_, locks::WritingBack> {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.lists.begin(number)
    }
}

/// A slot's part of the counts of pages, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageCounts {
    dirty: i64,
    cached: i64,
}

/// Returns true if a slot's part has reached a higher stretch. The stretches of all slots together are a sixteenth of
/// the limit, so the sum may exceed the limit by that much before a thread checks.
fn has_grown(before: i64, now: i64, limit: u64) -> bool {
    let stretch = limit / (16 * percpu::slot::count() as u64);
    let stretch = i64::try_from(stretch).unwrap_or(i64::MAX).max(1);
    now.div_euclid(stretch) > before.div_euclid(stretch)
}

impl Data {
    /// Returns this slot's counts of dirty and of cached bytes, for [`Data::balance_dirty`].
    pub(super) fn page_counts(&self) -> PageCounts {
        PageCounts {
            dirty: self.dirty_bytes.local(),
            cached: self.cached_bytes.local(),
        }
    }

    /// Writes back the inodes that this slot dirtied if the limit of dirty data is exceeded: each slot cleans its own.
    /// The sum of all slots is read only when the slot's own part has reached another stretch since `before`.
    pub(super) fn balance_dirty(&self, before: PageCounts) -> Result<()> {
        let now = self.page_counts();
        if has_grown(before.dirty, now.dirty, self.store.limits.dirty_bytes) {
            self.clean_dirty()?;
        }
        if has_grown(before.cached, now.cached, self.store.limits.cache_bytes) {
            self.bound_pages();
        }
        Ok(())
    }

    /// Writes back this slot's dirty inodes, if there is too much dirty data. The failure of a file is left to its own
    /// next fsync: the caller may be writing another file.
    fn clean_dirty(&self) -> Result<()> {
        let dirty = u64::try_from(self.dirty_bytes.sum()).unwrap_or(0);
        if dirty > self.store.limits.dirty_bytes {
            let _piece = self.writing_back.begin();
            let mine = std::mem::take(&mut *self.inodes.dirty_inodes.local().lock());
            if let Err(e) = self.write_back_list(mine) {
                self.store.check_running().map_err(|_| e)?;
            }
        }
        Ok(())
    }

    /// Writes back a list that was taken since [`WritingBack::begin`].
    fn write_back_list(&self, list: Vec<Arc<Inode>>) -> Result<()> {
        schedule::reached(Point::WriteBackTaken);
        let mut first_error = None;
        for inode in list {
            inode.listed.leave();
            if let Err(e) = self.write_back(&inode) {
                // An inode that could not be written stays dirty, and is tried again.
                self.inodes.note_dirty(&inode);
                self.writing_back.failed.fetch_add(1, Ordering::SeqCst);
                if let Some(file) = inode.touched_file() {
                    *file.failed.lock() = Some(Box::new(later(&e)));
                }
                first_error.get_or_insert(e);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Writes back every inode that is dirty now. It waits for inodes that other threads are writing back, and retries
    /// inodes that could not be written. Returns the first error after all other inodes were written.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let failed = self.writing_back.failed.load(Ordering::SeqCst);
        let (written, others) = self.write_back_lists();
        if planted::is(Fault::SyncWithoutOthers) {
            return written;
        }
        self.writing_back.lists.wait_up_to(others);
        if self.writing_back.failed.load(Ordering::SeqCst) == failed {
            written
        } else {
            written.and(self.write_back_lists().0)
        }
    }

    /// Writes back every inode that is dirty now, then calls `push`. A file that cannot be written back does not keep
    /// others from becoming durable: `push` is called anyway, and the first error is returned afterwards.
    pub(crate) fn write_back_then(&self, push: impl FnOnce() -> Result<()>) -> Result<()> {
        let written = self.write_back_all();
        if planted::is(Fault::StopsAtFirstFailure) && written.is_err() {
            return written;
        }
        written.and(push())
    }

    /// Writes back the inodes on the dirty lists, with as many threads as the work needs and the CPUs allow. Returns
    /// the number of the last list that any thread had taken when these lists were taken.
    fn write_back_lists(&self) -> (Result<()>, u64) {
        let piece = self.writing_back.begin();
        let lists: Vec<_> = self
            .inodes
            .dirty_inodes
            .iter()
            .map(|l| std::mem::take(&mut *l.lock()))
            .collect();
        let others = self.writing_back.last.load(Ordering::SeqCst);
        let written = self.write_lists(lists);
        drop(piece);
        (written, others)
    }

    fn write_lists(&self, mut lists: Vec<Vec<Arc<Inode>>>) -> Result<()> {
        lists.retain(|l| !l.is_empty());
        let total: usize = lists.iter().map(Vec::len).sum();
        if total < 256 {
            // A failing list does not keep the other lists from being written.
            let done = lists.into_iter().map(|l| self.write_back_list(l));
            return done.fold(Ok(()), Result::and);
        }
        let all: Vec<_> = lists.into_iter().flatten().collect();
        let threads = parallel::cpus().min(8);
        let parts: Vec<_> = all.chunks(total.div_ceil(threads)).collect();
        let failed = OnceLock::new();
        parallel::for_each(threads, &parts, |_, part| {
            let _for_the_caller = self.store.gate.pass_on_behalf();
            if let Err(e) = self.write_back_list(part.to_vec()) {
                let _ = failed.set(e); // the first one is enough
            }
            Ok(())
        })?;
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// Makes everything of the volume durable, and releases the space of removed files.
    pub(crate) fn sync(&self) -> Result<()> {
        self.sync_then(self.store.unsynced.is_idle(), || {
            self.commit.sync_and_release()
        })
    }

    /// Like [`Data::sync`], and formats everything, so that the log's images are the volume's state.
    pub(crate) fn sync_formatted(&self) -> Result<()> {
        self.sync_then(self.is_at_rest(), || self.commit.push_and_release())
    }

    /// Returns true if nothing has changed since a sync, and fast commits left nothing to format.
    fn is_at_rest(&self) -> bool {
        self.store.unsynced.is_idle() && self.commit.is_formatted()
    }

    fn sync_then(&self, is_idle: bool, push: impl FnOnce() -> Result<()>) -> Result<()> {
        self.store.check_running()?;
        if self.store.health.read_only.is_some() || is_idle {
            return Ok(());
        }
        let pass = self.store.gate.enter_or_shut();
        if pass.is_none() && !self.log.is_pending() {
            // The volume was frozen, and is durable since.
            return Ok(());
        }
        let _pass = pass.unwrap_or_else(|| self.store.gate.enter());
        let dirty = self.store.unsynced.dirty.begin();
        self.inodes.make_all_times_due();
        self.write_back_and(push)?;
        self.store.unsynced.dirty.end(dirty);
        Ok(())
    }

    /// Writes back, then makes the committed contexts durable.
    fn write_back_and(&self, push: impl FnOnce() -> Result<()>) -> Result<()> {
        self.write_back_then(|| {
            let logged = self.store.unsynced.logged.begin();
            push()?;
            self.store.unsynced.logged.end(logged);
            Ok(())
        })
    }

    /// Makes everything durable for the timer, except lazy times younger than a day, and formats it.
    pub(crate) fn sync_by_timer(&self) -> Result<()> {
        if self.is_at_rest() {
            return Ok(());
        }
        let dirty = self.store.unsynced.dirty.begin();
        self.inodes.make_old_times_due();
        self.write_back_and(|| self.commit.push_and_release())?;
        if !self.inodes.has_lazy_times() {
            self.store.unsynced.dirty.end(dirty);
        }
        Ok(())
    }
}

/// Returns the error that the next fsync of a file returns for a failed write-back.
#[cold]
fn later(error: &Error) -> Error {
    match error {
        Error::NoSpace(what) => Error::NoSpace(what),
        other => Error::Io {
            context: "write back the file earlier".into(),
            source: std::io::Error::other(other.to_string()),
        },
    }
}
