//! `extant repair` and `extant undo`.

use super::defrag;
use crate::address::Rooted;
use crate::clock;
use crate::images;
use crate::output;
use crate::progress::Progress;
use crate::show::{count, show};
use crate::steps::ShownSteps;
use crate::store;
use anyhow::{Context, Result, bail};
use blockdev::{Access, BlockDevice};
use extant_repair::{Mend, Plan, Undo, file_beside};
use serde::Serialize;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Something was mended.
const MENDED: u8 = 1;
/// Faults are left.
const LEFT: u8 = 4;
/// The image could not be repaired.
const FAILED: u8 = 8;

/// Mend a damaged image
///
/// The repair is a plan first: the image is mended in memory, and checked there until it is clean or nothing more can be mended. Each
/// mend is listed, with what is lost by it. Only then is it written, after an undo file beside the image (IMAGE.extant-undo), which is
/// removed at the end. If the repair is interrupted, the next one takes back what was written, and begins anew; so does extant undo.
///
/// Without -n, -p or -y each mend is a question on the terminal; where there is none, the answer is no.
///
/// The exit code is that of fsck: 0 for a clean image, 1 if all was mended, 4 if faults are left (5 if others were mended), 8 if the
/// image could not be repaired, 16 for wrong usage.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant repair -n disk.img\n  extant repair -y --undo disk.undo disk.img\n  \
                  extant undo disk.undo disk.img"
)]
pub struct Args {
    /// The image
    image: Rooted,
    /// Only list the mends; nothing is written
    #[arg(short = 'n', long, conflicts_with_all = ["safe", "yes", "undo"])]
    dry_run: bool,
    /// Make the mends by which nothing is lost
    #[arg(short = 'p', long, conflicts_with = "yes")]
    safe: bool,
    /// Make all mends
    #[arg(short = 'y', long)]
    yes: bool,
    /// Keep what was there before in a new file, for extant undo; a block device needs one, on another file system
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
    /// Then make directories anew, as extant defrag --dirs does; not if faults are left
    #[arg(short = 'D', long, conflicts_with_all = ["dry_run", "undo", "json"])]
    dirs: bool,
    /// Write how far the check is that comes first to this descriptor, a line "pass done total image" each time, as e2fsck -C does; the
    /// last line comes when all is written
    #[arg(long, value_name = "FD")]
    progress_fd: Option<u32>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Make an image what it was before a change
///
/// The undo file is that of --undo of extant repair, tune and defrag, or the one that an interrupted change left beside the image. An image that was
/// changed since is left alone. The undo file stays.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant undo disk.undo disk.img")]
pub struct UndoArgs {
    /// The undo file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The image
    image: Rooted,
}

#[derive(Serialize)]
struct Repaired {
    image: String,
    clean: bool,
    written: bool,
    mends: Vec<Mended>,
    declined: Vec<Mended>,
    left: Vec<String>,
}

#[derive(Serialize)]
struct Mended {
    place: String,
    text: String,
    lost: Option<String>,
    safe: bool,
}

impl From<&Mend> for Mended {
    fn from(mend: &Mend) -> Self {
        Self {
            place: mend.place.clone(),
            text: mend.text.clone(),
            lost: mend.loses.clone(),
            safe: mend.is_safe(),
        }
    }
}

impl Args {
    /// Whether each mend is a question.
    const fn asks(&self) -> bool {
        !(self.dry_run || self.safe || self.yes)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let repaired = repair(args, &args.image.0.image).and_then(|code| {
        if args.dirs && code & LEFT == 0 {
            defrag::directories(&args.image, None, false, false)?;
        }
        Ok(code)
    });
    match repaired {
        Ok(0) => Ok(()),
        Ok(code) => Err(output::exit_with(code)),
        Err(error) => Err(output::report_as(error, FAILED)),
    }
}

fn open(image: &Path, access: Access) -> Result<Arc<dyn BlockDevice>> {
    images::identity(image)?;
    store::open(image, access)
}

/// The undo file beside the image; none for a device, beside which nothing outlives the system.
fn beside(image: &Path, undo: Option<&Path>, dry_run: bool) -> Result<Option<PathBuf>> {
    let file = store::file(image);
    let kind = std::fs::metadata(file)?.file_type();
    if !kind.is_block_device() {
        // A link leads to the file that is written.
        let mut name = file.canonicalize()?.into_os_string();
        if store::split(image).is_some() {
            // A partition has several names and one place.
            name.push(format!("@{}", store::range(image)?.start));
        }
        return Ok(Some(file_beside(name.as_ref())));
    }
    if undo.is_none() && !dry_run {
        bail!("a block device needs --undo FILE, on another file system");
    }
    Ok(None)
}

/// Opens an image to be changed, with the place of the undo file while that is written; a change that was interrupted is taken back
/// first.
pub(super) fn ready(
    image: &Path,
    undo: Option<&Path>,
    dry_run: bool,
) -> Result<(Arc<dyn BlockDevice>, Option<PathBuf>)> {
    let access = match dry_run {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    };
    let device = open(image, access)?;
    let beside = taken_back(image, &device, undo, dry_run)?;
    Ok((device, beside))
}

/// Takes a change back that was interrupted, and returns the place of the undo file while another is written.
pub(super) fn taken_back(
    image: &Path,
    device: &dyn BlockDevice,
    undo: Option<&Path>,
    dry_run: bool,
) -> Result<Option<PathBuf>> {
    let name = image.display();
    let beside = beside(image, undo, dry_run)?;
    if let Some(beside) = beside.as_deref().filter(|path| path.exists()) {
        if dry_run {
            bail!("{name}: an earlier change was interrupted; extant repair takes it back");
        }
        let taken = extant_repair::take_back_interrupted(device, beside);
        if taken.with_context(|| beside.display().to_string())? {
            output::complain(format!("{name}: an interrupted change was taken back"));
        }
    }
    Ok(beside)
}

/// Repairs the image and returns the exit code.
fn repair(args: &Args, image: &Path) -> Result<u8> {
    let name = image.display().to_string();
    let (device, beside) = ready(image, args.undo.as_deref(), args.dry_run)?;
    let steps = ShownSteps::of_repair(&name, args.progress_fd, args.asks())?;
    let (plan, failed) = planned(args, &name, &device, &steps)?;
    if let Some(error) = failed {
        return Err(error);
    }
    let written = !args.dry_run && !plan.is_empty();
    if written {
        let done = plan.write(&device, args.undo.as_deref(), beside.as_deref());
        done.with_context(|| name.clone())?;
    }
    steps.end();
    let left = if args.dry_run {
        !plan.before.is_clean() || !plan.is_empty()
    } else {
        !plan.after.is_clean()
    };
    tell(args, &name, &plan, written)?;
    Ok(u8::from(written) * MENDED + u8::from(left) * LEFT)
}

/// Makes the plan, with a question for each mend if nothing else was said.
fn planned(
    args: &Args,
    name: &str,
    device: &dyn BlockDevice,
    steps: &ShownSteps<'_>,
) -> Result<(Plan, Option<anyhow::Error>)> {
    let now = u32::try_from(clock::stamp()?.max(0)).unwrap_or(u32::MAX);
    let mut failed = None;
    let asks = args.asks();
    let progress = (!asks).then(|| Progress::wait(&format!("{name}: making the plan")));
    let plan = {
        let mut decide = |mend: &Mend| {
            if !asks {
                return args.yes || args.dry_run || mend.is_safe();
            }
            let answer = output::ask(&format!("{}?", show(mend.to_string().as_bytes())));
            answer.unwrap_or_else(|error| {
                failed.get_or_insert(error);
                false
            })
        };
        extant_repair::plan_telling(device, now, &mut decide, &|step| steps.tell(step))
    };
    if let Some(progress) = progress {
        progress.done();
    }
    let plan = plan.with_context(|| name.to_owned())?;
    Ok((plan, failed))
}

fn tell(args: &Args, name: &str, plan: &Plan, written: bool) -> Result<()> {
    if args.json {
        return output::json(&Repaired {
            image: name.to_owned(),
            clean: plan.after.is_clean(),
            written,
            mends: plan.mends.iter().map(Mended::from).collect(),
            declined: plan.declined.iter().map(Mended::from).collect(),
            left: plan
                .after
                .findings
                .iter()
                .map(ToString::to_string)
                .collect(),
        });
    }
    let mut out = output::stdout();
    for mend in &plan.mends {
        writeln!(out, "{}", show(mend.to_string().as_bytes()))?;
    }
    for mend in &plan.declined {
        writeln!(out, "not mended: {}", show(mend.to_string().as_bytes()))?;
    }
    for finding in &plan.after.findings {
        writeln!(out, "left: {}", show(finding.to_string().as_bytes()))?;
    }
    let mends = count(plan.mends.len() as u64, "mend", "mends");
    let after = match plan.after.faults {
        0 => "clean".to_owned(),
        n => count(n, "fault left", "faults left"),
    };
    let what = match (plan.mends.is_empty(), written) {
        (true, _) => after,
        (_, true) => format!("{mends} made, {after}"),
        _ => format!("{mends} would be made, {after} then"),
    };
    writeln!(out, "{name}: {what}")?;
    Ok(out.flush()?)
}

pub fn undo(args: &UndoArgs) -> Result<()> {
    let image = &args.image.0.image;
    let device = open(image, Access::ReadWrite)?;
    let shown = || args.file.display().to_string();
    match Undo::read(&args.file).with_context(shown)? {
        Some(undo) => undo.take_back(&device).with_context(shown),
        // The repair did not begin to write.
        None => Ok(()),
    }
}
