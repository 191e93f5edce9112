//! `extant-bench check`.

use crate::interrupt;
use crate::output;
use crate::progress::Progress;
use crate::scratch;
use anyhow::{Result, ensure};
use extant_bench::child;
use extant_bench::stats::{Elapsed, median};
use extant_bench::tree::Shape;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Check an image of empty files, with as many threads as CPUs and with one, and with e2fsck
///
/// The image lies in memory. Programs take turns, round by round; medians of all rounds but a first one are shown.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant-bench check --dirs 1000 --files 1000 --size 16G")]
pub struct CheckArgs {
    /// Directories
    #[arg(long, default_value_t = 1000)]
    dirs: usize,
    /// Files in each of them
    #[arg(long, default_value_t = 1000)]
    files: usize,
    /// The image's size
    #[arg(long, default_value = "16G")]
    size: String,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    iterations: usize,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// One program, beside the others of so many threads.
#[derive(Serialize)]
struct Report {
    target: String,
    tasks: usize,
    seconds: f64,
    cpu_seconds: f64,
    /// The most memory held, in bytes.
    peak: u64,
}

/// A command line that checks the image, and its rounds.
struct Checker {
    line: Vec<String>,
    rounds: Vec<(Elapsed, u64)>,
}

impl Checker {
    fn of(line: &[&str]) -> Self {
        let line = line.iter().map(ToString::to_string).collect();
        let rounds = Vec::new();
        Self { line, rounds }
    }

    fn round(&mut self, image: &Path) -> Result<()> {
        let ran = child::run(Command::new(&self.line[0]).args(&self.line[1..]).arg(image))?;
        self.rounds.push((ran.elapsed, ran.peak));
        Ok(())
    }

    fn report(&self, target: &str, tasks: usize) -> Report {
        // The first round warms up.
        let rounds = &self.rounds[1..];
        let of = |f: fn(&Elapsed) -> f64| {
            median(&mut rounds.iter().map(|(e, _)| f(e)).collect::<Vec<_>>())
        };
        Report {
            target: target.into(),
            tasks,
            seconds: of(|e| e.wall),
            cpu_seconds: of(|e| e.cpu),
            peak: rounds.iter().map(|(_, peak)| *peak).max().unwrap_or(0),
        }
    }
}

pub fn run(args: &CheckArgs) -> Result<()> {
    ensure!(args.iterations > 0, "rounds begin at 1");
    ensure!(
        args.files > 0 && args.dirs > 0,
        "files and directories begin at 1"
    );
    let extant = crate::extant()?;
    let extant = extant.to_string_lossy();
    let work = scratch()?;
    let image = work.path().join("image");
    make(args, &extant, work.path(), &image)?;
    let mut all = [
        Checker::of(&[&extant, "check"]),
        Checker::of(&[&extant, "check", "--threads", "1"]),
        Checker::of(&["e2fsck", "-fn"]),
    ];
    let progress = Progress::up_to("runs", (all.len() * (args.iterations + 1)) as u64);
    for _ in 0..=args.iterations {
        for checker in &mut all {
            interrupt::check()?;
            checker.round(&image)?;
            progress.add(1);
        }
    }
    progress.done();
    let [many, one, e2fsck] = all;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut reports = vec![
        many.report("extant check", cpus),
        e2fsck.report("e2fsck", cpus),
    ];
    // With one processor both are the same.
    if cpus > 1 {
        reports.push(one.report("extant check", 1));
        reports.push(e2fsck.report("e2fsck", 1));
    }
    if args.json {
        output::json(&reports)
    } else {
        table(&reports)
    }
}

/// The image, of a tree that is gone afterwards.
fn make(args: &CheckArgs, extant: &str, work: &Path, image: &Path) -> Result<()> {
    let tree = work.join("tree");
    std::fs::create_dir(&tree)?;
    let shape = Shape {
        dirs: args.dirs,
        files: args.files,
        size: 0,
    };
    shape.make(&tree, interrupt::check)?;
    let mut mkfs = Command::new(extant);
    mkfs.arg("mkfs").arg(image).arg("--from").arg(&tree);
    child::run(mkfs.args(["--size", &args.size]))?;
    Ok(std::fs::remove_dir_all(&tree)?)
}

fn table(reports: &[Report]) -> Result<()> {
    let mut out = output::stdout();
    writeln!(
        out,
        "{:16} {:>7} {:>9} {:>9} {:>9}",
        "program", "threads", "seconds", "CPU", "peak"
    )?;
    for r in reports {
        writeln!(
            out,
            "{:16} {:>7} {:>9.3} {:>9.3} {:>6.0} MB",
            r.target,
            r.tasks,
            r.seconds,
            r.cpu_seconds,
            r.peak as f64 / 1e6
        )?;
    }
    Ok(out.flush()?)
}
