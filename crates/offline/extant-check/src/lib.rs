#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;

mod claim;
mod connect;
mod dir;
mod directories;
mod directory;
mod early_directories;
mod error;
mod group;
mod groups;
mod index;
mod inode;
mod inode_table;
pub mod inspect;
mod journal;
mod link;
mod links;
mod mapping;
mod names;
mod options;
mod paths;
mod prefetch;
mod progress;
mod quota;
mod repeated;
mod report;
mod space;
mod special_inodes;
mod spread_names;
mod state;
mod subject;
mod superblock;
mod volume;
mod work;
mod xattrs;

pub use blockdev;
pub use error::Error;
pub use options::CheckOptions;
pub use progress::CheckStep;
pub use report::{Finding, FindingPlace, Report, Rule, Severity};

use blockdev::BlockDevice;
use claim::Claims;
use directories::Directories;
use inode_table::InodeTable;
use parking_lot::Mutex;
use progress::Steps;
use report::Findings;
use state::{Check, Counted};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;
use volume::Volume;

/// Checks an image, read only.
///
/// # Errors
/// [`Error`] if the image cannot be checked at all. Damage is not an error but part of the report.
///
/// ```no_run
/// use extant_check::blockdev::{Access, FileDevice};
/// let device = FileDevice::open("disk.img", Access::ReadOnly)?;
/// let report = extant_check::check(&device, &extant_check::CheckOptions::default())?;
/// for finding in &report.findings {
///     println!("{finding}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(device: &dyn BlockDevice, options: &CheckOptions) -> Result<Report, Error> {
    check_telling(device, options, &|_| {})
}

/// Like [`check`], and reports progress to `tell`, which is called from several threads.
///
/// # Errors
/// The same.
///
/// ```no_run
/// use extant_check::blockdev::{Access, FileDevice};
/// let device = FileDevice::open("disk.img", Access::ReadOnly)?;
/// let tell = |step: extant_check::CheckStep| eprintln!("{}: {} of {}", step.pass_name(), step.done, step.total);
/// extant_check::check_telling(&device, &extant_check::CheckOptions::default(), &tell)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_telling(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    tell: &(dyn Fn(CheckStep) + Sync),
) -> Result<Report, Error> {
    blockdev::reading_ahead(device, |device| check_device(device, options, tell))
}

fn check_device(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    tell: &(dyn Fn(CheckStep) + Sync),
) -> Result<Report, Error> {
    let findings = Findings::new(options.max_findings);
    let mut volume = Volume::open(device, &findings)?;
    superblock::refuse_unknown(&volume)?;
    journal::check(&mut volume, options, &findings)?;
    superblock::check(&volume, &findings);
    let groups = groups::read(&volume, &findings);
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    let check = Check {
        claims: Claims::new(&volume.geo),
        inodes: InodeTable::new(&volume.geo),
        attribute_blocks: Mutex::default(),
        value_inodes: Mutex::default(),
        policies: Mutex::default(),
        has_translators: false.into(),
        name_seed: RandomState::new().hash_one(0),
        quota: Counted::of(&volume),
        volume,
        groups,
        findings,
        threads,
        steps: Steps::new(tell),
    };
    groups::claim_metadata(&check);
    let mut directories = inode::check_tables(&check);
    if check.has_translators.load(Ordering::Relaxed) {
        return Err(Error::Features("translators of the Hurd".into()));
    }
    xattrs::check_references(&check);
    special_inodes::check(&check);
    quota::check(&check);
    let names = directory::check(&check, &mut directories);
    check.steps.begin(3, directories.len() as u64);
    connect::check(&check, &directories);
    check.steps.add(directories.len() as u64);
    let (inodes, blocks) = groups::check_counts(&check, &directories);
    Ok(finish(check, &directories, [inodes, blocks, names]))
}

fn finish(
    check: Check<'_>,
    directories: &Directories,
    [inodes, blocks, names]: [u64; 3],
) -> Report {
    let found = paths::find(&check, directories, &check.findings.inodes());
    let bytes_read = check.volume.bytes_read();
    let pending_fast_commits = check.volume.pending_fast_commits;
    let (mut findings, faults, notes) = check.findings.finish();
    for finding in &mut findings {
        finding.path = finding.place.inode.and_then(|ino| found.get(&ino).cloned());
    }
    Report {
        findings,
        faults,
        notes,
        inodes,
        directories: directories.len() as u64,
        names,
        blocks,
        bytes_read,
        pending_fast_commits,
    }
}
