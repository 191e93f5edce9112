//! `e4defrag`: defragments files on mounts of images with the mounts' servers, and files on mounts of Linux' ext4 with
//! the kernel. The output has the lines that scripts read.

use super::call::{Answer, Answered, Called};
use super::getopt::Options;
use crate::refusal::refuse;
use extant_cli_core::mounts::host_files::HostPath;
use extant_cli_core::mounts::online_files::{Met, MountedPath};
use extant_fuse::control::Fragments;
use extant_terminal::output::{complain, one_line};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::Metadata;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Number of files listed for a directory.
const LISTED: usize = 5;
/// Lowest score at which files should be defragmented.
const NEEDS: u64 = 56;

/// Mover of blocks.
enum Mover {
    Server(MountedPath),
    Kernel(HostPath),
}

impl Mover {
    fn path(&self) -> &Path {
        match self {
            Self::Server(place) => &place.path,
            Self::Kernel(place) => &place.path,
        }
    }

    fn all(&self) -> anyhow::Result<Vec<Met>> {
        match self {
            Self::Server(place) => place.all(),
            Self::Kernel(place) => place.all(),
        }
    }

    fn fragments(&mut self, file: &Met) -> anyhow::Result<Fragments> {
        match self {
            Self::Server(place) => place.fragments(file),
            Self::Kernel(place) => place.fragments(file),
        }
    }

    fn defragment(&mut self, file: &Met, found: &Fragments) -> anyhow::Result<()> {
        match self {
            Self::Server(place) => place.defragment(file, found).map(drop),
            Self::Kernel(place) => place.defragment(file, found),
        }
    }
}

/// A regular file, its extents and the size of its blocks in KiB.
struct FileCounts {
    name: String,
    found: Fragments,
    kib: u64,
}

/// Sums over the files of an operand.
#[derive(Default)]
struct Sums {
    now: u64,
    best: u64,
    blocks: u64,
    kib: u64,
}

impl Sums {
    fn add(&mut self, seen: &FileCounts) {
        self.now += seen.found.extents;
        self.best += seen.found.least;
        self.blocks += seen.found.blocks;
        self.kib += seen.kib;
    }

    /// Returns a score from 0 to 100. A share of a tenth of blocks that start avoidable extents is worth 80, the rest
    /// 20.
    fn score(&self) -> u64 {
        let ratio = match self.blocks {
            0 => 0.0,
            blocks => self.now.saturating_sub(self.best) as f64 * 100.0 / blocks as f64,
        };
        let score = if ratio > 10.0 {
            80.0 + 20.0 * ratio / 100.0
        } else {
            8.0 * ratio
        };
        score.round() as u64
    }
}

pub(super) const OPTIONS: Options = Options::of("cv");

pub(super) fn answer(called: &Called) -> Answered {
    let usage = "e4defrag [-v] file...| directory...; e4defrag -c file...| directory...";
    let taken = &called.taken;
    if taken.operands.is_empty() {
        return Err(refuse(format!("usage: {usage}")));
    }
    let (counts, verbose) = (taken.has('c'), taken.has('v'));
    let mut code = 0;
    for operand in &taken.operands {
        let done = match place(operand) {
            Ok(place) if counts => count(operand, place, verbose),
            Ok(place) => defragment(operand, place, verbose),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            complain(one_line(&error));
            code = 1;
        }
    }
    Ok(Answer::Done(code))
}

fn place(operand: &OsString) -> anyhow::Result<Mover> {
    let path = Path::new(operand);
    let is_device = |meta: &Metadata| meta.file_type().is_block_device();
    if let Ok(meta) = path.symlink_metadata()
        && !(meta.is_file() || meta.is_dir() || path.metadata().is_ok_and(|meta| is_device(&meta)))
    {
        anyhow::bail!("{}: File is not regular file", path.display());
    }
    if let Some(found) = MountedPath::find(path)? {
        return Ok(Mover::Server(found));
    }
    if let Some(found) = HostPath::find(path)? {
        return Ok(Mover::Kernel(found));
    }
    let name = path.display();
    anyhow::bail!(
        "{name}: neither on a mount of extant nor on ext4 (an image that is not mounted: extant defrag)"
    )
}

/// Returns why a file is skipped, if it is.
fn unfit(file: &Met) -> Option<&'static str> {
    match () {
        () if !file.meta.is_file() => Some("File is not regular file"),
        () if file.meta.len() == 0 => Some("File size is 0"),
        () => None,
    }
}

fn seen(place: &mut Mover, file: &Met, name: String) -> anyhow::Result<FileCounts> {
    let found = place.fragments(file)?;
    Ok(FileCounts {
        name,
        kib: found.blocks.saturating_mul(file.meta.blksize()) / 1024,
        found,
    })
}

/// Formats a line of the list: current and best number of extents, and KiB per extent.
fn line(seen: &FileCounts, prefix: &str) -> String {
    let (name, now, best) = (&seen.name, seen.found.extents, seen.found.least);
    let each = seen.kib / now.max(1);
    let name = format!("{prefix}{name}");
    format!("{name:<40}{now:>10}/{best:<10}{each:>6} KB\n")
}

fn count(operand: &OsString, mut place: Mover, verbose: bool) -> anyhow::Result<()> {
    let all = place.all()?;
    let is_file = place.path().is_file();
    let mut text = String::new();
    let (mut files, mut sums) = (Vec::new(), Sums::default());
    if is_file || verbose {
        let _ = writeln!(text, "{:<47}now/best       size/ext", "<File>");
    }
    for (n, file) in all.iter().enumerate() {
        let at = format!("[{}/{}]", n + 1, all.len());
        if let Some(why) = unfit(file) {
            if is_file || verbose {
                complain(format!("{}: {why}", file.path.display()));
            }
            continue;
        }
        let name = if is_file {
            operand.display().to_string()
        } else {
            file.path.display().to_string()
        };
        let seen = seen(&mut place, file, name)?;
        sums.add(&seen);
        if is_file || verbose {
            text += &line(&seen, if is_file { "" } else { &at });
        }
        files.push(seen);
    }
    if !is_file {
        let heading = format!("{:<47}now/best       size/ext", "<Fragmented files>");
        let _ = writeln!(text, "{}{heading}", if verbose { "\n" } else { "" });
        files.sort_by_key(|seen| (seen.kib / seen.found.extents.max(1), seen.name.clone()));
        for (n, seen) in files.iter().take(LISTED).enumerate() {
            text += &line(seen, &format!("{}. ", n + 1));
        }
    }
    let kind = if is_file { "file" } else { "directory" };
    let needs = if sums.score() >= NEEDS {
        "needs"
    } else {
        "does not need"
    };
    let _ = write!(
        text,
        "\n Total/best extents\t\t\t\t{}/{}\n Average size per extent\t\t\t{} KB\n Fragmentation score\t\t\t\t{}\n \
         [0-30 no problem: 31-55 a little bit fragmented: 56- needs defrag]\n \
         This {kind} ({}) {needs} defragmentation.\n Done.\n",
        sums.now,
        sums.best,
        sums.kib / sums.now.max(1),
        sums.score(),
        operand.display(),
    );
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn defragment(operand: &OsString, mut place: Mover, verbose: bool) -> anyhow::Result<()> {
    let all = place.all()?;
    let is_file = place.path().is_file();
    let mut out = std::io::stdout();
    if is_file {
        writeln!(out, "ext4 defragmentation for {}", operand.display())?
    } else {
        writeln!(
            out,
            "ext4 defragmentation for directory({})",
            operand.display()
        )?
    }
    let (mut before, mut after, mut good) = (Sums::default(), Sums::default(), 0);
    for (n, file) in all.iter().enumerate() {
        let at = format!("[{}/{}]", n + 1, all.len());
        let name = if is_file {
            operand.display().to_string()
        } else {
            file.path.display().to_string()
        };
        if let Some(why) = unfit(file) {
            if is_file || verbose {
                complain(format!("{name}: {why}\t\t[ NG ]"));
            }
            continue;
        }
        let moved = (|| {
            let old = seen(&mut place, file, name.clone())?;
            place.defragment(file, &old.found)?;
            Ok::<_, anyhow::Error>((old, seen(&mut place, file, name.clone())?))
        })();
        match moved {
            Ok((old, new)) => {
                before.add(&old);
                after.add(&new);
                good += 1;
                let extents = if verbose {
                    format!("  extents: {} -> {}", old.found.extents, new.found.extents)
                } else {
                    String::new()
                };
                writeln!(out, "{at}{name}:\t100%{extents}\t[ OK ]")?;
            }
            Err(error) => complain(format!("{}\t\t[ NG ]", one_line(&error))),
        }
    }
    let total = all.len();
    if is_file {
        writeln!(out, " Success:\t\t\t[{good}/{total}]")?;
        anyhow::ensure!(good == total, "{}: not defragmented", operand.display());
        return Ok(());
    }
    let failures = total - good;
    writeln!(
        out,
        "\n\tSuccess:\t\t\t[ {good}/{total} ]\n\tFailure:\t\t\t[ {failures}/{total} ]"
    )?;
    if verbose {
        let percent = |sums: &Sums| sums.now.saturating_sub(sums.best) * 100 / sums.blocks.max(1);
        let (now, then) = (before.now, after.now);
        writeln!(out, "\tTotal extents:\t\t\t{now:>4}->{then}")?;
        let (old, new) = (percent(&before), percent(&after));
        writeln!(out, "\tFragmented percentage:\t\t{old:>3}%->{new}%")?;
    }
    Ok(())
}
