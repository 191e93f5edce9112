#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

// The tests of the public interface are part of the unit tests' program, which saves linking another program.
#[cfg(test)]
extern crate self as extant_disk;
#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;

mod android;
mod by_imago;
mod cursor;
mod formats;
mod gpt_table;
mod kinds;
mod make;
mod mapped;
mod mbr;
mod new_image;
mod pack;
mod piece_cache;
mod qcow2;
mod scratch;
mod seek_table;
mod seekable;
mod table;
mod unpacked;
mod vhd;
mod vmdk;

pub use blockdev;
pub use formats::{Format, decompressed_head, open, open_with, seekable};
pub use make::{NewDisk, NewPartition, Purpose};
pub use new_image::{NewFormat, NewImage, Packing, directory};
pub use table::{Part, Partition, Scheme, Table, part};
pub use unpacked::Unpacking;

use std::io;

/// Error of finding or opening a partition.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The disk does not begin with a partition table.
    #[error("there is no partition table")]
    NoTable,
    /// A table that breaks the rules of its kind.
    #[error("the {table} partition table is damaged: {what}")]
    Damaged {
        /// The kind of table.
        table: &'static str,
        /// The rule that it breaks.
        what: String,
    },
    /// No partition matches the request.
    #[error("no partition {0}")]
    NotFound(String),
    /// Several partitions match the request.
    #[error("several partitions {0}")]
    Several(String),
    /// The partition or range extends beyond the disk, or covers the table.
    #[error("{0}")]
    Outside(String),
}

impl Error {
    pub(crate) fn damaged(table: &'static str, what: impl Into<String>) -> Self {
        Self::Damaged {
            table,
            what: what.into(),
        }
    }
}
