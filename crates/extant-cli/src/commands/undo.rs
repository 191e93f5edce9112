//! `extant undo`.

use super::in_place;
use crate::address::Location;
use crate::images;
use crate::output;
use crate::show::count;
use crate::store;
use anyhow::{Context, Result, bail};
use blockdev::{Access, BlockDevice};
use ext4_format::superblock;
use ext4_image::{E2UNDO_MAGIC, Error, Undo};
use extant_terminal::numbers::human;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Magic number of undo files.
const MAGIC: &[u8; 8] = b"EXTUNDO\n";
/// Offset of the magic number of ext4.
const EXT_MAGIC: usize = 1080;

/// Restore an image to its state before a change
///
/// FILE is an undo file. extant repair, tune, resize and defrag write one with --undo, an interrupted change leaves one
/// next to the image, and the tools of e2fsprogs write one with -z. FILE and IMAGE may be given in any order. With only
/// IMAGE, an interrupted change is rolled back, because the image names its undo file. An image that has been changed
/// since then is refused. FILE is not removed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  extant undo disk.undo disk.img\n  extant undo disk.img")]
pub struct Args {
    /// Undo file to apply
    #[arg(value_name = "FILE")]
    file: OsString,
    /// Image to restore
    image: Option<OsString>,
    /// Restore the image even if it has been changed since, losing that change, or if other users may write to FILE
    #[arg(short, long)]
    force: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let Some(second) = &args.image else {
        return interrupted(&image_of(&args.file));
    };
    let (first, second) = (&args.file, second);
    let (file, image) = match (is_undo(first.as_ref()), is_undo(second.as_ref())) {
        (true, true) => bail!(
            "{} and {} are both undo files: name one and the image",
            Path::new(first).display(),
            Path::new(second).display()
        ),
        (false, true) => (Path::new(second), image_of(first)),
        // If neither is an undo file, reading the first one reports that.
        _ => (Path::new(first), image_of(second)),
    };
    named(file, &image, args.force)
}

/// Rolls back the interrupted change whose mark the image carries.
fn interrupted(image: &Path) -> Result<()> {
    if is_undo(image) {
        bail!("{}: an undo file: name its image, too", image.display());
    }
    images::identity(image)?;
    let device = store::open(image, Access::ReadWrite)?;
    let file = in_place::image_file(image).with_context(|| image.display().to_string())?;
    if in_place::take_back_from(image, &file, &device)? {
        return Ok(());
    }
    bail!(
        "{}: no change was interrupted: name the undo file of the change to take back",
        image.display()
    )
}

/// Rolls back a change with an undo file that the user names.
fn named(file: &Path, image: &Path, force: bool) -> Result<()> {
    let shown = || file.display().to_string();
    images::identity(image)?;
    let device = store::open(image, Access::ReadWrite)?;
    let opened = if force {
        File::open(file).map_err(Error::from)
    } else {
        in_place::image_file(image)
            .with_context(|| image.display().to_string())?
            .open(file)
    };
    let undo = opened.and_then(|opened| Undo::of_file(opened, &device, force));
    let undo = undo.map_err(|error| match error {
        // The messages of these two errors already name the file.
        Error::Untrusted { .. } => anyhow::anyhow!("{error}: --force takes it all the same"),
        Error::Io(error) => anyhow::anyhow!("{error}"),
        error => anyhow::Error::new(error).context(shown()),
    })?;
    let Some(undo) = undo else {
        // An image begins with zeros, like an unfinished undo file.
        if is_image(file) {
            bail!("{}: undo file: it is no undo file", shown());
        }
        return told(
            image,
            "nothing to take back: the change ended before its first write",
        );
    };
    let len = device.len();
    let bytes = if force {
        undo.force_back(&device, file).map_err(anyhow::Error::from)
    } else {
        undo.take_back_by(&device, file)
            .map_err(anyhow::Error::from)
    };
    let bytes = bytes.with_context(shown)?;
    let parts = count(undo.len() as u64, "part", "parts");
    match (bytes, device.len() < len) {
        (0, false) => told(
            image,
            "nothing to take back: it is as it was before the change",
        ),
        _ => told(
            image,
            &format!(
                "restored to its state before the change: {parts} compared, {} written",
                human(bytes)
            ),
        ),
    }
}

/// Fails if an undo file does not fit an image.
pub(crate) fn fits(file: &Path, image: &Path) -> Result<()> {
    let shown = || file.display().to_string();
    let device = store::open(image, Access::ReadOnly)?;
    let undo = File::open(file).map_err(Error::from);
    let undo = undo.and_then(|opened| Undo::of_file(opened, &device, false));
    match undo.with_context(shown)? {
        Some(undo) => undo.check(&device).with_context(shown),
        None => Ok(()),
    }
}

fn told(image: &Path, what: &str) -> Result<()> {
    let mut out = output::stdout();
    writeln!(out, "{}: {what}", image.display())?;
    Ok(out.flush()?)
}

/// Returns the image that an argument names, with or without a path inside.
fn image_of(word: &OsString) -> PathBuf {
    match Location::from(word.clone()) {
        Location::Image(address) => address.image,
        Location::Host(path) => path,
    }
}

/// Returns whether a file has the magic number of undo files.
fn is_undo(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
    let read = is_file.then(|| File::open(path).and_then(|mut file| file.read_exact(&mut magic)));
    matches!(read, Some(Ok(()))) && [MAGIC, E2UNDO_MAGIC].contains(&&magic)
}

/// Returns whether a file has the magic number of ext4.
fn is_image(path: &Path) -> bool {
    let head = store::head(path, EXT_MAGIC + 2).unwrap_or_default();
    head.get(EXT_MAGIC..) == Some(&superblock::MAGIC.to_le_bytes()[..])
}
