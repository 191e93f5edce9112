//! Errors of a change.

use ext4_format::FormatError;
use std::io;

/// Why an image is not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A usable superblock is missing.
    #[error("no usable superblock: {0}")]
    Superblock(#[source] FormatError),
    /// A structure that cannot be read or written.
    #[error("{0}")]
    Format(#[from] FormatError),
    /// The image cannot be checked.
    #[error("{0}")]
    Check(#[from] extant_check::Error),
    /// The change cannot be made, and why.
    #[error("{0}")]
    Refused(String),
    /// The image has faults, which come first.
    #[error("the image is not clean ({0}); extant repair mends it")]
    NotClean(String),
    /// The check after the change found a fault; nothing was written.
    #[error("nothing was changed, as the result would not be clean: {0}")]
    Broken(String),
    /// Too few blocks or inodes are free.
    #[error("no room for {0}")]
    NoSpace(&'static str),
}

impl From<ext4_image::Error> for Error {
    fn from(error: ext4_image::Error) -> Self {
        match error {
            ext4_image::Error::Io(e) => Self::Io(e),
            ext4_image::Error::Superblock(e) => Self::Superblock(e),
            ext4_image::Error::Format(e) => Self::Format(e),
            other => Self::Refused(other.to_string()),
        }
    }
}

pub(crate) fn refused<T>(why: impl Into<String>) -> Result<T, Error> {
    Err(Error::Refused(why.into()))
}
