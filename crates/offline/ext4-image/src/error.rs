//! Errors of an image off line.

use ext4_format::FormatError;
use std::io;

/// Why an image could not be opened, changed or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device or a file failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A usable superblock is missing.
    #[error("no usable superblock: {0}")]
    Superblock(#[source] FormatError),
    /// A structure that cannot be read or written.
    #[error("{0}")]
    Format(#[from] FormatError),
    /// An undo file does not fit.
    #[error("undo file: {0}")]
    Undo(String),
    /// An undo file that another user may have written.
    #[error("{undo}: the undo file is not trusted: {why}")]
    Untrusted {
        /// The file.
        undo: String,
        /// The reason.
        why: String,
    },
    /// The image carries the mark of a change, and the undo file cannot be used.
    #[error(
        "a change in place was interrupted, and its undo file {undo} cannot be used: {why}: \
         run `extant undo FILE IMAGE` with the undo file"
    )]
    NoUndo {
        /// The file, by the mark.
        undo: String,
        /// The reason.
        why: String,
    },
    /// A block device has too few free blocks in one run for the old bytes.
    #[error(
        "no free run of {0} bytes on the device for the undo record: name an undo file on another file system, \
         by --undo FILE, or -z FILE under the names of e2fsprogs"
    )]
    NoRoomForUndo(u64),
    /// A write failed. The old image is restored.
    #[error("{0}: the change was reverted, and the image is as before")]
    TakenBack(#[source] io::Error),
    /// A write failed, and the old image could not be restored.
    #[error("{why}: the image is half changed: `{}` restores it", undo_line(.undo.as_deref()))]
    Interrupted {
        /// The failure.
        why: String,
        /// The undo file; `None` if the record is in the image itself.
        undo: Option<String>,
    },
}

/// Returns the command that reverts a change.
fn undo_line(undo: Option<&str>) -> String {
    match undo {
        Some(file) => format!("extant undo {file} IMAGE"),
        None => "extant undo IMAGE".to_owned(),
    }
}
