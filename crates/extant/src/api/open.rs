//! Opening a volume: the options are in `volume`, what they open is here.

use super::volume::Volume;
use crate::base::error::{Error, Result};
use crate::volume::open::Opening;
use crate::volume::options::OpenOptions;
use blockdev::{Access, BlockDevice, FileDevice};
use std::path::Path;
use std::sync::Arc;

impl OpenOptions {
    /// Opens an image file or block device.
    ///
    /// ```no_run
    /// let volume = extant::OpenOptions::new().open("disk.img")?;
    /// volume.write_file("/file", b"data")?;
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
        let device = FileDevice::open(path, access).map_err(|source| Error::Io {
            context: format!("open {}", path.display()),
            source,
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
    /// let volume = extant::OpenOptions::new().open_device(device)?;
    /// volume.write_file("/file", b"in memory")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        Volume::of(Opening::new(self, device)?.run()?)
    }
}
