//! Telling the caller how far the work is, and asking whether to go on.

use super::error::{MkfsError, Result};
use extant_sources::SourceError;
use extant_sources::parts::ReadMonitor;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The present phase of the work. A phase ends when the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Reading names and attributes of the source; counted in files, the total is not known (0).
    Scan,
    /// Reading an archive that cannot be read twice; counted in bytes, total unknown (0) or the
    /// size of the compressed file.
    Spool,
    /// Planning all places; not counted.
    Plan,
    /// Copying file data; counted in bytes.
    Data,
    /// Writing directories, inodes and the rest of the metadata; counted in blocks.
    Metadata,
    /// Waiting for the device.
    Flush,
}

/// Receives progress. Calls come from any thread.
///
/// ```
/// use extant_mkfs::{Phase, Progress};
/// struct Log;
/// impl Progress for Log {
///     fn phase(&self, phase: Phase, total: u64) { eprintln!("{phase:?} {total}"); }
///     fn advance(&self, _done: u64) {}
/// }
/// ```
pub trait Progress: Send + Sync {
    /// Begins a phase that counts up to `total` (0: not known).
    fn phase(&self, phase: Phase, total: u64);
    /// Counts `done` more finished units of the current phase.
    fn advance(&self, done: u64);
}

/// Progress, cancel flag and warnings, shared by all parts of a run.
#[derive(Clone, Default)]
pub(super) struct Monitor {
    pub progress: Option<Arc<dyn Progress>>,
    pub cancel: Option<Arc<AtomicBool>>,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Monitor {
    pub fn new(progress: Option<Arc<dyn Progress>>, cancel: Option<Arc<AtomicBool>>) -> Self {
        Self {
            progress,
            cancel,
            warnings: Arc::default(),
        }
    }

    pub fn phase(&self, phase: Phase, total: u64) {
        if let Some(p) = &self.progress {
            p.phase(phase, total);
        }
    }

    pub fn advance(&self, done: u64) {
        if let Some(p) = &self.progress {
            p.advance(done);
        }
    }

    /// Fails once the caller has raised the flag.
    pub fn check(&self) -> Result<()> {
        match &self.cancel {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(MkfsError::Interrupted),
            _ => Ok(()),
        }
    }

    pub fn warn(&self, text: String) {
        self.warnings.lock().push(text);
    }

    /// Returns all current warnings, in an order that does not depend on threads.
    pub fn warnings(&self) -> Vec<String> {
        let mut list = self.warnings.lock().clone();
        list.sort();
        list
    }

    /// Runs `work(i)` for every `i` below `count`, on `threads` threads, each with its own state. The
    /// first error (of the lowest index seen) ends the work.
    pub fn for_each<S>(
        &self,
        threads: usize,
        count: usize,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let next = AtomicUsize::new(0);
        let failed: Mutex<Option<(usize, MkfsError)>> = Mutex::new(None);
        let run = || {
            let mut state = state();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= count {
                    return;
                }
                if let Err(e) = self.check().and_then(|()| work(&mut state, i)) {
                    next.store(count, Ordering::Relaxed);
                    let mut failed = failed.lock();
                    if failed.as_ref().is_none_or(|(at, _)| i < *at) {
                        *failed = Some((i, e));
                    }
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            blockdev::start_threads(scope, 1..threads.min(count), |_| run());
            run();
        });
        failed.into_inner().map_or(Ok(()), |(_, e)| Err(e))
    }
}

impl ReadMonitor for Monitor {
    fn check(&self) -> extant_sources::Result<()> {
        Monitor::check(self).map_err(|_| SourceError::Interrupted)
    }

    fn begins(&self, spools: bool) {
        self.phase(if spools { Phase::Spool } else { Phase::Scan }, 0);
    }

    fn advance(&self, done: u64) {
        Monitor::advance(self, done);
    }
}
