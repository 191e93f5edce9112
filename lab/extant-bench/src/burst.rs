//! Latency of fsync during a burst. Tasks create files as fast as they can, while another task repeatedly appends 4
//! KiB to its own file and makes it durable, so that each fsync needs a commit. Rounds alternate between the burst
//! alone, the fsyncs alone, and both together.

use crate::latency::{Latencies, Summary};
use crate::names::Names;
use crate::runner::{Counts, each_pinned};
use crate::stats::median;
use crate::target::{Open, Target, TaskDir, TaskFile, empty};
use anyhow::Result;
use serde::Serialize;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Parameters of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Params {
    /// Number of tasks that create files.
    pub tasks: usize,
    /// Number of files per task and round.
    pub files: usize,
    /// Pause between two fsyncs.
    pub pause: Duration,
    /// Number of counted rounds.
    pub rounds: usize,
}

/// Results for one target: medians of the rounds, and the latencies of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The target.
    pub target: String,
    /// Creates per second without fsyncs.
    pub alone: f64,
    /// Creates per second during the fsyncs.
    pub beside: f64,
    /// Latencies of fsyncs without a burst, in nanoseconds.
    pub fsync_alone: Summary,
    /// Latencies of fsyncs during the burst.
    pub fsync_beside: Summary,
    /// Counts of the target's log in a round with both.
    pub counts: Counts,
}

/// Participants in a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Burst,
    Fsyncs,
    Both,
}

/// Fsyncs in a round without a burst.
const ALONE: u64 = 200;
/// Bytes that each fsync makes durable.
const BLOCK: usize = 4096;
/// Number of fsyncs after which the file is emptied.
const APPENDS: u64 = 1 << 15;

enum Worker {
    Creator {
        dir: Box<dyn TaskDir>,
        names: Names,
        left: usize,
    },
    Syncer {
        file: Box<dyn TaskFile>,
        seen: Latencies,
        pause: Duration,
    },
}

impl Worker {
    /// Works until the creators, of which `creating` are still running, are done. In a round without creators, works
    /// for a fixed number of fsyncs.
    fn work(&mut self, creating: &AtomicUsize) -> Result<()> {
        match self {
            Self::Creator { dir, names, left } => {
                let made = (0..*left).try_for_each(|_| dir.create(names.next()));
                creating.fetch_sub(1, Ordering::Relaxed);
                made
            }
            Self::Syncer { file, seen, pause } => {
                let alone = creating.load(Ordering::Relaxed) == 0;
                let block = [b'x'; BLOCK];
                for number in 0u64.. {
                    let over = if alone {
                        number >= ALONE
                    } else {
                        creating.load(Ordering::Relaxed) == 0
                    };
                    if over {
                        break;
                    }
                    let place = number % APPENDS;
                    if place == 0 {
                        file.truncate(0)?;
                    }
                    file.write_at(place * BLOCK as u64, &block)?;
                    let begun = Instant::now();
                    file.fsync()?;
                    seen.record(begun.elapsed());
                    if !pause.is_zero() {
                        std::thread::sleep(*pause);
                    }
                }
                Ok(())
            }
        }
    }
}

/// Results of a round.
#[derive(Default)]
struct Round {
    creates: f64,
    latencies: Latencies,
    counts: Counts,
}

fn workers(base: &dyn TaskDir, p: Params, part: Part) -> Result<Vec<Worker>> {
    let mut workers = Vec::new();
    if part != Part::Burst {
        let file = base.open("synced", Open::Create)?;
        workers.push(Worker::Syncer {
            file,
            seen: Latencies::new(),
            pause: p.pause,
        });
    }
    let creators = if part == Part::Fsyncs { 0 } else { p.tasks };
    for task in 0..creators {
        workers.push(Worker::Creator {
            dir: base.make_dir(&format!("task.{task}"))?,
            names: Names::new("file", task),
            left: p.files,
        });
    }
    Ok(workers)
}

fn round(target: &dyn Target, p: Params, part: Part) -> Result<Round> {
    let place = format!("burst.{}", std::process::id());
    let base = target.make_dir(&place)?;
    let mut workers = workers(&*base, p, part)?;
    target.sync()?;
    let creators = workers
        .iter()
        .filter(|w| matches!(w, Worker::Creator { .. }));
    let creating = AtomicUsize::new(creators.count());
    let before = target.counts();
    let (_, elapsed) = each_pinned(&mut workers, |worker| worker.work(&creating))?;
    let mut counts = target.counts();
    for (name, value) in &mut counts {
        *value -= before.get(name).unwrap_or(&0.0);
    }
    let mut round = Round {
        creates: (p.tasks * p.files) as f64 / elapsed.wall,
        counts,
        ..Round::default()
    };
    for worker in &workers {
        if let Worker::Syncer { seen, .. } = worker {
            round.latencies.merge(seen);
        }
    }
    drop(workers);
    empty(&*base)?;
    drop(base);
    target.remove_dir(&place)?;
    target.sync()?;
    Ok(round)
}

/// Runs all targets alternately, after a warm-up round. `between` is called before every round.
pub fn run(
    targets: &[&dyn Target],
    p: Params,
    mut between: impl FnMut() -> Result<()>,
) -> Result<Vec<Report>> {
    const PARTS: [Part; 3] = [Part::Burst, Part::Fsyncs, Part::Both];
    let mut rounds: Vec<[Vec<Round>; 3]> = targets.iter().map(|_| Default::default()).collect();
    for number in 0..=p.rounds {
        for (target, rounds) in targets.iter().zip(&mut rounds) {
            for (part, rounds) in PARTS.into_iter().zip(rounds) {
                between()?;
                let done = round(*target, p, part)?;
                if number > 0 {
                    rounds.push(done);
                }
            }
        }
    }
    let reports = targets.iter().zip(&rounds);
    Ok(reports
        .map(|(target, [burst, fsyncs, both])| Report {
            target: target.name(),
            alone: middle(burst, |r| r.creates),
            beside: middle(both, |r| r.creates),
            fsync_alone: all(fsyncs),
            fsync_beside: all(both),
            counts: counts(both),
        })
        .collect())
}

fn middle(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    median(&mut rounds.iter().map(of).collect::<Vec<_>>())
}

fn all(rounds: &[Round]) -> Summary {
    let mut sum = Latencies::new();
    rounds.iter().for_each(|r| sum.merge(&r.latencies));
    sum.summary()
}

fn counts(rounds: &[Round]) -> Counts {
    let names = rounds.first().map(|r| r.counts.keys().copied());
    let of = |name| middle(rounds, |r| r.counts.get(name).copied().unwrap_or(0.0));
    names.into_iter().flatten().map(|n| (n, of(n))).collect()
}

/// Measures latencies of the bare device: overwrites and flushes 4 KiB of a file in this directory, without a file
/// system of the targets in between.
pub fn flushes(dir: &Path) -> Result<Summary> {
    let path = dir.join("flushed");
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    file.write_all_at(&[b'x'; BLOCK], 0)?;
    file.sync_all()?;
    let mut seen = Latencies::new();
    for _ in 0..ALONE {
        let begun = Instant::now();
        file.write_all_at(&[b'y'; BLOCK], 0)?;
        file.sync_data()?;
        seen.record(begun.elapsed());
    }
    drop(file);
    std::fs::remove_file(&path)?;
    Ok(seen.summary())
}

/// Returns a histogram in classes of a factor of two: the upper bound of each class in nanoseconds, and its count.
///
/// ```
/// use extant_bench::{burst::doubled, latency::Latencies};
/// let mut seen = Latencies::new();
/// [3, 100, 120].map(|us| seen.record(std::time::Duration::from_micros(us)));
/// assert_eq!(doubled(&seen.summary()), [(4096, 1), (131_072, 2)]);
/// ```
pub fn doubled(summary: &Summary) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for &(ns, count) in &summary.buckets {
        let bound = ns.checked_next_power_of_two().unwrap_or(u64::MAX);
        match out.last_mut() {
            Some((last, n)) if *last == bound => *n += count,
            _ => out.push((bound, count)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::LibTarget;
    use crate::workload::tests::volume;

    #[test]
    fn burst_and_fsyncs_are_measured_alone_and_together() {
        let target = LibTarget::new(volume(64));
        let p = Params {
            tasks: 2,
            files: 400,
            pause: Duration::ZERO,
            rounds: 2,
        };
        let reports = run(&[&target], p, || Ok(())).unwrap();
        let r = &reports[0];
        assert!(r.alone > 0.0 && r.beside > 0.0);
        assert_eq!(r.fsync_alone.count, 2 * ALONE);
        // A commit counts when it is pushed, and an fsync pushes the earlier commits.
        assert!(r.counts["commits"] >= 1.0, "{r:?}");
        let seen = doubled(&r.fsync_beside);
        let sum: u64 = seen.iter().map(|(_, n)| n).sum();
        assert_eq!(sum, r.fsync_beside.count);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(flushes(dir.path()).unwrap().count, ALONE);
    }
}
