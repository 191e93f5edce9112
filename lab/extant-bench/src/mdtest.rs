//! mdtest: T tasks create n empty files each, meet, and remove them; each in its own directory or all in one. The time
//! to make the result durable is measured separately.

use crate::names::Names;
use crate::runner::each_together;
use crate::stats::{Elapsed, Stopwatch, median};
use crate::target::{Target, TaskDir};
use anyhow::Result;
use serde::Serialize;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Params {
    /// Number of tasks, each with a thread.
    pub tasks: usize,
    /// Number of files per task.
    pub files: usize,
    /// Number of rounds.
    pub iterations: usize,
    /// Whether all tasks work in one directory.
    pub shared: bool,
}

/// Results of a round.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Round {
    /// Time of all creates.
    pub create: Elapsed,
    /// Time of the sync after the creates.
    pub create_sync: Elapsed,
    /// Time of all removals.
    pub unlink: Elapsed,
    /// Time of the sync after the removals.
    pub unlink_sync: Elapsed,
}

/// Medians of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The target.
    pub target: String,
    /// Its shape.
    pub params: Params,
    /// Creates per second.
    pub creates: f64,
    /// Creates per second, sync included.
    pub creates_synced: f64,
    /// Removals per second.
    pub unlinks: f64,
    /// Removals per second, sync included.
    pub unlinks_synced: f64,
    /// CPU time per create in nanoseconds.
    pub create_cpu_ns: f64,
    /// CPU time per removal in nanoseconds.
    pub unlink_cpu_ns: f64,
    /// Every round.
    pub rounds: Vec<Round>,
}

impl Report {
    fn of(target: String, params: Params, rounds: Vec<Round>) -> Self {
        let ops = (params.tasks * params.files) as f64;
        let med = |f: &dyn Fn(&Round) -> f64| median(&mut rounds.iter().map(f).collect::<Vec<_>>());
        Self {
            target,
            params,
            creates: med(&|r| ops / r.create.wall),
            creates_synced: med(&|r| ops / (r.create.wall + r.create_sync.wall)),
            unlinks: med(&|r| ops / r.unlink.wall),
            unlinks_synced: med(&|r| ops / (r.unlink.wall + r.unlink_sync.wall)),
            create_cpu_ns: med(&|r| r.create.cpu / ops * 1e9),
            unlink_cpu_ns: med(&|r| r.unlink.cpu / ops * 1e9),
            rounds,
        }
    }
}

/// Prefix of the names of mdtest's files.
pub(crate) const PREFIX: &str = "file.mdtest";

/// Runs each task's work on its files; each task has a CPU if there are enough.
pub(crate) fn each_task(
    dirs: &[Box<dyn TaskDir>],
    files: usize,
    names: impl Fn(usize) -> Names + Sync,
    work: impl Fn(&dyn TaskDir, &str) -> Result<()> + Sync,
) -> Result<Elapsed> {
    let mut tasks: Vec<_> = dirs.iter().zip(0..).collect();
    let each_has_one = |cpus| dirs.len() <= cpus;
    let (_, elapsed) = each_together(&mut tasks, each_has_one, |&mut (dir, task)| {
        let mut names = names(task);
        (0..files).try_for_each(|_| work(&**dir, names.next()))
    })?;
    Ok(elapsed)
}

pub(crate) fn timed(f: impl FnOnce() -> Result<()>) -> Result<Elapsed> {
    let watch = Stopwatch::start();
    f()?;
    Ok(watch.elapsed())
}

fn round(target: &dyn Target, params: Params, number: usize) -> Result<Round> {
    let paths: Vec<String> = (0..if params.shared { 1 } else { params.tasks })
        .map(|task| format!("mdtest.{number}.{task}"))
        .collect();
    let mut dirs: Vec<Box<dyn TaskDir>> = Vec::new();
    for path in &paths {
        dirs.push(target.make_dir(path)?);
    }
    while dirs.len() < params.tasks {
        let again = dirs[0].again()?;
        dirs.push(again);
    }
    target.sync()?;
    let names = |task| Names::new(PREFIX, task);
    let round = Round {
        create: each_task(&dirs, params.files, names, |d, n| d.create(n))?,
        create_sync: timed(|| target.sync())?,
        unlink: each_task(&dirs, params.files, names, |d, n| d.unlink(n))?,
        unlink_sync: timed(|| target.sync())?,
    };
    drop(dirs);
    paths.iter().try_for_each(|p| target.remove_dir(p))?;
    target.sync()?;
    Ok(round)
}

/// Runs all targets alternately, after a warm-up round.
pub fn run(
    targets: &[&dyn Target],
    params: Params,
    mut progress: impl FnMut(usize),
) -> Result<Vec<Report>> {
    let mut rounds = vec![Vec::new(); targets.len()];
    for number in 0..=params.iterations {
        for (i, target) in targets.iter().enumerate() {
            let done = round(*target, params, number)?;
            if number > 0 {
                rounds[i].push(done);
            }
        }
        progress(number);
    }
    Ok(targets
        .iter()
        .zip(rounds)
        .map(|(t, r)| Report::of(t.name(), params, r))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::PathTarget;

    #[test]
    fn runs_over_a_path_and_cleans_up() {
        let dir = tempfile::tempdir().unwrap();
        let target = PathTarget::new(dir.path());
        for shared in [false, true] {
            let params = Params {
                tasks: 2,
                files: 20,
                iterations: 2,
                shared,
            };
            let reports = run(&[&target], params, |_| {}).unwrap();
            assert_eq!(reports[0].rounds.len(), 2);
            assert!(reports[0].creates > 0.0);
        }
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    }
}
