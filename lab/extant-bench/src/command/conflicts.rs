//! `extant-bench conflicts`.

use crate::command::setup::{fresh, scratch};
use crate::conflicts::cases::Case;
use crate::conflicts::run::CaseResult;
use crate::conflicts::traced::Setting;
use crate::conflicts::{cases, report, run, traced, work};
use crate::lackey;
use anyhow::{Context, Result, bail, ensure};
use extant::VolumeOptions;
use extant::mkfs::MkfsOptions;
use extant_terminal::interrupt;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Find the cache lines that commuting operations share
///
/// Runs pairs of commuting operations on two threads under valgrind's lackey, and shows which lines of memory one of
/// them writes and the other touches, with the lines of code. The report includes the outcome of each case.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  extant-bench conflicts --cpus 16,64,256 --turned --report docs/bench/conflicts.md"
)]
pub struct ConflictsArgs {
    /// Run a few dozen cases instead of all
    #[arg(long)]
    short: bool,
    /// Run only cases whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Number of processors that the traced process assumes; several numbers are run in order
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "16")]
    cpus: Vec<u16>,
    /// Also run each case after both sides have read the data of either side, with locks biased towards readers
    #[arg(long)]
    turned: bool,
    /// Write the whole report to this file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print as JSON, with every case
    #[arg(long)]
    json: bool,
    /// Run as the traced process, on this image
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

fn setting(cpus: u16, turned: bool) -> Setting {
    Setting {
        // Slots as the engine counts them: a power of two, and at least the number of traced threads.
        slots: usize::from(cpus).clamp(4, 256).next_power_of_two(),
        turned,
    }
}

fn settings(args: &ConflictsArgs) -> Vec<Setting> {
    let turned: &[bool] = if args.turned {
        &[false, true]
    } else {
        &[false]
    };
    let of = |&cpus: &u16| turned.iter().map(move |&t| setting(cpus, t));
    args.cpus.iter().flat_map(of).collect()
}

/// Runs all cases in each setting, each in a separate process and on a separate volume; one process per CPU at a time.
fn trace_all(settings: &[Setting], cases: &[Case]) -> Result<Vec<CaseResult>> {
    let progress = Progress::up_to("cases", (cases.len() * settings.len()) as u64);
    let next = AtomicUsize::new(0);
    let traced = Mutex::new(BTreeMap::new());
    let trace_next = || {
        while let Some(&setting) = settings.get(next.fetch_add(1, Ordering::Relaxed)) {
            let results = trace(setting, cases, &progress);
            let mut traced = traced.lock().unwrap_or_else(PoisonError::into_inner);
            traced.insert(setting, results);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(trace_next);
        }
    });
    progress.done();
    let traced = traced.into_inner().unwrap_or_else(PoisonError::into_inner);
    let results: Vec<Vec<CaseResult>> = traced.into_values().collect::<Result<_>>()?;
    Ok(results.concat())
}

fn trace(setting: Setting, cases: &[Case], progress: &Progress) -> Result<Vec<CaseResult>> {
    let scratch = scratch()?;
    let image = scratch.path().join("image");
    let options = MkfsOptions {
        // Enough groups that directories do not share them.
        size: Some(4 << 30),
        journal_size: Some(64 << 20),
        ..MkfsOptions::default()
    };
    let volume = fresh(&image, &options, &VolumeOptions::new())?;
    work::furnish(&volume)?;
    volume.close()?;
    let path = image.to_string_lossy();
    let cpus = setting.slots.to_string();
    let mut traced = vec!["conflicts", "--traced", &path, "--cpus", &cpus];
    traced.extend(setting.turned.then_some("--turned"));
    let program = crate::command::setup::this_program()?;
    run::run(&program, &traced, setting, cases, |_| progress.add(1))
}

pub fn run(args: &ConflictsArgs) -> Result<()> {
    if let Some(image) = &args.traced {
        let [cpus] = args.cpus[..] else {
            bail!("a traced process is on one machine");
        };
        return traced::main(image, setting(cpus, args.turned));
    }
    ensure!(
        lackey::tool_is_there(),
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
    let results = trace_all(&settings(args), &cases)?;
    interrupt::check()?;
    if let Some(path) = &args.report {
        let text = report::markdown(&results, &crate::command::setup::machine());
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
