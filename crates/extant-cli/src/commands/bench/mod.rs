//! `extant bench`: one file for each workload.

mod bulk;
mod grow;
mod mdtest;
mod targets;

use anyhow::{Context, Result};
use blockdev::FileDevice;
use clap::Subcommand;
use extant::mkfs::{self, MkfsOptions};
use extant::{OpenOptions, Volume};
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
}

pub fn run(args: &Args) -> Result<()> {
    match &args.workload {
        Workload::Mdtest(args) => mdtest::run(args),
        Workload::Grow(args) => grow::run(args),
        Workload::Bulk(args) => bulk::run(args),
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
