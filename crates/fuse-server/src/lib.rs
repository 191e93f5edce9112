//! A FUSE server for many cores.
//!
//! A file system implements [`Handler`]; this crate mounts it, speaks the kernel's protocol with it, and calls the
//! handler from as many threads as it takes. Requests come over `/dev/fuse`, or over io_uring where the kernel has
//! that: one decoder for both. It knows nothing of any particular file system.
//!
//! Nothing that all threads share is locked or written to per request, and nothing is allocated: what a request
//! brings is borrowed from the transport's buffer, and its answer is written into one.
#![warn(missing_docs)]

#[allow(dead_code)]
mod answer;
mod attr;
// The transports that call it come with the next commits.
#[allow(dead_code)]
mod decode;
mod handler;
mod listing;
#[allow(dead_code)]
mod mount;
#[allow(dead_code)]
mod notify;
mod request;
#[allow(missing_docs, dead_code)]
mod wire;

pub use answer::Answer;
pub use attr::{Attr, Entry, FileLock, Opened, OpenedFlags, StatFs, Time};
pub use handler::{Handler, InitFlags, KernelOffer, Wants};
pub use listing::Listing;
pub use mount::{Connection, MountOptions, Mounted, detach, mount, mounted_at, mounts, unmount};
pub use notify::Notifier;
pub use request::{Forgets, Operation, Request, SetAttr, SetTime};
pub use rustix::io::Errno;
