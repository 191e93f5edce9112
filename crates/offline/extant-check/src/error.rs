//! Errors of a check.

use ext4_format::FormatError;
use std::io;

/// Why an image could not be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("reading the superblock: {0}")]
    Io(#[source] io::Error),
    /// No superblock can be used, nor a backup at a usual place.
    #[error("no usable superblock: {0}")]
    NoSuperblock(#[source] FormatError),
    /// Features that this crate does not know how to check.
    #[error("features that cannot be checked: {0}")]
    Features(String),
}
