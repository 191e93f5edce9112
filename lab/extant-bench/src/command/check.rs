//! `extant-bench check`.

use crate::child;
use crate::command::setup::scratch_in;
use crate::host_memory;
use crate::metadata;
use crate::stats::{Elapsed, median};
use crate::tree::Shape;
use anyhow::{Result, ensure};
use blockdev::FileDevice;
use extant::mkfs::MkfsOptions;
use extant::{Fallocate, Volume};
use extant_terminal::interrupt;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use serde::Serialize;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Measure the check of an image of empty files, with all CPUs, with one thread, and with e2fsck
///
/// The image is in memory. Programs alternate, round by round; results are medians of all rounds but the first. With
/// --cold the system's cache of the image is dropped before each run, and a last row only reads the image's metadata
/// once, in order.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant-bench check --dirs 1000 --files 1000 --size 16G\n  \
                  extant-bench check --dirs 1 --files 1000000 --cold --dir /var/tmp"
)]
pub struct CheckArgs {
    /// Number of directories
    #[arg(long, default_value_t = 1000)]
    dirs: usize,
    /// Number of files in each directory
    #[arg(long, default_value_t = 1000)]
    files: usize,
    /// Bytes of each file, which are preallocated but not written
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = extant_terminal::numbers::size)]
    file_size: u64,
    /// Size of the image
    #[arg(long, default_value = "16G")]
    size: String,
    /// Directory for the image
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Drop the image from memory before each run
    #[arg(long, requires = "dir")]
    cold: bool,
    /// Number of rounds
    #[arg(long, default_value_t = 5)]
    iterations: usize,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Only make the image of large files, at this path
    #[arg(long, hide = true, value_name = "IMAGE")]
    make: Option<PathBuf>,
    /// Only read these byte ranges of an image, given as JSON
    #[arg(long, hide = true, num_args = 2, value_names = ["RUNS", "IMAGE"])]
    read: Vec<PathBuf>,
}

/// Results of a program with a number of threads.
#[derive(Serialize)]
struct Report {
    target: String,
    tasks: usize,
    seconds: f64,
    cpu_seconds: f64,
    /// Peak memory in bytes.
    peak: u64,
}

/// A method of checking the image, and its rounds.
struct Checker {
    /// The command line, to which the image's name is appended.
    line: Vec<String>,
    rounds: Vec<(Elapsed, u64)>,
}

impl Checker {
    fn of(line: &[&str]) -> Self {
        Self {
            line: line.iter().map(ToString::to_string).collect(),
            rounds: Vec::new(),
        }
    }

    fn round(&mut self, image: &Path) -> Result<()> {
        let mut command = Command::new(&self.line[0]);
        let ran = child::run(command.args(&self.line[1..]).arg(image))?;
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
    if let Some(image) = &args.make {
        return make_large(args, image);
    }
    if let [runs, image] = &args.read[..] {
        let runs: Vec<Range<u64>> = serde_json::from_slice(&std::fs::read(runs)?)?;
        return metadata::read(image, &runs);
    }
    let extant = crate::command::setup::extant()?;
    let extant = extant.to_string_lossy();
    let work = scratch_in(args.dir.as_deref())?;
    let image = work.path().join("image");
    match args.file_size {
        0 => make(args, &extant, work.path(), &image)?,
        _ => have_made(args, &image)?,
    }
    let mut all = vec![
        Checker::of(&[&extant, "check"]),
        Checker::of(&[&extant, "check", "--threads", "1"]),
        Checker::of(&["e2fsck", "-fn"]),
    ];
    if args.cold {
        let runs = work.path().join("runs");
        std::fs::write(&runs, serde_json::to_vec(&metadata::runs(&image)?)?)?;
        // A separate process, like the others.
        let own = std::env::current_exe()?;
        let (own, runs) = (own.to_string_lossy(), runs.to_string_lossy());
        all.push(Checker::of(&[&own, "check", "--read", &runs]));
    }
    let progress = Progress::up_to("runs", (all.len() * (args.iterations + 1)) as u64);
    for _ in 0..=args.iterations {
        for checker in &mut all {
            interrupt::check()?;
            if args.cold {
                metadata::forget(&image)?;
            }
            host_memory::touch()?;
            checker.round(&image)?;
            progress.add(1);
        }
    }
    progress.done();
    let reports = reports(&all);
    if args.json {
        output::json(&reports)
    } else {
        table(&reports)
    }
}

fn reports(all: &[Checker]) -> Vec<Report> {
    let [many, one, e2fsck, floor @ ..] = all else {
        return Vec::new();
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut reports = vec![
        many.report("extant check", cpus),
        e2fsck.report("e2fsck", cpus),
    ];
    // On a machine with one CPU both rows are the same.
    if cpus > 1 {
        reports.push(one.report("extant check", 1));
        reports.push(e2fsck.report("e2fsck", 1));
    }
    for floor in floor {
        let name = "metadata read in order";
        reports.push(floor.report(name, cpus));
        if cpus > 1 {
            reports.push(floor.report(name, 1));
        }
    }
    reports
}

/// Makes the image in another process, because memory once held by this process would count as the programs' memory.
fn have_made(args: &CheckArgs, image: &Path) -> Result<()> {
    let shape = [args.dirs, args.files].map(|n| n.to_string());
    let (size, file_size) = (&args.size, args.file_size.to_string());
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["check", "--dirs", &shape[0], "--files", &shape[1]]);
    command.args(["--size", size, "--file-size", &file_size, "--make"]);
    child::run(command.arg(image))?;
    Ok(())
}

/// Makes files whose blocks are preallocated but never written: a check treats them like other large files.
fn make_large(args: &CheckArgs, image: &Path) -> Result<()> {
    let size = extant_terminal::numbers::size(&args.size)?;
    let device = FileDevice::create(image, size)?;
    let options = MkfsOptions {
        size: Some(size),
        zeroed_device: true,
        ..MkfsOptions::default()
    };
    extant::mkfs::format(&device, &options)?;
    drop(device);
    let volume = Volume::open(image)?;
    for d in 0..args.dirs {
        let dir = volume.create_dir(format!("d{d}"))?;
        for n in 0..args.files {
            let file = dir.create_new_file(format!("file.{n}"))?;
            file.fallocate(Fallocate::Allocate { keep_size: false }, 0, args.file_size)?;
        }
        interrupt::check()?;
    }
    Ok(volume.close()?)
}

/// Makes the image from a temporary tree.
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
        "{:24} {:>7} {:>9} {:>9} {:>9}",
        "program", "threads", "seconds", "CPU", "peak"
    )?;
    for r in reports {
        writeln!(
            out,
            "{:24} {:>7} {:>9.3} {:>9.3} {:>6.0} MB",
            r.target,
            r.tasks,
            r.seconds,
            r.cpu_seconds,
            r.peak as f64 / 1e6
        )?;
    }
    Ok(out.flush()?)
}
