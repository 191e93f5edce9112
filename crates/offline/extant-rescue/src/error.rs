//! Errors of a rescue.

use ext4_format::FormatError;
use std::io;

/// Why nothing can be rescued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Neither a superblock nor a backup.
    #[error("no superblock and no backup of one: {0}")]
    Superblock(#[source] FormatError),
}
