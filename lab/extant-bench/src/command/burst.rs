//! `extant-bench burst`.

use crate::burst::{self, Params, Report};
use crate::command::setup::scratch_in;
use crate::command::targets::TargetArgs;
use crate::latency::Summary;
use crate::table::{self, duration};
use crate::target::Target;
use anyhow::Result;
use extant_terminal::interrupt;
use extant_terminal::numbers::rate;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use serde::Serialize;
use std::io::Write;
use std::time::Duration;

/// Time fsyncs of 4 KiB while other tasks create files
///
/// Rounds alternate between the burst alone, the fsyncs alone, and both together. Latencies are shown with their
/// histograms. The first row is the bare device: 4 KiB of a file in the directory of the images, overwritten and
/// flushed.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant-bench burst --against kernel\n  extant-bench burst --dir /var/tmp --journal 256 --pause 5"
)]
pub struct BurstArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// Number of tasks that create files
    #[arg(long, default_value_t = 1)]
    tasks: usize,
    /// Number of files per task and round
    #[arg(long, default_value_t = 100_000)]
    files: usize,
    /// Pause between two fsyncs, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pause: u64,
    /// Number of rounds
    #[arg(long, default_value_t = 5)]
    iterations: usize,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct All {
    params: Params,
    flush: Summary,
    targets: Vec<Report>,
}

pub fn run(args: &BurstArgs) -> Result<()> {
    let params = Params {
        tasks: args.tasks.max(1),
        files: args.files.max(1),
        pause: Duration::from_millis(args.pause),
        rounds: args.iterations.max(1),
    };
    let files = params.tasks.saturating_mul(params.files);
    let opened = args.targets.open(files as u64)?;
    let dir = scratch_in(args.targets.dir.as_deref())?;
    let flush = burst::flushes(dir.path());
    let rounds = 3 * (params.rounds + 1) * opened.targets.len();
    let progress = Progress::up_to("rounds", rounds as u64);
    let targets: Vec<&dyn Target> = opened.targets.iter().map(|t| &**t).collect();
    let reports = burst::run(&targets, params, || {
        progress.add(1);
        interrupt::check()
    });
    let targets = opened.finish(&progress, reports)?;
    let all = All {
        params,
        flush: flush?,
        targets,
    };
    if args.json {
        return output::json(&all);
    }
    show(&all)
}

fn show(all: &All) -> Result<()> {
    let mut out = output::stdout();
    let p = all.params;
    writeln!(
        out,
        "burst: {} files by each of {} tasks, fsyncs of 4 KiB {:?} apart, {} rounds",
        p.files, p.tasks, p.pause, p.rounds
    )?;
    let head = ["count", "p50", "p90", "p99", "p99.9", "max", "creates/s"];
    write!(out, "{:44}", "")?;
    head.iter().try_for_each(|h| write!(out, " {h:>9}"))?;
    writeln!(out)?;
    line(&mut out, "the device: write and flush", &all.flush, None)?;
    for r in &all.targets {
        let name = |what: &str| format!("{}: {what}", r.target);
        line(&mut out, &name("fsync alone"), &r.fsync_alone, None)?;
        let (alone, beside) = (Some(r.alone), Some(r.beside));
        line(&mut out, &name("burst alone"), &Summary::default(), alone)?;
        line(&mut out, &name("both"), &r.fsync_beside, beside)?;
    }
    for r in &all.targets {
        writeln!(out, "\n{}: fsyncs beside the burst", r.target)?;
        let classes = burst::doubled(&r.fsync_beside);
        let most = classes.iter().map(|c| c.1).max().unwrap_or(1).max(1);
        for (bound, count) in classes {
            let bar = "█".repeat((count * 50).div_ceil(most) as usize);
            writeln!(
                out,
                "  up to {:>9} {count:>8} {bar}",
                duration(bound as f64)
            )?;
        }
        let counts = r.counts.iter();
        let counts: Vec<_> = counts.map(|(name, n)| table::count(name, *n)).collect();
        if !counts.is_empty() {
            writeln!(out, "  a round: {}", counts.join(", "))?;
        }
    }
    let names = all.targets.iter().map(|r| r.target.as_str());
    if let Some(note) = table::in_process_note(names) {
        writeln!(out, "{note}")?;
    }
    Ok(out.flush()?)
}

fn line(out: &mut impl Write, name: &str, seen: &Summary, creates: Option<f64>) -> Result<()> {
    let times = [seen.p50, seen.p90, seen.p99, seen.p999, seen.max];
    write!(out, "{name:44}")?;
    if seen.count == 0 {
        write!(out, " {:>59}", "")?;
    } else {
        write!(out, " {:>9}", seen.count)?;
        for ns in times {
            write!(out, " {:>9}", duration(ns as f64))?;
        }
    }
    match creates {
        Some(n) => writeln!(out, " {:>9}", rate(n))?,
        None => writeln!(out)?,
    }
    Ok(())
}
