//! `extant export`.

use crate::transfer::{self, Monitor, OwnerArgs, Packing, side_at};
use anyhow::{Context, Result, bail, ensure};
use extant::FileType;
use extant_cli_core::address::image_place::ImagePlace;
use extant_cli_core::address::patterns::{NoMatch, expand};
use extant_cli_core::address::{Rooted, base_name, is_stream, join};
use extant_cli_core::format::show::ShowPath;
use extant_cli_core::image::whole_file::write_whole;
use extant_cli_core::image::{images, store, streams};
use extant_terminal::output::{self, STDOUT, named};
use extant_transfer::{Existing, HostSide, Route, Side};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Write a tree of an image to a directory or an archive
///
/// All cores work on it. A directory receives the contents of the tree, with holes and hard links. Owners and devices
/// need root (or --owner). A tar archive has everything but sockets, in pax format. A cpio archive, in the
/// format newc that Linux boots from, has no extended attributes. Archives do not depend on the number of threads.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant export disk.img rootfs/\n  extant export disk.img:/etc etc.tar.zst\n  extant export disk.img - | tar tv\n  extant export disk.img initrd.img --format cpio.zst"
)]
pub struct Args {
    /// Tree to export; a bare IMAGE is its root
    #[arg(value_name = "IMAGE[:/PATH]")]
    source: Rooted,
    /// Directory, archive by its name (.tar, .tar.gz, .tgz, .tar.zst, .tzst, .cpio, .cpio.gz, .cpio.zst), or - for an
    /// archive on standard output
    dest: PathBuf,
    /// Format of the archive, regardless of its name: tar, tar.gz, tar.zst, cpio, cpio.gz or cpio.zst [default on
    /// standard output: a plain tar archive]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Packing>,
    /// Number of threads [0: the number of CPUs]
    #[arg(long, default_value_t = 0, value_parser = store::threads_given)]
    threads: usize,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    owner: OwnerArgs,
}

impl Args {
    /// Returns the format of an archive, if the destination is an archive.
    fn packing(&self, stdout: bool) -> Result<Option<Packing>> {
        ensure!(
            self.format.is_none() || !self.dest.is_dir(),
            "{}: is a directory: --format is for archives",
            self.dest.shown()
        );
        Ok(match self.format {
            None if stdout => Some(Packing::TAR),
            None => Packing::of_name(&self.dest),
            given => given,
        })
    }
}

pub fn run(args: &Args) -> Result<()> {
    let Rooted(address) = &args.source;
    let stdout = is_stream(&args.dest);
    if stdout {
        streams::archive_to_stdout()?;
    }
    let volume = images::read(&address.image)?;
    let found = expand(&volume, address, NoMatch::Fails)?;
    let [address] = &found[..] else {
        bail!(
            "{address}: {} names match: name one, or use cp -a",
            found.len()
        )
    };
    let place = ImagePlace::of(&volume, address).with_context(|| address.to_string())?;
    let (image, from) = (side_at(&place), &place.path[..]);
    let threads = store::threads(args.threads, [address.image.as_path()]);
    let mut rules = args.owner.rules(threads, &volume)?;
    let monitor = Monitor::new("export");
    let packing = args.packing(stdout)?;
    check_name(args, &place, packing)?;
    if address.path == b"/" {
        // Nearly all used space of a volume is data.
        let s = volume.statfs()?;
        let used = s.blocks.saturating_sub(s.free_blocks);
        monitor.expect(used.saturating_mul(s.block_size.into()));
    }
    let top = image
        .meta(from, true)
        .with_context(|| address.to_string())?;
    let top = top.ok_or_else(|| transfer::nowhere(&image, from))?;
    // The name of an archive may also be the name of an existing directory.
    let done = match packing.filter(|_| !args.dest.is_dir()) {
        Some(packing) if stdout => transfer::pack(
            &image,
            from,
            NamedWriter(&mut std::io::stdout().lock(), STDOUT.into()),
            packing,
            &rules,
            &monitor,
        ),
        Some(packing) => write_whole(&args.dest, |file| {
            let out = NamedWriter(file, args.dest.shown());
            transfer::pack(&image, from, out, packing, &rules, &monitor)
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
            if top.kind == FileType::Directory {
                route.tree(from, to)
            } else {
                let name = base_name(from);
                let to = if args.dest.is_dir() {
                    join(to, name)
                } else {
                    to.to_vec()
                };
                route.file(from, &to, true, Existing::Replace)
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

/// Fails if the archive cannot be written, or if the source lacks a name that the archive needs.
fn check_name(args: &Args, place: &ImagePlace, packing: Option<Packing>) -> Result<()> {
    let name = args.dest.as_os_str().to_string_lossy();
    let into = args.dest.is_dir();
    if packing.is_none() && OTHERS.iter().any(|end| name.ends_with(end)) {
        ensure!(
            into,
            "{name}: not an archive that can be written: use .tar, .tar.gz, .tar.zst, .cpio, .cpio.gz or .cpio.zst; or make the \
             directory first, if it is to be one"
        );
    }
    let node = place.node();
    let file = node.is_some_and(|node| node.file_type() != FileType::Directory);
    ensure!(
        !(file && (packing.is_some() || into)),
        "{}: has no name here: use cp, with the name of the copy",
        place.address
    );
    Ok(())
}

/// Suffixes of unsupported archive formats, because a directory with such a name is hardly intended.
const OTHERS: [&str; 14] = [
    ".tar.xz",
    ".txz",
    ".tar.bz2",
    ".tbz2",
    ".tar.lz4",
    ".tar.lz",
    ".tar.Z",
    ".tar.br",
    ".zip",
    ".cpio.xz",
    ".cpio.bz2",
    ".cpio.lz4",
    ".7z",
    ".squashfs",
];

/// A writer whose errors name it.
struct NamedWriter<'w, W>(&'w mut W, String);

impl<W: Write> Write for NamedWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes).map_err(|e| named(&self.1, e))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush().map_err(|e| named(&self.1, e))
    }
}
