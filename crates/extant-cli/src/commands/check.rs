//! `extant check`.

use crate::address::Rooted;
use crate::images;
use crate::output;
use crate::progress::Progress;
use crate::show::{count, show};
use anyhow::{Context, Result, anyhow};
use blockdev::{Access, FileDevice};
use extant_check::{CheckOptions, Finding, Report, Severity};
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// The image has faults.
const FAULTS: u8 = 4;
/// The image could not be checked.
const FAILED: u8 = 8;

/// Look for damage in an image, without changing it
///
/// The image is checked on all processors, by the rules by which e2fsck -fn does it: superblock, group descriptors and bitmaps, inodes with their
/// mappings and extended attributes, blocks claimed twice, directories with their names, indexes and checksums, the way to every
/// inode, counts of links and of what is free, the journal's superblock and the orphan file. An image whose journal was not
/// replayed is seen as it will be after that; --noload has it seen as it stands. Not checked are the contents of quota files,
/// external journals, hashes in directories that fold case, counts of references of inodes that hold values of attributes, and
/// the map of reserved descriptors of volumes with clusters. Nothing is mended.
///
/// Notes are about what the kernel and e2fsck mend without a question, or do not look at; they are not counted as faults.
///
/// The exit code is that of fsck: 0 for no fault, 4 for faults, 8 if the image could not be checked, 16 for wrong usage.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  extant check disk.img\n  extant check --json disk.img")]
pub struct Args {
    /// The image
    image: Rooted,
    /// Threads; without it as many as processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Findings that are shown; all are counted
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max: usize,
    /// Faults alone, no notes and no summary
    #[arg(short, long)]
    quiet: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Checked<'r> {
    image: String,
    clean: bool,
    faults: u64,
    notes: u64,
    inodes: u64,
    directories: u64,
    names: u64,
    blocks: u64,
    findings: Vec<Found<'r>>,
}

#[derive(Serialize)]
struct Found<'r> {
    rule: &'static str,
    severity: &'static str,
    message: String,
    detail: &'r str,
    path: Option<String>,
    group: Option<u32>,
    inode: Option<u32>,
    logical_block: Option<u64>,
    block: Option<u64>,
    offset: Option<u32>,
}

impl<'r> From<&'r Finding> for Found<'r> {
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
            path: finding.path.as_deref().map(show),
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
        Err(error) => Err(output::report_as(error, FAILED)),
    }
}

fn check(args: &Args, image: &Path) -> Result<Report> {
    images::identity(image)?;
    let name = image.display().to_string();
    let device = FileDevice::open(image, Access::ReadOnly)
        .map_err(|e| anyhow!("{e}"))
        .map_err(|e| crate::advice::about_image(image, e))?;
    let options = CheckOptions {
        threads: args.threads.map_or(0, usize::from),
        max_findings: args.max,
        replay: !images::journals_are_left(),
    };
    let progress = Progress::wait(&format!("{name}: checking"));
    let report = extant_check::check(&device, &options);
    progress.done();
    let report = report.with_context(|| name.clone())?;
    if args.json {
        output::json(&Checked {
            image: name,
            clean: report.is_clean(),
            faults: report.faults,
            notes: report.notes,
            inodes: report.inodes,
            directories: report.directories,
            names: report.names,
            blocks: report.blocks,
            findings: report.findings.iter().map(Found::from).collect(),
        })?;
    } else {
        print(args, &name, &report)?;
    }
    Ok(report)
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
