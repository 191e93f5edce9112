//! `extant import`.

use crate::commands::mkdir;
use crate::commands::mkfs::spool_dir;
use crate::commands::mkfs_sources::{check_sources, is_image};
use crate::transfer::container::{self, ContainerSource, ImageChoice};
use crate::transfer::{Counts, Monitor, OwnerArgs, image_side};
use anyhow::{Context, Result, bail, ensure};
use extant::Volume;
use extant::mkfs::{ArchiveInput, ReadTree, Source, SourceError};
use extant::unstable::VolumeSide;
use extant_cli_core::address::host_path;
use extant_cli_core::format::clock;
use extant_cli_core::format::show::ShowPath;
use extant_cli_core::image::{identity, images, present_content, store};
use extant_terminal::output;
use extant_transfer::{Feed, HostSide, Route, Rules, Side, read_archive};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Copy directory trees and archives into an image
///
/// All cores work on it. The contents of each SOURCE go into the image's root, or the directory of --to, with owners,
/// permissions, times, extended attributes, ACLs, hard links, devices and holes. Directories are merged, existing
/// files are replaced. Several sources are layers: each applies over the previous ones and over the image, as with
/// mkfs --from. An existing target directory keeps its own attributes.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant import disk.img rootfs/\n  curl -s URL | extant import disk.img - --to /opt\n  extant import disk.img layer1.tar.gz layer2.tar.zst"
)]
pub struct Args {
    /// Image to change
    image: PathBuf,
    /// Directories, tar and cpio archives and SquashFS images (plain, or compressed with gzip, zstd, xz or bzip2), -
    /// for one of these on standard input, images of ext2, ext3 and ext4, lists of files in the format of mtree(5)
    #[arg(required = true)]
    sources: Vec<PathBuf>,
    /// Directory in the image; made if it does not exist
    #[arg(long, value_name = "/PATH", default_value = "/")]
    to: PathBuf,
    /// Treat a single source as a layer over the image, too, as each of several sources is: names .wh.NAME remove
    /// NAME, .wh..wh..opq empties its directory, and a file replaces a directory
    #[arg(long)]
    layers: bool,
    /// Skip mounts below the source directories
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Write blocks of zeros, which otherwise become holes
    #[arg(long)]
    keep_zeros: bool,
    /// Number of threads [0: the number of CPUs]
    #[arg(long, default_value_t = 0, value_parser = store::threads_given)]
    threads: usize,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    choice: ImageChoice,
    #[command(flatten)]
    owner: OwnerArgs,
}

#[derive(Serialize)]
struct Imported {
    #[serde(flatten)]
    counts: Counts,
    /// The total time in seconds, and the part of it for making the result durable.
    seconds: f64,
    sync_seconds: f64,
}

pub fn run(args: &Args) -> Result<()> {
    check_image(args)?;
    check_sources(&args.sources)?;
    let to = args.to.as_os_str().as_bytes();
    ensure!(
        to.starts_with(b"/"),
        "--to {0}: a path in the image begins with /: write /{0}",
        args.to.shown()
    );
    let id = identity::identity(&args.image)?;
    let monitor = Monitor::new("import");
    let start = Instant::now();
    let mut closing = start;
    let scratch = spool_dir(&args.image).unwrap_or_else(|| ".".into());
    let done = images::change(&args.image, |volume| {
        let image = image_side(volume, &args.image);
        let epoch = clock::source_date_epoch()?;
        // Several threads would allocate numbers and blocks in an order that differs from run to run.
        let threads = match (args.threads, epoch) {
            (0, Some(_)) => 1,
            (threads, _) => store::threads(threads, [args.image.as_path()]),
        };
        let mut rules = args.owner.rules(threads, volume)?;
        rules.latest = epoch;
        rules.layer = args.layers || args.sources.len() > 1;
        rules.one_file_system = args.one_file_system;
        rules.keep_zeros = args.keep_zeros;
        rules.skip = Some(id.file);
        let mut into = ImportTarget {
            volume,
            image: &image,
            to,
            rules,
            monitor: &monitor,
        };
        let mut chosen = false;
        for source in &args.sources {
            chosen |= into.enter_any(source, &scratch, &args.choice)?;
        }
        args.choice.check_was_used(chosen)?;
        closing = Instant::now();
        Ok(())
    });
    let counts = monitor.finish();
    done?;
    if args.json {
        output::json(&Imported {
            counts,
            seconds: start.elapsed().as_secs_f64(),
            sync_seconds: closing.elapsed().as_secs_f64(),
        })
    } else {
        output::summary(&counts.line())
    }
}

/// Fails for a directory of an image where the image is meant, and for an image behind its source.
fn check_image(args: &Args) -> Result<()> {
    let inside = |path: &Path| {
        let (image, path) = path.to_str()?.rsplit_once(":/")?;
        let there = identity::identity(Path::new(image)).is_ok();
        there.then(|| (image.to_owned(), format!("/{path}")))
    };
    if args.image.exists() {
        if let [source] = &args.sources[..]
            && args.image.is_dir()
            && let Some((image, to)) = inside(source)
        {
            let source = args.image.shown();
            bail!("the image comes first: write extant import {image} {source} --to {to}");
        }
        return Ok(());
    }
    if let Some((image, to)) = inside(&args.image) {
        let sources = args.sources.iter().map(|source| source.shown());
        let sources = sources.collect::<Vec<_>>().join(" ");
        bail!(
            "{}: a directory in the image is the value of --to: write extant import {image} {sources} --to {to}",
            args.image.shown()
        );
    }
    Ok(())
}

/// The destination directory in the image.
struct ImportTarget<'a> {
    volume: &'a Volume,
    image: &'a VolumeSide,
    to: &'a [u8],
    rules: Rules,
    monitor: &'a Monitor,
}

impl ImportTarget<'_> {
    /// Copies a source into the directory. Returns whether it is an image of a container, whose layers are copied one
    /// by one.
    fn enter_any(&mut self, source: &Path, scratch: &Path, choice: &ImageChoice) -> Result<bool> {
        let layers = match container::source(source, scratch, choice)? {
            None => return self.enter(source).map(|()| false),
            Some(ContainerSource::Other(input)) => {
                return self.feed(Feed::Archive(input)).map(|()| false);
            }
            Some(ContainerSource::Image(layers)) => layers,
        };
        let (layers, _unpacked) = layers.into_parts();
        let alone = self.rules.layer;
        self.rules.layer |= layers.len() > 1;
        for layer in layers {
            self.feed(Feed::Archive(layer))?;
        }
        self.rules.layer = alone;
        Ok(true)
    }

    fn make(&self, path: &[u8]) -> Result<()> {
        let made = mkdir::make_all(self.volume, path, 0o755);
        made.with_context(|| host_path(self.to).shown())
    }

    fn tree(&self, src: &dyn Side, from: &[u8]) -> Result<()> {
        let to = self.to;
        if let Some(slash) = to.iter().rposition(|&b| b == b'/').filter(|&at| at > 0) {
            self.make(&to[..slash])?;
        }
        Route {
            src,
            dst: self.image,
            rules: &self.rules,
            monitor: self.monitor,
        }
        .tree(from, to)
    }

    /// Copies a source that is not an image of a container.
    fn enter(&self, source: &Path) -> Result<()> {
        if source.is_dir() {
            return self.tree(&HostSide::new(), source.as_os_str().as_bytes());
        }
        let in_disk = present_content::squashfs_in_disk(source)?;
        if in_disk.is_none() && is_image(source)? {
            let other = images::read(source)?;
            return self.tree(&image_side(&other, source), b"/");
        }
        let list = match in_disk {
            Some(tree) => Some(Source::Other(tree as Box<dyn ReadTree>)),
            None => present_content::list(source)?,
        };
        self.feed(match list {
            Some(Source::Other(tree)) => Feed::Tree(tree),
            Some(_) => bail!(
                "{}: is a device table, which mkfs --from applies when it makes an image",
                source.shown()
            ),
            None => {
                present_content::no_disk(source)?;
                Feed::Archive(ArchiveInput::File(source.into()))
            }
        })
    }

    fn feed(&self, feed: Feed) -> Result<()> {
        self.make(self.to)?;
        let read = read_archive(feed, self.image, self.to, &self.rules, self.monitor);
        read.map_err(|e| match e.downcast_ref() {
            Some(SourceError::Archive { what, .. }) if what.starts_with("not an archive") => {
                e.context("a source is a directory or an archive (cp copies files)")
            }
            _ => e,
        })
    }
}
