//! `extant bench`: one file for each workload.

mod bulk;
mod fxmark;
mod grow;
mod mdtest;
mod peers;
mod repeat;
mod targets;

use anyhow::{Context, Result};
use blockdev::FileDevice;
use clap::Subcommand;
use extant::mkfs::{self, MkfsOptions};
use extant::{OpenOptions, Volume};
use extant_bench::workload::small;
use repeat::RepeatArgs;
use std::path::Path;

/// Measure this engine, and its peers beside it
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand, Debug)]
enum Workload {
    Mdtest(mdtest::MdtestArgs),
    Grow(grow::GrowArgs),
    Bulk(bulk::BulkArgs),
    /// Preallocate files of one's own, 8 KiB at a time, from many tasks
    ///
    /// Each task has a file without a name. At 1 MiB it is cut to nothing. One operation is one fallocate.
    #[command(
        after_help = "Example:\n  extant bench fallocate2 --tasks 1,2,64 --against kernel fuse2fs"
    )]
    Fallocate2(RepeatArgs),
    /// Open and close files of one's own from many tasks
    #[command(after_help = "Example:\n  extant bench open1 --tasks 1,2 --against kernel")]
    Open1(RepeatArgs),
    /// Create, close and remove a file in a directory of one's own from many tasks
    #[command(after_help = "Example:\n  extant bench unlink2 --tasks 1,2 --against kernel")]
    Unlink2(RepeatArgs),
    Fxmark(fxmark::FxmarkArgs),
}

pub fn run(args: &Args) -> Result<()> {
    match &args.workload {
        Workload::Mdtest(args) => mdtest::run(args),
        Workload::Grow(args) => grow::run(args),
        Workload::Bulk(args) => bulk::run(args),
        Workload::Fallocate2(args) => repeat::run(args, &[&small::Fallocate2]),
        Workload::Open1(args) => repeat::run(args, &[&small::Open1]),
        Workload::Unlink2(args) => repeat::run(args, &[&small::Unlink2]),
        Workload::Fxmark(args) => fxmark::run(args),
    }
}

/// A directory for images that are gone afterwards: in memory if the machine has such a place.
pub fn scratch() -> Result<tempfile::TempDir> {
    scratch_in(None)
}

/// Such a directory below another one, if one is named.
fn scratch_in(parent: Option<&Path>) -> Result<tempfile::TempDir> {
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
pub fn fresh(path: &Path, options: &MkfsOptions) -> Result<Volume> {
    let context = || path.display().to_string();
    let prepared = mkfs::prepare(options).with_context(context)?;
    let device = FileDevice::create(path, prepared.size()).with_context(context)?;
    prepared.write(&device).with_context(context)?;
    drop(device);
    OpenOptions::new().open(path).with_context(context)
}
