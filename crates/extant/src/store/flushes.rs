//! Which flush of the device covers what was written when.
//!
//! Every flush has a number, taken before it begins. A write that has returned is covered by each flush whose number was
//! taken later. So whoever has written takes the mark ([`Flushes::mark`]) and waits for a flush beyond it
//! ([`Store::flush_since`]): that of a push that came upon it, that of somebody else who waits, or its own.
//!
//! Whoever writes file data notes the mark in the file, which fsync waits for, and in its slot
//! ([`Flushes::note_data`]). Of a file that was not written since it came into memory, what was written before may have no
//! flush yet: for it the greatest of the slots' marks counts. A file that is clean, on a device to which nothing was written
//! since the last flush, needs none, and callers that find it so write no word that others read.

use crate::base::error::{Error, Result};
use crate::base::locks::{self, Condvar, Mutex};
use crate::store::Store;
use percpu::PerSlot;
use std::sync::atomic::{AtomicU64, Ordering};

/// The flushes of one volume's device.
#[derive(Default)]
pub(crate) struct Flushes {
    /// Number of the last flush that was begun.
    begun: AtomicU64,
    /// Greatest number of a flush that has succeeded.
    done: AtomicU64,
    /// One more than the mark when a slot wrote data last; 0 if it never has.
    data: PerSlot<AtomicU64>,
    /// Flushes under way.
    running: Mutex<u32, locks::Flushes>,
    ended: Condvar,
}

impl Flushes {
    /// A flush that is begun from now on is beyond this mark.
    pub fn mark(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Data have been written by this thread; one more than the mark.
    pub fn note_data(&self) -> u64 {
        let written = self.mark() + 1;
        self.data.local().fetch_max(written, Ordering::SeqCst);
        written
    }

    /// The mark of the data written last, by anybody. What is on the device since before the volume was opened counts as
    /// written then: it may never have been flushed.
    pub fn data_mark(&self) -> u64 {
        let marks = self.data.iter().map(|m| m.load(Ordering::SeqCst));
        marks.max().unwrap_or(0).saturating_sub(1)
    }

    /// Whether a flush beyond the mark has succeeded.
    pub fn is_covered(&self, mark: u64) -> bool {
        self.done.load(Ordering::SeqCst) > mark
    }
}

impl Store {
    /// Flushes the device.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut running = self.flushes.running.lock();
        *running += 1;
        drop(running);
        self.flush_counted()
    }

    /// Flushes, once the flush is counted as running.
    fn flush_counted(&self) -> Result<()> {
        let number = self.flushes.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let flushed = self.device.flush();
        if flushed.is_ok() {
            self.flushes.done.fetch_max(number, Ordering::SeqCst);
        }
        *self.flushes.running.lock() -= 1;
        self.flushes.ended.notify_all();
        flushed.map_err(|source| Error::Io {
            context: "flush".into(),
            source,
        })
    }

    /// Returns when a flush that was begun after the mark has succeeded; callers that come together share one. It is not
    /// known what a flush that fails has kept, so the volume stops.
    pub(crate) fn flush_since(&self, mark: u64) -> Result<()> {
        let flushes = &self.flushes;
        if flushes.is_covered(mark) {
            return Ok(());
        }
        let mut running = flushes.running.lock();
        while !flushes.is_covered(mark) {
            self.check_running()?;
            if *running > 0 {
                flushes.ended.wait(&mut running);
                continue;
            }
            *running += 1;
            drop(running);
            self.flush_counted().inspect_err(|e| self.stop(e))?;
            running = flushes.running.lock();
        }
        Ok(())
    }
}
