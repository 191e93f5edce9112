//! `extant-bench dbench`.

use crate::command::targets::TargetArgs;
use crate::dbench::{self, Load, Params, Report};
use crate::table::{duration, times};
use crate::target::Target;
use anyhow::{Context, Result};
use extant_terminal::interrupt;
use extant_terminal::numbers::rate;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::PathBuf;

/// Replay a loadfile of dbench from many clients
///
/// Each client executes the file, in a separate directory, as fast as it can: it creates, writes, reads, syncs,
/// renames, lists and removes files. Operations that failed in the recording must fail, the others must succeed.
/// Debian's package dbench contains a loadfile: /usr/share/dbench/client.txt, of about 25 MB per client.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant-bench dbench /usr/share/dbench/client.txt --clients 4 --against kernel\n  \
    extant-bench dbench client.txt --clients 4 --cache 8M --dir /var/tmp"
)]
pub struct DbenchArgs {
    /// Loadfile to replay
    #[arg(value_name = "LOADFILE")]
    load: PathBuf,
    #[command(flatten)]
    targets: TargetArgs,
    /// Number of clients, each with a pinned thread
    #[arg(long, default_value_t = 2)]
    clients: usize,
    /// Number of rounds
    #[arg(long, default_value_t = 5)]
    iterations: usize,
    /// Print as JSON, with every round
    #[arg(long)]
    json: bool,
}

/// Number of files of all clients at once: the loadfile of the package has about 300 per client.
const FILES: u64 = 10_000;

pub fn run(args: &DbenchArgs) -> Result<()> {
    let told = || args.load.display().to_string();
    let load = File::open(&args.load).with_context(told)?;
    let load = Load::parse(BufReader::new(load)).with_context(told)?;
    let opened = args.targets.open(FILES + 1000 * args.clients as u64)?;
    let params = Params {
        clients: args.clients,
        rounds: args.iterations,
    };
    let targets: Vec<&dyn Target> = opened.targets.iter().map(|t| &**t).collect();
    let progress = Progress::count("looks of clients");
    let reports = dbench::run(&targets, &load, params, &|| {
        progress.add(1);
        interrupt::check()
    });
    let reports = opened.finish(&progress, reports)?;
    if args.json {
        return output::json(&reports);
    }
    table(&reports)
}

fn table(reports: &[Report]) -> Result<()> {
    let mut out = output::stdout();
    let Some((first, _)) = reports.split_first() else {
        return Ok(());
    };
    let Params { clients, rounds } = first.params;
    writeln!(out, "dbench: {clients} clients, medians of {rounds} rounds")?;
    let width = reports.iter().map(|r| r.target.chars().count());
    let width = width.max().unwrap_or(0).max(6);
    let head = ["MB/s", "synced", "ops/s", "CPU", "ours", "CPU ours"];
    write!(out, "{:width$}", "target")?;
    head.iter().try_for_each(|h| write!(out, " {h:>9}"))?;
    writeln!(out)?;
    for report in reports {
        write!(out, "{:width$}", report.target)?;
        if let Some(why) = &report.failed {
            writeln!(out, " cannot: {why}")?;
            continue;
        }
        let (ours, cpu) = if std::ptr::eq(report, first) {
            ("-".into(), "-".into())
        } else {
            (
                times(first.bytes, report.bytes),
                times(report.cpu_ns, first.cpu_ns),
            )
        };
        let cells = [
            format!("{:.1}", report.bytes / 1e6),
            format!("{:.1}", report.bytes_synced / 1e6),
            rate(report.ops),
            duration(report.cpu_ns),
            ours,
            cpu,
        ];
        cells.iter().try_for_each(|c| write!(out, " {c:>9}"))?;
        writeln!(out)?;
    }
    for report in reports.iter().filter(|r| r.failed.is_none()) {
        writeln!(out, "\n{}", report.target)?;
        write!(out, "  {:22}", "operation")?;
        for title in ["count", "mean", "p50", "p99", "max"] {
            write!(out, " {title:>9}")?;
        }
        writeln!(out)?;
        for (name, seen) in &report.latencies {
            let nanoseconds = [seen.mean, seen.p50 as f64, seen.p99 as f64, seen.max as f64];
            write!(out, "  {name:22} {:>9}", seen.count)?;
            for ns in nanoseconds {
                write!(out, " {:>9}", duration(ns))?;
            }
            writeln!(out)?;
        }
    }
    Ok(out.flush()?)
}
