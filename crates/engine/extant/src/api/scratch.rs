//! Trying changes out on an image that is only read (mechanism L11). All changes go to an overlay. The overlay is
//! thrown away with the volume, or kept in a file, opened again, and at last merged into the image.
//!
//! Only [`apply`] opens the image for writing. While a scratch volume is open, other programs may read the image and
//! open further scratch volumes on it, but opening the image for writing fails. While a writer has the image open, no
//! scratch volume can be opened. A kept overlay belongs to the image as it was: once the image is written, the overlay
//! is useless. The bytes of an overlay file are described in docs/overlay-format.md.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let image = dir.path().join("disk.img");
//! # let overlay = dir.path().join("changes");
//! # let device = extant::blockdev::FileDevice::create(&image, 16 << 20)?;
//! # extant::mkfs::format(&device, &extant::mkfs::MkfsOptions { size: Some(16 << 20), ..Default::default() })?;
//! # drop(device);
//! use extant::{VolumeOptions, scratch::{self, Changes}};
//! let volume = scratch::open(&image, Changes::ThrownAway, &VolumeOptions::new())?;
//! volume.write("/tried", b"and forgotten")?;
//! volume.close()?;
//!
//! let volume = scratch::open(&image, Changes::KeptIn(&overlay), &VolumeOptions::new())?;
//! assert!(volume.metadata("/tried").is_err());
//! volume.write("/kept", b"until it is merged")?;
//! volume.close()?;
//! drop(volume_of(&image)?); // the image is as it was
//! scratch::apply(&image, &overlay)?;
//! assert_eq!(volume_of(&image)?.read("/kept")?, b"until it is merged");
//! # fn volume_of(image: &std::path::Path) -> extant::Result<extant::Volume> {
//! #     VolumeOptions::new().read_only(true).open(image)
//! # }
//! # Ok(())
//! # }
//! ```

use crate::api::volume::Volume;
use crate::base::error::{Error, Result};
use crate::volume::options::VolumeOptions;
use blockdev::{Access, BlockDevice, FileDevice, Overlay, apply_overlay};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The fate of the changes to a scratch volume.
///
/// ```
/// use extant::scratch::Changes;
/// assert_ne!(Changes::ThrownAway, Changes::KeptIn("overlay".as_ref()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes<'a> {
    /// The changes are lost with the volume, or with the process. Meanwhile they take space in the directory for
    /// temporary files (`TMPDIR`), or next to the image if that directory has too little room.
    ThrownAway,
    /// The changes stay in this file, which is made if it does not exist.
    KeptIn(&'a Path),
}

/// Opens an image as a volume that may be changed though the image is only read.
///
/// ```no_run
/// use extant::{VolumeOptions, scratch};
/// let volume = scratch::open("disk.img", scratch::Changes::ThrownAway, &VolumeOptions::new())?;
/// volume.write("/tried", b"and gone when the volume is closed")?;
/// # Ok::<(), extant::Error>(())
/// ```
///
/// # Errors
/// [`Error::Io`] with kind `ResourceBusy` if the image is open for writing elsewhere, or the overlay open at all. Kind
/// `InvalidData` if the file is not an overlay, or not an overlay of this image as it is now.
pub fn open(
    image: impl AsRef<Path>,
    changes: Changes<'_>,
    options: &VolumeOptions,
) -> Result<Volume> {
    options.open_device(device(image, changes)?)
}

/// Opens an image as a device that may be changed though the image is only read.
///
/// ```no_run
/// use extant::scratch;
/// let device = scratch::device("disk.img", scratch::Changes::KeptIn("overlay".as_ref()))?;
/// println!("{} bytes", device.len());
/// # Ok::<(), extant::Error>(())
/// ```
pub fn device(image: impl AsRef<Path>, changes: Changes<'_>) -> Result<Arc<dyn BlockDevice>> {
    let image = image.as_ref();
    let base = FileDevice::open(image, Access::ReadOnly).map_err(|e| failed("open", image, e))?;
    device_over(Arc::new(base), image, changes)
}

/// Like [`device`], over any device, such as a partition of the file `image`. Changes that are thrown away may be
/// stored next to that file.
///
/// ```
/// use extant::scratch::{self, Changes};
/// use std::sync::Arc;
/// let base = Arc::new(extant::blockdev::MemDevice::new(1 << 20));
/// let device = scratch::device_over(base.clone(), "disk.img", Changes::ThrownAway)?;
/// device.write_at(0, b"tried").unwrap();
/// assert_eq!(base.allocated(), 0);
/// # Ok::<(), extant::Error>(())
/// ```
pub fn device_over(
    base: Arc<dyn BlockDevice>,
    image: impl AsRef<Path>,
    changes: Changes<'_>,
) -> Result<Arc<dyn BlockDevice>> {
    let image = image.as_ref();
    let len = Overlay::<FileDevice, FileDevice>::store_len(base.len());
    match changes {
        Changes::ThrownAway => {
            let beside = image.parent().filter(|p| !p.as_os_str().is_empty());
            let store = FileDevice::temporary(std::env::temp_dir(), len)
                .or_else(|_| FileDevice::temporary(beside.unwrap_or(Path::new(".")), len))
                .map_err(|e| failed("make a temporary overlay for", image, e))?;
            let overlay = Overlay::create(base, store)
                .map_err(|e| failed("make an overlay for", image, e))?;
            Ok(Arc::new(overlay))
        }
        Changes::KeptIn(path) => {
            let opened =
                open_store(path, len).and_then(|store| Overlay::open_or_create(base, store));
            Ok(Arc::new(opened.map_err(|e| failed("open", path, e))?))
        }
    }
}

/// Opens the file of an overlay, with its full length.
fn open_store(path: &Path, len: u64) -> io::Result<FileDevice> {
    match FileDevice::open(path, Access::ReadWrite) {
        // The file was made a moment ago, and its maker was killed.
        Ok(store) if store.is_empty() => {
            store.set_len(len)?;
            Ok(store)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => FileDevice::create(path, len),
        other => other,
    }
}

/// Merges a kept overlay into its image; returns the number of bytes. If it is interrupted the image is invalid until
/// another call has succeeded; a further call changes nothing. The overlay file stays, but is no longer needed.
///
/// ```no_run
/// let bytes = extant::scratch::apply("disk.img", "overlay")?;
/// println!("{bytes} bytes merged");
/// # Ok::<(), extant::Error>(())
/// ```
///
/// # Errors
/// [`Error::Io`] with kind `ResourceBusy` if the image or the overlay is open elsewhere; with kind `InvalidData` if the
/// file is not an overlay, or the image has changed since it was made.
pub fn apply(image: impl AsRef<Path>, overlay: impl AsRef<Path>) -> Result<u64> {
    let image = image.as_ref();
    let base = FileDevice::open(image, Access::ReadWrite).map_err(|e| failed("open", image, e))?;
    apply_to(&base, overlay)
}

/// Like [`apply`], for any device.
///
/// ```no_run
/// let disk = extant::blockdev::MemDevice::new(1 << 20);
/// let bytes = extant::scratch::apply_to(&disk, "overlay")?;
/// # Ok::<(), extant::Error>(())
/// ```
///
/// # Errors
/// As for [`apply`].
pub fn apply_to(base: &dyn BlockDevice, overlay: impl AsRef<Path>) -> Result<u64> {
    let overlay = overlay.as_ref();
    let store =
        FileDevice::open(overlay, Access::ReadWrite).map_err(|e| failed("open", overlay, e))?;
    apply_overlay(&store, &base).map_err(|e| failed("merge", overlay, e))
}

fn failed(what: &str, path: &Path, source: io::Error) -> Error {
    Error::Open {
        context: format!("{what} {}", path.display()),
        source,
    }
}
