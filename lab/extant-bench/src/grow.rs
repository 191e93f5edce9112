//! grow: does the rate fall as a directory or an image grows? Names are created in steps of equal size. Each step is
//! made durable and timed with that, so that no step's work is counted in another step.

use crate::host_memory;
use crate::mdtest::{PREFIX, each_task, timed};
use crate::names::Names;
use crate::stats::{Elapsed, median};
use crate::target::{Target, TaskDir};
use anyhow::{Result, ensure};
use serde::Serialize;

/// Number of names above which a run needs more memory than is touched before each step.
const MANY: usize = 500_000;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Params {
    /// Number of names created.
    pub names: usize,
    /// Names per step.
    pub step: usize,
    /// Number of directories, filled one after the other.
    pub dirs: usize,
    /// Number of tasks, each with a thread, that share a step.
    pub tasks: usize,
}

/// Results of a step; with several runs, each time is the median.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Step {
    /// Number of names before the step.
    pub before: usize,
    /// Time of the creates.
    pub create: Elapsed,
    /// Time of the sync.
    pub sync: Elapsed,
}

/// Creates per second over the steps.
#[derive(Clone, Debug, Serialize)]
pub struct Rates {
    /// The first step.
    pub first: f64,
    /// Median of all later steps.
    pub later: f64,
    /// Median of the last tenth of the steps, at least one.
    pub last: f64,
    /// The slowest step.
    pub slowest: f64,
}

/// Results of all runs with the same parameters.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The target.
    pub target: String,
    /// The shape.
    pub params: Params,
    /// Number of runs.
    pub runs: usize,
    /// Rates of creates alone.
    pub create: Rates,
    /// Rates of creates, sync included.
    pub synced: Rates,
    /// Every step.
    pub steps: Vec<Step>,
}

fn rates(steps: &[Step], size: usize, seconds: impl Fn(&Step) -> f64) -> Rates {
    let all: Vec<f64> = steps.iter().map(|s| size as f64 / seconds(s)).collect();
    let first = all.first().copied().unwrap_or(0.0);
    let tail = all.len().saturating_sub((all.len() / 10).max(1));
    Rates {
        first,
        later: median(&mut all.iter().skip(1).copied().collect::<Vec<_>>()),
        last: median(&mut all.iter().skip(tail).copied().collect::<Vec<_>>()),
        slowest: all.iter().copied().fold(f64::INFINITY, f64::min),
    }
}

impl Report {
    /// Combines runs with the same parameters: each step is their median.
    #[must_use]
    pub fn of(target: String, params: Params, runs: &[Vec<Step>]) -> Self {
        let steps: Vec<Step> = (0..runs.first().map_or(0, Vec::len))
            .map(|nth| median_step(runs.iter().filter_map(|run| run.get(nth))))
            .collect();
        Self {
            target,
            params,
            runs: runs.len(),
            create: rates(&steps, params.step, |s| s.create.wall),
            synced: rates(&steps, params.step, |s| s.create.wall + s.sync.wall),
            steps,
        }
    }
}

fn median_step<'s>(steps: impl Iterator<Item = &'s Step> + Clone) -> Step {
    let of = |time: fn(&Step) -> f64| median(&mut steps.clone().map(time).collect::<Vec<_>>());
    Step {
        before: steps.clone().next().map_or(0, |step| step.before),
        create: Elapsed {
            wall: of(|s| s.create.wall),
            cpu: of(|s| s.create.cpu),
        },
        sync: Elapsed {
            wall: of(|s| s.sync.wall),
            cpu: of(|s| s.sync.cpu),
        },
    }
}

/// Creates all names; calls `progress` with the number of names created.
pub fn run(
    target: &dyn Target,
    params: Params,
    mut progress: impl FnMut(usize),
) -> Result<Vec<Step>> {
    let steps = params.names / params.step.max(1);
    ensure!(
        params.step > 0 && steps > 0 && params.names == steps * params.step,
        "names are a multiple of the step"
    );
    ensure!(
        params.dirs > 0 && params.dirs <= steps && steps.is_multiple_of(params.dirs),
        "directories divide the steps"
    );
    ensure!(
        params.tasks > 0 && params.step.is_multiple_of(params.tasks),
        "tasks divide the step"
    );
    if params.names >= MANY {
        host_memory::touch_much()?;
    }
    let each = params.step / params.tasks;
    let mut done = Vec::with_capacity(steps);
    let mut dirs: Vec<Box<dyn TaskDir>> = Vec::new();
    for step in 0..steps {
        if step % (steps / params.dirs) == 0 {
            dirs.clear();
            dirs.push(target.make_dir(&format!("grow.{step}"))?);
            for _ in 1..params.tasks {
                let again = dirs[0].again()?;
                dirs.push(again);
            }
            target.sync()?;
        }
        let names = |task| Names::from(PREFIX, task, step * each);
        done.push(Step {
            before: step * params.step,
            create: each_task(&dirs, each, names, |d, n| d.create(n))?,
            sync: timed(|| target.sync())?,
        });
        progress(params.step);
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::PathTarget;

    #[test]
    fn fills_directories_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let target = PathTarget::new(dir.path());
        let params = Params {
            names: 120,
            step: 20,
            dirs: 2,
            tasks: 2,
        };
        let steps = run(&target, params, |_| {}).unwrap();
        assert_eq!(steps.len(), 6);
        assert_eq!(steps[5].before, 100);
        let counts: Vec<_> = dir
            .path()
            .read_dir()
            .unwrap()
            .map(|d| d.unwrap().path().read_dir().unwrap().count())
            .collect();
        assert_eq!(counts, [60, 60]);
        let uneven = Params { step: 50, ..params };
        assert!(run(&target, uneven, |_| {}).is_err());
    }

    fn step(wall: f64) -> Step {
        Step {
            before: 0,
            create: Elapsed { wall, cpu: 0.0 },
            sync: Elapsed::default(),
        }
    }

    #[test]
    fn a_step_is_the_median_of_all_runs() {
        let params = Params {
            names: 16,
            step: 8,
            dirs: 1,
            tasks: 1,
        };
        let runs = [[1.0, 9.0], [3.0, 4.0], [2.0, 2.0]].map(|run| run.map(step).to_vec());
        let report = Report::of("target".into(), params, &runs);
        assert_eq!(report.runs, 3);
        let walls: Vec<_> = report.steps.iter().map(|s| s.create.wall).collect();
        assert_eq!(walls, [2.0, 4.0]);
        assert_eq!((report.create.first, report.create.last), (4.0, 2.0));
    }

    #[test]
    fn rates_of_steps() {
        let steps: Vec<_> = [1.0, 2.0, 4.0].map(step).into();
        let rates = rates(&steps, 8, |s| s.create.wall);
        assert_eq!(
            (rates.first, rates.later, rates.last, rates.slowest),
            (8.0, 3.0, 2.0, 2.0)
        );
    }
}
