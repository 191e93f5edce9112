//! A FUSE server for many cores.
//!
//! A file system implements [`Handler`]. This crate mounts it, implements the kernel's protocol, and calls the handler
//! from a growing number of threads. Requests arrive over `/dev/fuse`, or over io_uring if the kernel supports that,
//! through one decoder. The crate is independent of any particular file system.
//!
//! Over io_uring, a request takes no lock and writes no cache line that all threads share. Neither transport allocates
//! memory per request: a request borrows from the transport's buffer, and its answer is written into one.
//!
//! ```no_run
//! use std::sync::Arc;
//! use fuse_server::{MemoryFs, MountOptions, Session, Transport};
//!
//! let connection = fuse_server::mount("/mnt", &MountOptions::default())?;
//! let session = Session::new(connection, Arc::new(MemoryFs::new()), Transport::Auto, 0)?;
//! session.run()?;
//! # Ok::<(), std::io::Error>(())
//! ```
#![warn(missing_docs)]

// The tests of the public interface are part of the unit tests' program, which saves linking another program.
#[cfg(test)]
extern crate self as fuse_server;
#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;

mod answer;
mod attr;
mod classic;
mod crew;
mod decode;
mod descriptors;
mod handler;
mod init;
mod ioctl;
mod listing;
mod memory;
mod mount;
mod notify;
mod request;
mod session;
mod shared;
mod uring;
#[allow(missing_docs)]
mod wire;

pub use answer::Answer;
pub use attr::{Attr, Entry, FileLock, Opened, OpenedFlags, StatFs, Time};
pub use descriptors::{close_on_exec, close_on_exec_of};
pub use handler::{Handler, InitFlags, KernelOffer, Wants};
pub use listing::Listing;
pub use memory::MemoryFs;
pub use mount::{
    Connection, MountOptions, MountPoint, Mounted, Unmount, Unmounting, detach, mount, mounted_at,
    mounts, unmount,
};
pub use notify::Notifier;
pub use request::{Forgets, Operation, Request, SetAttr, SetTime};
pub use rustix::io::Errno;
pub use session::{Session, Transport};

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
