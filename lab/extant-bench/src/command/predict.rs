//! `extant-bench predict`.

use crate::before::PAIRS;
use crate::command::setup::{fresh, scratch};
use crate::predict::measure::{self, Size, Workload};
use crate::predict::model::{Costs, SharedLine};
use crate::predict::report::{self, Prediction};
use anyhow::{Context, Result, ensure};
use extant::mkfs::MkfsOptions;
use extant::{Volume, VolumeOptions};
use extant_terminal::interrupt;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Predict the effect of more cores
///
/// Measures on one core the costs of operations and the times that they hold locks. A queueing model then computes the
/// rates on 1 to 256 cores, which are shown with the measured rate of two cores. Each workload is also run with one
/// lock for the whole volume; and the pairs of `extant-bench before` are run, after and before.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  extant-bench conflicts --json > conflicts.json\n  \
    extant-bench predict --conflicts conflicts.json --report docs/bench/prediction.md"
)]
pub struct PredictArgs {
    /// Operations per task and round
    #[arg(long, default_value_t = 100_000)]
    ops: usize,
    /// Number of rounds, of which the median is used
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Nanoseconds to fetch a cache line that another core wrote
    #[arg(long, default_value_t = 100.0)]
    line_ns: f64,
    /// Output of `extant-bench conflicts --json`; without it, no line counts as shared
    #[arg(long, value_name = "FILE")]
    conflicts: Option<PathBuf>,
    /// Write the report to this file, with plots next to it
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Facts<'a> {
    costs: Costs,
    size: Size,
    workloads: &'a [Prediction],
}

/// Returns the size of the volumes in bytes, by the operations of a round.
fn bytes(ops: usize) -> u64 {
    (ops as u64)
        .saturating_mul(64 << 10)
        .clamp(512 << 20, 8 << 30)
}

pub fn run(args: &PredictArgs) -> Result<()> {
    ensure!(args.ops > 0 && args.rounds > 0, "ops and rounds begin at 1");
    ensure!(
        args.line_ns.is_finite() && args.line_ns >= 0.0,
        "line-ns is a time"
    );
    let shared = match &args.conflicts {
        Some(path) => shared_lines(path)?,
        None => BTreeMap::new(),
    };
    let size = Size {
        ops: args.ops,
        rounds: args.rounds,
    };
    let costs = Costs {
        line_ns: args.line_ns,
        groups: (bytes(args.ops) >> 27) as f64,
    };
    let scratch = scratch()?;
    let image = scratch.path().join("image");
    let roomy = || roomy(&image, bytes(args.ops));
    let count = 2 * (Workload::ALL.len() + PAIRS.len());
    let progress = Progress::up_to("measurements", count as u64);
    let mut all = Vec::new();
    for workload in Workload::ALL {
        let measure = |before| -> Result<_> {
            let measured = measure::measure(workload, before, size, &roomy)?;
            progress.add(1);
            interrupt::check()?;
            Ok(measured)
        };
        let (now, before) = (measure(false)?, measure(true)?);
        let lines = shared.get(workload.case()).cloned().unwrap_or_default();
        all.push(Prediction::new(now, before, lines, costs));
    }
    for pair in &PAIRS {
        let measured = measure::measure_pair(pair, size, interrupt::check)?;
        progress.add(2);
        all.push(Prediction::of_pair(pair, measured, costs));
    }
    progress.done();
    if let Some(path) = &args.report {
        let text = report::markdown(&all, costs, &crate::command::setup::machine());
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
        for p in &all {
            let plot = path.with_file_name(format!("prediction-{}.svg", p.now.name));
            report::plot(p, &plot)?;
        }
    }
    if args.json {
        return output::json(&Facts {
            costs,
            size,
            workloads: &all,
        });
    }
    let mut out = output::stdout();
    write!(
        out,
        "{}",
        report::markdown(&all, costs, &crate::command::setup::machine())
    )?;
    Ok(out.flush()?)
}

/// Returns a new volume whose log holds a whole round, so that no push interrupts the operations.
fn roomy(path: &Path, bytes: u64) -> Result<Volume> {
    let options = MkfsOptions {
        size: Some(bytes),
        journal_size: Some(bytes / 4),
        ..MkfsOptions::default()
    };
    fresh(path, &options, &VolumeOptions::new().background(false))
}

/// Returns the lines outside of the allocator that operations share, by case.
fn shared_lines(path: &Path) -> Result<BTreeMap<String, Vec<SharedLine>>> {
    let context = || path.display().to_string();
    let text = std::fs::read(path).with_context(context)?;
    let facts: serde_json::Value = serde_json::from_slice(&text).with_context(context)?;
    let cases = facts["cases"]
        .as_array()
        .with_context(|| format!("{}: not what bench conflicts prints", path.display()))?;
    let rounds = crate::conflicts::ROUNDS as f64;
    let mut all = BTreeMap::new();
    for case in cases {
        // Each line is one station, even if several places in the code touch it.
        let mut lines: BTreeMap<u64, SharedLine> = BTreeMap::new();
        for f in case["findings"].as_array().into_iter().flatten() {
            let share = f["rounds"].as_f64().unwrap_or(0.0) / rounds;
            if share == 0.0 || f["allocator"] == true {
                continue;
            }
            let place = f["a"].as_str().unwrap_or_default().to_string();
            let line = lines
                .entry(f["line"].as_u64().unwrap_or_default())
                .or_insert(SharedLine { place, share });
            line.share = line.share.max(share);
        }
        let name = case["name"].as_str().unwrap_or_default().to_string();
        all.insert(name, lines.into_values().collect());
    }
    Ok(all)
}
