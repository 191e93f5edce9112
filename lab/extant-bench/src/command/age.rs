//! `extant-bench age`.

use crate::age::{self, AgeParams};
use crate::command::targets::TargetArgs;
use anyhow::Result;
use extant_terminal::interrupt;
use extant_terminal::numbers::size;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use std::io::Write;

/// Measure the fragmentation of files on an aging volume
///
/// Tasks fill the volume with files of 4 KiB to 8 MiB, each four files at a time, piece by piece. Then they repeatedly
/// remove a third of the files and write others. At the end the extents of all files are counted (with filefrag, if
/// the target is a path).
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant-bench age --size 1G --bytes 800M --against kernel")]
pub struct AgeArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// Number of tasks, each with a directory and a thread
    #[arg(long, default_value_t = 4)]
    tasks: usize,
    /// Total bytes of all files when the volume is fullest
    #[arg(long, default_value = "1600M", value_parser = size)]
    bytes: u64,
    /// Number of times that a third of the files is replaced
    #[arg(long, default_value_t = 6)]
    turns: usize,
    /// Seed for sizes, pieces and removals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &AgeArgs) -> Result<()> {
    let params = AgeParams {
        tasks: args.tasks.max(1),
        bytes: args.bytes,
        turns: args.turns,
        seed: args.seed,
    };
    let opened = args.targets.open(args.bytes / 4096)?;
    let progress = Progress::up_to("targets", opened.targets.len() as u64);
    let reports: Result<Vec<_>> = opened
        .targets
        .iter()
        .map(|target| {
            interrupt::check()?;
            let report = age::run(&**target, params);
            progress.add(1);
            report
        })
        .collect();
    let reports = opened.finish(&progress, reports)?;
    if args.json {
        return output::json(&reports);
    }
    let mut out = output::stdout();
    writeln!(
        out,
        "{:24} {:>8} {:>9} {:>14} {:>10} {:>9}",
        "target", "files", "extents", "extents a file", "in pieces", "seconds"
    )?;
    for r in &reports {
        writeln!(
            out,
            "{:24} {:>8} {:>9} {:>14.3} {:>9.1}% {:>9.2}",
            r.target,
            r.files,
            r.extents,
            r.mean(),
            100.0 * r.in_pieces as f64 / r.files.max(1) as f64,
            r.wall
        )?;
    }
    Ok(out.flush()?)
}
