#![doc = include_str!("../README.md")]

mod address;
mod cache;
mod claim;
mod disk_cache;
mod errors;
mod holder;
mod objects;
mod rbd;
mod requests;
mod server;
mod tunnel;
mod web;

pub use address::Address;
pub use claim::BeforeClaim;
pub use objects::{ImageKey, ObjectsDevice};
pub use rbd::{RbdAddress, RbdDevice, end_now};
pub use requests::{io_timeout, runtime};
pub use server::serve;
pub use tunnel::Tunnel;
pub use web::WebDevice;

use blockdev::BlockDevice;
use std::io;

/// Image of an address.
pub enum Image {
    /// A file of a web server.
    File(Box<WebDevice>),
    /// Objects of a store.
    Objects(ObjectsDevice),
    /// An image of a Ceph cluster.
    Rbd(Box<RbdDevice>),
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
        Self::open_noting(address, read_only, BeforeClaim::default())
    }

    /// Opens the image of an address as [`open`](Self::open) does, and calls a function before it is claimed.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_noting(address: &str, read_only: bool, before: BeforeClaim) -> io::Result<Self> {
        if RbdAddress::is_address(address) {
            let mut address = RbdAddress::parse(address)?;
            address.before_claim = before;
            let device = RbdDevice::open(address, read_only)?;
            return Ok(Self::Rbd(Box::new(device)));
        }
        let mut address = Address::parse(address)?;
        address.before_claim = before;
        let runtime = runtime()?;
        if address.is_file {
            let device = WebDevice::open(address, runtime)?;
            return Ok(Self::File(Box::new(device)));
        }
        ObjectsDevice::open(address, runtime, read_only).map(Self::Objects)
    }

    /// Returns the device.
    pub fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::File(device) => &**device,
            Self::Objects(device) => device,
            Self::Rbd(device) => &**device,
        }
    }

    /// Returns the number of requests to serve at once.
    pub fn requests(&self) -> usize {
        // A cluster has many disks, and a request of theirs is short.
        if matches!(self, Self::Rbd(_)) { 64 } else { 16 }
    }

    /// Writes the blocks in memory, and lets others write to the image.
    pub fn release(&self) -> io::Result<()> {
        match self {
            Self::File(_) => Ok(()),
            Self::Objects(device) => device.release(),
            Self::Rbd(device) => device.release(),
        }
    }
}

/// Makes a snapshot of the flushed state of an image of objects or of a cluster. Fails if the name is taken.
pub fn snapshot(address: &str, name: &str) -> io::Result<()> {
    if RbdAddress::is_address(address) {
        return rbd::snapshot(RbdAddress::parse(address)?, name);
    }
    objects::snapshot(Address::parse(address)?, runtime()?, name)
}
