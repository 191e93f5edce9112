//! A client of NBD servers (network block devices), as a [`BlockDevice`](blockdev::BlockDevice).
//!
//! ```no_run
//! use blockdev::BlockDevice;
//! use extant_nbd::{NbdDevice, NbdUrl, Options};
//! let url = NbdUrl::parse("nbd+unix:///disk?socket=/run/nbd.sock")?;
//! let device = NbdDevice::connect(&url, &Options::default())?;
//! println!("{} bytes", device.len());
//! # std::io::Result::Ok(())
//! ```
//!
//! Any number of threads may have requests in flight at once, on one connection or on several ([`Options::connections`]). After the loss of a
//! connection, requests wait for a new connection, over which unflushed writes are sent again.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as extant_nbd;
#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;

mod connection;
mod connections;
mod device;
mod handshake;
mod link;
#[doc(hidden)]
pub mod numbers;
mod options;
mod patience;
mod piece;
mod protocol;
mod reply;
mod url;
mod window;

pub use device::NbdDevice;
pub use options::{Dial, KeepWaiting, Options};
pub use url::NbdUrl;
