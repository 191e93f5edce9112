//! Opening a volume. The options are in `volume`.

use super::volume::Volume;
use crate::base::error::{Error, Result};
use crate::volume::open::Opening;
use crate::volume::options::VolumeOptions;
use blockdev::{Access, BlockDevice, FileDevice, without_path};
use extant_mkfs::MkfsOptions;
use std::path::Path;
use std::sync::Arc;

impl Volume {
    /// Opens an image file or block device for reading and writing; [`VolumeOptions`] has everything else. A volume that
    /// must not be written, such as one that is marked as having errors, opens read-only: [`read_only`](Self::read_only)
    /// returns the reason.
    ///
    /// ```no_run
    /// let volume = extant::Volume::open("disk.img")?;
    /// volume.write("/file", b"data")?;
    /// volume.close()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        VolumeOptions::new().open(path)
    }

    /// Makes an empty file system in a new image file and opens it. The options must give a size. A path that exists is
    /// [`Error::Exists`]: an image is not replaced by mistake.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("disk.img");
    /// use extant::{Volume, mkfs::MkfsOptions};
    /// let options = MkfsOptions { size: Some(64 << 20), ..Default::default() };
    /// let volume = Volume::create(&path, &options)?;
    /// volume.root().write("etc", b"no directory")?;
    /// volume.close()?;
    /// assert_eq!(Volume::open(&path)?.root().read("etc")?, b"no directory");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn create(path: impl AsRef<Path>, options: &MkfsOptions) -> Result<Self> {
        let path = path.as_ref();
        let failed = |e| Error::Open {
            context: format!("create {}", path.display()),
            source: without_path(e),
        };
        if options.size.is_none() {
            return Err(Error::Invalid("a new image needs a size"));
        }
        // Write nothing to the disk before it is known that the file system can be made.
        let prepared = extant_mkfs::prepare(options)?;
        match std::fs::File::create_new(path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Err(Error::Exists),
            other => other.map_err(failed)?,
        };
        let made = FileDevice::create(path, prepared.size())
            .map_err(failed)
            .and_then(|device| {
                prepared.write(&device)?;
                VolumeOptions::new().open_device(Arc::new(device))
            });
        if made.is_err() {
            // Remove the file, because half a file system is of no use, and this call made the file.
            let _ = std::fs::remove_file(path);
        }
        made
    }
}

impl VolumeOptions {
    /// Opens an image file or block device.
    ///
    /// ```no_run
    /// let volume = extant::VolumeOptions::new().open("disk.img")?;
    /// volume.write("/file", b"data")?;
    /// volume.close()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let access = if self.is_read_only() {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        };
        let device = FileDevice::open(path, access).map_err(|e| Error::Open {
            context: format!("open {}", path.display()),
            source: without_path(e),
        })?;
        self.open_device(Arc::new(device))
    }

    /// Opens any device.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use extant::mkfs::{self, MkfsOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Arc::new(extant::blockdev::MemDevice::new(16 << 20));
    /// mkfs::format(&*device, &MkfsOptions { size: Some(16 << 20), ..Default::default() })?;
    /// let volume = extant::VolumeOptions::new().open_device(device)?;
    /// volume.write("/file", b"in memory")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        Volume::of(Opening::new(self, device)?.run()?)
    }
}
