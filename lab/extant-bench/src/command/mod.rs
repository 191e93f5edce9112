//! The command `extant-bench`: one file for each workload.

mod age;
mod before;
mod bulk;
mod burst;
mod check;
mod coherence;
mod conflicts;
mod dbench;
mod figures;
mod floor;
mod fxmark;
mod grow;
mod inode_list;
mod mdtest;
mod mount;
mod peers;
mod predict;
mod repeat;
mod report;
mod setup;
mod targets;

use crate::workload::{log, small};
use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use extant_terminal::help::arranged;
use extant_terminal::{interrupt, output};
use repeat::RepeatArgs;
use std::process::ExitCode;

/// Measure this engine and its peers
///
/// `mount` and `bulk` run the command extant next to this program, or else the one in PATH.
#[derive(Parser, Debug)]
#[command(
    name = "extant-bench",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  extant-bench mdtest --tasks 1,2 --files 100000 --against kernel\n  extant-bench bulk --from /usr --against mke2fs"
)]
struct Cli {
    #[command(subcommand)]
    workload: Workload,
    /// Number of slots over which threads spread shared data, rounded up to a power of two. Default: the number of
    /// CPUs, at least 4; 1 on a single CPU
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096), help_heading = "Measuring")]
    slots: Option<u16>,
    /// Print to standard error at the end which locks threads waited for and how long the locks were held
    #[arg(long, global = true, help_heading = "Measuring")]
    lockmeter: bool,
    /// Print to standard error at the end the time spent in the engine's operations
    #[arg(long, global = true, help_heading = "Measuring")]
    profile: bool,
}

#[derive(Subcommand, Debug)]
enum Workload {
    Mdtest(mdtest::MdtestArgs),
    Grow(grow::GrowArgs),
    Age(age::AgeArgs),
    Bulk(bulk::BulkArgs),
    Check(check::CheckArgs),
    /// Preallocate separate files, 8 KiB at a time, from many tasks
    ///
    /// Each task has an unnamed file, which is truncated at 1 MiB. One operation is one fallocate. Two variants
    /// follow: one alternates between two files, so that the log cannot cancel items; the other runs from the end to
    /// the start, so that each operation searches a group.
    #[command(
        after_help = "Example:\n  extant-bench fallocate2 --tasks 1,2,64 --against kernel fuse2fs"
    )]
    Fallocate2(RepeatArgs),
    /// Open and close separate files from many tasks
    #[command(after_help = "Example:\n  extant-bench open1 --tasks 1,2 --against kernel")]
    Open1(RepeatArgs),
    /// Create, close and remove a file in separate directories from many tasks
    #[command(after_help = "Example:\n  extant-bench unlink2 --tasks 1,2 --against kernel")]
    Unlink2(RepeatArgs),
    Fxmark(fxmark::FxmarkArgs),
    /// Commit small transactions from many tasks: create, change the mode, unlink
    ///
    /// Each of the three is one operation. Below the results are the counts of a round in the log of a volume in this
    /// process: transactions, pushes, bytes written to the log, time spent on sorting items.
    #[command(after_help = "Example:\n  extant-bench commits --tasks 1,2,16 --against kernel")]
    Commits(RepeatArgs),
    /// Create files, write 4 KiB into each and make each durable, from many tasks
    #[command(after_help = "Example:\n  extant-bench fsync --tasks 1,2,16 --against kernel")]
    Fsync(RepeatArgs),
    Burst(burst::BurstArgs),
    InodeList(inode_list::InodeListArgs),
    Dbench(dbench::DbenchArgs),
    Before(before::BeforeArgs),
    Report(report::ReportArgs),
    Figures(figures::FiguresArgs),
    Coherence(coherence::CoherenceArgs),
    Conflicts(conflicts::ConflictsArgs),
    Predict(predict::PredictArgs),
    Mount(mount::MountArgs),
    Floor(floor::FloorArgs),
}

/// Runs the command with the arguments of the process.
pub fn main() -> ExitCode {
    output::speak_as("extant-bench", |_| None);
    let found = arranged(Cli::command()).get_matches();
    let args = Cli::from_arg_matches(&found).unwrap_or_else(|error| error.exit());
    if let Some(slots) = args.slots {
        // The number is still unset, because no slot has been used yet.
        let _ = percpu::slot::configure(slots.into());
    }
    lockmeter::set_on(args.lockmeter);
    lockmeter::profile::set_on(args.profile);
    let done = interrupt::install().and_then(|()| run(&args.workload));
    if args.lockmeter {
        eprint!("{}", lockmeter::Snapshot::take());
    }
    if args.profile {
        eprint!("{}", lockmeter::profile::Table::take());
    }
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::report(&error),
    }
}

fn run(workload: &Workload) -> Result<()> {
    match workload {
        Workload::Mdtest(args) => mdtest::run(args),
        Workload::Grow(args) => grow::run(args),
        Workload::Age(args) => age::run(args),
        Workload::Bulk(args) => bulk::run(args),
        Workload::Check(args) => check::run(args),
        Workload::Fallocate2(args) => repeat::run(
            args,
            &[
                &small::Fallocate2,
                &small::Fallocate2InTurn,
                &small::Fallocate2Search,
            ],
        ),
        Workload::Open1(args) => repeat::run(args, &[&small::Open1]),
        Workload::Unlink2(args) => repeat::run(args, &[&small::Unlink2]),
        Workload::Fxmark(args) => fxmark::run(args),
        Workload::Commits(args) => repeat::run(args, &[&log::Commits]),
        Workload::Fsync(args) => repeat::run(args, &[&log::Fsync]),
        Workload::Burst(args) => burst::run(args),
        Workload::InodeList(args) => inode_list::run(args),
        Workload::Dbench(args) => dbench::run(args),
        Workload::Before(args) => before::run(args),
        Workload::Report(args) => report::run(args),
        Workload::Figures(args) => figures::run(args),
        Workload::Coherence(args) => coherence::run(args),
        Workload::Conflicts(args) => conflicts::run(args),
        Workload::Predict(args) => predict::run(args),
        Workload::Mount(args) => mount::run(args),
        Workload::Floor(args) => floor::run(args),
    }
}
