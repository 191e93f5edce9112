//! The harness of every workload that repeats one operation. Tasks run in pinned threads that start together, for a
//! limited time or until their work is done. Contenders alternate, round by round; results are medians of all rounds.

use crate::host_memory;
use crate::latency::{Latencies, Summary};
use crate::stats::{Elapsed, Stopwatch, median};
use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

/// Parameters of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Shape {
    /// Number of tasks, each with a thread.
    pub tasks: usize,
    /// Longest time of a round in seconds.
    pub seconds: f64,
    /// Largest number of operations per task, if they use something up: files created or removed.
    pub files: u64,
    /// Number of counted rounds.
    pub rounds: usize,
}

/// The work that one thread repeats.
pub trait Task: Send {
    /// Runs one operation; returns false without running it if no work was left.
    fn op(&mut self) -> Result<bool>;
    /// Called when the task ends its round, so that no other task waits for it.
    fn leave(&mut self) {}
}

/// Tasks that are ready to run.
pub type Tasks = Vec<Box<dyn Task>>;

/// Monotonic counts of a target, by name.
pub type Counts = BTreeMap<&'static str, f64>;

/// A method of doing the work: a target under a workload, or an algorithm.
pub trait Contender {
    /// Returns the name in the report.
    fn name(&self) -> String;
    /// Prepares a round, untimed.
    fn prepare(&self, shape: &Shape) -> Result<Tasks>;
    /// Completes the work of a round, timed separately.
    fn finish(&self, tasks: &mut Tasks) -> Result<()> {
        let _ = tasks;
        Ok(())
    }
    /// Returns the name of the completion.
    fn finishes(&self) -> &'static str {
        "sync"
    }
    /// Removes the files of a round, which may have failed in the middle.
    fn clean(&self) -> Result<()> {
        Ok(())
    }
    /// Returns the CPU seconds that other processes have spent for it until now.
    fn other_cpu(&self) -> f64 {
        0.0
    }
    /// Returns counts other than the operations.
    fn counts(&self) -> Counts {
        Counts::new()
    }
}

/// Results of a round.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// Operations done.
    pub ops: u64,
    /// Time of all operations.
    pub run: Elapsed,
    /// Time of the completion.
    pub finish: Elapsed,
    /// Counts of the round.
    pub counts: Counts,
}

/// Medians of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The workload.
    pub workload: String,
    /// The contender.
    pub target: String,
    /// Its shape.
    pub shape: Shape,
    /// Operations per second.
    pub ops: f64,
    /// Operations per second, completion included.
    pub ops_finished: f64,
    /// CPU time per operation in nanoseconds.
    pub cpu_ns: f64,
    /// The name of the completion.
    pub finishes: &'static str,
    /// Seconds of the completion.
    pub finish_seconds: f64,
    /// Medians of the counts.
    pub counts: Counts,
    /// Latencies of a sample of the operations of all rounds.
    pub latency: Summary,
    /// The reason why a peer failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Every round.
    pub rounds: Vec<Round>,
}

impl Report {
    fn of(workload: &str, contender: &dyn Contender, shape: Shape, runs: Runs) -> Self {
        let Runs {
            rounds,
            latencies,
            failed,
        } = runs;
        let med = |f: &dyn Fn(&Round) -> f64| median(&mut rounds.iter().map(f).collect::<Vec<_>>());
        let ops = |r: &Round| r.ops as f64;
        let names = rounds.first().map(|r| r.counts.keys().copied());
        let count = |name| med(&|r: &Round| r.counts.get(name).copied().unwrap_or(0.0));
        Self {
            workload: workload.into(),
            target: contender.name(),
            shape,
            ops: med(&|r| ops(r) / r.run.wall),
            ops_finished: med(&|r| ops(r) / (r.run.wall + r.finish.wall)),
            cpu_ns: med(&|r| r.run.cpu / ops(r).max(1.0) * 1e9),
            finishes: contender.finishes(),
            finish_seconds: med(&|r| r.finish.wall),
            counts: names.into_iter().flatten().map(|n| (n, count(n))).collect(),
            latency: latencies.summary(),
            failed,
            rounds,
        }
    }
}

#[derive(Default)]
struct Runs {
    rounds: Vec<Round>,
    latencies: Latencies,
    failed: Option<String>,
}

/// Number of operations between two checks of the clock; the first of them is timed.
const STRIDE: u32 = 32;
/// Duration from which all operations are timed.
const LONG: Duration = Duration::from_micros(10);

/// The result of a thread.
#[derive(Default)]
struct TaskResult {
    ops: u64,
    latencies: Latencies,
}

fn work(task: &mut dyn Task, deadline: Instant, failed: &AtomicBool) -> Result<TaskResult> {
    let mut done = TaskResult::default();
    let mut now = Instant::now();
    while now < deadline && !failed.load(Ordering::Relaxed) {
        if !task.op()? {
            break;
        }
        let after = Instant::now();
        let took = after - now;
        done.latencies.record(took);
        done.ops += 1;
        if took >= LONG {
            now = after;
            continue;
        }
        for _ in 1..STRIDE {
            if !task.op()? {
                return Ok(done);
            }
            done.ops += 1;
        }
        now = Instant::now();
    }
    Ok(done)
}

/// Returns the CPUs that this process may use.
fn cpus() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).context("the CPUs of this process")?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .collect())
}

/// Binds the calling thread to the CPU of a task.
fn pin(cpus: &[usize], task: usize) -> Result<()> {
    let mut one = CpuSet::new();
    one.set(cpus[task % cpus.len()]);
    sched_setaffinity(None, &one).context("pin a thread")
}

/// Runs work in a thread that, together with its child threads, may use only the first `count` CPUs of this process.
pub(crate) fn on_cpus<D: Send>(count: usize, work: impl FnOnce() -> Result<D> + Send) -> Result<D> {
    let mut some = CpuSet::new();
    cpus()?
        .into_iter()
        .take(count)
        .for_each(|cpu| some.set(cpu));
    std::thread::scope(|s| {
        s.spawn(|| {
            sched_setaffinity(None, &some).context("bind a thread to some CPUs")?;
            work()
        })
        .join()
        .map_err(|_| anyhow!("a measurement panicked"))?
    })
}

/// Runs one thread for each worker, pinned, all started together.
pub(crate) fn each_pinned<W: Send, D: Send>(
    workers: &mut [W],
    work: impl Fn(&mut W) -> Result<D> + Sync,
) -> Result<(Vec<D>, Elapsed)> {
    each_together(workers, |_| true, work)
}

/// Runs one thread for each worker, all started together; pinned if `pinned` returns true for the number of CPUs.
pub(crate) fn each_together<W: Send, D: Send>(
    workers: &mut [W],
    pinned: impl Fn(usize) -> bool,
    work: impl Fn(&mut W) -> Result<D> + Sync,
) -> Result<(Vec<D>, Elapsed)> {
    host_memory::touch()?;
    // Two barriers: when all threads have met at the first, the clock starts, and only then may any thread continue.
    let all = workers.len() + 1;
    let (met, go, cpus) = (Barrier::new(all), Barrier::new(all), cpus()?);
    let bound = pinned(cpus.len());
    let (met, go, cpus, work) = (&met, &go, &cpus, &work);
    std::thread::scope(|s| {
        let threads: Vec<_> = workers
            .iter_mut()
            .enumerate()
            .map(|(number, worker)| {
                s.spawn(move || -> Result<D> {
                    let pinned = if bound { pin(cpus, number) } else { Ok(()) };
                    met.wait();
                    go.wait();
                    pinned.and_then(|()| work(worker))
                })
            })
            .collect();
        met.wait();
        let watch = Stopwatch::start();
        go.wait();
        // Join all threads, so that none is still running when a failure is reported.
        let all: Vec<_> = threads.into_iter().map(|t| t.join()).collect();
        let elapsed = watch.elapsed();
        let done = all
            .into_iter()
            .map(|d| d.map_err(|_| anyhow!("a task panicked"))?)
            .collect::<Result<Vec<_>>>()?;
        Ok((done, elapsed))
    })
}

/// Runs tasks with a time limit.
fn each_task(tasks: &mut Tasks, seconds: f64) -> Result<(Vec<TaskResult>, Elapsed)> {
    let (end, failed) = (OnceLock::new(), AtomicBool::new(false));
    each_pinned(tasks, |task| {
        // The first task to start sets the end for all.
        let end = *end.get_or_init(|| Instant::now() + Duration::from_secs_f64(seconds));
        let done = work(&mut **task, end, &failed);
        task.leave();
        // A task that fails ends all of them.
        if done.is_err() {
            failed.store(true, Ordering::Relaxed);
        }
        done
    })
}

fn grown(contender: &dyn Contender, before: &Counts) -> Counts {
    let mut counts = contender.counts();
    for (name, value) in &mut counts {
        *value -= before.get(name).unwrap_or(&0.0);
    }
    counts
}

fn round(contender: &dyn Contender, shape: &Shape) -> Result<(Round, Latencies)> {
    let mut tasks = contender.prepare(shape)?;
    let (counts, other) = (contender.counts(), contender.other_cpu());
    let (done, mut run) = each_task(&mut tasks, shape.seconds)?;
    run.cpu += contender.other_cpu() - other;
    let watch = Stopwatch::start();
    contender.finish(&mut tasks)?;
    let finish = watch.elapsed();
    let counts = grown(contender, &counts);
    drop(tasks);
    let mut latencies = Latencies::new();
    done.iter().for_each(|d| latencies.merge(&d.latencies));
    let round = Round {
        ops: done.iter().map(|d| d.ops).sum(),
        run,
        finish,
        counts,
    };
    ensure!(round.ops > 0, "{}: nothing was done", contender.name());
    Ok((round, latencies))
}

/// Runs all contenders alternately, after a warm-up round. `between` is called before every round; if it fails, the
/// benchmark ends. If the first contender fails, the benchmark ends, too. Another contender that fails is skipped from
/// then on, with the reason in its report.
pub fn run(
    workload: &str,
    contenders: &[&dyn Contender],
    shape: Shape,
    between: impl FnMut() -> Result<()>,
) -> Result<Vec<Report>> {
    take_turns(workload, contenders, shape, (true, None), between)
}

/// Runs all contenders like [`run`], but any contender that fails is skipped from then on, with the reason in its
/// report. After the time `within` no further round begins, except for the first counted one.
pub fn run_equals(
    workload: &str,
    contenders: &[&dyn Contender],
    shape: Shape,
    within: Duration,
    between: impl FnMut() -> Result<()>,
) -> Result<Vec<Report>> {
    take_turns(workload, contenders, shape, (false, Some(within)), between)
}

fn take_turns(
    workload: &str,
    contenders: &[&dyn Contender],
    shape: Shape,
    (first_must, within): (bool, Option<Duration>),
    mut between: impl FnMut() -> Result<()>,
) -> Result<Vec<Report>> {
    ensure!(
        shape.tasks > 0 && shape.files > 0 && shape.rounds > 0,
        "tasks, files and rounds begin at 1"
    );
    ensure!(
        shape.seconds > 0.0 && shape.seconds <= 86_400.0,
        "a round takes more than no time, and no more than a day"
    );
    let mut runs: Vec<Runs> = contenders.iter().map(|_| Runs::default()).collect();
    let begin = Instant::now();
    for number in 0..=shape.rounds {
        if number > 1 && within.is_some_and(|within| begin.elapsed() > within) {
            break;
        }
        for (i, (contender, runs)) in contenders.iter().zip(&mut runs).enumerate() {
            between()?;
            if runs.failed.is_some() {
                continue;
            }
            let done = round(*contender, &shape);
            let cleaned = contender.clean();
            let told = || format!("{workload} on {}", contender.name());
            match done.and_then(|done| cleaned.map(|()| done)) {
                Ok((done, latencies)) if number > 0 => {
                    runs.rounds.push(done);
                    runs.latencies.merge(&latencies);
                }
                Ok(_) => {}
                Err(e) if first_must && i == 0 => return Err(e).with_context(told),
                Err(e) => {
                    *runs = Runs {
                        failed: Some(format!("{e:#}")),
                        ..Runs::default()
                    };
                }
            }
        }
    }
    Ok(contenders
        .iter()
        .zip(runs)
        .map(|(contender, runs)| Report::of(workload, *contender, shape, runs))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Count {
        left: u64,
        fails: bool,
    }

    impl Task for Count {
        fn op(&mut self) -> Result<bool> {
            ensure!(!(self.fails && self.left == 3), "broken");
            self.left -= u64::from(self.left > 0);
            Ok(self.left > 0)
        }
    }

    struct Counter {
        fails: bool,
        cleaned: Cell<usize>,
    }

    impl Contender for Counter {
        fn name(&self) -> String {
            "counter".into()
        }
        fn prepare(&self, shape: &Shape) -> Result<Tasks> {
            let task = |n| Count {
                left: shape.files + 1,
                fails: self.fails && n == 1,
            };
            Ok((0..shape.tasks)
                .map(|n| Box::new(task(n)) as Box<dyn Task>)
                .collect())
        }
        fn clean(&self) -> Result<()> {
            self.cleaned.set(self.cleaned.get() + 1);
            Ok(())
        }
        fn counts(&self) -> Counts {
            Counts::from([("cleaned", self.cleaned.get() as f64)])
        }
    }

    const SHAPE: Shape = Shape {
        tasks: 3,
        seconds: 60.0,
        files: 100,
        rounds: 2,
    };

    fn counter(fails: bool) -> Counter {
        Counter {
            fails,
            cleaned: Cell::new(0),
        }
    }

    #[test]
    fn every_operation_is_counted_and_the_first_round_is_not() {
        let one = counter(false);
        let reports = run("w", &[&one], SHAPE, || Ok(())).unwrap();
        let report = &reports[0];
        assert_eq!(report.rounds.len(), 2);
        assert!(report.rounds.iter().all(|r| r.ops == 300));
        assert!(report.ops > 0.0 && report.ops_finished <= report.ops);
        assert_eq!(report.counts["cleaned"], 0.0);
        assert_eq!(one.cleaned.get(), 3);
        // Two rounds, three tasks, every 32nd operation or more.
        assert!(report.latency.count >= 2 * 3 * 100 / 32);
    }

    #[test]
    fn time_ends_a_round() {
        struct Forever;
        impl Task for Forever {
            fn op(&mut self) -> Result<bool> {
                Ok(true)
            }
        }
        let mut tasks: Tasks = vec![Box::new(Forever), Box::new(Forever)];
        let (done, elapsed) = each_task(&mut tasks, 0.01).unwrap();
        assert!(done.iter().map(|d| d.ops).sum::<u64>() > 0);
        assert!(elapsed.wall >= 0.01);
    }

    #[test]
    fn a_task_that_fails_ends_all_and_what_was_made_is_removed() {
        let one = counter(true);
        let error = run("w", &[&one], SHAPE, || Ok(())).unwrap_err();
        assert_eq!(format!("{error:#}"), "w on counter: broken");
        assert_eq!(one.cleaned.get(), 1);
        // A peer that fails does not end the run of the first.
        let reports = run("w", &[&counter(false), &one], SHAPE, || Ok(())).unwrap();
        assert_eq!(reports[0].rounds.len(), 2);
        assert_eq!(reports[1].failed.as_deref(), Some("broken"));
        let equals = run_equals("w", &[&one, &counter(false)], SHAPE, Duration::MAX, || {
            Ok(())
        });
        let equals = equals.unwrap();
        assert_eq!(equals[0].failed.as_deref(), Some("broken"));
        assert_eq!(equals[1].rounds.len(), 2);
        let short = run_equals("w", &[&counter(false)], SHAPE, Duration::ZERO, || Ok(()));
        assert_eq!(short.unwrap()[0].rounds.len(), 1);
        assert!(run("w", &[&one], Shape { tasks: 0, ..SHAPE }, || Ok(())).is_err());
        assert!(run("w", &[&one], SHAPE, || Err(anyhow!("enough"))).is_err());
    }
}
