//! Fast commits [ext4's area behind the log]: an fsync writes the items of the open context as they are, and a later
//! push formats them.
//!
//! The steps of a fast commit:
//! 1. Transactions that were logged before become durable. A fast commit continues the last of them, and is valid only
//!    with it.
//! 2. The open context is closed. Its items, as changes of fast commits, continue the area.
//! 3. A flush, if data were written since the last one, because neither a mapping nor a larger size may be durable
//!    before its data.
//! 4. The sectors of the area that change, then a flush. The context is durable. The first write of a block is whole, so
//!    that zeros follow the last tail. The next fast commit has the same bytes up to that tail.
//!
//! Steps 1 and 2 run for one fast commit at a time, and steps 3 and 4 for one at a time. A thread takes the lock of the area before it
//! releases the writer's. So the next fast commit is put together while this one is written, and is written after its flush.
//!
//! Its items wait in `unformatted` for the next push, which formats them as a transaction before the items of the
//! push's context. From that transaction's commit block on, the fast commits are those of an earlier transaction, and
//! are ignored. Blocks and inode numbers that the context freed stay in use until then.
//!
//! A context that fast commits cannot express, or that does not fit into the area, is pushed.
//!
//! e2fsck (1.47 and before) discards the whole log when it finds fast commits of an earlier transaction, Linux's as
//! well as ours. So the head of the area is cleared as soon as a push has replaced them. That write is not flushed: a
//! cut before the next flush leaves an image that Linux and this project replay, and that e2fsck must not see first.

use super::Committer;
use crate::base::error::Result;
use crate::base::locks::{self, Mutex, MutexGuard};
use crate::base::planted::{self, Fault};
use crate::base::schedule::{self, Point};
use crate::commit::journal::{Journal, LogArea};
use crate::commit::stages::PushWatch;
use ext4_format::InodeNr;
use ext4_format::jbd2::{FastChange, FastPiece, FastWriter};
use extant_formatter::fast_commit::{self, Records, SincePush};
use extant_formatter::item::{InodeEvent, ItemList};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Contexts that are durable by fast commits and wait for a push.
#[derive(Default)]
pub(super) struct Unformatted {
    pub items: ItemList,
    /// True if a fast commit has expressed a change. Items that cancel each other out express no change.
    has_changes: bool,
    /// Inodes that these items make.
    born: BTreeSet<InodeNr>,
    since: SincePush,
    /// The items free blocks or inode numbers, which only a push releases.
    frees: bool,
}

/// Returns true if blocks or inode numbers become free by these items.
fn frees(items: &ItemList) -> bool {
    items.bits.iter().any(|bits| !bits.alloc)
        || items
            .inodes
            .iter()
            .any(|item| item.event == InodeEvent::Free)
}

/// The fast commits of a volume with the feature `fast_commit`.
pub(crate) struct FastCommits {
    area: Arc<LogArea>,
    /// Held while a fast commit is written into the area.
    writing: Mutex<(), locks::FastArea>,
    /// Blocks of one transaction.
    most: u64,
    writer: Mutex<Option<FastWriter>, locks::FastCommit>,
    pub(super) unformatted: Mutex<Unformatted, locks::Unformatted>,
    /// The last context whose fast commit has taken the lock of the area. Changes with the writer locked.
    begun: AtomicU64,
    /// The last context that a fast commit has made durable.
    durable: AtomicU64,
    /// First block of the area, where fast commits of an earlier transaction may be left.
    first: u32,
    has_head: AtomicBool,
}

/// Returns the inode that e2fsck (1.47 and before) reads first to replay a change. The first inode of a replay must not share
/// a block of the inode table with the journal's inode. e2fsck read that block before it replayed the log, and would write
/// back the stale block with the record.
fn first_read(change: &FastChange) -> InodeNr {
    match change {
        FastChange::Inode(ino, _)
        | FastChange::AddRange(ino, _)
        | FastChange::RemoveRange(ino, ..) => *ino,
        FastChange::Create(name) | FastChange::Link(name) => name.ino,
        FastChange::Unlink(name) => name.parent,
    }
}

/// The right to begin a fast commit, and what the last one has left.
pub(super) type Turn<'f> = MutexGuard<'f, Option<FastWriter>, locks::FastCommit>;

/// Number of times that a thread polls for its turn before it blocks.
const POLLS: u32 = 32;

/// Most items of one fast commit. A push of more costs no more than their fast commit and a later push.
const MOST_AT_ONCE: usize = 2048;
/// Maximum number of items that wait for a push. A file that is created and removed between two fast commits takes memory, but no
/// space in the area.
const MOST_ITEMS: usize = crate::log::SMALL as usize;

impl FastCommits {
    /// Makes the fast commits of a journal with this area. `most` is the number of its blocks that one transaction
    /// holds.
    pub fn new(area: Arc<LogArea>, first: u32, most: usize) -> Self {
        Self {
            area,
            writing: Mutex::default(),
            most: most as u64,
            writer: Mutex::default(),
            unformatted: Mutex::default(),
            begun: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            first,
            has_head: AtomicBool::new(true),
        }
    }

    /// Clears the head of the area, if fast commits were written before the transaction that is durable now.
    pub(super) fn forget(&self, block_size: u32) -> Result<()> {
        if self.has_head.swap(false, Ordering::Relaxed) {
            self.area
                .write(self.first, &[&vec![0; block_size as usize]])
        } else {
            Ok(())
        }
    }
}

impl Committer {
    /// Returns the last context that is durable, by a push or by a fast commit.
    pub(crate) fn synced(&self) -> u64 {
        let fast = self.fast.as_ref();
        let fast = fast.map_or(0, |fast| fast.durable.load(Ordering::Acquire));
        self.log.durable().max(fast)
    }

    /// Makes every context up to `target` durable. The blocks and numbers that these contexts freed may stay in use.
    pub(crate) fn sync_to(&self, target: u64) -> Result<()> {
        if let Some(fast) = &self.fast {
            let Some(writer) = self.wait_for_turn(fast, target) else {
                return Ok(());
            };
            self.store.check_running()?;
            if fast.begun.load(Ordering::Relaxed) >= target {
                drop(writer);
                drop(fast.writing.lock());
                self.store.check_running()?;
            } else {
                self.commit_fast(fast, writer, target, true)?;
            }
            if self.synced() >= target {
                return Ok(());
            }
        }
        self.push_to(target)
    }

    /// Waits until this thread may begin a fast commit. Returns `None` if other threads have made the contexts up to `target`
    /// durable by then. Where flushes are fast, a fast commit ends before a thread that sleeps would be awake.
    fn wait_for_turn<'f>(&self, fast: &'f FastCommits, target: u64) -> Option<Turn<'f>> {
        for _ in 0..POLLS {
            if self.synced() >= target {
                return None;
            }
            if let Some(turn) = fast.writer.try_lock() {
                return Some(turn);
            }
            std::thread::yield_now();
        }
        Some(fast.writer.lock())
    }

    /// Makes everything committed until now durable, and releases the blocks and numbers that it freed.
    pub(crate) fn sync_and_release(&self) -> Result<()> {
        let target = self.log.context();
        if let Some(fast) = &self.fast {
            let writer = fast.writer.lock();
            self.store.check_running()?;
            let done = self.commit_fast(fast, writer, target, false)?;
            if done && !fast.unformatted.lock().frees {
                return self.wait_until_released(target);
            }
        }
        self.push_to(target)?;
        self.wait_until_released(target)
    }

    /// Makes the contexts up to `target` durable by a fast commit; false if that takes a push, as it does for items
    /// that free something unless they `may_free`.
    fn commit_fast(
        &self,
        fast: &FastCommits,
        mut writer: Turn<'_>,
        target: u64,
        may_free: bool,
    ) -> Result<bool> {
        let _span = lockmeter::span!("fast commit");
        let formatter = self.formatter.lock();
        self.store.check_running()?;
        if self.store.gate.is_shut() || self.log.formatted() >= target {
            return Ok(false);
        }
        let mut writing = self.journal.lock();
        let Some(journal) = writing.fast() else {
            return Ok(false);
        };
        if !planted::is(Fault::FastCommitAhead) {
            self.commit_stage.finish(self)?;
        }
        let (context, mut items) = self.close_context();
        let frees = frees(&items);
        let said = if may_free || !frees {
            self.say(fast, journal, &mut writer, &items)
        } else {
            Ok(None)
        };
        let Some((pieces, born)) = said.inspect_err(|e| self.store.stop(e))? else {
            drop(writing);
            let watch = PushWatch::start();
            self.log_context(formatter, watch, context, items)?;
            return Ok(false);
        };
        if !items.is_empty() {
            self.mark_open(&formatter)
                .and_then(|()| journal.start_log())
                .inspect_err(|e| self.store.stop(e))?;
        }
        let skips_flush = planted::is(Fault::FastCommitBeforeData)
            || items.maps.is_empty() && planted::is(Fault::FastCommitBeforeSize);
        let mut unformatted = fast.unformatted.lock();
        unformatted.items.append(&mut items);
        unformatted.born.extend(born);
        unformatted.frees |= frees;
        drop(unformatted);
        self.log.spare.recycle(items);
        drop(writing);
        drop(formatter);
        schedule::reached(Point::FastCommitQueued);
        let written = fast.writing.lock();
        // Without an earlier fast commit that failed, recovery does not find this one.
        if !planted::is(Fault::FastCommitAfterFailure) {
            self.store.check_running()?;
        }
        fast.begun.store(context, Ordering::Relaxed);
        drop(writer);
        schedule::reached(Point::FastCommitBegun);
        self.write_fast(fast, &pieces, skips_flush)
            .inspect_err(|e| {
                schedule::reached(Point::LogFailed);
                self.store.stop(e);
            })?;
        fast.durable.fetch_max(context, Ordering::Release);
        drop(written);
        self.totals.committed_fast(&pieces);
        Ok(true)
    }

    /// Returns the pieces that express these items, and the inodes that the items make. Returns `None` if fast commits
    /// cannot express the items, or if the pieces do not fit into the area.
    fn say(
        &self,
        fast: &FastCommits,
        journal: &Journal,
        writer: &mut Option<FastWriter>,
        items: &ItemList,
    ) -> Result<Option<(Vec<FastPiece>, Vec<InodeNr>)>> {
        if items.is_empty() {
            return Ok(Some(Default::default()));
        }
        let mut unformatted = fast.unformatted.lock();
        let (geometry, images) = (self.store.geometry.newest(), &self.store.buffers);
        if items.len() > MOST_AT_ONCE || unformatted.items.len() + items.len() > MOST_ITEMS {
            return Ok(None);
        }
        let Unformatted {
            born,
            since,
            has_changes,
            ..
        } = &mut *unformatted;
        let records = Records {
            geometry,
            images,
            place: &|ino| {
                self.store
                    .groups
                    .newest()
                    .inode_location(geometry, images, ino)
            },
            born,
            hasher: &self.store.hasher,
            zone: &self.store.zone,
        };
        if planted::is(Fault::FastCommitsUncounted) {
            *since = SincePush::default();
        }
        let Some((changes, born)) = fast_commit::changes(items, &records, since)? else {
            return Ok(None);
        };
        // All of it must fit into the next transaction.
        if since.most_blocks(geometry) > fast.most {
            return Ok(None);
        }
        let journal_ino = InodeNr(geometry.journal_ino);
        if !*has_changes
            && !planted::is(Fault::FastCommitBesideJournal)
            && let Some(read) = changes.first().map(first_read)
            && (records.place)(read)?.0 == (records.place)(journal_ino)?.0
        {
            return Ok(None);
        }
        let pieces = journal.fast_writer(writer).append(&changes);
        *has_changes |= !changes.is_empty();
        Ok(pieces.map(|pieces| (pieces, born)))
    }

    /// Flushes data that were written since the last flush; then writes the pieces, and flushes again if there are any.
    /// A planted fault skips the first flush.
    fn write_fast(
        &self,
        fast: &FastCommits,
        pieces: &[FastPiece],
        skips_flush: bool,
    ) -> Result<()> {
        let flushes = &self.store.flushes;
        let is_covered = flushes.is_covered(flushes.data_mark());
        if !is_covered && !skips_flush {
            self.store.flush()?;
        }
        if pieces.is_empty() {
            return Ok(());
        }
        for piece in pieces {
            fast.area.write_piece(piece)?;
        }
        // Clear the head after the writes. A push that replaces the fast commits meanwhile clears the head that it
        // sees, and the next push clears this one.
        fast.has_head.store(true, Ordering::Relaxed);
        self.store.flush()
    }

    /// Waits until no fast commit is under way. None begins until the result is dropped.
    pub(super) fn stop_fast(&self) -> Option<Turn<'_>> {
        self.fast.as_ref().map(|fast| {
            let turn = fast.writer.lock();
            drop(fast.writing.lock());
            turn
        })
    }

    /// Returns whether every durable context is formatted.
    pub(crate) fn is_formatted(&self) -> bool {
        let waiting = |fast: &FastCommits| !fast.unformatted.lock().items.is_empty();
        !self.fast.as_ref().is_some_and(waiting)
    }

    /// Returns the items that are durable by fast commits, for a push to format first, and the number of blocks that their
    /// transaction has at most.
    pub(super) fn take_unformatted(&self) -> (ItemList, u64) {
        let Some(fast) = &self.fast else {
            return Default::default();
        };
        let taken = std::mem::take(&mut *fast.unformatted.lock());
        let most_blocks = taken.since.most_blocks(self.store.geometry.newest());
        let items = ItemList {
            // A full volume has no blocks for leaves that are split early.
            keeps_room: self.space.counts.free().0 > most_blocks.saturating_mul(4),
            ..taken.items
        };
        (items, most_blocks)
    }
}
