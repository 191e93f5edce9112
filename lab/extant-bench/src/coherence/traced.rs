//! The traced process: a thread per core, one running at a time, with marks in the trace around each operation.

use super::WARM;
use super::caches::MOST;
use crate::lackey::{Hello, names_of, say};
use crate::predict::measure::Workload;
use anyhow::{Context, Result, anyhow, ensure};
use extant::{Volume, VolumeOptions};
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Words between marks: a cache line.
const STRIDE: usize = 8;
/// A mark for each core, one for the end of an operation and one for the end of all.
static MARKS: [AtomicU64; (MOST + 2) * STRIDE] = [const { AtomicU64::new(0) }; (MOST + 2) * STRIDE];

/// The meaning of a store to a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// An operation of this core begins.
    Begin(usize),
    /// The operation has ended.
    End,
    /// All operations have ended.
    Done,
}

impl Mark {
    /// Returns the mark at this number of bytes from the first mark.
    pub fn at(offset: u64) -> Option<Self> {
        let line = (STRIDE * 8) as u64;
        match (usize::try_from(offset / line).ok()?, offset % line) {
            (core, 0) if core < MOST => Some(Self::Begin(core)),
            (MOST, 0) => Some(Self::End),
            (last, 0) if last == MOST + 1 => Some(Self::Done),
            _ => None,
        }
    }

    #[inline(never)]
    fn set(self) {
        let index = match self {
            Self::Begin(core) => core,
            Self::End => MOST,
            Self::Done => MOST + 1,
        };
        MARKS[index * STRIDE].store(1, Ordering::SeqCst);
    }
}

/// The traced job; the first line of the process's input.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The operation.
    pub workload: Workload,
    /// The number of cores, at most [`MOST`].
    pub cores: usize,
    /// The number of slots.
    pub slots: usize,
    /// Counted operations per core.
    pub ops: usize,
}

/// The thread of a core: a message starts its next operation.
struct Core {
    next: mpsc::SyncSender<usize>,
    done: mpsc::Receiver<Result<()>>,
}

impl Core {
    fn start<'s>(
        scope: &'s std::thread::Scope<'s, '_>,
        volume: &'s Volume,
        job: Job,
        number: usize,
    ) -> Self {
        // Channels of fixed size do not allocate memory per message, and their memory does not move.
        let (next, inbox) = mpsc::sync_channel(1);
        let (outbox, done) = mpsc::sync_channel(1);
        scope.spawn(move || {
            let work = job.workload.task(volume, number, WARM + job.ops);
            let mut work = match work {
                Ok(work) => work,
                Err(e) => return drop(outbox.send(Err(e))),
            };
            let _ = outbox.send(Ok(()));
            for n in inbox {
                // Let the other threads block in their waits first, because the trace does not show the thread of an
                // access.
                std::thread::sleep(Duration::from_millis(1));
                Mark::Begin(number).set();
                let result = work(n);
                Mark::End.set();
                if outbox.send(result).is_err() {
                    return;
                }
            }
        });
        Self { next, done }
    }

    fn wait(&self) -> Result<()> {
        self.done.recv().context("its thread ended")?
    }

    fn op(&self, n: usize) -> Result<()> {
        self.next.send(n).map_err(|_| anyhow!("its thread ended"))?;
        self.wait()
    }
}

/// Runs the job on the first line of standard input on the volume of an image, and names the addresses on the last
/// line.
pub fn main(image: &Path) -> Result<()> {
    let mut lines = std::io::stdin().lock().lines();
    let mut next = || {
        lines
            .next()
            .context("the reader has gone")?
            .context("standard input")
    };
    let job: Job = serde_json::from_str(&next()?)?;
    ensure!((1..=MOST).contains(&job.cores), "up to {MOST} cores");
    let of_slots = percpu::slot::configure(job.slots);
    ensure!(
        of_slots.is_ok(),
        "the number of slots is fixed: {of_slots:?}"
    );
    let volume = VolumeOptions::new()
        .background(false)
        .commit_interval(Duration::from_secs(1 << 20))
        .open(image)
        .with_context(|| image.display().to_string())?;
    say(&Hello::of_this(MARKS.as_ptr().addr())?)?;
    next()?;
    std::thread::scope(|scope| -> Result<()> {
        let mut cores = Vec::new();
        for number in 0..job.cores {
            let core = Core::start(scope, &volume, job, number);
            core.wait()?;
            cores.push(core);
        }
        for n in 0..WARM + job.ops {
            cores.iter().try_for_each(|core| core.op(n))?;
        }
        Mark::Done.set();
        let asked: Vec<u64> = serde_json::from_str(&next()?)?;
        say(&names_of(&volume, &asked))
    })?;
    // The volume's contents are not needed, and closing the volume would be traced.
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_told_apart() {
        assert_eq!(Mark::at(0), Some(Mark::Begin(0)));
        assert_eq!(Mark::at(255 * 64), Some(Mark::Begin(255)));
        assert_eq!(Mark::at(256 * 64), Some(Mark::End));
        assert_eq!(Mark::at(257 * 64), Some(Mark::Done));
        assert_eq!(Mark::at(258 * 64), None);
        assert_eq!(Mark::at(8), None);
    }
}
