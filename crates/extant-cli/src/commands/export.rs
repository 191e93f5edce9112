//! `extant export`.

use crate::address::Rooted;
use crate::images;
use crate::output;
use crate::transfer::{self, HostSide, ImageSide, Monitor, OwnerArgs, Packing, Route, Rules, Side};
use anyhow::{Context, Result};
use extant::FileType;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Write a tree of an image to a directory or a tar archive, from all cores
///
/// A directory gets what is in the tree, with holes and hard links; owners and devices only when root
/// asks (or with --owner). An archive has everything but sockets, in pax format, and is the same
/// whatever the number of threads.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant export disk.img rootfs/\n  extant export disk.img:/etc etc.tar.zst\n  extant export disk.img - | tar tv"
)]
pub struct Args {
    /// What to export; a bare IMAGE is its root
    #[arg(value_name = "IMAGE[:/PATH]")]
    source: Rooted,
    /// A directory, an archive by its name (.tar, .tar.gz, .tgz, .tar.zst, .tzst), or - for a plain
    /// archive on standard output
    dest: PathBuf,
    /// Threads; 0: one for each CPU
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    owner: OwnerArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let Rooted(address) = &args.source;
    let volume = images::read(&address.image)?;
    let image = ImageSide::new(&volume, &address.image);
    let mut rules = Rules::all(args.threads).with(&args.owner, &volume)?;
    let monitor = Monitor::new("export");
    let stdout = args.dest == Path::new("-");
    let packing = if stdout {
        Some(Packing::Plain)
    } else {
        Packing::of_name(&args.dest)
    };
    // An archive name may also be that of a directory that exists.
    let done = match packing.filter(|_| !args.dest.is_dir()) {
        Some(packing) if stdout => transfer::pack(
            &image,
            &address.path,
            std::io::stdout().lock(),
            packing,
            &rules,
            &monitor,
        ),
        Some(packing) => archive(&args.dest, |out| {
            transfer::pack(&image, &address.path, out, packing, &rules, &monitor)
        }),
        None => {
            let host = HostSide::new();
            rules.keep_owner = host.privileged() || args.owner.owner.is_some();
            let to = args.dest.as_os_str().as_bytes();
            let route = Route {
                src: &image,
                dst: &host,
                rules: &rules,
                monitor: &monitor,
            };
            let top = image
                .meta(&address.path, true)
                .and_then(|m| m.context("no such file or directory"));
            let top = top.with_context(|| address.to_string())?;
            if top.kind == FileType::Directory {
                route.tree(&address.path, to)
            } else {
                let name = crate::address::base_name(&address.path);
                let to = if args.dest.is_dir() {
                    crate::address::join(to, name)
                } else {
                    to.to_vec()
                };
                route.file(&address.path, &to, true, transfer::Existing::Replace)
            }
        }
    };
    let counts = monitor.finish();
    done?;
    volume.close()?;
    match (stdout, args.json) {
        (true, _) => Ok(()),
        (false, true) => output::json(&counts),
        (false, false) => output::summary(&counts.line()),
    }
}

/// Writes a file; one that could not be finished is removed.
fn archive(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let context = || path.display().to_string();
    let mut file = std::fs::File::create(path).with_context(context)?;
    write(&mut file).inspect_err(|_| {
        // Best effort: the error that matters is the first one.
        let _ = std::fs::remove_file(path);
    })
}
