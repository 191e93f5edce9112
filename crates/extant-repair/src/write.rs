//! A plan written into an image file, so that a cut at any moment can be taken back.

use crate::undo::sync_folder;
use crate::{Changes, Error, Plan, Undo};
use blockdev::BlockDevice;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The undo file that is beside an image while it is repaired.
///
/// ```
/// let path = extant_repair::file_beside("dir/disk.img".as_ref());
/// assert_eq!(path, std::path::Path::new("dir/disk.img.extant-undo"));
/// ```
pub fn file_beside(image: &Path) -> PathBuf {
    let mut name = OsString::from(image);
    name.push(".extant-undo");
    name.into()
}

/// Takes back a repair that was interrupted, by the undo file `beside` the image; returns whether there was one. Nothing
/// happens where that repair had not begun to write.
///
/// # Errors
/// [`Error::Undo`] if the file is damaged or of another image; [`Error::Io`].
pub fn take_back_interrupted(device: &dyn BlockDevice, beside: &Path) -> Result<bool, Error> {
    let undo = match Undo::read(beside) {
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        undo => undo?,
    };
    if let Some(undo) = &undo {
        undo.take_back(device)?;
    }
    std::fs::remove_file(beside)?;
    sync_folder(beside)?;
    Ok(undo.is_some())
}

impl Changes {
    /// Writes the changes, with an undo file that is kept (`keep`) and one `beside` the image that is there only meanwhile; both are
    /// durable before the first write. A device has no place beside it that outlives the system.
    ///
    /// # Errors
    /// [`Error::Io`]. The file beside the image stays then, for [`take_back_interrupted`].
    pub fn write(
        &self,
        device: &dyn BlockDevice,
        keep: Option<&Path>,
        beside: Option<&Path>,
    ) -> Result<(), Error> {
        let undo = self.undo(device)?;
        for path in keep.into_iter().chain(beside) {
            undo.write(path)?;
        }
        self.apply(device)?;
        if let Some(beside) = beside {
            std::fs::remove_file(beside)?;
            sync_folder(beside)?;
        }
        Ok(())
    }
}

impl Plan {
    /// Writes the plan: see [`Changes::write`].
    ///
    /// # Errors
    /// The same.
    pub fn write(
        &self,
        device: &dyn BlockDevice,
        keep: Option<&Path>,
        beside: Option<&Path>,
    ) -> Result<(), Error> {
        self.changes.write(device, keep, beside)
    }
}
