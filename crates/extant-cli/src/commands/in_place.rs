//! Opening images for writing: an interrupted change in place is taken back first.

use crate::advice::no_disk;
use crate::images;
use crate::output;
use crate::store;
use anyhow::{Context, Result, anyhow, ensure};
use blockdev::{Access, BlockDevice};
use ext4_format::FormatError;
use ext4_format::change_mark::{ChangeMark, MARK_SIZE};
use ext4_format::superblock::SUPERBLOCK_OFFSET;
use extant_repair::ImageFile;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// File systems whose files may be lost with the system: tmpfs, ramfs, and overlays, which may lie on either.
const VOLATILE: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x794c_7630];
/// Bytes of an image up to the end of the mark.
const HEAD: usize = SUPERBLOCK_OFFSET as usize + MARK_SIZE;

/// The file that holds an image, for its undo files.
pub fn image_file(image: &Path) -> Result<ImageFile> {
    let part = match store::split(image) {
        Some(_) => Some(store::range(image)?.start),
        None => None,
    };
    Ok(ImageFile::of(store::file(image), part)?)
}

/// Opens an image for a change in place, and returns the device and the path for the undo file beside the image. An interrupted
/// change is taken back first.
pub fn ready(
    image: &Path,
    undo: Option<&Path>,
    dry_run: bool,
) -> Result<(Arc<dyn BlockDevice>, Option<PathBuf>)> {
    let access = match dry_run {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    };
    images::identity(image)?;
    no_disk(image)?;
    let device = store::open(image, access)?;
    let beside = taken_back(image, &device, undo, dry_run)?;
    Ok((device, beside))
}

/// Takes an interrupted change back, and returns the path for the undo file of the next change.
pub fn taken_back(
    image: &Path,
    device: &dyn BlockDevice,
    undo: Option<&Path>,
    dry_run: bool,
) -> Result<Option<PathBuf>> {
    let name = || image.display().to_string();
    if dry_run {
        return match extant_repair::mark(device).with_context(name)? {
            Some(mark) => Err(FormatError::Interrupted(mark.to_string())).with_context(name),
            None => Ok(None),
        };
    }
    let file = image_file(image).with_context(name)?;
    take_back_from(image, &file, device)?;
    let is_device = store::file(image).metadata()?.file_type().is_block_device();
    let place = match is_device && undo.is_none() {
        true => undo_dir().and_then(|dir| Ok(Some(file.place_of_undo_in(&dir)?))),
        false => file.place_of_undo().map_err(anyhow::Error::from),
    };
    place.with_context(name)
}

/// Returns the directory for undo files of block devices, which is made if it is absent.
///
/// # Errors
/// If the directory does not outlive the system: after a crash nothing could restore the device.
fn undo_dir() -> Result<PathBuf> {
    let dir = undo_dir_path().context("no home: give --undo FILE, on another file system")?;
    let needs = || {
        format!(
            "{}: no place for the undo file of a block device: give --undo FILE, on another file system",
            dir.display()
        )
    };
    if !dir.is_dir() {
        let mut made = DirBuilder::new();
        made.recursive(true)
            .mode(0o700)
            .create(&dir)
            .with_context(needs)?;
        if let Some(above) = dir.parent() {
            File::open(above)
                .and_then(|above| above.sync_all())
                .with_context(needs)?;
        }
    }
    let kind = rustix::fs::statfs(&dir).with_context(needs)?.f_type;
    ensure!(
        !VOLATILE.contains(&u64::try_from(kind).unwrap_or(0)),
        "{}",
        needs()
    );
    Ok(dir)
}

/// Returns the path of that directory: the system's, or the user's own.
fn undo_dir_path() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/extant".into());
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || Some(Path::new(&std::env::var_os("HOME")?).join(".local/state"));
    let state = state.filter(|dir| dir.is_absolute()).or_else(home)?;
    Some(state.join("extant"))
}

/// Takes an interrupted change back before the engine opens the image for writing.
pub fn take_back(image: &Path) -> Result<()> {
    // If the image cannot be read, the opening that follows reports the error.
    let head = store::head(image, HEAD).unwrap_or_default();
    let superblock = head.get(SUPERBLOCK_OFFSET as usize..).unwrap_or_default();
    if ChangeMark::read(superblock).is_none() {
        return Ok(());
    }
    let device = store::open(image, Access::ReadWrite)?;
    let file = image_file(image).with_context(|| image.display().to_string())?;
    take_back_from(image, &file, &device).map(drop)
}

/// Takes an interrupted change back and reports it on standard error; returns whether the image had the mark of one.
pub fn take_back_from(image: &Path, file: &ImageFile, device: &dyn BlockDevice) -> Result<bool> {
    let taken = file.take_back(device);
    let Some(undo) = taken.with_context(|| image.display().to_string())? else {
        return Ok(false);
    };
    if undo_dir_path().is_some_and(|dir| undo.parent() == Some(&dir)) {
        // The file was made for this change, and has no more use.
        let _ = std::fs::remove_file(&undo);
    }
    output::complain(format!(
        "{}: an interrupted change was taken back (undo file: {})",
        image.display(),
        undo.display()
    ));
    Ok(true)
}

/// Takes a change back that failed and could not be taken back on `device`; returns the error. A device whose flush has failed accepts no
/// further flush, so the image is opened anew.
pub fn after_failure<D>(image: &Path, device: D, error: impl Into<anyhow::Error>) -> anyhow::Error {
    drop(device);
    let error = error.into();
    let why = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(extant_repair::Error::Interrupted { why, .. }) => Some(why.clone()),
        _ => None,
    });
    let Some(why) = why else {
        return error;
    };
    let again = || {
        // The first flush may report what was lost when the device was closed.
        let _ = store::open(image, Access::ReadWrite)?.flush();
        let device = store::open(image, Access::ReadWrite)?;
        take_back_from(image, &image_file(image)?, &device)
    };
    match again() {
        Ok(true) => anyhow!("{why}: the change was taken back, and the image is as before"),
        // The error names the undo file.
        _ => error,
    }
}
