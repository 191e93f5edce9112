//! Errors of resizing.

use ext4_format::FormatError;
use std::io;

/// Why an image could not be resized.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device or a file failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A usable superblock is missing.
    #[error("no usable superblock: {0}")]
    Superblock(#[source] FormatError),
    /// The journal holds transactions.
    #[error("its journal must be replayed first: mount it once, or see extant repair -p")]
    Journal,
    /// The image is damaged.
    #[error("it is damaged ({0}): see extant repair -n")]
    Damaged(String),
    /// A volume that this crate does not resize.
    #[error("{0} cannot be resized")]
    Refused(String),
    /// The size breaks a limit of the format.
    #[error("{size} bytes are too many: {why}: at most {most} bytes")]
    TooLarge {
        /// Bytes that were asked for.
        size: u64,
        /// Bytes of the largest volume with these parameters.
        most: u64,
        /// The limit.
        why: String,
    },
    /// The size is too small for any file system.
    #[error("{0} bytes are too few for its structures: see extant resize -P")]
    TooSmall(u64),
    /// The size is too small for the content.
    #[error("there is no room for its files: see extant resize -P")]
    NoRoom,
    /// The new size has fewer inodes than are in use.
    #[error("{used} inodes are in use, and there would be {there}")]
    NoInodes {
        /// Inodes in use.
        used: u32,
        /// Inodes of the new size.
        there: u32,
    },
    /// Inodes cannot be of that size.
    #[error(
        "inodes of {old} bytes cannot become inodes of {size}: the size must be a power of two from {old} to {most}"
    )]
    InodeSize {
        /// Bytes that were asked for.
        size: u16,
        /// Bytes they have.
        old: u16,
        /// Bytes of a block.
        most: u32,
    },
    /// The result was not sound; nothing was written.
    #[error("the result would not be sound ({0}); nothing was written")]
    Unsound(String),
    /// A structure that cannot be written or read.
    #[error("{0}")]
    Format(#[from] FormatError),
    /// The image cannot be checked.
    #[error("{0}")]
    Check(#[from] extant_check::Error),
    /// The undo file.
    #[error("{0}")]
    Undo(#[source] ext4_image::Error),
}

impl From<ext4_image::Error> for Error {
    fn from(error: ext4_image::Error) -> Self {
        match error {
            ext4_image::Error::Io(e) => Self::Io(e),
            ext4_image::Error::Superblock(e) => Self::Superblock(e),
            ext4_image::Error::Format(e) => Self::Format(e),
            other => Self::Undo(other),
        }
    }
}
