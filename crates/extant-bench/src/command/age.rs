//! `extant-bench age`.

use crate::interrupt;
use crate::output;
use crate::progress::Progress;
use crate::targets::TargetArgs;
use anyhow::Result;
use extant_bench::age::{self, AgeParams};
use extant_terminal::numbers::size;
use std::io::Write;

/// See how whole files stay as a volume grows old
///
/// Tasks fill the volume with files of 4 KiB to 8 MiB, four at a time each, a piece at a time, then remove a third
/// of them and write others in their place, again and again. At the end the extents of all files are counted (by
/// filefrag, where the target is a path).
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant-bench age --size 1G --bytes 800M --against kernel")]
pub struct AgeArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// Tasks, a directory and a thread each
    #[arg(long, default_value_t = 4)]
    tasks: usize,
    /// Bytes of all files when the volume is as full as it gets
    #[arg(long, default_value = "1600M", value_parser = size)]
    bytes: u64,
    /// How often a third of the files is replaced
    #[arg(long, default_value_t = 6)]
    turns: usize,
    /// Chooses sizes, pieces and what is removed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// As JSON
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
