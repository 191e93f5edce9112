//! `extant-bench conflicts`.

use crate::interrupt;
use crate::output;
use crate::progress::Progress;
use crate::{fresh, scratch};
use anyhow::{Context, Result, ensure};
use extant::VolumeOptions;
use extant::mkfs::MkfsOptions;
use extant_bench::conflicts::{cases, report, run, traced, work};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Find the cache lines that operations which commute share
///
/// Runs pairs of operations that commute on two threads under valgrind's lackey, and shows which lines of memory
/// one writes and the other touches, with the lines of code that do. With the report goes how each case came out.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant-bench conflicts --report docs/bench/conflicts.md")]
pub struct ConflictsArgs {
    /// A few dozen cases instead of all
    #[arg(long)]
    short: bool,
    /// Only cases whose name holds this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write the whole report to this file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// As JSON, with every case
    #[arg(long)]
    json: bool,
    /// Be the process that is traced, over this image
    #[arg(long, value_name = "IMAGE", hide = true)]
    traced: Option<PathBuf>,
}

#[derive(Serialize)]
struct Facts<'a> {
    counts: report::Counts,
    share_free: f64,
    meetings: Vec<report::Meeting>,
    cases: &'a [run::CaseResult],
}

pub fn run(args: &ConflictsArgs) -> Result<()> {
    if let Some(image) = &args.traced {
        return traced::main(image);
    }
    ensure!(
        run::tool_is_there(),
        "this needs valgrind: Debian's package valgrind has it"
    );
    let mut cases = if args.short {
        cases::short()
    } else {
        cases::all()
    };
    if let Some(text) = &args.only {
        cases.retain(|c| c.to_string().contains(text.as_str()));
    }
    ensure!(!cases.is_empty(), "no case is named so");
    let scratch = scratch()?;
    let image = scratch.path().join("image");
    let options = MkfsOptions {
        // Groups enough for directories to keep out of each other's way.
        size: Some(4 << 30),
        journal_size: Some(64 << 20),
        ..MkfsOptions::default()
    };
    let volume = fresh(&image, &options, &VolumeOptions::new())?;
    work::furnish(&volume)?;
    volume.close()?;
    let program = crate::this_program()?;
    let image = image.to_string_lossy();
    let traced = ["conflicts", "--traced", &image];
    let progress = Progress::up_to("cases", cases.len() as u64);
    let results = run::run(&program, &traced, &cases, |_| progress.add(1));
    progress.done();
    let results = results?;
    interrupt::check()?;
    if let Some(path) = &args.report {
        let text = report::markdown(&results, &crate::machine());
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    let counts = report::Counts::of(&results);
    if args.json {
        return output::json(&Facts {
            counts,
            share_free: counts.share_free(),
            meetings: report::meetings(&results),
            cases: &results,
        });
    }
    let mut out = output::stdout();
    write!(out, "{}", report::summary(&results))?;
    for m in report::meetings(&results) {
        let [a, b] = &m.places;
        writeln!(
            out,
            "{:4} {:4}  {}: {a} | {b} ({})",
            m.always, m.at_times, m.object, m.example
        )?;
    }
    for r in results.iter().filter(|r| r.error.is_some()) {
        writeln!(
            out,
            "{}: {}",
            r.name,
            r.error.as_deref().unwrap_or_default()
        )?;
    }
    writeln!(
        out,
        "{:.1} % of {} cases free per operation",
        100.0 * counts.share_free(),
        counts.cases
    )?;
    Ok(out.flush()?)
}
