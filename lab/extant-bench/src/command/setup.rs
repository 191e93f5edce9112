//! Setup of the workloads: the measured programs, temporary directories and new images, and the name of the machine.

use anyhow::{Context, Result};
use blockdev::FileDevice;
use extant::mkfs::{self, MkfsOptions};
use extant::{Volume, VolumeOptions};
use std::path::{Path, PathBuf};

/// Returns the path of this program.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("this program's own path")
}

/// Returns the measured command: the one next to this program, where a build leaves both, or else the one in `PATH`.
pub fn extant() -> Result<PathBuf> {
    let beside = this_program()?.with_file_name("extant");
    Ok(if beside.exists() {
        beside
    } else {
        "extant".into()
    })
}

/// Returns a temporary directory for images: in memory if possible.
pub fn scratch() -> Result<tempfile::TempDir> {
    scratch_in(None)
}

/// Returns a temporary directory for images below another directory, if one is given.
pub fn scratch_in(parent: Option<&Path>) -> Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("extant.");
    match parent {
        Some(parent) => builder
            .tempdir_in(parent)
            .with_context(|| parent.display().to_string()),
        None => builder
            .tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .context("make a temporary directory"),
    }
}

/// Makes an empty image and opens it.
pub fn fresh(path: &Path, options: &MkfsOptions, open: &VolumeOptions) -> Result<Volume> {
    let context = || path.display().to_string();
    let prepared = mkfs::prepare(options).with_context(context)?;
    let device = FileDevice::create(path, prepared.size()).with_context(context)?;
    prepared.write(&device).with_context(context)?;
    drop(device);
    open.open(path).with_context(context)
}

/// Returns the machine, in one sentence, for reports.
pub fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Machine: {cpus} × {model}, Linux {}.", release.trim())
}
