//! What a copy needs of either side.

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
    /// A new file takes its name.
    Replace,
    /// The file is truncated and written.
    Overwrite,
}

/// A path on a side, as the context of an error.
#[derive(Clone, Debug)]
pub struct Place {
    /// The path, for people.
    pub shown: String,
    /// The path from where the side's own path starts.
    pub path: PathBuf,
}

impl Place {
    /// Makes a place from a path and the text that stands for it in messages.
    pub fn new(shown: String, path: &[u8]) -> Self {
        Self {
            shown,
            path: OsStr::from_bytes(path).into(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The rule that a tree breaks, where no call of a side failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The path does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// A directory is needed.
    #[error("not a directory")]
    NotDirectory,
    /// Something else is needed.
    #[error("is a directory")]
    IsDirectory,
    /// A file would take the name of a directory.
    #[error("a directory is in the way: remove it first")]
    DirectoryInTheWay,
    /// A directory would take the name of a file.
    #[error("exists and is not a directory: remove it first")]
    FileInTheWay,
    /// A member of an archive has a path with `..`.
    #[error("a path that leaves its directory")]
    PathLeaves,
    /// A name that no directory can hold.
    #[error("a name that cannot be one: {0:?}")]
    Name(String),
}

/// A directory of a tree, through a handle. Relative paths start there and may have any length. Paths that begin with
/// a slash start at the root of their side.
pub trait Side: Send + Sync {
    /// Returns a path with its text for messages.
    fn place(&self, path: &[u8]) -> Place;
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
    /// Opens a directory as a separate side. Unless `follow`, no symbolic link may be on the way: for paths found by a
    /// walk.
    ///
    /// # Errors
    /// The system's or the volume's, as of all functions here.
    fn directory(&self, path: &[u8], follow: bool) -> Result<Box<dyn Side>>;
    /// Returns the inode of a name; if `follow`, symbolic links in the last component are followed, too.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn meta(&self, path: &[u8], follow: bool) -> Result<Option<Meta>>;
    /// Lists the names of the directory, in order, with their types.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn list(&self) -> Result<Vec<(Vec<u8>, FileType)>>;
    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>>;
    /// Returns the extended attributes of a name that ext4 can hold.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>>;
    /// Opens a regular file; if `follow`, symbolic links in the last component are followed.
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
    /// Makes another name of a file.
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
    /// Sets owner, extended attributes, permissions and times as the rules keep them, in the order in which none undoes
    /// another; does not follow symbolic links. Calls `refused` with the name of each attribute that this caller may
    /// not set.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn keep(&self, path: &[u8], keep: &mut Keep<'_>) -> Result<()>;
    /// Adds flags of a file or directory; those that its type or its file system lacks are left out.
    ///
    /// # Errors
    /// As of [`directory`](Self::directory).
    fn add_flags(&self, _path: &[u8], _flags: u32) -> Result<()> {
        Ok(())
    }
}

/// The attributes that a file is to have.
pub struct Keep<'a> {
    /// Owner, permissions and times.
    pub meta: &'a Meta,
    /// Extended attributes.
    pub xattrs: &'a [Xattr],
    /// The attributes that are kept.
    pub rules: &'a Rules,
    /// Is called with the name of each attribute that this caller may not set.
    pub refused: &'a mut dyn FnMut(&[u8]),
}

/// A file being read, by any number of threads.
pub trait Source: Send + Sync {
    /// Reads bytes; fewer than requested only at the end of the file.
    ///
    /// # Errors
    /// The system's or the volume's.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Returns the next data range at or after `offset`, start and end.
    ///
    /// # Errors
    /// The system's or the volume's.
    fn next_data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>>;
    /// Returns the extended attributes that ext4 can hold.
    ///
    /// # Errors
    /// The system's or the volume's.
    fn xattrs(&self) -> Result<Vec<Xattr>>;
}

/// A file being written.
pub trait Sink {
    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// The system's or the volume's.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;
    /// Sets the size.
    ///
    /// # Errors
    /// The system's or the volume's.
    fn set_size(&self, size: u64) -> Result<()>;
    /// Sets the attributes, as [`Side::keep`] does.
    ///
    /// # Errors
    /// The system's or the volume's.
    fn keep(&self, keep: &mut Keep<'_>) -> Result<()>;
}
