//! Errors of reading and formatting metadata.

use ext4_format::{BlockNr, FormatError, InodeNr, Where};
use std::any::Any;
use std::io;

/// Result of reading or formatting metadata.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a [`MetaSpace`](crate::MetaSpace): of the caller's own type, which the caller can take back from
/// [`Error::Space`].
pub type SpaceError = Box<dyn std::error::Error + Send + Sync>;

/// An error of reading or formatting metadata.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The volume's bytes break a rule of the format: which rule, and where.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A block could not be read.
    #[error("reading block {block}: {source}")]
    Read {
        /// The block.
        block: BlockNr,
        /// The system's error.
        source: io::Error,
    },
    /// A directory takes no more names. The text names the full part.
    #[error("no space left: {0}")]
    NoSpace(&'static str),
    /// The volume or the batch has something that the formatter cannot do: what.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// The source of blocks failed.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// A thread that formatted a part of the batch panicked.
    #[error("a thread panicked")]
    Panicked,
}

impl Error {
    /// Makes the error for a rule broken by an inode.
    pub(crate) fn corrupt_inode(what: &'static str, ino: InodeNr) -> Self {
        Self::Format(FormatError::corrupt(what, Where::Inode(ino)))
    }

    /// Makes the error that stands for a thread's panic.
    pub(crate) fn panicked(_: Box<dyn Any + Send>) -> Self {
        Self::Panicked
    }
}
