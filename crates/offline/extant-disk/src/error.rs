//! Errors of disks and their partitions.

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
