//! `extant undo`.

use anyhow::{Context, Result, bail};
use blockdev::{Access, BlockDevice};
use clap::ArgMatches;
use ext4_format::superblock;
use ext4_image::{E2UNDO_MAGIC, E2Undo, Error, Undo};
use extant_cli_core::address::Location;
use extant_cli_core::address::schemes::is_remote;
use extant_cli_core::format::show::{ShowPath, count};
use extant_cli_core::image::{identity, in_place, store};
use extant_terminal::numbers::human;
use extant_terminal::output;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    for path in [image_of(first), image_of(second)] {
        if !is_remote(&path) && !store::file(&path).exists() {
            let name = path.shown();
            bail!("{name}: no such file or directory: an undo file and its image are needed");
        }
    }
    let (file, image) = match (is_undo(first.as_ref()), is_undo(second.as_ref())) {
        (true, true) => bail!(
            "{} and {} are both undo files: name one and the image",
            Path::new(first).shown(),
            Path::new(second).shown()
        ),
        (false, true) => (Path::new(second), image_of(first)),
        // If neither is an undo file, reading the first one reports that.
        _ => (Path::new(first), image_of(second)),
    };
    named(file, &image, args.force)
}

/// Returns the images among the arguments, without undo files.
pub fn images(matches: &ArgMatches) -> Vec<PathBuf> {
    let words = ["file", "image"].into_iter();
    let words = words.filter_map(|id| matches.get_one::<OsString>(id));
    let paths = words.filter(|word| !is_undo(Path::new(word)));
    paths.map(image_of).collect()
}

/// Rolls back the interrupted change whose mark the image carries.
fn interrupted(image: &Path) -> Result<()> {
    if is_undo(image) {
        bail!("{}: an undo file: name its image, too", image.shown());
    }
    identity::identity(image)?;
    let device = store::open(image, Access::ReadWrite)?;
    let file = in_place::image_file(image).with_context(|| image.shown())?;
    if in_place::take_back_from(image, &file, &device)? {
        return Ok(());
    }
    bail!(
        "{}: no change was interrupted: name the undo file of the change to take back",
        image.shown()
    )
}

/// Rolls back a change with an undo file that the user names.
fn named(file: &Path, image: &Path, force: bool) -> Result<()> {
    let shown = || file.shown();
    identity::identity(image)?;
    let device = store::open(image, Access::ReadWrite)?;
    let opened = if force {
        in_place::open_untrusted(file).map_err(Error::from)
    } else {
        in_place::image_file(image)
            .with_context(|| image.shown())?
            .open(file)
    };
    let told_of = |error: Error| match error {
        // The messages of these two errors already name the file.
        Error::Untrusted { .. } => anyhow::anyhow!("{error}: --force trusts it anyway"),
        Error::Io(error) => anyhow::anyhow!("{error}"),
        error => anyhow::Error::new(error).context(shown()),
    };
    let read = |mut opened: File| -> Result<_, Error> {
        let theirs = E2Undo::read(opened.try_clone()?)?;
        opened.rewind()?;
        Ok((theirs, opened))
    };
    let (theirs, opened) = opened.and_then(read).map_err(told_of)?;
    if let Some(theirs) = theirs {
        return of_e2fsprogs(&theirs, file, image, device, force);
    }
    let undo = Undo::of_file(opened, &device, force).map_err(told_of)?;
    let Some(undo) = undo else {
        // An image begins with zeros, like an unfinished undo file.
        if is_image(file) {
            bail!("{}: not an undo file", shown());
        }
        return told(
            image,
            "nothing to take back: the change ended before its first write",
        );
    };
    take_back_other(image, &device, undo.id(), force)?;
    let len = device.len();
    let bytes = if force {
        undo.force_back(&device, file).map_err(anyhow::Error::from)
    } else {
        undo.take_back_by(&device, file)
            .map_err(anyhow::Error::from)
    };
    let bytes = bytes.with_context(shown)?;
    report(image, undo.len() as u64, bytes, device.len() < len)
}

/// Rolls back an interrupted change other than the one with this identity. Otherwise the forced restore would overwrite its mark, and
/// leave an image that is half changed and can be mounted.
fn take_back_other(image: &Path, device: &dyn BlockDevice, id: u64, force: bool) -> Result<()> {
    let name = || image.shown();
    let mark = ext4_image::mark(device).with_context(name)?;
    if mark.is_none_or(|mark| mark.id() == id) {
        return Ok(());
    }
    let holder = in_place::image_file(image).with_context(name)?;
    match in_place::take_back_from(image, &holder, device) {
        Err(error) if force => {
            output::warn(output::one_line(&error));
            Ok(())
        }
        done => done.map(drop),
    }
}

/// Applies an undo file of e2fsprogs. The writes have a separate undo record, because an interrupted change is rolled
/// back only from a record in the format of Extant.
fn of_e2fsprogs(
    theirs: &E2Undo,
    file: &Path,
    image: &Path,
    device: Arc<dyn BlockDevice>,
    force: bool,
) -> Result<()> {
    let name = || image.shown();
    let len = device.len();
    let holder = in_place::image_file(image).with_context(name)?;
    // An earlier undo may have been interrupted.
    let ready = in_place::take_back_from(image, &holder, &device);
    let done = match ready {
        Ok(_) => {
            let beside = holder.place_of_undo().with_context(name)?;
            theirs.take_back(&device, force, beside.as_deref())
        }
        Err(error) if !force => return Err(error),
        Err(_) => forced(theirs, file, &device),
    };
    let done = match done {
        Err(Error::NoRoomForUndo(_)) if force => forced(theirs, file, &device),
        done => done,
    };
    let bytes = match done {
        Ok(bytes) => bytes,
        Err(error @ Error::Undo(_)) => {
            return Err(anyhow::Error::new(error).context(file.shown()));
        }
        Err(Error::NoRoomForUndo(bytes)) => bail!(
            "{}: no free run of {bytes} bytes on the device for an undo record: --force restores the image without one",
            image.shown()
        ),
        Err(error) => return Err(in_place::after_failure(image, device, error)),
    };
    report(image, theirs.keys(), bytes, device.len() < len)
}

/// Applies an undo file of e2fsprogs without an undo record. After an interruption, only a second forced undo restores the
/// image.
fn forced(theirs: &E2Undo, file: &Path, device: &dyn BlockDevice) -> Result<u64, Error> {
    let undo = theirs.undo(device, true)?;
    Ok(undo.force_back(device, file)?)
}

/// Reports an undo: the number of compared parts and written bytes, and whether the image was shortened.
fn report(image: &Path, parts: u64, bytes: u64, shortened: bool) -> Result<()> {
    let parts = count(parts, "part", "parts");
    match (bytes, shortened) {
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

fn told(image: &Path, what: &str) -> Result<()> {
    let mut out = output::stdout();
    writeln!(out, "{}: {what}", image.shown())?;
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
