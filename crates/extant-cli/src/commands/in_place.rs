//! Opening images for writing: an interrupted change in place is taken back first.

use crate::images;
use crate::output;
use crate::store;
use anyhow::{Context, Result, bail};
use blockdev::{Access, BlockDevice};
use ext4_format::FormatError;
use ext4_format::change_mark::{ChangeMark, MARK_SIZE};
use ext4_format::superblock::SUPERBLOCK_OFFSET;
use extant_repair::ImageFile;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    if is_device && undo.is_none() {
        bail!("a block device needs --undo FILE, on another file system");
    }
    file.place_of_undo().with_context(name)
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
    output::complain(format!(
        "{}: an interrupted change was taken back (undo file: {})",
        image.display(),
        undo.display()
    ));
    Ok(true)
}
