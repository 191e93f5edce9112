//! Copies trees between directories of the host, volumes and archives, with all their attributes.
//!
//! | file | what |
//! |---|---|
//! | `meta` | attributes of a file |
//! | `side` | [`Side`]: a directory of the host or of a volume, with its contents |
//! | `rules`, `monitor` | what the caller says and hears |
//! | `paths` | paths as bytes |
//! | `system`, `host`, `host_file`, `host_attributes` | the host's side |
//! | `layers` | white-outs |
//! | `steps`, `copy` | [`Route`]: from one side to the other, by many threads |
//! | `archive_files`, `archive_read` | [`read_archive`]: from an archive to a side |
//!
//! Errors are chains whose contexts are a [`Place`] each; a rule that a tree breaks is a [`Reason`].

#![forbid(unsafe_code)]

mod archive_files;
mod archive_read;
mod copy;
mod host;
mod host_attributes;
mod host_file;
mod layers;
mod meta;
mod monitor;
mod paths;
mod rules;
mod side;
mod steps;
mod system;

pub use archive_read::{Feed, read_archive};
pub use copy::Route;
pub use host::HostSide;
pub use meta::{Meta, Xattr};
pub use monitor::Monitor;
pub use paths::{Entered, base_name, below, join, show};
pub use rules::Rules;
pub use side::{Existing, Keep, Place, Reason, Side, Sink, Source};
