//! Benchmarks that repeat one operation, with several numbers of tasks.

use crate::command::targets::TargetArgs;
use crate::runner::{self, Contender, Report, Shape};
use crate::table;
use crate::workload::{OnTarget, Workload};
use anyhow::Result;
use extant_terminal::interrupt;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use std::io::Write;

/// Size and duration of a run.
#[derive(clap::Args, Clone, Debug)]
pub struct ShapeArgs {
    /// Number of tasks, each with a pinned thread; several numbers are run in order
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2")]
    tasks: Vec<usize>,
    /// Seconds per round
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Operations per round of all tasks, if they use up files; the round may then end early
    #[arg(long, default_value_t = 100_000)]
    files: u64,
    /// Number of rounds
    #[arg(long, default_value_t = 5)]
    iterations: usize,
    /// Print as JSON, with every round
    #[arg(long)]
    json: bool,
}

/// Additional files of some workloads: MRPM's tree.
const OTHER_FILES: u64 = 5000;

impl ShapeArgs {
    /// Returns the largest number of files that exist at once.
    pub fn most_files(&self) -> u64 {
        let tasks = self.tasks.iter().max().copied().unwrap_or(1) as u64;
        self.files
            .saturating_add(tasks.saturating_mul(64) + OTHER_FILES)
    }

    /// Returns a copy with only this number of tasks, which run until all operations are done.
    pub fn with_size(&self, tasks: usize, ops: u64) -> Self {
        Self {
            tasks: vec![tasks],
            files: ops,
            seconds: self.seconds.max(60.0),
            ..self.clone()
        }
    }

    /// Runs one workload with every number of tasks.
    pub fn run(
        &self,
        name: &str,
        contenders: &[&dyn Contender],
        progress: &Progress,
    ) -> Result<Vec<Report>> {
        let mut reports = Vec::new();
        for &tasks in &self.tasks {
            let shape = Shape {
                tasks,
                seconds: self.seconds,
                files: self.files.div_ceil(tasks.max(1) as u64),
                rounds: self.iterations,
            };
            let between = || {
                progress.add(1);
                interrupt::check()
            };
            reports.extend(runner::run(name, contenders, shape, between)?);
        }
        Ok(reports)
    }

    /// Returns the number of rounds of `contenders` contenders.
    pub fn all_rounds(&self, contenders: usize) -> u64 {
        (self.tasks.len() * (self.iterations + 1) * contenders) as u64
    }

    /// Prints reports.
    pub fn show(&self, reports: &[Report]) -> Result<()> {
        if self.json {
            return output::json(&reports);
        }
        let mut out = output::stdout();
        table::write(&mut out, reports)?;
        Ok(out.flush()?)
    }
}

/// Targets and shape of a run.
#[derive(clap::Args, Debug)]
pub struct RepeatArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// Runs workloads over all targets and prints the results.
pub fn run(args: &RepeatArgs, workloads: &[&dyn Workload]) -> Result<()> {
    let opened = args.targets.open(args.shape.most_files())?;
    let all = args
        .shape
        .all_rounds(workloads.len() * opened.targets.len());
    let progress = Progress::up_to("rounds", all);
    let mut reports: Result<Vec<Report>> = Ok(Vec::new());
    for workload in workloads {
        let on: Vec<_> = opened
            .targets
            .iter()
            .map(|t| OnTarget::new(&**t, *workload))
            .collect();
        let contenders: Vec<&dyn Contender> = on.iter().map(|c| c as &dyn Contender).collect();
        reports = reports.and_then(|mut all| {
            all.extend(args.shape.run(workload.name(), &contenders, &progress)?);
            Ok(all)
        });
    }
    let reports = opened.finish(&progress, reports)?;
    args.shape.show(&reports)
}
