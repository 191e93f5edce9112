//! Flushes of the device, and the writes that each of them covers.
//!
//! Every flush has a number, taken before it begins. A flush covers each write that had returned when the number was
//! taken. So a writer takes the mark ([`Flushes::mark`]) and waits for a flush beyond it ([`Store::flush_since`]): a
//! flush of a push, of another waiting thread, or its own.
//!
//! A writer of file data notes the mark in the file, which fsync waits for, and in its slot ([`Flushes::note_data`]). A
//! file that was not written since it was loaded may have older data without a flush: for it the greatest of the slots'
//! marks counts. A clean file on a device without a write since the last flush needs no flush. A file remembers the
//! mark that a flush has covered, so an fsync that finds no new data neither writes nor reads a word that flushes
//! write.

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
    /// The mark of a slot's last write of data plus one, or 0 before the first write.
    data: PerSlot<AtomicU64>,
    /// Flushes in progress.
    running: Mutex<u32, locks::Flushes>,
    ended: Condvar,
}

impl Flushes {
    /// Returns the mark. A flush that begins from now on is beyond it.
    pub fn mark(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Notes data written by this thread; returns one more than the mark.
    pub fn note_data(&self) -> u64 {
        let written = self.mark() + 1;
        self.data.local().fetch_max(written, Ordering::SeqCst);
        written
    }

    /// Returns the mark of the last write of data by any thread. Data from before the volume was opened count as
    /// written then, because they may never have been flushed.
    pub fn data_mark(&self) -> u64 {
        let marks = self.data.iter().map(|m| m.load(Ordering::SeqCst));
        marks.max().unwrap_or(0).saturating_sub(1)
    }

    /// Returns whether a flush beyond the mark has succeeded.
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

    /// Flushes the device. The flush is counted as running already.
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

    /// Returns when a flush that began after the mark has succeeded; callers that arrive together share one. After a
    /// failed flush the state of the medium is unknown, so the volume stops.
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
