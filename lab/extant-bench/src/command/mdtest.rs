//! `extant-bench mdtest`.

use crate::command::targets::TargetArgs;
use crate::mdtest::{self, Params, Report};
use crate::target::Target;
use anyhow::{Result, ensure};
use extant_terminal::interrupt;
use extant_terminal::numbers::rate;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use std::io::Write;

/// Create and remove empty files from many tasks
///
/// Each task makes its files, all tasks meet, and each removes its files again. The time to make the result durable is
/// reported separately. Targets alternate, round by round; results are medians of all rounds but the first.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  extant-bench mdtest --target lib --target /mnt/ext4 --tasks 2 --files 100000"
)]
pub struct MdtestArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// Number of tasks, each with a thread
    #[arg(long, default_value_t = 2)]
    tasks: usize,
    /// Number of files per task
    #[arg(long, default_value_t = 100_000)]
    files: usize,
    /// Number of rounds
    #[arg(long, default_value_t = 5)]
    iterations: usize,
    /// Run all tasks in one directory
    #[arg(long)]
    shared: bool,
    /// Print as JSON, with every round
    #[arg(long)]
    json: bool,
}

pub fn run(args: &MdtestArgs) -> Result<()> {
    ensure!(
        args.tasks > 0 && args.files > 0 && args.iterations > 0,
        "tasks, files and iterations begin at 1"
    );
    let files = (args.tasks * args.files) as u64;
    let opened = args.targets.open(files)?;
    let params = Params {
        tasks: args.tasks,
        files: args.files,
        iterations: args.iterations,
        shared: args.shared,
    };
    let progress = Progress::up_to("rounds", args.iterations as u64 + 1);
    let refs: Vec<&dyn Target> = opened.targets.iter().map(|t| &**t).collect();
    let reports = mdtest::run(&refs, params, |_| progress.add(1));
    let reports = opened.finish(&progress, reports)?;
    interrupt::check()?;
    if args.json {
        output::json(&reports)
    } else {
        table(&reports, params)
    }
}

fn table(reports: &[Report], p: Params) -> Result<()> {
    let mut out = output::stdout();
    let place = if p.shared {
        "one shared directory"
    } else {
        "own directories"
    };
    writeln!(
        out,
        "mdtest: {} tasks × {} files in {place}, median of {} rounds",
        p.tasks, p.files, p.iterations
    )?;
    let width = reports
        .iter()
        .map(|r| r.target.chars().count())
        .max()
        .unwrap_or(0)
        .max(6);
    let head = [
        "create/s", "synced/s", "CPU ns", "unlink/s", "synced/s", "CPU ns",
    ];
    write!(out, "{:width$}", "target")?;
    head.iter().try_for_each(|h| write!(out, " {h:>10}"))?;
    writeln!(out)?;
    for r in reports {
        let cells = [
            rate(r.creates),
            rate(r.creates_synced),
            format!("{:.0}", r.create_cpu_ns),
            rate(r.unlinks),
            rate(r.unlinks_synced),
            format!("{:.0}", r.unlink_cpu_ns),
        ];
        write!(out, "{:width$}", r.target)?;
        cells.iter().try_for_each(|c| write!(out, " {c:>10}"))?;
        writeln!(out)?;
    }
    if let Some((first, peers)) = reports.split_first() {
        for peer in peers {
            let times = |a: f64, b: f64| {
                if b > 0.0 {
                    format!("{:.1}×", a / b)
                } else {
                    "-".into()
                }
            };
            let cells = [
                times(first.creates, peer.creates),
                times(first.creates_synced, peer.creates_synced),
                times(peer.create_cpu_ns, first.create_cpu_ns),
                times(first.unlinks, peer.unlinks),
                times(first.unlinks_synced, peer.unlinks_synced),
                times(peer.unlink_cpu_ns, first.unlink_cpu_ns),
            ];
            writeln!(out, "\n{} against {}:", first.target, peer.target)?;
            write!(out, "{:width$}", "")?;
            cells.iter().try_for_each(|c| write!(out, " {c:>10}"))?;
            writeln!(out)?;
        }
    }
    Ok(out.flush()?)
}
