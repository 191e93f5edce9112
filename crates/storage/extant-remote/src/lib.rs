#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod address;
mod cache;
mod disk_cache;
mod objects;
mod server;
mod tunnel;
mod web;

pub use address::Address;
pub use objects::{ImageKey, ObjectsDevice, resize, snapshot};
pub use server::serve;
pub use tunnel::Tunnel;
pub use web::WebDevice;

use blockdev::BlockDevice;
use std::io;
use tokio::runtime::{Builder, Runtime};

/// Image of an address.
pub enum Image {
    /// A file of a web server.
    File(WebDevice),
    /// Objects of a store.
    Objects(ObjectsDevice),
}

impl Image {
    /// Opens the image of an address. Unless `read_only`, an image of objects is claimed, so that another writer of it fails; an image
    /// that does not exist is made if the address has a size.
    ///
    /// ```
    /// use blockdev::BlockDevice;
    /// let dir = tempfile::tempdir()?;
    /// let image = extant_remote::Image::open(&format!("file+objects://{}?size=8M", dir.path().display()), false)?;
    /// image.device().write_at(0, b"hello")?;
    /// image.device().flush()?;
    /// image.release()?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// The address is wrong, the store does not answer or denies access, the image does not exist, or another process writes to it.
    pub fn open(address: &str, read_only: bool) -> io::Result<Self> {
        let address = Address::parse(address)?;
        let runtime = runtime()?;
        if address.is_file {
            return WebDevice::open(address, runtime).map(Self::File);
        }
        ObjectsDevice::open(address, runtime, read_only).map(Self::Objects)
    }

    /// Returns the device.
    pub fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::File(device) => device,
            Self::Objects(device) => device,
        }
    }

    /// Writes the blocks in memory, and lets others write to the image.
    pub fn release(&self) -> io::Result<()> {
        match self {
            Self::File(_) => Ok(()),
            Self::Objects(device) => device.release(),
        }
    }
}

/// Makes the runtime of a store's client.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}
