//! An ext4 image behind FUSE: [`Filesystem`] answers the kernel's requests from an [`extant::Volume`].
//!
//! `fuse-server` carries requests and answers, over /dev/fuse or io_uring; this crate implements them for ext4.
//! [`MountOptions`] are the options of `-o`; [`control`] is the socket for the status, sync, freeze and end of a
//! running mount.
//!
//! ```no_run
//! use extant_fuse::{Filesystem, MountOptions};
//! let options = MountOptions::default();
//! let volume = options.open_options().open("disk.img")?;
//! let fs = Filesystem::new(volume.clone(), "disk.img", &options)?;
//! let connection = fuse_server::mount("/mnt", &options.for_kernel("disk.img"))?;
//! fuse_server::Session::new(connection, std::sync::Arc::new(fs), fuse_server::Transport::Auto, 0)?.run()?;
//! volume.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as extant_fuse;
#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;

pub mod control;
mod counters;
mod handler;
mod mount;
mod nodes;
mod options;

pub use counters::RequestCount;
pub use handler::Filesystem;
pub use options::{MountOptions, OptionError};

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
