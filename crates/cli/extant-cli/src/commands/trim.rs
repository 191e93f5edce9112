//! `extant trim`.

use anyhow::{Context, Result};
use extant_cli_core::address::{Rooted, schemes};
use extant_cli_core::format::show::{HostPath, ShowPath, count};
use extant_cli_core::image::in_place;
use extant_terminal::numbers::human;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use extant_tune::{FreeSpace, Freed};
use serde::Serialize;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Return free blocks to the file system or device below
///
/// The free blocks of an image file become holes, those of a device are discarded. With --zero, free blocks that hold
/// other data are overwritten with zeros, as zerofree does, so that the image compresses well.
///
/// The image is checked first, so that no block of a file is freed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  extant trim disk.img\n  extant trim --zero -n disk.img")]
pub struct Args {
    /// Image to trim
    image: Rooted,
    /// Write zeros to free blocks that hold other data
    #[arg(short = 'z', long)]
    zero: bool,
    /// Print the planned changes without writing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Trimmed {
    image: HostPath,
    written: bool,
    free_bytes: u64,
    runs: u64,
    bytes: u64,
    /// Bytes that the file no longer uses on the host.
    returned: u64,
}

/// Returns the bytes that the file uses on the host.
fn taken(image: &Path) -> Result<u64> {
    if schemes::is_remote(image) {
        return Ok(0);
    }
    Ok(std::fs::metadata(image)?.blocks().saturating_mul(512))
}

pub fn run(args: &Args) -> Result<()> {
    let image = &args.image.0.image;
    let name = image.shown();
    let (device, _) = in_place::ready(image, args.dry_run)?;
    let before = taken(image)?;
    let progress = Progress::wait(&format!("{name}: looking for free blocks"));
    let done = (|| {
        let free = FreeSpace::of(&device)?;
        let freed = match (args.zero, args.dry_run) {
            (true, dry_run) => free.zero(&device, !dry_run)?,
            (false, false) => free.trim(&device)?,
            (false, true) => Freed {
                runs: free.runs() as u64,
                bytes: free.bytes(),
            },
        };
        Ok::<_, extant_tune::Error>((free, freed))
    })();
    progress.done();
    let (free, freed) = done.with_context(|| name.clone())?;
    let returned = before.saturating_sub(taken(image)?);
    if args.json {
        return output::json(&Trimmed {
            image: HostPath::from(args.image.0.image.as_path()),
            written: !args.dry_run,
            free_bytes: free.bytes(),
            runs: freed.runs,
            bytes: freed.bytes,
            returned,
        });
    }
    let (bytes, runs) = (human(freed.bytes), count(freed.runs, "run", "runs"));
    let would = if args.dry_run { "would be " } else { "" };
    let what = if args.zero { "made zeros" } else { "trimmed" };
    let mut out = output::stdout();
    write!(out, "{name}: {bytes} in {runs} {would}{what}")?;
    match returned {
        0 => writeln!(out)?,
        n => writeln!(out, "; the file takes {} less", human(n))?,
    }
    Ok(out.flush()?)
}
