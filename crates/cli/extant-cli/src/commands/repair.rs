//! `extant repair`.

use super::defrag;
use anyhow::{Context, Result, anyhow, bail};
use blockdev::BlockDevice;
use extant_cli_core::address::Rooted;
use extant_cli_core::format::clock;
use extant_cli_core::format::show::{HostPath, ShowPath, count, show};
use extant_cli_core::image::advice::about_disk;
use extant_cli_core::image::in_place;
use extant_cli_core::messages::advised::advised;
use extant_cli_core::messages::check_progress::ShownSteps;
use extant_repair::{Mend, Plan};
use extant_terminal::interrupt;
use extant_terminal::output::{self, Answer};
use extant_terminal::progress::Progress;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Advice without a terminal for questions.
const NO_TERMINAL: &str =
    "no terminal to ask on: -p makes the mends by which nothing is lost, -y makes all";

/// Exit code: faults were repaired.
const MENDED: u8 = 1;
/// Exit code: faults remain.
const LEFT: u8 = 4;
/// Exit code: the image could not be repaired.
const FAILED: u8 = 8;

/// Repair a damaged image
///
/// The repair is planned first: the image is repaired in memory, and checked there until it is clean or nothing more
/// can be repaired. Each repair is listed with the data that it loses. Only then the repairs are written, after an
/// undo file next to the image (IMAGE.extant-undo), which is removed at the end. If the repair is interrupted, the
/// next one rolls back the changes and starts again; extant undo also rolls them back.
///
/// Without -n, -p or -y each repair is a question on the terminal: y, n, a for yes to all, q to write nothing. Without
/// a terminal, the answer is no.
///
/// The exit code is that of fsck: 0 for a clean image, 1 if all faults were repaired, 4 if faults remain (5 if others
/// were repaired), 8 if the image could not be repaired, 16 for wrong usage.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant repair -n disk.img\n  extant repair -y --undo disk.undo disk.img\n  \
                  extant undo disk.undo disk.img"
)]
pub struct Args {
    /// Image to repair
    image: Rooted,
    /// Only list the repairs; write nothing
    #[arg(short = 'n', long, conflicts_with_all = ["safe", "yes", "undo"])]
    dry_run: bool,
    /// Make only the repairs that lose nothing
    #[arg(short = 'p', long, conflicts_with = "yes")]
    safe: bool,
    /// Also remove names of empty inodes that the inode bitmap has in use, as e2fsck -p does
    #[arg(long, hide = true, requires = "safe")]
    names_of_empty_inodes: bool,
    /// Make all repairs
    #[arg(short = 'y', long)]
    yes: bool,
    /// Save the old bytes in a new file, for extant undo
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
    /// Then rebuild directories, as extant defrag --dirs does; skipped if faults remain
    #[arg(short = 'D', long, conflicts_with_all = ["dry_run", "undo", "json"])]
    dirs: bool,
    /// Give each file its own copies of shared blocks, and clear the feature shared_blocks
    #[arg(long, requires = "yes")]
    unshare: bool,
    /// Write the progress of the initial check to this file descriptor, as e2fsck -C does: lines "pass done total
    /// image"; the last line comes when everything is written
    #[arg(long, value_name = "FD")]
    progress_fd: Option<u32>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Repaired {
    image: HostPath,
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
    /// Returns whether each repair is a question.
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
        Err(error) => Err(output::report_as(
            about_disk(&args.image.0.image, error),
            FAILED,
        )),
    }
}

/// Repairs the image and returns the exit code.
fn repair(args: &Args, image: &Path) -> Result<u8> {
    let name = image.shown();
    let (device, beside) = in_place::ready(image, args.dry_run)?;
    let harmless = interrupt::harmless()?;
    let steps = ShownSteps::of_repair(&name, args.progress_fd, args.asks())?;
    let (plan, failed) = planned(args, &name, &device, &steps)?;
    if let Some(error) = failed {
        return Err(error);
    }
    if args.unshare
        && let Some(mend) = plan.mends.iter().find(|mend| mend.loses.is_some())
    {
        bail!(
            "{name}: nothing was written, as --unshare would lose something: {}: extant repair -y without it, or extant resize",
            show(mend.to_string().as_bytes())
        );
    }
    let written = !args.dry_run && !plan.is_empty();
    if written {
        let _writing = harmless.now_write()?;
        let done = plan.write(&device, args.undo.as_deref(), beside.as_deref());
        done.map_err(|e| in_place::after_failure(image, device, e))
            .with_context(|| name.clone())?;
    }
    steps.end();
    let left = if args.dry_run {
        !plan.before.is_clean() || !plan.is_empty()
    } else {
        !plan.after.is_clean()
    };
    tell(args, &name, &plan, written)?;
    if args.asks() && !plan.declined.is_empty() && !output::can_ask() {
        output::note(format_args!("{name}: {NO_TERMINAL}"));
    }
    Ok(u8::from(written) * MENDED + u8::from(left) * LEFT)
}

/// Makes the plan, with a question for each repair unless an option answers it.
fn planned(
    args: &Args,
    name: &str,
    device: &dyn BlockDevice,
    steps: &ShownSteps<'_>,
) -> Result<(Plan, Option<anyhow::Error>)> {
    let now = u32::try_from(clock::stamp()?.max(0)).unwrap_or(u32::MAX);
    let (mut failed, mut all) = (None, false);
    let asks = args.asks();
    let progress = (!asks).then(|| Progress::wait(&format!("{name}: making the plan")));
    let plan = {
        let mut decide = |mend: &Mend| {
            if !asks {
                let is_preened =
                    args.names_of_empty_inodes && mend.loses_only_names_of_empty_inodes();
                return args.yes || args.dry_run || mend.is_safe() || is_preened;
            }
            if failed.is_some() || all {
                return all && failed.is_none();
            }
            match output::ask_one_of(&format!("{}?", show(mend.to_string().as_bytes()))) {
                Ok(Answer::Yes) => true,
                Ok(Answer::No) => false,
                Ok(Answer::All) => {
                    all = true;
                    true
                }
                Ok(Answer::Quit) => {
                    failed = Some(anyhow!("{name}: nothing was written"));
                    false
                }
                Err(error) => {
                    failed = Some(error);
                    false
                }
            }
        };
        let plan = if args.unshare {
            extant_repair::plan_unshared
        } else {
            extant_repair::plan_telling
        };
        plan(device, now, &mut decide, &|step| steps.tell(step))
    };
    if let Some(progress) = progress {
        progress.done();
    }
    let plan = plan.map_err(|error| match error {
        extant_repair::Error::Declined if asks && !output::can_ask() => {
            advised(format_args!("{name}: {error}"), NO_TERMINAL)
        }
        error => anyhow::Error::new(error).context(name.to_owned()),
    })?;
    Ok((plan, failed))
}

fn tell(args: &Args, name: &str, plan: &Plan, written: bool) -> Result<()> {
    if args.json {
        return output::json(&Repaired {
            image: HostPath::from(args.image.0.image.as_path()),
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
