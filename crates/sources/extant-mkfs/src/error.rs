//! Errors of making a file system.

use ext4_format::FormatError;
use extant_sources::SourceError;
use std::io;

/// Result of a step of mkfs.
pub type Result<T, E = MkfsError> = std::result::Result<T, E>;

/// Why a file system could not be made. After an error the target has no valid superblock, or was not changed.
///
/// ```
/// use extant_mkfs::MkfsError;
/// let e = MkfsError::TooSmall { given: 1 << 20, needed: 3 << 20 };
/// assert_eq!(e.to_string(), "1048576 bytes are too small: 3145728 bytes are enough");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MkfsError {
    /// The size given does not hold the content.
    #[error("{given} bytes are too small: {needed} bytes are enough")]
    TooSmall {
        /// The size given, in bytes.
        given: u64,
        /// A size that holds the content with these options, and not much more.
        needed: u64,
    },
    /// The count of inodes that the options ask for does not hold the content.
    #[error("the options give {given} inodes, the content needs {needed}")]
    TooFewInodes {
        /// The number in the options.
        given: u32,
        /// The number that the content needs, reserved inodes included.
        needed: u64,
    },
    /// Options that contradict each other or the content.
    #[error("{0}")]
    Options(String),
    /// Something in the source that cannot be read or kept.
    #[error("{path}: {what}")]
    Source {
        /// The path in the source.
        path: String,
        /// The broken rule.
        what: String,
    },
    /// An archive that breaks a rule of its format.
    #[error("{archive}: at byte {offset}: {what}")]
    Archive {
        /// Name of the archive.
        archive: String,
        /// Byte offset in the (decompressed) archive.
        offset: u64,
        /// The broken rule.
        what: String,
    },
    /// Parameters or values that the format cannot hold.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A system call failed.
    #[error("{context}: {source}")]
    Io {
        /// The operation and its object.
        context: String,
        /// The system's error.
        source: io::Error,
    },
    /// The caller's cancel flag was raised.
    #[error("interrupted")]
    Interrupted,
}

impl MkfsError {
    /// Creates an error for a failed system call on the source or the target.
    pub(super) fn io(context: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io {
            context: context.into(),
            source: source.into(),
        }
    }

    /// Creates an error for a rule broken by the source at a path.
    pub(super) fn source(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Source {
            path: path.into(),
            what: what.into(),
        }
    }
}

impl From<SourceError> for MkfsError {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::TooMuch(what) => Self::Options(what),
            SourceError::Source { path, what } => Self::Source { path, what },
            SourceError::Archive {
                archive,
                offset,
                what,
            } => Self::Archive {
                archive,
                offset,
                what,
            },
            SourceError::Io { context, source } => Self::Io { context, source },
            SourceError::Interrupted => Self::Interrupted,
            other => Self::Options(other.to_string()),
        }
    }
}
