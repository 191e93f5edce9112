//! The demo: makes an image, fills it from many threads, changes it, closes it and checks it.

use crate::beside::{self, Beside, Ours};
use crate::files::{WRITTEN, all, content, name};
use anyhow::{Context, Result, bail, ensure};
use blockdev::FileDevice;
use extant::mkfs::{self, MkfsOptions};
use extant::{RenameMode, Volume, VolumeOptions};
use extant_terminal::numbers::{human, rate};
use extant_terminal::progress::Progress;
use extant_terminal::{interrupt, output};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Fill an image from many threads, check it, and print the rates and the lock meter
#[derive(clap::Parser, Debug)]
#[command(
    name = "extant-demo",
    version,
    max_term_width = 100,
    after_help = "Example:\n  extant-demo --files 50000"
)]
pub struct Args {
    /// Keep the image at this path [default: a temporary image in memory]
    #[arg(long)]
    image: Option<PathBuf>,
    /// Number of threads [0: two per CPU]
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Number of files per thread
    #[arg(long, default_value_t = 20_000)]
    files: usize,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Step {
    what: &'static str,
    operations: u64,
    seconds: f64,
    per_second: f64,
}

#[derive(Serialize)]
struct Demo {
    threads: usize,
    steps: Vec<Step>,
    check: String,
    /// Times of mke2fs and of the kernel's ext4 for the same work.
    beside: Vec<Beside>,
    locks: Option<lockmeter::Snapshot>,
}

/// Number of lock classes shown.
const CLASSES: usize = 8;

/// Explanation of the columns of the lock table.
const COLUMNS: &str = "UTIL is the share of the time in which such a lock is held. CON is the share of takers that had to wait.
HOLD is the time that it is held. WAIT is the time of those that waited, and the share of all CPU time lost by it.
TOTAL is how often it was taken. FAILED is how often it was tried and found taken. OTHER is the share of waits for a
holder that wanted something else.
";

pub fn run(args: &Args) -> Result<()> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if args.threads == 0 {
        cpus * 2
    } else {
        args.threads
    };
    ensure!(args.files > 0, "--files begins at 1");
    let total = threads.checked_mul(args.files).context("too many files")?;
    // Prefer a directory in memory.
    let mut builder = tempfile::Builder::new();
    let dir = builder.prefix("extant.").tempdir_in("/dev/shm");
    let dir = dir
        .or_else(|_| tempfile::tempdir())
        .context("make a temporary directory")?;
    let path = args
        .image
        .clone()
        .unwrap_or_else(|| dir.path().join("demo.img"));
    if args.image.is_some() {
        ensure!(!path.exists(), "{}: exists already", path.display());
    }
    let options = image_for(total)?;
    let mut demo = Demo {
        threads,
        steps: Vec::new(),
        check: String::new(),
        beside: Vec::new(),
        locks: None,
    };
    lockmeter::set_on(true);
    let bar = Progress::wait("demo");
    let mut step = |what: &'static str,
                    operations: usize,
                    work: &mut dyn FnMut() -> Result<()>|
     -> Result<()> {
        interrupt::check()?;
        let start = Instant::now();
        work()?;
        let seconds = start.elapsed().as_secs_f64();
        let per_second = operations as f64 / seconds.max(1e-9);
        demo.steps.push(Step {
            what,
            operations: operations as u64,
            seconds,
            per_second,
        });
        Ok(())
    };
    let mut made = None;
    step("make the image", 1, &mut || {
        made = Some(fresh(&path, &options)?);
        Ok(())
    })?;
    let volume = made.context("the image was made above")?;
    let worked = work(&volume, threads, args.files, &mut step);
    // Leave the image clean even after an error.
    let closed = step("close", 1, &mut || Ok(volume.clone().close()?));
    drop(volume);
    worked.and(closed)?;
    demo.locks = Some(lockmeter::Snapshot::take());
    demo.check = check(&path, threads, args.files)?;
    lockmeter::set_on(false);
    demo.beside = beside(&demo, dir.path(), path.metadata()?.len(), total, args.files)?;
    bar.done();
    if args.json {
        return output::json(&demo);
    }
    table(&demo, args.files, path.metadata()?.len())
}

/// Measures the same work with other programs.
fn beside(demo: &Demo, dir: &Path, size: u64, total: usize, files: usize) -> Result<Vec<Beside>> {
    let seconds = |what: &str| {
        let found = demo.steps.iter().find(|step| step.what == what);
        found.map_or(0.0, |step| step.seconds)
    };
    let ours = Ours {
        make: seconds("make the image"),
        create: seconds("create files") + seconds("make them durable"),
        write: seconds("write 1 KiB to each 8th"),
    };
    beside::measure(dir, (size, inodes(total)?), (demo.threads, files), &ours)
}

/// Returns the inodes of an image with room for `total` files.
fn inodes(total: usize) -> Result<u32> {
    Ok(u32::try_from(total + total / 4 + 1000)?)
}

/// Makes an empty image and opens it.
fn fresh(path: &Path, options: &MkfsOptions) -> Result<Volume> {
    let context = || path.display().to_string();
    let prepared = mkfs::prepare(options).with_context(context)?;
    let device = FileDevice::create(path, prepared.size()).with_context(context)?;
    prepared.write(&device).with_context(context)?;
    drop(device);
    VolumeOptions::new().open(path).with_context(context)
}

/// Returns the options of an image with room for `total` files.
fn image_for(total: usize) -> Result<MkfsOptions> {
    Ok(MkfsOptions {
        // The file is sparse. Every create reserves two blocks for its directory until the next push. The image and
        // its journal have room for all reservations, so that no push runs in between.
        size: Some((total as u64 * 16384 + (512 << 20)).next_multiple_of(1 << 20)),
        journal_size: Some(256 << 20),
        block_size: Some(4096),
        inodes: Some(ext4_format::layout::Inodes::Count(inodes(total)?)),
        label: "demo".into(),
        zeroed_device: true,
        ..MkfsOptions::default()
    })
}

/// Prints the results for people.
fn table(demo: &Demo, files: usize, size: u64) -> Result<()> {
    let mut out = output::stdout();
    let (threads, size) = (demo.threads, human(size));
    writeln!(
        out,
        "{threads} threads, {} files each, in an ext4 image of {size}",
        files
    )?;
    for s in &demo.steps {
        let per_second = if s.operations > 1 {
            format!("{:>10}/s", rate(s.per_second))
        } else {
            String::new()
        };
        writeln!(
            out,
            "  {:24} {:>9} in {:>8.3} s {per_second}",
            s.what, s.operations, s.seconds
        )?;
    }
    writeln!(out, "{}", demo.check)?;
    if !demo.beside.is_empty() {
        writeln!(out, "The same work on this machine:")?;
        for beside in &demo.beside {
            writeln!(out, "{}", beside.line())?;
        }
        if demo.beside.len() == 1 {
            writeln!(out, "  (as root the kernel's ext4 is compared, too)")?;
        }
    }
    if let Some(locks) = &demo.locks {
        write!(
            out,
            "Its locks, the costliest classes first:\n{}{COLUMNS}",
            locks.summary(CLASSES)
        )?;
    }
    Ok(out.flush()?)
}

type RunStep<'a> =
    dyn FnMut(&'static str, usize, &mut dyn FnMut() -> Result<()>) -> Result<()> + 'a;

fn work(volume: &Volume, threads: usize, files: usize, step: &mut RunStep<'_>) -> Result<()> {
    let each = |f: &(dyn Fn(&extant::Dir, usize, usize) -> Result<()> + Sync)| {
        all(threads, |task| {
            let dir = volume.open_dir(format!("/thread{task}"))?;
            (0..files).try_for_each(|n| {
                if n % 1024 == 0 {
                    interrupt::check()?;
                }
                f(&dir, task, n)
            })
        })
    };
    for task in 0..threads {
        volume.create_dir(format!("/thread{task}"))?;
    }
    let total = threads * files;
    let written = threads * files.div_ceil(WRITTEN);
    step("create files", total, &mut || {
        each(&|dir, _, n| {
            dir.create_new_file(name(n))?;
            Ok(())
        })
    })?;
    step("make them durable", 1, &mut || Ok(volume.sync()?))?;
    step("write 1 KiB to each 8th", written, &mut || {
        each(&|dir, task, n| {
            if n % WRITTEN == 0 {
                Ok(dir.write(name(n), content(task, n))?)
            } else {
                Ok(())
            }
        })
    })?;
    step("rename each 8th", threads * count(files, 2), &mut || {
        each(&|dir, _, n| match n % WRITTEN {
            2 => Ok(dir.rename_with(name(n), format!("renamed{n}"), RenameMode::NoReplace)?),
            _ => Ok(()),
        })
    })?;
    step("remove each 8th", threads * count(files, 1), &mut || {
        each(&|dir, _, n| {
            if n % WRITTEN == 1 {
                Ok(dir.remove_file(name(n))?)
            } else {
                Ok(())
            }
        })
    })?;
    step("make it durable", 1, &mut || Ok(volume.sync()?))
}

/// Returns the number of numbers below `files` with this remainder.
fn count(files: usize, rest: usize) -> usize {
    files.saturating_sub(rest).div_ceil(WRITTEN)
}

/// Checks the image with e2fsck; without e2fsck, reads and compares all files.
fn check(path: &Path, threads: usize, files: usize) -> Result<String> {
    match Command::new("e2fsck").args(["-f", "-n"]).arg(path).output() {
        Ok(out) if out.status.success() => return Ok("e2fsck -fn: clean".into()),
        Ok(out) => bail!(
            "e2fsck -fn is not content:\n{}",
            String::from_utf8_lossy(&out.stdout)
        ),
        Err(_) => {}
    }
    let volume = VolumeOptions::new().read_only(true).open(path)?;
    all(threads, |task| {
        let dir = volume.open_dir(format!("/thread{task}"))?;
        let want = files - count(files, 1);
        let found = dir.read_dir(".")?.count();
        ensure!(found == want, "/thread{task}: {found} names, not {want}");
        for n in (0..files).step_by(WRITTEN) {
            interrupt::check()?;
            ensure!(
                dir.read(name(n))? == content(task, n),
                "/thread{task}/{}: wrong content",
                name(n)
            );
        }
        Ok(())
    })?;
    Ok("read again: every name and every byte is right (e2fsck is not installed, so it was not asked)".into())
}
