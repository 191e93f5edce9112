//! Listing directories.

use super::bytes;
use super::dir::Dir;
use super::node::NodeEntry;
use crate::base::error::{Error, Result};
use crate::inodes::attributes::Metadata;
use crate::types::credentials::READ;
use ext4_format::FileType;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names that are read at once. A directory is never in memory as a whole because it is listed.
const BATCH: usize = 512;

/// A directory that is being listed, and the path by which its reader knows it.
struct Listed {
    dir: Dir,
    path: PathBuf,
}

/// An entry of a directory.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// volume.write("/a", "data")?;
/// for entry in volume.read_dir("/")? {
///     let entry = entry?;
///     if entry.file_name() == "a" {
///         assert_eq!(entry.path(), std::path::Path::new("/a"));
///         assert_eq!(entry.file_type(), extant::FileType::Regular);
///         assert_eq!((entry.metadata()?.len(), entry.metadata()?.ino()), (4, entry.ino()));
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DirEntry {
    listed: Arc<Listed>,
    entry: NodeEntry,
}

impl DirEntry {
    /// Returns the name.
    pub fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(&self.entry.name)
    }

    /// Returns the path: the listed directory's path, as given, with the name.
    pub fn path(&self) -> PathBuf {
        self.listed.path.join(self.file_name())
    }

    /// Returns the inode number that the name leads to.
    pub fn ino(&self) -> u32 {
        self.entry.ino
    }

    /// Returns the type of the inode that the name leads to. A symbolic link is not followed.
    pub fn file_type(&self) -> FileType {
        self.entry.file_type
    }

    /// Returns the metadata of the inode that the name leads to. A symbolic link is not followed.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the name was removed meanwhile, and others of a look-up.
    pub fn metadata(&self) -> Result<Metadata> {
        self.listed.dir.symlink_metadata(self.file_name())
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}

/// The names of a directory, in the order of its hash. Each name that exists all the time is returned once. A name that
/// is added or removed meanwhile may be returned or not.
///
/// ```
/// # let volume = extant::doc_volume();
/// for n in 0..1000 {
///     volume.create_new_file(format!("/{n}"))?;
/// }
/// assert_eq!(volume.read_dir("/")?.count(), 1001); // and lost+found
/// # Ok::<(), extant::Error>(())
/// ```
#[must_use = "a directory is listed as names are asked for"]
pub struct ReadDir {
    listed: Arc<Listed>,
    batch: std::vec::IntoIter<NodeEntry>,
    /// Position of the last name in the batch.
    cookie: u64,
    /// The end, or a failure, was met.
    over: bool,
}

impl ReadDir {
    fn refill(&mut self) -> Result<()> {
        let dir = &self.listed.dir;
        let batch = NodeEntry::list(dir.engine()?, &dir.inode, self.cookie, BATCH)?;
        match batch.last() {
            Some(last) => self.cookie = last.cookie,
            None => self.over = true,
        }
        self.batch = batch.into_iter();
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.as_slice().is_empty()
            && !self.over
            && let Err(e) = self.refill()
        {
            self.over = true;
            return Some(Err(e));
        }
        let entry = self.batch.next()?;
        Some(Ok(DirEntry {
            listed: Arc::clone(&self.listed),
            entry,
        }))
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.listed.path).finish()
    }
}

impl Dir {
    /// Lists the names of a directory, without "." and "..".
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/a", "data")?;
    /// let names = volume.read_dir("/")?.map(|entry| Ok(entry?.file_name().to_owned()));
    /// let names = names.collect::<extant::Result<Vec<_>>>()?;
    /// assert!(names.iter().any(|name| name == "a"));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let inode = self.resolve(bytes(&path), true)?;
        if inode.directory().is_none() {
            return Err(Error::NotDirectory);
        }
        self.engine()?.inodes.permit(self.who(), &inode, READ)?;
        let listed = Listed {
            dir: self.to(inode.into_arc()),
            path: path.as_ref().to_path_buf(),
        };
        let mut names = ReadDir {
            listed: Arc::new(listed),
            batch: Vec::new().into_iter(),
            cookie: 0,
            over: false,
        };
        names.refill()?;
        Ok(names)
    }
}
