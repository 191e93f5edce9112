//! What a benchmark runs against, as the command line names it.

use super::{fresh, scratch};
use crate::commands::mkfs::size;
use anyhow::{Context, Result, ensure};
use extant::mkfs::MkfsOptions;
use extant::{OpenOptions, Volume};
use extant_bench::target::{LibTarget, PathTarget, Target};
use std::path::{Path, PathBuf};

/// Targets, and the image of the one in this process.
#[derive(clap::Args, Debug)]
pub struct TargetArgs {
    /// lib: a volume in this process; else a directory of a mounted file system
    #[arg(long = "target", value_name = "lib|PATH", default_value = "lib")]
    targets: Vec<PathBuf>,
    /// Image for lib; without it one is made in memory
    #[arg(long)]
    image: Option<PathBuf>,
    /// Size of the image that is made
    #[arg(long, default_value = "2G", value_parser = size)]
    size: u64,
    /// Journal of the image that is made, in MiB; without it by the size, as mkfs has it
    #[arg(long, value_name = "MIB")]
    journal: Option<u64>,
}

/// Targets ready to be worked on.
pub struct Targets {
    /// In the order in which they were named.
    pub targets: Vec<Box<dyn Target>>,
    volume: Option<Volume>,
    /// Holds the image that was made; removed with this.
    _scratch: tempfile::TempDir,
}

impl Targets {
    /// Closes the volume, if one is open.
    pub fn close(self) -> Result<()> {
        drop(self.targets);
        Ok(self.volume.map_or(Ok(()), Volume::close)?)
    }
}

impl TargetArgs {
    /// Opens them all; an image that is made has inodes for so many files.
    pub fn open(&self, files: u64) -> Result<Targets> {
        let scratch = scratch()?;
        let mut volume = None;
        let mut targets: Vec<Box<dyn Target>> = Vec::new();
        for target in &self.targets {
            if target.as_path() != Path::new("lib") {
                ensure!(target.is_dir(), "{}: not a directory", target.display());
                targets.push(Box::new(PathTarget {
                    root: target.clone(),
                }));
                continue;
            }
            ensure!(volume.is_none(), "lib is one target: name it once");
            let opened = match &self.image {
                Some(image) => OpenOptions::new()
                    .open(image)
                    .with_context(|| image.display().to_string())?,
                None => {
                    // A fifth to spare for directories.
                    let inodes = u32::try_from(files + files / 5 + 1000)
                        .context("too many files for one image")?;
                    let options = MkfsOptions {
                        size: Some(self.size),
                        inodes: Some(ext4_format::layout::Inodes::Count(inodes)),
                        journal_size: self.journal.map(|mib| mib << 20),
                        zeroed_device: true,
                        ..MkfsOptions::default()
                    };
                    fresh(&scratch.path().join("bench.img"), &options)?
                }
            };
            volume = Some(opened.clone());
            targets.push(Box::new(LibTarget(opened)));
        }
        Ok(Targets {
            targets,
            volume,
            _scratch: scratch,
        })
    }
}
