//! The operations that a copy needs from its source and its destination.

use crate::meta::{Meta, Xattr};
use crate::rules::Rules;
use anyhow::Result;
use ext4_format::FileType;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Treatment of an existing regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// A new file replaces the existing one.
    Replace,
    /// The existing file is truncated and written.
    Overwrite,
}

/// A path on a side, as the context of an error.
#[derive(Clone, Debug)]
pub struct SidePath {
    /// Path as messages show it.
    pub shown: String,
    /// Path, relative to the start of the side's paths.
    pub path: PathBuf,
}

impl SidePath {
    /// Creates a place from a path and its text for messages.
    pub fn new(shown: String, path: &[u8]) -> Self {
        Self {
            shown,
            path: OsStr::from_bytes(path).into(),
        }
    }
}

impl fmt::Display for SidePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Error that the copy itself finds, without a failed call of a side.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The path does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// The file is not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The file is a directory.
    #[error("is a directory")]
    IsDirectory,
    /// A file would replace a directory.
    #[error("a directory is in the way: remove it first")]
    DirectoryInTheWay,
    /// A directory would replace a file.
    #[error("exists and is not a directory: remove it first")]
    FileInTheWay,
    /// A member of an archive has a path with `..`.
    #[error("the path leads out of its directory")]
    PathLeaves,
    /// A name is not valid in a directory.
    #[error("not a valid file name: {0:?}")]
    Name(String),
}

/// A directory of a tree, through a handle. Relative paths start there and may have any length. Paths that begin with
/// a slash start at the root of their side.
pub trait Side: Send + Sync {
    /// Returns the path as the context of an error.
    fn place(&self, path: &[u8]) -> SidePath;
    /// Formats a path for messages.
    fn show(&self, path: &[u8]) -> String {
        self.place(path).shown
    }
    /// Returns advice about a path that does not exist.
    fn missing(&self, _path: &[u8]) -> Option<String> {
        None
    }
    /// Returns the command that makes a directory on this side.
    fn mkdir(&self) -> &'static str {
        "mkdir -p"
    }
    /// Opens a directory as a separate side. Unless `follow` is true, fails if any component of the path is a symbolic
    /// link.
    ///
    /// # Errors
    /// Returns the error of the system or of the volume, as all functions of this trait do.
    fn directory(&self, path: &[u8], follow: bool) -> Result<Box<dyn Side>>;
    /// Returns the attributes of the file at a path, or `None` if it does not exist. If `follow` is true, follows a symbolic
    /// link in the last component.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn meta(&self, path: &[u8], follow: bool) -> Result<Option<Meta>>;
    /// Returns the names in the directory with their types, in order.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn list(&self) -> Result<Vec<(Vec<u8>, FileType)>>;
    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>>;
    /// Returns the extended attributes of a file that ext4 can store.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>>;
    /// Opens a regular file for reading. If `follow` is true, follows a symbolic link in the last component.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn open(&self, path: &[u8], follow: bool) -> Result<Box<dyn Source>>;

    /// Makes a directory that is at first accessible only to its owner, within `mode`.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn make_dir(&self, path: &[u8], mode: u16) -> Result<()>;
    /// Makes a regular file.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn make_file(&self, path: &[u8], mode: u16, existing: Existing) -> Result<Box<dyn Sink>>;
    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn make_symlink(&self, target: &[u8], path: &[u8]) -> Result<()>;
    /// Makes a device, FIFO or socket.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn make_special(&self, path: &[u8], meta: &Meta) -> Result<()>;
    /// Creates a hard link.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn make_link(&self, old: &[u8], new: &[u8]) -> Result<()>;
    /// Removes anything but a directory.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn remove(&self, path: &[u8]) -> Result<()>;
    /// Removes an empty directory.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn remove_dir(&self, path: &[u8]) -> Result<()>;
    /// Sets the owner, extended attributes, permissions and times that the rules keep. The order is such that no step undoes
    /// another. Does not follow symbolic links. Calls `refused` with the name of each attribute that the process is not
    /// permitted to set.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn keep(&self, path: &[u8], keep: &mut Keep<'_>) -> Result<()>;
    /// Adds flags to a file or directory. Flags that the file type or the file system does not support are left out.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn add_flags(&self, _path: &[u8], _flags: u32) -> Result<()> {
        Ok(())
    }
}

/// Attributes to set on a file.
pub struct Keep<'a> {
    /// Owner, permissions and times.
    pub meta: &'a Meta,
    /// Extended attributes.
    pub xattrs: &'a [Xattr],
    /// Rules that determine the attributes to set.
    pub rules: &'a Rules,
    /// Called with the name of each attribute that the process is not permitted to set.
    pub refused: &'a mut dyn FnMut(&[u8]),
}

/// A file that is open for reading by any number of threads.
pub trait Source: Send + Sync {
    /// Reads bytes at an offset. Returns fewer bytes than requested only at the end of the file.
    ///
    /// # Errors
    /// Returns the error of the system or of the volume.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Returns the start and the end of the next range of data at or after `offset`, or `None` after the last one.
    ///
    /// # Errors
    /// Returns the error of the system or of the volume.
    fn next_data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>>;
    /// Returns the extended attributes that ext4 can store.
    ///
    /// # Errors
    /// Returns the error of the system or of the volume.
    fn xattrs(&self) -> Result<Vec<Xattr>>;
}

/// A file that is open for writing.
pub trait Sink {
    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// Returns the error of the system or of the volume.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;
    /// Returns the length in bytes of the blocks that a new file does not need if they are zeros. `None` if zeros must be
    /// written, as to a device.
    fn hole(&self) -> Option<usize> {
        None
    }
    /// Sets the size.
    ///
    /// # Errors
    /// Returns the error of the system or of the volume.
    fn set_size(&self, size: u64) -> Result<()>;
    /// Sets the attributes, as [`Side::keep`] does.
    ///
    /// # Errors
    /// Returns the error of the system or of the volume.
    fn keep(&self, keep: &mut Keep<'_>) -> Result<()>;
}
