//! Opens images for writing: an interrupted change in place is rolled back first.

use crate::address::schemes;
use crate::format::show::ShowPath;
use crate::image::advice::{about_image, no_disk};
use crate::image::{identity, overlaid, store};
use crate::messages::advised::advised;
use anyhow::{Context, Result, anyhow};
use blockdev::{Access, BlockDevice};
use ext4_format::FormatError;
use ext4_format::change_mark::{ChangeMark, MARK_SIZE};
use ext4_format::geometry::Geometry;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_image::ImageFile;
use extant_mmp::{MmpDevice, MmpError, MmpOptions};
use extant_terminal::output;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of an image up to the end of the mark.
const HEAD: usize = SUPERBLOCK_OFFSET as usize + MARK_SIZE;

/// Returns the file that holds an image, for its undo files.
pub fn image_file(image: &Path) -> Result<ImageFile> {
    if schemes::is_remote(image) || overlaid::is_overlaid(image) {
        return Ok(ImageFile::elsewhere());
    }
    let part = match store::split(image) {
        Some(_) => Some(store::range(image)?.start),
        None => None,
    };
    Ok(ImageFile::of(store::file(image), part)?)
}

/// Opens an undo file of any owner. A pipe is refused, because opening it would wait for its writer.
pub fn open_untrusted(undo: &Path) -> std::io::Result<File> {
    if undo.metadata()?.is_file() {
        return File::open(undo);
    }
    let text = format!("{}: not a regular file", undo.shown());
    Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, text))
}

/// Opens an image for a change in place, and returns the device and the path for the undo file beside the image. A volume with multiple
/// mount protection is claimed. An interrupted change is taken back first.
pub fn ready(image: &Path, dry_run: bool) -> Result<(Arc<dyn BlockDevice>, Option<PathBuf>)> {
    ready_if(image, dry_run, !dry_run)
}

/// Like [`ready`], but leaves the volume unclaimed unless `claims`.
pub fn ready_if(
    image: &Path,
    dry_run: bool,
    claims: bool,
) -> Result<(Arc<dyn BlockDevice>, Option<PathBuf>)> {
    let access = if dry_run {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    identity::identity(image)?;
    no_disk(image)?;
    let mut device = store::open(image, access)?;
    if claims {
        device = claimed(image, device)?;
    }
    let beside = taken_back(image, &device, dry_run)?;
    Ok((device, beside))
}

/// Claims a volume that has multiple mount protection. One whose superblock or block of protection is damaged is not claimed.
pub fn claimed(image: &Path, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
    let mut superblock = [0; SUPERBLOCK_SIZE];
    if device.len() >= SUPERBLOCK_OFFSET + superblock.len() as u64 {
        let read = device.read_at(SUPERBLOCK_OFFSET, &mut superblock);
        read.with_context(|| image.shown())?;
    }
    let sb = RawSuperblock::parse(&superblock).ok();
    let Some((sb, geometry)) = sb.and_then(|sb| Some((sb, Geometry::new(&sb).ok()?))) else {
        return Ok(device);
    };
    match MmpDevice::mount(Arc::clone(&device), &sb, &geometry, &MmpOptions::default()) {
        Ok(Some(claimed)) => Ok(Arc::new(claimed)),
        Ok(None) | Err(MmpError::Format(_)) => Ok(device),
        Err(e) => Err(about_image(image, e.into()).context(image.shown())),
    }
}

/// Fails if the image carries the mark of an interrupted change.
pub fn refuse_interrupted(image: &Path, device: &dyn BlockDevice) -> Result<()> {
    let name = || image.shown();
    match ext4_image::mark(device).with_context(name)? {
        Some(mark) => Err(FormatError::Interrupted(mark.to_string())).with_context(name),
        None => Ok(()),
    }
}

/// Takes an interrupted change back, and returns the path for the undo file of the next change.
pub fn taken_back(
    image: &Path,
    device: &dyn BlockDevice,
    dry_run: bool,
) -> Result<Option<PathBuf>> {
    let name = || image.shown();
    if dry_run {
        return refuse_interrupted(image, device).map(|()| None);
    }
    if ext4_image::mark(device).ok().flatten().is_some() {
        not_of_others(image)?;
    }
    let file = image_file(image).with_context(name)?;
    take_back_from(image, &file, device)?;
    file.place_of_undo().with_context(name)
}

/// Fails for an image on a server: another machine may be making the change whose mark the image has.
fn not_of_others(image: &Path) -> Result<()> {
    if !schemes::is_remote(image) || overlaid::is_overlaid(image) {
        return Ok(());
    }
    let name = image.shown();
    Err(advised(
        format_args!("{name}: a change is under way, or was interrupted"),
        format_args!("if nobody else has the export, extant undo '{name}' reverts it"),
    ))
}

/// Takes an interrupted change back before the engine opens the image for writing.
pub fn take_back(image: &Path) -> Result<()> {
    // If the image cannot be read, the opening that follows reports the error.
    let head = store::head(image, HEAD).unwrap_or_default();
    let superblock = head.get(SUPERBLOCK_OFFSET as usize..).unwrap_or_default();
    if ChangeMark::read(superblock).is_none() {
        return Ok(());
    }
    not_of_others(image)?;
    let device = store::open(image, Access::ReadWrite)?;
    let file = image_file(image).with_context(|| image.shown())?;
    take_back_from(image, &file, &device).map(drop)
}

/// Rolls back an interrupted change and reports it on standard error; returns whether the image had the mark of such a
/// change.
pub fn take_back_from(image: &Path, file: &ImageFile, device: &dyn BlockDevice) -> Result<bool> {
    let mark = ext4_image::mark(device).ok().flatten();
    let taken = file.take_back(device);
    let Some(undo) = taken.with_context(|| image.shown())? else {
        return Ok(false);
    };
    let undo = match mark.filter(|mark| mark.offset().is_some()) {
        Some(mark) => mark.to_string(),
        None => undo.shown(),
    };
    output::note(format!(
        "{}: an interrupted change was reverted (undo file: {undo})",
        image.shown()
    ));
    Ok(true)
}

/// Rolls back a change that failed and could not be rolled back on `device`; returns the error. A device whose flush
/// has failed accepts no further flush, so the image is reopened.
pub fn after_failure<D>(image: &Path, device: D, error: impl Into<anyhow::Error>) -> anyhow::Error {
    drop(device);
    let error = error.into();
    let why = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(ext4_image::Error::Interrupted { why, .. }) => Some(why.clone()),
        _ => None,
    });
    let Some(why) = why else {
        return error;
    };
    let again = || {
        // The first flush may report an error from closing the device.
        let _ = store::open(image, Access::ReadWrite)?.flush();
        let device = store::open(image, Access::ReadWrite)?;
        take_back_from(image, &image_file(image)?, &device)
    };
    match again() {
        Ok(true) => anyhow!("{why}: the change was reverted, and the image is as before"),
        // The error names the undo file.
        _ => error,
    }
}
