//! Copies trees between directories of the host, volumes and archives, with all their attributes.
//!
//! | file | contents |
//! |---|---|
//! | `meta` | attributes of a file |
//! | `side` | [`Side`]: a directory of the host or of a volume, with its contents |
//! | `rules`, `monitor` | options of a copy; progress, warnings and cancellation |
//! | `paths` | paths as bytes |
//! | `system`, `host`, `host_file`, `host_attributes` | [`HostSide`]: a directory of the host |
//! | `layers` | white-outs of container layers |
//! | `steps`, `copy` | [`Route`]: a copy from one side to another by many threads |
//! | `archive_files`, `archive_read` | [`read_archive`]: extracts an archive into a side |
//! | `archive_write`, `ordered` | [`pack`]: writes a side as an archive by many threads |
//!
//! The context of an error is the [`SidePath`] at which it occurred. An error that no system call caused is a [`Reason`].

#![forbid(unsafe_code)]

#[cfg(feature = "archives")]
mod archive_files;
#[cfg(feature = "archives")]
mod archive_read;
#[cfg(feature = "archives")]
mod archive_write;
mod copy;
mod copy_steps;
mod host;
mod host_attributes;
mod host_file;
// Layers of paths belong to archives.
#[cfg_attr(not(feature = "archives"), allow(dead_code))]
mod layers;
mod meta;
mod monitor;
#[cfg(feature = "archives")]
mod ordered;
#[cfg_attr(not(feature = "archives"), allow(dead_code))]
mod paths;
mod rules;
mod side;
mod system;

#[cfg(feature = "archives")]
pub use archive_read::{Feed, read_archive};
#[cfg(feature = "archives")]
pub use archive_write::{Packing, pack};
pub use copy::Route;
pub use host::HostSide;
pub use meta::{Meta, Xattr};
pub use monitor::Monitor;
pub use paths::{Entered, base_name, below, is_control, join, show};
pub use rules::Rules;
pub use side::{Existing, Keep, Reason, Side, SidePath, Sink, Source};
