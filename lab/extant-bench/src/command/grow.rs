//! `extant-bench grow`.

use crate::command::targets::TargetArgs;
use crate::grow::{self, Params, Report, Step};
use crate::target::Target;
use anyhow::{Result, ensure};
use extant_terminal::interrupt;
use extant_terminal::numbers::rate;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use std::io::Write;

/// Create names in steps, and see whether the rate falls as their number grows
///
/// Each step is made durable. Its time is shown with and without that, as the median of several rounds. The first step
/// is compared with all later steps.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant-bench grow --names 1000000 --size 8G --journal 1024\n  \
    extant-bench grow --names 10000000 --dirs 100 --size 32G --journal 2048"
)]
pub struct GrowArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// Number of names to create
    #[arg(long, default_value_t = 1_000_000)]
    names: usize,
    /// Number of names per step
    #[arg(long, default_value_t = 100_000)]
    step: usize,
    /// Number of directories, filled one after the other
    #[arg(long, default_value_t = 1)]
    dirs: usize,
    /// Number of tasks, each with a thread, that share a step
    #[arg(long, default_value_t = 1)]
    tasks: usize,
    /// Number of rounds, each on a separate volume
    #[arg(long, default_value_t = 1)]
    iterations: usize,
    /// Print as JSON, with every step
    #[arg(long)]
    json: bool,
}

pub fn run(args: &GrowArgs) -> Result<()> {
    ensure!(args.iterations > 0, "rounds begin at 1");
    let params = Params {
        names: args.names,
        step: args.step,
        dirs: args.dirs,
        tasks: args.tasks,
    };
    // By target; all rounds have the same targets.
    let mut runs: Vec<(String, Vec<Vec<Step>>)> = Vec::new();
    for _ in 0..args.iterations {
        for (nth, (name, steps)) in one_round(args, params)?.into_iter().enumerate() {
            match runs.get_mut(nth) {
                Some((_, all)) => all.push(steps),
                None => runs.push((name, vec![steps])),
            }
        }
        interrupt::check()?;
    }
    let reports = runs.into_iter();
    let reports: Vec<_> = reports
        .map(|(name, runs)| Report::of(name, params, &runs))
        .collect();
    if args.json {
        output::json(&reports)
    } else {
        table(&reports, params)
    }
}

/// Runs each target once; returns the steps with its name.
fn one_round(args: &GrowArgs, params: Params) -> Result<Vec<(String, Vec<Step>)>> {
    let opened = args.targets.open((args.names + args.dirs) as u64)?;
    let progress = Progress::up_to("names", (args.names * opened.targets.len()) as u64);
    let run = |target: &dyn Target| {
        let steps = grow::run(target, params, |n| progress.add(n as u64))?;
        Ok((target.name(), steps))
    };
    let runs = opened.targets.iter().map(|target| run(&**target)).collect();
    opened.finish(&progress, runs)
}

fn table(reports: &[Report], p: Params) -> Result<()> {
    let mut out = output::stdout();
    writeln!(
        out,
        "grow: {} names in {} directories by {} tasks, in steps of {}",
        p.names, p.dirs, p.tasks, p.step
    )?;
    let head = ["first/s", "later/s", "last/s", "slowest/s", "later"];
    for r in reports {
        write!(out, "{:30}", r.target)?;
        head.iter().try_for_each(|h| write!(out, " {h:>10}"))?;
        writeln!(out)?;
        for (what, rates) in [("create", &r.create), ("create, synced", &r.synced)] {
            let change = 100.0 * (rates.later / rates.first - 1.0);
            let cells = [
                rate(rates.first),
                rate(rates.later),
                rate(rates.last),
                rate(rates.slowest),
                format!("{change:+.0} %"),
            ];
            write!(out, "  {what:28}")?;
            cells.iter().try_for_each(|c| write!(out, " {c:>10}"))?;
            writeln!(out)?;
        }
    }
    Ok(out.flush()?)
}
