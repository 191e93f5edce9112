//! Errors about bytes, with the broken rule and the place.

use crate::types::{BlockNr, GroupNr, InodeNr};
use core::fmt;

/// Result of a parse or a check.
pub type Result<T, E = FormatError> = core::result::Result<T, E>;

/// The place an error speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Where {
    /// A superblock (primary or backup).
    Superblock,
    /// A group descriptor.
    Group(GroupNr),
    /// A block of metadata, and a byte offset in it.
    Block(BlockNr, u32),
    /// An inode.
    Inode(InodeNr),
    /// A logical block of an inode (directory block, index block).
    InodeBlock(InodeNr, u64),
    /// A block of the journal, counted from its start.
    Journal(u32),
    /// A buffer whose place the parser was not told; the caller adds it with
    /// [`FormatError::at`].
    Buffer(u32),
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock => write!(f, "superblock"),
            Self::Group(g) => write!(f, "group {g}"),
            Self::Block(b, o) => write!(f, "block {b} offset {o}"),
            Self::Inode(i) => write!(f, "inode {i}"),
            Self::InodeBlock(i, b) => write!(f, "inode {i} logical block {b}"),
            Self::Journal(b) => write!(f, "journal block {b}"),
            Self::Buffer(o) => write!(f, "offset {o}"),
        }
    }
}

/// A rule of the format that some bytes break.
///
/// ```
/// use ext4_format::{FormatError, Where};
/// let e = FormatError::corrupt("extent header magic", Where::Buffer(0));
/// assert_eq!(e.to_string(), "corrupt: extent header magic at offset 0");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes are not an ext2, ext3 or ext4 file system.
    #[error("not an ext2/ext3/ext4 file system: {0}")]
    NotExt4(&'static str),
    /// Features that must be known to read the image, by name.
    #[error("unsupported incompatible feature: {0}")]
    Incompatible(String),
    /// A change in place is under way or was interrupted; the place of its undo file.
    #[error("a change in place was interrupted: `extant undo IMAGE` reverts it (undo file: {0})")]
    Interrupted(String),
    /// A rule broken, and where.
    #[error("corrupt: {what} at {at}")]
    Corrupt {
        /// The rule, as a noun phrase: "extent header magic".
        what: &'static str,
        /// The place.
        at: Where,
    },
    /// A checksum does not match.
    #[error("corrupt: checksum of {what} at {at}: stored {stored:#x}, computed {computed:#x}")]
    Checksum {
        /// The covered bytes.
        what: &'static str,
        /// The place.
        at: Where,
        /// The stored value.
        stored: u32,
        /// The computed value.
        computed: u32,
    },
    /// A value cannot be written in this format (name too long, number too large).
    #[error("cannot be represented: {0}")]
    Unrepresentable(&'static str),
}

impl FormatError {
    /// Creates an error for a broken rule at a place.
    pub const fn corrupt(what: &'static str, at: Where) -> Self {
        Self::Corrupt { what, at }
    }

    /// Adds the place to an error whose parser saw only a buffer.
    #[must_use]
    pub fn at(mut self, place: Where) -> Self {
        match &mut self {
            Self::Corrupt { at, .. } | Self::Checksum { at, .. } => {
                *at = match (*at, place) {
                    (Where::Buffer(o), Where::Block(b, 0)) => Where::Block(b, o),
                    (Where::Buffer(_), p) => p,
                    (known, _) => known,
                }
            }
            _ => {}
        }
        self
    }
}
