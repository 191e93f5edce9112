//! The targets of a benchmark, as named on the command line.

use crate::command::peers::{self, Mounted};
use crate::command::setup::{fresh, scratch_in};
use crate::target::{Apart, LibTarget, OneLock, PathTarget, Target};
use anyhow::{Context, Result, ensure};
use extant::mkfs::MkfsOptions;
use extant::{BlockScan, Volume, VolumeOptions};
use extant_terminal::numbers::size;
use extant_terminal::progress::Progress;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Targets, and the image of the target in this process.
#[derive(clap::Args, Debug)]
pub struct TargetArgs {
    /// Targets to measure: lib, a volume in this process; kernel, Linux' ext4 on an image that it mounts (as root);
    /// lib:fast and kernel:fast, the same with fast commits; fuse2fs of e2fsprogs, and mount:uring or mount:classic,
    /// an `extant mount` (as root); before:one-lock, a volume in this process under one lock; lib:apart, a volume per
    /// processor, so that tasks share only the machine; or a directory of a mounted file system
    #[arg(long = "target", value_name = "TARGET", default_value = "lib")]
    targets: Vec<PathBuf>,
    /// Targets to compare with: a further TARGET, or several
    #[arg(long, value_name = "TARGET", num_args = 1..)]
    against: Vec<PathBuf>,
    /// Image for lib [default: a new one in memory]
    #[arg(long)]
    image: Option<PathBuf>,
    /// Size of the generated images
    #[arg(long, default_value = "2G", value_parser = size)]
    size: u64,
    /// Journal size of the generated images in MiB [default: by the size, as in mkfs]
    #[arg(long, value_name = "MIB")]
    journal: Option<u64>,
    /// Memory for data pages of the volumes in this process [default: a quarter of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    cache: Option<u64>,
    /// Search of the volumes in this process for groups with free blocks: 0, in order, or 1, with lists
    #[arg(short = 'o', value_name = "mb_optimize_scan=0|1", value_parser = scan)]
    scan: Option<BlockScan>,
    /// Directory for images [default: in memory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Parses the scan of an ext4 option.
fn scan(option: &str) -> Result<BlockScan, &'static str> {
    let value = option.strip_prefix("mb_optimize_scan=");
    value
        .and_then(BlockScan::of_option)
        .ok_or("mb_optimize_scan=0 or mb_optimize_scan=1")
}

/// Opened targets.
pub struct Targets {
    /// The targets, in the order of the command line.
    pub targets: Vec<Box<dyn Target>>,
    volumes: Vec<Volume>,
    mounted: Vec<Mounted>,
    /// Directory of the generated images; dropping it removes them.
    _scratch: tempfile::TempDir,
}

impl Targets {
    /// Ends the work on the targets in every case. If both the work and the closing fail, returns the error of the
    /// work.
    pub fn finish<T>(self, progress: &Progress, reports: Result<T>) -> Result<T> {
        progress.done();
        let closed = self.close();
        let reports = reports?;
        closed?;
        Ok(reports)
    }

    /// Closes the volume and unmounts the peers, if there are any.
    fn close(self) -> Result<()> {
        drop(self.targets);
        let closed = self.volumes.into_iter().try_for_each(Volume::close);
        self.mounted.into_iter().try_for_each(Mounted::unmount)?;
        Ok(closed?)
    }
}

/// Generated images for targets.
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
    /// Opens all targets; generated images have inodes for `files` files. Call this before anything that must be
    /// undone, because mounting peers may start this process again.
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
        // A fifth more, for directories.
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

    /// Returns a target other than a peer: volumes in this process, which are added to `volumes`, or a directory.
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
