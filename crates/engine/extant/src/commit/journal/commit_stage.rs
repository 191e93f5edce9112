//! The last stage of a push: commit blocks and flushes. Mechanism C6.
//!
//! A transaction whose blocks are in the log waits in a queue. A thread that enters this stage takes all waiting
//! transactions and makes them durable together: a flush, their commit blocks in order, a flush. Other threads log the
//! next transactions meanwhile. A flush covers the blocks that were logged before it began. So transactions that were
//! logged during the previous stage's flush need no first flush. Contexts in quick succession cost one flush each, and
//! several that wait together cost one in all.
//!
//! Commit blocks that are written together may reach the medium in any order, or in part: a valid one behind a
//! missing one is behind the end of the log.

use super::LogArea;
use crate::base::error::Result;
use crate::base::invariants::insist;
use crate::base::locks::{self, Condvar, Mutex};
use crate::base::planted::{self, Fault};
use crate::base::schedule::{self, Point};
use crate::commit::Committer;
use ext4_format::jbd2::Tid;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A commit block on its way to the log.
pub struct CommitBlock {
    /// Transaction that the block commits.
    pub tid: Tid,
    /// Place of the block in the log.
    pub at: u32,
    /// Bytes of the block.
    pub bytes: Vec<u8>,
}

/// A transaction whose blocks are in the log, except its commit block.
pub struct Logged {
    /// `None` if nothing was written into the log.
    pub commit: Option<CommitBlock>,
    /// The context that this transaction completes.
    pub completes: Option<u64>,
    /// A flush beyond this mark covers its blocks, and the data that it refers to.
    pub written: u64,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Logged>,
    /// Number of transactions since the volume was opened.
    came: u64,
    /// Number of them that a flush has covered.
    flushed: u64,
    /// Number of them that are durable.
    durable: u64,
    /// The transaction that was made durable last.
    last: Option<Tid>,
    /// A thread is at the last stage.
    busy: bool,
}

/// The transactions that wait for their commit blocks.
pub struct CommitStage {
    /// `None` without a journal.
    area: Option<Arc<LogArea>>,
    queue: Mutex<Queue, locks::CommitStage>,
    changed: Condvar,
}

impl CommitStage {
    /// Makes the stage of a journal in this area, or without a journal.
    pub fn new(area: Option<Arc<LogArea>>) -> Self {
        Self {
            area,
            queue: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Queues a transaction that has been logged. Called in the order of the log.
    pub fn add(&self, logged: Logged) {
        let mut queue = self.queue.lock();
        queue.waiting.push(logged);
        queue.came += 1;
    }

    /// Makes every transaction logged before the call durable, or waits until other threads have. Stops the volume if
    /// that fails. Returns the time that this thread spent on flushes and commit blocks, without the time it waited.
    pub(in crate::commit) fn finish(&self, engine: &Committer) -> Result<Duration> {
        let mut worked = Duration::ZERO;
        let mut queue = self.queue.lock();
        let target = queue.came;
        while queue.durable < target {
            engine.store.check_running()?;
            if queue.busy {
                self.changed.wait(&mut queue);
                continue;
            }
            queue.busy = true;
            let (waiting, came) = (std::mem::take(&mut queue.waiting), queue.came);
            let flushed = queue.flushed >= came;
            drop(queue);
            let begun = Instant::now();
            // Stop the volume before the next thread enters this stage.
            let committed = self
                .commit(engine, &waiting, flushed)
                .inspect_err(|e| engine.store.stop(e));
            worked += begun.elapsed();
            queue = self.queue.lock();
            if let Ok(covered) = &committed {
                queue.flushed = came.max(*covered);
                queue.durable = came;
            }
            queue.busy = false;
            self.changed.notify_all();
            committed?;
        }
        Ok(worked)
    }

    /// Waits until no thread is at this stage.
    pub fn wait(&self) {
        let mut queue = self.queue.lock();
        while queue.busy {
            self.changed.wait(&mut queue);
        }
    }

    /// Makes these transactions durable. Returns the number of transactions, of all since the volume was opened, that
    /// the last flush covered.
    fn commit(&self, engine: &Committer, waiting: &[Logged], flushed: bool) -> Result<u64> {
        let _span = lockmeter::span!("commit blocks and flushes");
        if !flushed && !planted::is(Fault::NoFlushBeforeCommit) {
            engine.store.flush()?;
        }
        let covers = |mark: u64, fault| engine.store.flushes.is_covered(mark) || planted::is(fault);
        for logged in waiting {
            let covered = covers(logged.written, Fault::NoFlushBeforeCommit);
            insist!(covered, FlushBeforeCommit, "mark {}", logged.written);
        }
        let mut covered = 0;
        let commits = waiting.iter().filter_map(|l| l.commit.as_ref());
        if let Some(area) = self.area.as_ref().filter(|_| commits.clone().count() > 0) {
            for commit in commits {
                self.follow(commit.tid)?;
                area.write(commit.at, &[&commit.bytes])?;
            }
            schedule::reached(Point::CommitWritten);
            covered = self.queue.lock().came;
            let written = engine.store.flushes.mark();
            if !planted::is(Fault::NoFlushAfterCommit) {
                engine.store.flush()?;
            }
            let covered = covers(written, Fault::NoFlushAfterCommit);
            insist!(covered, FlushAfterCommit, "mark {written}");
            if let Some(fast) = &engine.fast {
                fast.forget(engine.store.geometry.first().block_size)?;
            }
        }
        if let Some(context) = waiting.iter().filter_map(|l| l.completes).next_back() {
            engine.log.note_durable(context)?;
        }
        Ok(covered)
    }

    /// Checks that the commit block of this transaction is next.
    fn follow(&self, tid: Tid) -> Result<()> {
        let mut queue = self.queue.lock();
        let last = queue.last.replace(tid);
        let follows = last.is_none_or(|last| last.next() == tid);
        insist!(follows, TransactionsInOrder, "{tid:?} after {last:?}");
        Ok(())
    }
}
