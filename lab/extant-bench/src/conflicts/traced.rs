//! The traced process: two threads, one running at a time, with marks in the trace around each operation.
//!
//! Marks are stores to words of a static, whose address is printed on standard output before the first mark. After
//! each case the process waits for a line on standard input: addresses that the reader wants to name, which are looked
//! up in the volume in the state after the case.

use super::cases::Case;
use super::work::{Side, Work};
use super::{ROUNDS, WARM};
use crate::lackey::{Hello, names_of, say};
use anyhow::{Context, Result, anyhow, bail, ensure};
use extant::{Volume, VolumeOptions};
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// The meaning of a store to a mark.
///
/// ```
/// use extant_bench::conflicts::traced::Mark;
/// assert_eq!(Mark::at(8 * 8), Some(Mark::BeginB));
/// assert_eq!(Mark::at(4), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// An operation of side A begins.
    BeginA,
    /// An operation of side B begins.
    BeginB,
    /// The operation has ended.
    End,
    /// All rounds of the case are done.
    CaseDone,
}

/// Words between marks: a cache line.
const STRIDE: usize = 8;
static MARKS: [AtomicU64; 4 * STRIDE] = [const { AtomicU64::new(0) }; 4 * STRIDE];

impl Mark {
    /// Bytes from the first mark to the end of the last.
    pub const SPAN: u64 = (4 * STRIDE * 8) as u64;

    /// Returns the mark at this number of bytes from the first mark.
    pub fn at(offset: u64) -> Option<Self> {
        let line = (STRIDE * 8) as u64;
        match (offset / line, offset % line) {
            (0, 0) => Some(Self::BeginA),
            (1, 0) => Some(Self::BeginB),
            (2, 0) => Some(Self::End),
            (3, 0) => Some(Self::CaseDone),
            _ => None,
        }
    }

    #[inline(never)]
    fn set(self) {
        let index = match self {
            Self::BeginA => 0,
            Self::BeginB => 1,
            Self::End => 2,
            Self::CaseDone => 3,
        };
        MARKS[index * STRIDE].store(1, Ordering::SeqCst);
    }
}

/// The message after each case.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Why the case could not be run.
    pub error: Option<String>,
    /// Names of the requested addresses.
    pub names: Vec<String>,
}

enum Job {
    Ready(Case, usize),
    Contend(Case, usize),
    Round(usize),
    Clear,
}

/// The thread of a side.
struct Worker {
    jobs: mpsc::SyncSender<Job>,
    done: mpsc::Receiver<Result<()>>,
}

impl Worker {
    fn start<'s>(scope: &'s std::thread::Scope<'s, '_>, volume: &'s Volume, second: bool) -> Self {
        // Channels of fixed size do not allocate memory per message, and their memory does not move.
        let (jobs, inbox) = mpsc::sync_channel(1);
        let (outbox, done) = mpsc::sync_channel(1);
        scope.spawn(move || {
            let side = Side::new(volume, second);
            let mut work: Option<Work> = None;
            for job in inbox {
                let answer = match (&side, job) {
                    (Err(e), _) => Err(anyhow!("{e:#}")),
                    (Ok(side), Job::Ready(case, tag)) => {
                        let op = if second { case.b } else { case.a };
                        side.ready(op, case.relation, tag).map(|w| work = Some(w))
                    }
                    (Ok(side), Job::Contend(case, tag)) => side.contend(case, tag),
                    (_, Job::Round(round)) => run(work.as_mut(), round, second),
                    (_, Job::Clear) => {
                        work = None;
                        Ok(())
                    }
                };
                if outbox.send(answer).is_err() {
                    return;
                }
            }
        });
        Self { jobs, done }
    }

    fn call(&self, job: Job) -> Result<()> {
        self.jobs
            .send(job)
            .map_err(|_| anyhow!("its thread ended"))?;
        self.done.recv().context("its thread ended")?
    }
}

fn run(work: Option<&mut Work>, round: usize, second: bool) -> Result<()> {
    let Some(work) = work else {
        bail!("nothing to run");
    };
    if let Some(before) = &mut work.before {
        before(round)?;
    }
    if round < WARM {
        return (work.run)(round);
    }
    // Let the other threads block in their waits first, because the trace does not show the thread of an access.
    std::thread::sleep(Duration::from_millis(2));
    let begin = if second { Mark::BeginB } else { Mark::BeginA };
    begin.set();
    let done = (work.run)(round);
    Mark::End.set();
    done
}

/// The machine that the traced process assumes, and the history of its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Setting {
    /// The number of slots. The two sides have slots that are equal modulo half of it.
    pub slots: usize,
    /// Whether both sides read the data of either side before the first round, and locks become biased towards readers
    /// as soon as two slots read. By default, locks become biased when half of the slots read.
    pub turned: bool,
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let turned = if self.turned { ", locks biased" } else { "" };
        write!(f, "{} slots{turned}", self.slots)
    }
}

impl Setting {
    /// Takes the slots between those of the two sides, with threads that wait until the end of the scope.
    fn fill<'s>(&self, scope: &'s std::thread::Scope<'s, '_>) -> Result<Vec<mpsc::Sender<()>>> {
        let fill = |_| {
            let (hold, held) = mpsc::channel::<()>();
            let (ready, taken) = mpsc::channel();
            scope.spawn(move || {
                let _ = ready.send(percpu::slot::current());
                let _ = held.recv();
            });
            taken.recv().context("a thread that holds a slot")?;
            Ok(hold)
        };
        (2..self.slots / 2 + 1).map(fill).collect()
    }
}

/// Runs the cases on the first line of standard input on the volume of an image, and answers the requests for names.
pub fn main(image: &Path, setting: Setting) -> Result<()> {
    let of_slots = percpu::slot::configure(setting.slots);
    ensure!(
        of_slots.is_ok(),
        "the number of slots is fixed: {of_slots:?}"
    );
    percpu::slot::current();
    ensure!(
        !setting.turned || percpu::bias_at_once(),
        "locks were read before"
    );
    let mut lines = std::io::stdin().lock().lines();
    let mut next = || {
        lines
            .next()
            .context("the reader has gone")?
            .context("standard input")
    };
    let cases: Vec<Case> = serde_json::from_str(&next()?)?;
    let volume = VolumeOptions::new()
        .background(false)
        .commit_interval(Duration::from_secs(1 << 20))
        .open(image)
        .with_context(|| image.display().to_string())?;
    say(&Hello::of_this(MARKS.as_ptr().addr())?)?;
    next()?;
    std::thread::scope(|scope| -> Result<()> {
        let first = Worker::start(scope, &volume, false);
        first.call(Job::Clear)?;
        let _fillers = setting.fill(scope)?;
        let workers = [first, Worker::start(scope, &volume, true)];
        for (tag, case) in cases.iter().enumerate() {
            let done = (|| {
                workers
                    .iter()
                    .try_for_each(|w| w.call(Job::Ready(*case, tag)))?;
                let round = |r| workers.iter().try_for_each(|w| w.call(Job::Round(r)));
                if setting.turned {
                    let contend = |w: &Worker| w.call(Job::Contend(*case, tag));
                    workers.iter().try_for_each(contend)?;
                }
                (0..WARM + ROUNDS).try_for_each(round)
            })();
            Mark::CaseDone.set();
            let asked: Vec<u64> = serde_json::from_str(&next()?)?;
            say(&Answer {
                error: done.err().map(|e| format!("{e:#}")),
                names: names_of(&volume, &asked),
            })?;
            workers.iter().try_for_each(|w| w.call(Job::Clear))?;
        }
        Ok(())
    })?;
    // The volume's contents are not needed, and closing the volume would be traced.
    std::process::exit(0)
}
