//! The costs of operations on one core, and the rate of two tasks together.

use crate::before::{Algorithm, Pair, Sharing};
use crate::runner::{self, Contender, Shape, on_cpus};
use anyhow::{Context, Result, anyhow};
use extant::{Dir, Fallocate, File, OpenOptions, SetAttributes, Volume};
use lockmeter::Snapshot;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::time::Instant;

lockmeter::lock_class!(
    /// The lock of the variant before.
    OneLock = "one lock per volume"
);
lockmeter::lock_class!(
    /// Held around nothing, to measure the cost of the meter.
    Empty = "(empty)"
);

/// The predicted workloads.
///
/// ```
/// use extant_bench::predict::measure::Workload;
/// assert_eq!(Workload::ALL.len(), 5);
/// assert_eq!(Workload::Fallocate2.name(), "fallocate2");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// mdtest's creates: empty files in each task's own directory.
    Create,
    /// mdtest's removals.
    Unlink,
    /// stat of a thousand names of the task's own directory.
    Stat,
    /// Preallocation of 8 KiB at a time, truncated at 1 MiB, in the task's own file.
    Fallocate2,
    /// Transactions of one item: sets the owner of the task's own file.
    Commits,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Self; 5] = [
        Self::Create,
        Self::Unlink,
        Self::Stat,
        Self::Fallocate2,
        Self::Commits,
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "mdtest-create",
            Self::Unlink => "mdtest-unlink",
            Self::Stat => "stat",
            Self::Fallocate2 => "fallocate2",
            Self::Commits => "commits",
        }
    }

    /// Returns the case of the conflict test that runs the workload on two sides.
    pub fn case(self) -> &'static str {
        match self {
            Self::Create => "create × create, other directories",
            Self::Unlink => "unlink × unlink, other directories",
            Self::Stat => "stat × stat, other directories",
            Self::Fallocate2 => "fallocate × fallocate, other directories",
            Self::Commits => "commit × commit, other directories",
        }
    }
}

/// Number of timed operations.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Size {
    /// Operations per task and round.
    pub ops: usize,
    /// Number of rounds; the results are medians.
    pub rounds: usize,
}

/// A class of locks as one operation uses it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockUse {
    /// The class.
    pub class: String,
    /// Acquisitions per operation.
    pub per_op: f64,
    /// Mean hold in nanoseconds over all holds, less the cost of the meter.
    pub hold_ns: f64,
    /// The sharing of the lock, if the model does not know it by its class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<Sharing>,
}

/// The measurements of one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The workload.
    pub name: String,
    /// Whether it runs the algorithm before.
    pub before: bool,
    /// CPU time of an operation, one task.
    pub cpu_ns: f64,
    /// Operations per second of one task.
    pub one: f64,
    /// Operations per second of two tasks together.
    pub two: f64,
    /// Costs of pushes; pairs of algorithms have no pushes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasting: Option<Lasting>,
    /// Locks by class.
    pub locks: Vec<LockUse>,
}

/// Rates that include the pushes.
///
/// ```
/// use extant_bench::predict::measure::Lasting;
/// let lasting = Lasting { sync_one_ns: 300.0, sync_two_ns: 180.0, two: 3e6, two_tasks_on_one: 2e6 };
/// assert_eq!(lasting.serial_ns(), 60.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lasting {
    /// Nanoseconds per operation for the sync of two tasks' work on one processor.
    pub sync_one_ns: f64,
    /// Nanoseconds per operation for the sync of two tasks' work on two processors.
    pub sync_two_ns: f64,
    /// Operations per second of two tasks on two processors, with their sync.
    pub two: f64,
    /// Operations per second of two tasks on one processor, without sync.
    pub two_tasks_on_one: f64,
}

impl Lasting {
    /// Returns the serial part of a sync, by Amdahl's law from the times on one processor and on two.
    pub fn serial_ns(&self) -> f64 {
        (2.0 * self.sync_two_ns - self.sync_one_ns).clamp(0.0, self.sync_one_ns.max(0.0))
    }
}

pub(crate) type Task = Box<dyn FnMut(usize) -> Result<()> + Send>;

/// Number of names that a task stats in order.
const LOOKED_AT: usize = 1000;
const STEP: u64 = 8 << 10;
const WHOLE: u64 = 1 << 20;

impl Workload {
    /// Returns the operations of a task on its own files, at most `ops`.
    pub(crate) fn task(self, volume: &Volume, number: usize, ops: usize) -> Result<Task> {
        let volume = volume.clone();
        let dir: Dir = volume.create_dir(format!("/task-{number}"))?;
        let name = move |n: usize| format!("file.mdtest.{number}.{n}");
        let file = |dir: &Dir| -> Result<File> { Ok(dir.create_new_file("file")?) };
        Ok(match self {
            Self::Create => Box::new(move |n| {
                dir.create_new_file(name(n))?;
                Ok(())
            }),
            Self::Unlink => {
                (0..ops).try_for_each(|n| dir.create_new_file(name(n)).map(drop))?;
                Box::new(move |n| Ok(dir.remove_file(name(n))?))
            }
            Self::Stat => {
                (0..LOOKED_AT).try_for_each(|n| dir.create_new_file(name(n)).map(drop))?;
                Box::new(move |n| {
                    let seen = dir.metadata(name(n % LOOKED_AT))?;
                    anyhow::ensure!(seen.nlink() == 1, "a file of one name");
                    Ok(())
                })
            }
            Self::Fallocate2 => {
                let file = dir.open_file_with(
                    "file",
                    &OpenOptions::new().write(true).create(true).mode(0o600),
                )?;
                dir.remove_file("file")?;
                let mut at = 0;
                Box::new(move |_| {
                    if at == WHOLE {
                        file.set_len(0)?;
                        at = 0;
                    }
                    file.fallocate(Fallocate::Allocate { keep_size: false }, at, STEP)?;
                    at += STEP;
                    Ok(())
                })
            }
            Self::Commits => {
                let file = file(&dir)?;
                let set = SetAttributes {
                    uid: Some(0),
                    ..Default::default()
                };
                Box::new(move |_| Ok(file.set_attributes(&set)?))
            }
        })
    }
}

/// Runs a round; returns wall seconds, and CPU seconds of all tasks.
fn round(
    volume: &Volume,
    workload: Workload,
    tasks: usize,
    ops: usize,
    before: bool,
) -> Result<(f64, f64)> {
    let one_lock: lockmeter::Mutex<(), OneLock> = lockmeter::Mutex::new(());
    let work: Vec<Task> = (0..tasks)
        .map(|t| workload.task(volume, t, ops))
        .collect::<Result<_>>()?;
    // The tasks' preparations are not part of their sync.
    volume.sync()?;
    let start = Barrier::new(tasks + 1);
    std::thread::scope(|scope| {
        let running: Vec<_> = work
            .into_iter()
            .map(|mut task| {
                let (start, one_lock) = (&start, &one_lock);
                scope.spawn(move || -> Result<(Instant, Instant, f64)> {
                    start.wait();
                    let (begin, cpu) = (Instant::now(), thread_seconds());
                    for n in 0..ops {
                        let _held = before.then(|| one_lock.lock());
                        task(n)?;
                    }
                    Ok((begin, Instant::now(), thread_seconds() - cpu))
                })
            })
            .collect();
        start.wait();
        // Use the tasks' own clocks, because this thread may wake only when they are done.
        let (mut first, mut last, mut cpu) = (None, None, 0.0);
        for task in running {
            let (begin, end, used) = task.join().map_err(|_| anyhow!("a task panicked"))??;
            first = first.into_iter().chain([begin]).min();
            last = last.into_iter().chain([end]).max();
            cpu += used;
        }
        let (first, last) = first.zip(last).context("no task ran")?;
        // Never zero, so that rates are finite.
        let wall = last.duration_since(first).as_secs_f64().max(1e-9);
        Ok((wall, cpu))
    })
}

fn thread_seconds() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Measures a workload on new volumes, which `fresh` makes, without a background thread, so that nothing is pushed
/// while operations are timed. Switches the global meter, so no other measurement may run meanwhile.
pub fn measure(
    workload: Workload,
    before: bool,
    size: Size,
    fresh: &(dyn Fn() -> Result<Volume> + Sync),
) -> Result<Measured> {
    let ops = size.ops as f64;
    let (mut one, mut two, mut cpu) = (vec![], vec![], vec![]);
    let (mut sync_one, mut sync_two, mut lasting, mut shared) = (vec![], vec![], vec![], vec![]);
    let timed = |cpus, tasks| {
        on_cpus(cpus, || {
            let volume = fresh()?;
            let (wall, used) = round(&volume, workload, tasks, size.ops, before)?;
            let begin = Instant::now();
            volume.sync()?;
            let sync = begin.elapsed().as_secs_f64();
            volume.close()?;
            Ok((wall, used, sync))
        })
    };
    for _ in 0..size.rounds.max(1) {
        let (wall, used, _) = timed(2, 1)?;
        one.push(ops / wall);
        cpu.push(used * 1e9 / ops);
        let both = 2.0 * ops;
        let (wall, _, sync) = timed(1, 2)?;
        shared.push(both / wall);
        sync_one.push(sync * 1e9 / both);
        let (wall, _, sync) = timed(2, 2)?;
        two.push(both / wall);
        sync_two.push(sync * 1e9 / both);
        lasting.push(both / (wall + sync));
    }
    let one = median(one);
    let mut locks = locks(workload, before, size.ops, fresh)?;
    bound_holds(&mut locks, one);
    Ok(Measured {
        name: workload.name().into(),
        before,
        cpu_ns: median(cpu),
        one,
        two: median(two),
        lasting: Some(Lasting {
            sync_one_ns: median(sync_one),
            sync_two_ns: median(sync_two),
            two: median(lasting),
            two_tasks_on_one: median(shared),
        }),
        locks,
    })
}

/// Bounds the holds: a hold includes the metering of locks taken inside it, but cannot be longer than the operation.
fn bound_holds(locks: &mut [LockUse], one: f64) {
    for lock in locks {
        lock.hold_ns = lock.hold_ns.min(1e9 / one / lock.per_op);
    }
}

/// Measures all acquisitions and holds of one task.
fn locks(
    workload: Workload,
    before: bool,
    ops: usize,
    fresh: &(dyn Fn() -> Result<Volume> + Sync),
) -> Result<Vec<LockUse>> {
    let volume = fresh()?;
    // Make the task's files with the meter off.
    let mut task = workload.task(&volume, 0, ops)?;
    let one_lock: lockmeter::Mutex<(), OneLock> = lockmeter::Mutex::new(());
    let locks = metered(|| {
        (0..ops).try_for_each(|n| {
            let _held = before.then(|| one_lock.lock());
            task(n)
        })?;
        Ok(ops as u64)
    })?;
    drop(task);
    volume.close()?;
    Ok(locks)
}

/// Returns the use of locks by a run, every hold measured; the run returns its number of operations.
fn metered(run: impl FnOnce() -> Result<u64>) -> Result<Vec<LockUse>> {
    let empty: lockmeter::Mutex<(), Empty> = lockmeter::Mutex::new(());
    lockmeter::set_exact_hold(true);
    lockmeter::set_on(true);
    let start = Snapshot::take();
    (0..10_000).for_each(|_| drop(empty.lock()));
    let done = run();
    let seen = Snapshot::take().since(&start);
    lockmeter::set_on(false);
    lockmeter::set_exact_hold(false);
    let ops = done?.max(1) as f64;
    let floor = seen
        .class("(empty)")
        .context("the empty lock was counted")?
        .total
        .hold_mean_ns();
    Ok(seen
        .classes
        .iter()
        .filter(|c| c.name != "(empty)")
        .map(|c| LockUse {
            class: c.name.clone(),
            per_op: c.total.acquisitions as f64 / ops,
            hold_ns: (c.total.hold_mean_ns() - floor).max(0.0),
            shares: None,
        })
        .collect())
}

/// Measures a pair of algorithms, after and before, in alternating rounds. Switches the meter, like [`measure`].
pub fn measure_pair(
    pair: &Pair,
    size: Size,
    mut between: impl FnMut() -> Result<()>,
) -> Result<[Measured; 2]> {
    let [after, before] = pair.algorithms();
    // Algorithms alone are fast, so use more operations, or the start of threads would dominate.
    let few = size.ops as u64;
    let ops = pair.size.map_or(4 * few, |(_, ops)| ops.min(40 * few));
    let shape = |tasks: usize| Shape {
        tasks,
        // The run ends when all operations are done.
        seconds: 3600.0,
        files: ops.div_ceil(tasks as u64),
        rounds: size.rounds.max(1),
    };
    let contenders: [&dyn Contender; 2] = [&after, &before];
    let mut run = |tasks| runner::run(pair.name, &contenders, shape(tasks), &mut between);
    let (one, two) = (run(1)?, run(2)?);
    let measured = |(at, algorithm): (usize, &Algorithm)| -> Result<Measured> {
        let mut tasks = algorithm.prepare(&shape(1))?;
        let mut locks = metered(|| {
            let mut done = 0;
            for task in &mut tasks {
                while task.op()? {
                    done += 1;
                }
                task.leave();
            }
            Ok(done)
        })?;
        bound_holds(&mut locks, one[at].ops);
        locks
            .iter_mut()
            .for_each(|lock| lock.shares = Some(algorithm.shares));
        Ok(Measured {
            name: pair.name.into(),
            before: at == 1,
            cpu_ns: one[at].cpu_ns,
            one: one[at].ops,
            two: two[at].ops,
            lasting: None,
            locks,
        })
    };
    Ok([measured((0, &after))?, measured((1, &before))?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    /// The meter is global, so its users alternate.
    static METER: Mutex<()> = Mutex::new(());

    #[test]
    fn every_workload_runs_and_its_locks_are_seen() {
        let _turn = METER.lock().unwrap_or_else(PoisonError::into_inner);
        let size = Size {
            ops: 300,
            rounds: 1,
        };
        for workload in Workload::ALL {
            for before in [false, true] {
                let m = measure(workload, before, size, &|| Ok(extant::doc_volume())).unwrap();
                assert!(m.cpu_ns > 0.0 && m.one > 0.0 && m.two > 0.0, "{m:?}");
                assert!(m.one.is_finite() && m.two.is_finite(), "{m:?}");
                let lasting = m.lasting.unwrap();
                assert!(
                    lasting.two < m.two && lasting.two_tasks_on_one > 0.0,
                    "{m:?}"
                );
                // The volume's own thread also commits now and then.
                let commits = m.locks.iter().find(|l| l.class == "commit list of a slot");
                let lists = commits.is_some_and(|l| l.per_op > 0.9);
                assert_eq!(lists, workload != Workload::Stat, "{m:?}");
                let one = m.locks.iter().find(|l| l.class == "one lock per volume");
                assert_eq!(one.is_some_and(|l| l.per_op == 1.0), before);
            }
        }
    }

    #[test]
    fn every_pair_runs_and_the_lock_of_before_is_seen() {
        let _turn = METER.lock().unwrap_or_else(PoisonError::into_inner);
        let size = Size {
            ops: 2000,
            rounds: 1,
        };
        for pair in crate::before::PAIRS {
            let both = measure_pair(&pair, size, || Ok(())).unwrap();
            for m in &both {
                assert!(m.one > 0.0 && m.two > 0.0 && m.cpu_ns > 0.0, "{m:?}");
                // Other tests take such locks, too.
                let mut locks = m.locks.iter();
                let shared = locks.any(|l| l.class.starts_with("before: ") && l.per_op > 0.9);
                let lockless = pair.name == "inode-stretches";
                assert!(shared || lockless || !m.before, "{m:?}");
            }
        }
    }
}
