//! `extant defrag`.

use super::defrag_online;
use super::tune::Writing;
use anyhow::{Context, Result, anyhow, bail};
use blockdev::BlockDevice;
use ext4_format::InodeNr;
use extant_check::inspect::{Inspector, Request, Value};
use extant_cli_core::address::Rooted;
use extant_cli_core::format::clock;
use extant_cli_core::format::show::{HostPath, ShowPath, count, show};
use extant_cli_core::image::in_place;
use extant_cli_core::mounts::online_files::MountedPath;
use extant_terminal::progress::Progress;
use extant_terminal::{interrupt, output};
use extant_tune::{Fragments, TuneOptions};
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Number of files listed, those with the most extents first.
const LISTED: usize = 10;
/// Width of a bar.
const BAR: usize = 30;

/// Defragment files, or compact directories
///
/// Each file is copied into a run of free blocks. Then the mappings of many files change at once, protected by an undo
/// file next to the image (IMAGE.extant-undo). A crash at any moment leaves all of these files as before, or all as
/// intended. Files and free space are counted before and after.
///
/// Files for which no free run is long enough stay fragmented.
///
/// For a directory or file on a mount of an image, the mount's server moves the files while programs use them. Each
/// part is copied to a free run, and its mapping changes unless the part was written meanwhile. A crash leaves each
/// part at its old or its new place.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant defrag -n disk.img\n  extant defrag disk.img\n  extant defrag --dirs disk.img\n  extant defrag disk.img /var/log/messages\n  \
                  extant defrag /mnt/var"
)]
pub struct Args {
    /// Image, or directory or file on the mount of one
    image: Rooted,
    /// Defragment only these files; paths in the image
    #[arg(value_name = "PATH", conflicts_with = "dirs")]
    paths: Vec<OsString>,
    /// Process directories instead of files: sort names by hash and remove gaps, as e2fsck -D does
    #[arg(short = 'D', long)]
    dirs: bool,
    /// Count the extents without writing
    #[arg(short = 'n', long, visible_alias = "check", visible_short_alias = 'c')]
    dry_run: bool,
    /// With --dirs: save the old bytes in a new file, for extant undo
    #[arg(long, value_name = "FILE", requires = "dirs")]
    undo: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Counted {
    files: u64,
    blocks: u64,
    pieces: u64,
    fragmented: u64,
    free_blocks: u64,
    free_runs: u64,
    longest_free: u64,
}

impl From<&Fragments> for Counted {
    fn from(found: &Fragments) -> Self {
        Self {
            files: found.files,
            blocks: found.blocks,
            pieces: found.pieces,
            fragmented: found.fragmented.len() as u64,
            free_blocks: found.free.iter().sum(),
            free_runs: found.free.len() as u64,
            longest_free: found.free.iter().copied().max().unwrap_or(0),
        }
    }
}

#[derive(Serialize)]
struct Defragmented {
    image: HostPath,
    before: Counted,
    after: Option<Counted>,
    moved: u64,
}

/// Rebuilds the directories of an image.
pub(super) fn directories(
    image: &Rooted,
    undo: Option<&PathBuf>,
    dry_run: bool,
    json: bool,
) -> Result<()> {
    let write = Writing {
        image,
        undo,
        dry_run,
        json,
    };
    write.run(&TuneOptions {
        compact_directories: true,
        now: clock::stamp()?,
        ..TuneOptions::default()
    })
}

pub fn run(args: &Args) -> Result<()> {
    if args.dirs {
        return directories(&args.image, args.undo.as_ref(), args.dry_run, args.json);
    }
    let image = &args.image.0.image;
    let is_file_of_mount = args.paths.is_empty() && args.image.0.path == b"/";
    if is_file_of_mount && let Some(place) = MountedPath::find(image)? {
        return defrag_online::run(place, args.dry_run, args.json);
    }
    let name = image.shown();
    let (device, beside) = in_place::ready(image, args.dry_run)?;
    let before = extant_tune::fragments(&device).with_context(|| name.clone())?;
    if args.dry_run {
        return tell(args, name, &before, None, 0);
    }
    let only = if args.paths.is_empty() {
        None
    } else {
        Some(numbers(&device, &args.paths)?)
    };
    let progress = Progress::wait(&format!("{name}: moving files"));
    let moved =
        extant_tune::defragment(&device, only.as_deref(), clock::stamp()?, &mut |changes| {
            if interrupt::check().is_err() {
                return Err(extant_tune::Error::Refused("interrupted".into()));
            }
            let written = changes.write(&device, None, beside.as_deref());
            written.map_err(|e| extant_tune::Error::Refused(e.to_string()))
        });
    progress.done();
    // Each file that was moved is complete.
    interrupt::check()?;
    let moved = moved.with_context(|| name.clone())?;
    let after = extant_tune::fragments(&device).with_context(|| name.clone())?;
    tell(args, name, &before, Some(&after), moved)
}

/// Returns the inode numbers of paths.
fn numbers(device: &dyn BlockDevice, paths: &[OsString]) -> Result<Vec<InodeNr>> {
    let inspector = Inspector::open(device, false)?;
    let mut found = Vec::new();
    for path in paths {
        let request = Request::new(vec![b"imap".to_vec(), path.as_bytes().to_vec()])?;
        let mut number = None;
        inspector
            .answer(&request, &mut |record| {
                let value = record.fields.iter().find(|field| field.0 == "inode");
                if let Some((_, Value::Number(inode))) = value {
                    number = number.or(u32::try_from(*inode).ok());
                }
                Ok(())
            })
            .map_err(|e| anyhow!("{}", show(e.to_string().as_bytes())))?;
        match number {
            Some(number) => found.push(InodeNr(number)),
            None => bail!("{}: no inode", show(path.as_bytes())),
        }
    }
    Ok(found)
}

fn tell(
    args: &Args,
    image: String,
    before: &Fragments,
    after: Option<&Fragments>,
    moved: u64,
) -> Result<()> {
    if args.json {
        return output::json(&Defragmented {
            image: HostPath::from(args.image.0.image.as_path()),
            before: before.into(),
            after: after.map(Counted::from),
            moved,
        });
    }
    let mut out = output::stdout();
    if let Some(after) = after {
        writeln!(out, "{image}: {} moved", count(moved, "file", "files"))?;
        writeln!(out, "before: {}\nafter:  {}", line(before), line(after))?;
        return Ok(picture(&mut out, before, Some(after)).and_then(|()| out.flush())?);
    }
    writeln!(out, "{image}: {}", line(before))?;
    for file in before.fragmented.iter().take(LISTED) {
        let (blocks, pieces) = (
            count(file.blocks, "block", "blocks"),
            count(file.pieces, "piece", "pieces"),
        );
        writeln!(out, "  inode {}: {blocks} in {pieces}", file.ino)?;
    }
    Ok(picture(&mut out, before, None).and_then(|()| out.flush())?)
}

fn line(found: &Fragments) -> String {
    let counted = Counted::from(found);
    format!(
        "{} in {}, {} of them fragmented; {} free in {}, the longest of {}",
        count(counted.files, "file", "files"),
        count(counted.pieces, "piece", "pieces"),
        counted.fragmented,
        count(counted.free_blocks, "block", "blocks"),
        count(counted.free_runs, "run", "runs"),
        counted.longest_free,
    )
}

/// Prints the free blocks by the length of their runs.
fn picture(
    out: &mut impl Write,
    before: &Fragments,
    after: Option<&Fragments>,
) -> std::io::Result<()> {
    let sums = |found: &Fragments| {
        let mut sums = [0u64; 64];
        for &run in &found.free {
            if let Some(sum) = sums.get_mut(run.max(1).ilog2() as usize) {
                *sum += run;
            }
        }
        sums
    };
    let (before, after) = (sums(before), after.map(sums));
    let most = before
        .iter()
        .chain(after.iter().flatten())
        .copied()
        .max()
        .unwrap_or(0)
        .max(1);
    let bar = |n: u64| {
        let width = (n as u128 * BAR as u128).div_ceil(most.into()) as usize;
        "#".repeat(width)
    };
    let (first, second) = match after {
        Some(_) => ("before", "after"),
        None => ("blocks", ""),
    };
    let heading = format!("{:<18} {first:<BAR$} {second}", "free runs of");
    writeln!(out, "{}", heading.trim_end())?;
    for (log, &n) in before.iter().enumerate() {
        let then = after.and_then(|sums| sums.get(log).copied()).unwrap_or(0);
        if n == 0 && then == 0 {
            continue;
        }
        let from = 1u64 << log;
        let range = format!("{from} to {}", from.saturating_mul(2) - 1);
        let line = format!("{range:<18} {:<BAR$} {}", bar(n), bar(then));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
