//! Errors of reading a source.

use std::io;

/// Result of reading a source.
pub type Result<T, E = SourceError> = std::result::Result<T, E>;

/// Error of reading a source.
///
/// ```
/// use extant_sources::SourceError;
/// let e = SourceError::Source { path: "list".into(), what: "line 3: no type".into() };
/// assert_eq!(e.to_string(), "list: line 3: no type");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The source has more data than can be kept.
    #[error("{0}")]
    TooMuch(String),
    /// A part of the source cannot be read or kept.
    #[error("{path}: {what}")]
    Source {
        /// The path in the source.
        path: String,
        /// The broken rule.
        what: String,
    },
    /// An archive violates its format.
    #[error("{archive}: at byte {offset}: {what}")]
    Archive {
        /// Name of the archive.
        archive: String,
        /// Byte offset in the (decompressed) archive.
        offset: u64,
        /// The broken rule.
        what: String,
    },
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

impl SourceError {
    /// Creates an error for a failed system call.
    pub(crate) fn io(context: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io {
            context: context.into(),
            source: source.into(),
        }
    }

    /// Creates an error for a rule broken by the source at a path.
    pub(crate) fn source(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Source {
            path: path.into(),
            what: what.into(),
        }
    }
}

/// Formats a path for human readers: bytes that are not UTF-8 are escaped.
#[doc(hidden)]
pub fn show(path: &[u8]) -> String {
    path.utf8_chunks()
        .flat_map(|chunk| {
            let bad = chunk.invalid().iter().map(|b| format!("\\x{b:02x}"));
            std::iter::once(chunk.valid().to_owned()).chain(bad)
        })
        .collect()
}
