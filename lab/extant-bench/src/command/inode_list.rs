//! `extant-bench inode-list`.

use crate::command::targets::TargetArgs;
use crate::runner::{self, Contender, Shape};
use crate::table;
use crate::workload::inode_list::{InodeList, NAME};
use anyhow::Result;
use extant_terminal::interrupt;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use std::io::Write;

/// Bring inodes in core from a thousand tasks, then drop all at once
///
/// Each task stats every file of a separate directory, none of which is in memory. Then everything is dropped from
/// memory, with a separate time. The kernel drops the caches of all file systems of the machine, and only for root.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  extant-bench inode-list --tasks 1000 --files 200000 --against kernel"
)]
pub struct InodeListArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// Number of tasks, each with a pinned thread
    #[arg(long, default_value_t = 1000)]
    tasks: usize,
    /// Number of files of all tasks
    #[arg(long, default_value_t = 100_000)]
    files: u64,
    /// Number of rounds
    #[arg(long, default_value_t = 5)]
    iterations: usize,
    /// Print as JSON, with every round
    #[arg(long)]
    json: bool,
}

/// A round ends when every inode was brought in, never by the clock.
const LONG_ENOUGH: f64 = 3600.0;

pub fn run(args: &InodeListArgs) -> Result<()> {
    let shape = Shape {
        tasks: args.tasks,
        seconds: LONG_ENOUGH,
        files: args.files.div_ceil(args.tasks.max(1) as u64),
        rounds: args.iterations,
    };
    let opened = args.targets.open(args.files + 2 * args.tasks as u64)?;
    let lists: Vec<_> = opened
        .targets
        .iter()
        .map(|t| InodeList::new(&**t))
        .collect();
    let contenders: Vec<&dyn Contender> = lists.iter().map(|l| l as &dyn Contender).collect();
    let rounds = (args.iterations + 1) * lists.len();
    let progress = Progress::up_to("rounds", rounds as u64);
    let reports = runner::run(NAME, &contenders, shape, || {
        progress.add(1);
        interrupt::check()
    });
    drop(lists);
    let reports = opened.finish(&progress, reports)?;
    if args.json {
        return output::json(&reports);
    }
    let mut out = output::stdout();
    table::write(&mut out, &reports)?;
    Ok(out.flush()?)
}
