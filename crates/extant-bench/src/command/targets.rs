//! What a benchmark runs against, as the command line names it.

use crate::peers::{self, Mounted};
use crate::progress::Progress;
use crate::{fresh, scratch_in};
use anyhow::{Context, Result, ensure};
use extant::mkfs::MkfsOptions;
use extant::{BlockScan, Volume, VolumeOptions};
use extant_bench::target::{Apart, LibTarget, OneLock, PathTarget, Target};
use extant_terminal::numbers::size;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Targets, and the image of the one in this process.
#[derive(clap::Args, Debug)]
pub struct TargetArgs {
    /// What is measured: lib, a volume in this process; kernel, Linux' ext4 on an image it mounts (as root);
    /// lib:fast and kernel:fast, the same with fast commits;
    /// fuse2fs, that of e2fsprogs, and mount:uring or mount:classic, an `extant mount` (as root); before:one-lock, such
    /// a volume under one lock; lib:apart, a volume for each processor, so that tasks share nothing but the machine;
    /// else a directory of a mounted file system
    #[arg(long = "target", value_name = "TARGET", default_value = "lib")]
    targets: Vec<PathBuf>,
    /// Targets to compare with it: a further TARGET, or several
    #[arg(long, value_name = "TARGET", num_args = 1..)]
    against: Vec<PathBuf>,
    /// Image for lib; without it one is made in memory
    #[arg(long)]
    image: Option<PathBuf>,
    /// Size of the images that are made
    #[arg(long, default_value = "2G", value_parser = size)]
    size: u64,
    /// Journal of the images that are made, in MiB; without it by the size, as mkfs has it
    #[arg(long, value_name = "MIB")]
    journal: Option<u64>,
    /// Memory for data pages of the volumes in this process; without it a quarter of the machine's
    #[arg(long, value_name = "SIZE", value_parser = size)]
    cache: Option<u64>,
    /// How the volumes in this process find groups with free blocks: 0, one after the other, or 1, by lists
    #[arg(short = 'o', value_name = "mb_optimize_scan=0|1", value_parser = scan)]
    scan: Option<BlockScan>,
    /// Where images are made; in memory if left out
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Returns the scan of an option of ext4's.
fn scan(option: &str) -> Result<BlockScan, &'static str> {
    let value = option.strip_prefix("mb_optimize_scan=");
    value
        .and_then(BlockScan::of_option)
        .ok_or("mb_optimize_scan=0 or mb_optimize_scan=1")
}

/// Targets ready to be worked on.
pub struct Targets {
    /// In the order in which they were named.
    pub targets: Vec<Box<dyn Target>>,
    volumes: Vec<Volume>,
    mounted: Vec<Mounted>,
    /// Holds the images that were made; removed with this.
    _scratch: tempfile::TempDir,
}

impl Targets {
    /// Ends the work on the targets, whatever came of it: of two errors its own is the one to tell.
    pub fn finish<T>(self, progress: &Progress, reports: Result<T>) -> Result<T> {
        progress.done();
        let closed = self.close();
        let reports = reports?;
        closed?;
        Ok(reports)
    }

    /// Closes the volume and unmounts, as far as there is anything.
    fn close(self) -> Result<()> {
        drop(self.targets);
        let closed = self.volumes.into_iter().try_for_each(Volume::close);
        self.mounted.into_iter().try_for_each(Mounted::unmount)?;
        Ok(closed?)
    }
}

/// Images as they are made for targets.
struct Images<'a> {
    scratch: &'a Path,
    size: u64,
    journal: Option<u64>,
    inodes: u32,
    open: VolumeOptions,
}

impl Images<'_> {
    fn ours(&self, name: &str, features: &str) -> Result<Volume> {
        let options = MkfsOptions {
            features: features.into(),
            size: Some(self.size),
            inodes: Some(ext4_format::layout::Inodes::Count(self.inodes)),
            journal_size: self.journal.map(|mib| mib << 20),
            zeroed_device: true,
            ..MkfsOptions::default()
        };
        fresh(&self.scratch.join(name), &options, &self.open)
    }

    fn mounted(&self, peer: peers::Peer) -> Result<Mounted> {
        let made = peers::Image {
            path: self.scratch.join(format!("{}.img", peer.name())),
            size: self.size,
            journal: self.journal,
            inodes: self.inodes,
        };
        Mounted::new(peer, &made, &self.scratch.join(peer.name()))
    }
}

impl TargetArgs {
    /// Opens them all; images that are made have inodes for so many files. Nothing that must be undone may
    /// be done before: peers that are mounted may start this process anew.
    pub fn open(&self, files: u64) -> Result<Targets> {
        let named = || self.targets.iter().chain(&self.against);
        let peer = |name: &PathBuf| peers::Peer::of(name.as_os_str());
        if named().any(|name| peer(name).is_some()) {
            peers::own_mounts()?;
        }
        let scratch = scratch_in(self.dir.as_deref())?;
        let mut open = VolumeOptions::new();
        if let Some(scan) = self.scan {
            open = open.block_scan(scan);
        }
        if let Some(bytes) = self.cache {
            open = open.cache_bytes(bytes);
        }
        // A fifth to spare for directories.
        let inodes = u32::try_from(files + files / 5 + 1000);
        let images = Images {
            scratch: scratch.path(),
            size: self.size,
            journal: self.journal,
            inodes: inodes.context("too many files for one image")?,
            open,
        };
        let mut volumes = Vec::new();
        let mut mounted = Vec::new();
        let mut targets: Vec<Box<dyn Target>> = Vec::new();
        let mut seen: Vec<&Path> = Vec::new();
        for name in named() {
            ensure!(
                !seen.contains(&name.as_path()),
                "{} is one target: name it once",
                name.display()
            );
            seen.push(name);
            if let Some(peer) = peer(name) {
                let mount = images.mounted(peer)?;
                targets.push(Box::new(mount.target()));
                mounted.push(mount);
                continue;
            }
            targets.push(self.target(name, &images, &mut volumes)?);
        }
        Ok(Targets {
            targets,
            volumes,
            mounted,
            _scratch: scratch,
        })
    }

    /// Returns a target that is no peer: volumes in this process, which are added to `volumes`, or a directory.
    fn target(
        &self,
        name: &Path,
        images: &Images<'_>,
        volumes: &mut Vec<Volume>,
    ) -> Result<Box<dyn Target>> {
        let mut ours = |image: &str, features: &str| {
            let opened = images.ours(image, features)?;
            volumes.push(opened.clone());
            Ok::<_, anyhow::Error>(opened)
        };
        Ok(match name.to_str() {
            Some("before:one-lock") => {
                Box::new(OneLock::new(LibTarget::new(ours("one-lock.img", "")?)))
            }
            Some("lib:fast") => Box::new(LibTarget::named(
                ours("fast.img", "fast_commit")?,
                "extant (in process), fast commits",
            )),
            Some("lib:apart") => {
                let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
                let opened = (0..cpus).map(|n| ours(&format!("apart{n}.img"), ""));
                Box::new(Apart::new(opened.collect::<Result<_>>()?)?)
            }
            Some("lib") => {
                let Some(image) = &self.image else {
                    return Ok(Box::new(LibTarget::new(ours("bench.img", "")?)));
                };
                let opened = images.open.open(image);
                let opened = opened.with_context(|| image.display().to_string())?;
                volumes.push(opened.clone());
                Box::new(LibTarget::new(opened))
            }
            _ => {
                ensure!(name.is_dir(), "{}: not a directory", name.display());
                Box::new(PathTarget::new(name))
            }
        })
    }
}
