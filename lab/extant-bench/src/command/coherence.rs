//! `extant-bench coherence`.

use crate::coherence::caches::MOST;
use crate::coherence::run::Traffic;
use crate::coherence::traced::Job;
use crate::coherence::{report, run, traced};
use crate::command::setup::{fresh, scratch};
use crate::lackey;
use crate::predict::measure::Workload;
use anyhow::{Context, Result, ensure};
use extant::VolumeOptions;
use extant::mkfs::MkfsOptions;
use extant_terminal::interrupt;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use std::io::Write;
use std::path::PathBuf;

/// Count the cache lines that many cores take from each other
///
/// Runs operations on one thread per core of a modelled machine, under valgrind's lackey, and feeds their memory
/// accesses to a model of the cores' caches. Shows the misses per operation that other cores cause, by object and line
/// of code.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  extant-bench coherence --cores 64 --slots 64,4 --report docs/bench/coherence.md"
)]
pub struct CoherenceArgs {
    /// Number of cores of the modelled machine
    #[arg(long, value_name = "N", default_value_t = 64)]
    cores: u16,
    /// Number of slots of the engine; several numbers are run in order [default: the number of cores]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    slots: Vec<u16>,
    /// Number of counted operations per core
    #[arg(long, default_value_t = 32)]
    ops: usize,
    /// Run only workloads whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write the whole report to this file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Run as the traced process, on this image
    #[arg(long, value_name = "IMAGE", hide = true)]
    traced: Option<PathBuf>,
}

pub fn run(args: &CoherenceArgs) -> Result<()> {
    if let Some(image) = &args.traced {
        return traced::main(image);
    }
    let cores = usize::from(args.cores);
    ensure!((1..=MOST).contains(&cores), "cores are 1 to {MOST}");
    ensure!(args.ops > 0, "ops begin at 1");
    ensure!(
        lackey::tool_is_there(),
        "this needs valgrind: Debian's package valgrind has it"
    );
    let named = |w: &Workload| args.only.as_ref().is_none_or(|t| w.name().contains(t));
    let workloads: Vec<Workload> = Workload::ALL.into_iter().filter(named).collect();
    ensure!(!workloads.is_empty(), "no workload is named so");
    let slots = match &args.slots[..] {
        [] => vec![args.cores],
        some => some.to_vec(),
    };
    let progress = Progress::up_to("workloads", (workloads.len() * slots.len()) as u64);
    let mut all = Vec::new();
    for workload in workloads {
        for &slots in &slots {
            let job = Job {
                workload,
                cores,
                slots: usize::from(slots).max(1),
                ops: args.ops,
            };
            all.push(trace(job)?);
            progress.add(1);
            interrupt::check()?;
        }
    }
    progress.done();
    if let Some(path) = &args.report {
        let text = report::markdown(&all, &crate::command::setup::machine());
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    if args.json {
        return output::json(&all);
    }
    let mut text = String::new();
    report::summary(&mut text, &all);
    let mut out = output::stdout();
    write!(out, "{text}")?;
    Ok(out.flush()?)
}

fn trace(job: Job) -> Result<Traffic> {
    let scratch = scratch()?;
    let image = scratch.path().join("image");
    let options = MkfsOptions {
        // Enough groups that directories do not share them: two per core.
        size: Some((job.cores as u64) << 28),
        journal_size: Some(64 << 20),
        ..MkfsOptions::default()
    };
    fresh(&image, &options, &VolumeOptions::new())?.close()?;
    let path = image.to_string_lossy();
    run::run(
        &crate::command::setup::this_program()?,
        &["coherence", "--traced", &path],
        job,
    )
}
