//! `extant check`.

use anyhow::{Context, Result};
use blockdev::{Access, BlockDevice};
use extant::VolumeOptions;
use extant::scratch::{self, Changes};
use extant_check::{CheckOptions, Finding, Report, Rule, Severity};
use extant_cli_core::address::Rooted;
use extant_cli_core::format::show::{HostPath, ShowPath, base64_if_odd, count, exact, show};
use extant_cli_core::image::advice::about_disk;
use extant_cli_core::image::rate_limit::PacedDevice;
use extant_cli_core::image::{identity, images, overlaid, store, verity};
use extant_cli_core::messages::check_progress::ShownSteps;
use extant_cli_core::mounts::mounted::Mounted;
use extant_cli_core::mounts::online;
use extant_terminal::numbers::size;
use extant_terminal::{interrupt, output};
use extant_verity::RootHash;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Exit code: the image has faults.
const FAULTS: u8 = 4;
/// Exit code: the image could not be checked.
const FAILED: u8 = 8;

/// Look for damage in an image, mounted or not, without changing it
///
/// The check runs on all processors and applies the rules of e2fsck -fn: superblock, group descriptors and bitmaps,
/// inodes with their mappings and extended attributes, blocks claimed twice, directories with their names, indexes and
/// checksums, the connection of every inode to the root, counts of links and free space, the journal's superblock and
/// the orphan file. An image whose journal needs recovery is checked as it will be after recovery; --noload checks it
/// as it is on disk. Quota files are compared with the actual use. Not checked are external journals, hashes in
/// encrypted directories that fold case, reference counts of inodes that hold attribute values, and the map of
/// reserved descriptors of volumes with clusters. Nothing is repaired.
///
/// A mounted image (given by its directory or its name) is checked while it is used: the mount keeps a snapshot of the
/// moment when the check began, and writers wait only while the snapshot is taken. Unlinked files that are still open
/// count as deleted. The check fails if more than 256 MiB of the snapshot's data are overwritten meanwhile.
///
/// Notes report differences that the kernel and e2fsck repair without a question or ignore; notes do not count as
/// faults.
///
/// The exit code is that of fsck: 0 for no fault, 4 for faults, 8 if the image could not be checked, 16 for wrong
/// usage.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant check disk.img\n  extant check --json disk.img\n  extant check /mnt\n  \
                  extant check --scrub=20M /mnt"
)]
pub struct Args {
    /// Image, or directory that it is mounted on
    image: Rooted,
    /// Limit reads to BYTES per second, so that other work can continue; reads structures with all their checksums
    /// [default: 32M]
    #[arg(long, value_name = "BYTES", value_parser = size, num_args = 0..=1, require_equals = true, default_missing_value = "32M")]
    scrub: Option<u64>,
    /// Check an image even if it is marked clean, as e2fsck -f does; every image is always checked
    #[arg(short = 'f', long)]
    _force: bool,
    /// Verify every block with a hash tree of dm-verity that has this root hash, then check the verified blocks
    #[arg(long, value_name = "ROOTHASH", conflicts_with = "scrub")]
    verity: Option<RootHash>,
    /// File or device with the hash tree [default: behind the file system, as mkfs --verity makes it]
    #[arg(long, value_name = "FILE", requires = "verity")]
    hash_tree: Option<PathBuf>,
    /// Number of threads [default: the number of CPUs]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = store::threads_given)]
    threads: usize,
    /// Number of findings to show; all are counted
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max: usize,
    /// Show only faults, without notes and summary
    #[arg(short, long)]
    quiet: bool,
    /// Write the progress to this file descriptor, as e2fsck -C does: lines "pass done total image"
    #[arg(long, value_name = "FD")]
    progress_fd: Option<u32>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Do not report that the journal is on another device
    #[arg(long, hide = true)]
    journal_elsewhere: bool,
}

#[derive(Serialize)]
struct Checked<'r> {
    image: HostPath,
    clean: bool,
    faults: u64,
    notes: u64,
    inodes: u64,
    directories: u64,
    names: u64,
    blocks: u64,
    findings: Vec<FindingJson<'r>>,
}

#[derive(Serialize)]
struct FindingJson<'r> {
    rule: &'static str,
    severity: &'static str,
    message: String,
    detail: &'r str,
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    group: Option<u32>,
    inode: Option<u32>,
    logical_block: Option<u64>,
    block: Option<u64>,
    offset: Option<u32>,
}

impl<'r> From<&'r Finding> for FindingJson<'r> {
    fn from(finding: &'r Finding) -> Self {
        let place = &finding.place;
        Self {
            rule: finding.rule.name(),
            severity: match finding.rule.severity() {
                Severity::Note => "note",
                _ => "fault",
            },
            message: finding.to_string(),
            detail: &finding.detail,
            path: finding.path.as_deref().map(exact),
            path_bytes: finding.path.as_deref().and_then(base64_if_odd),
            group: place.group.map(|g| g.0),
            inode: place.inode.map(|i| i.0),
            logical_block: place.logical,
            block: place.block.map(|b| b.0),
            offset: place.offset,
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let image = &args.image.0.image;
    match check(args, image) {
        Ok(report) if report.is_clean() => Ok(()),
        Ok(_) => Err(output::exit_with(FAULTS)),
        Err(error) => Err(output::report_as(about_disk(image, error), FAILED)),
    }
}

fn check(args: &Args, image: &Path) -> Result<Report> {
    let name = image.shown();
    let _harmless = interrupt::harmless()?;
    let threads = store::threads(args.threads, [image]);
    let mut device = open(image, threads)?;
    if let Some(rate) = args.scrub {
        device = Arc::new(PacedDevice::new(device, rate));
    }
    if let Some(root) = args.verity {
        device = verity::open(&device, args.hash_tree.as_deref(), root, threads)
            .with_context(|| name.clone())?;
    }
    let options = CheckOptions {
        threads,
        max_findings: args.max,
        replay: !images::journals_are_left(),
        external_journal: args.journal_elsewhere,
    };
    let shown = ShownSteps::new(&name, args.progress_fd)?;
    let tell = |step| shown.tell(step);
    let report = extant_check::check_telling(&device, &options, &tell);
    let mut report = report.with_context(|| name.clone())?;
    if report.pending_fast_commits
        && let Some(replayed) = replayed(&device, image)
    {
        let after = extant_check::check_telling(&replayed, &options, &tell);
        report = after_replay(report, after.with_context(|| name.clone())?);
    }
    drop(shown);
    if args.json {
        output::json(&Checked {
            image: HostPath::from(image),
            clean: report.is_clean(),
            faults: report.faults,
            notes: report.notes,
            inodes: report.inodes,
            directories: report.directories,
            names: report.names,
            blocks: report.blocks,
            findings: report.findings.iter().map(FindingJson::from).collect(),
        })?;
    } else {
        print(args, &name, &report)?;
    }
    Ok(report)
}

/// Returns the image as it is when the engine has replayed its journal and its fast commits, in scratch space. `None` if the engine
/// cannot open it: then the check without the changes is what there is.
fn replayed(device: &Arc<dyn BlockDevice>, image: &Path) -> Option<Arc<dyn BlockDevice>> {
    let file = store::file(image);
    let scratch = scratch::device_over(device.clone(), file, Changes::ThrownAway).ok()?;
    let volume = VolumeOptions::new().open_device(scratch.clone()).ok()?;
    volume.close().ok()?;
    Some(scratch)
}

/// Returns the report about the replayed image, with the note that the journal is not replayed.
fn after_replay(before: Report, mut after: Report) -> Report {
    let unreplayed = |f: &Finding| f.rule == Rule::NeedsRecovery;
    let notes = before.findings.into_iter().filter(unreplayed);
    after.findings.splice(..0, notes);
    after.notes += 1;
    after
}

/// Opens the image file, or a snapshot if the image is mounted.
fn open(image: &Path, threads: usize) -> Result<Arc<dyn BlockDevice>> {
    if image.is_dir() {
        return mounted(&Mounted::at(image)?, threads);
    }
    identity::identity(image)?;
    store::open(image, Access::ReadOnly).or_else(|error| match Mounted::of_image(image) {
        Some(of) if !overlaid::is_overlaid(image) => mounted(&of, threads),
        _ => Err(error),
    })
}

fn mounted(mounted: &Mounted, threads: usize) -> Result<Arc<dyn BlockDevice>> {
    online::image(mounted, threads)
}

fn print(args: &Args, name: &str, report: &Report) -> Result<()> {
    let mut out = output::stdout();
    for finding in &report.findings {
        let note = finding.rule.severity() == Severity::Note;
        if note && args.quiet {
            continue;
        }
        let path = finding
            .path
            .as_deref()
            .map(|path| format!("{}: ", show(path)));
        let text = show(finding.to_string().as_bytes());
        let note = if note { "note: " } else { "" };
        writeln!(out, "{note}{}{text}", path.unwrap_or_default())?;
    }
    if !args.quiet {
        let verdict = match report.faults {
            0 => "clean".to_string(),
            n => count(n, "fault", "faults"),
        };
        let parts = [
            count(report.inodes, "inode", "inodes"),
            count(report.directories, "directory", "directories"),
            count(report.names, "name", "names"),
            count(report.blocks, "block in use", "blocks in use"),
        ];
        writeln!(out, "{name}: {verdict}: {}", parts.join(", "))?;
    }
    Ok(out.flush()?)
}
