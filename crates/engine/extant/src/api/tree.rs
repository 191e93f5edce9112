//! Operations on whole trees: making directories with their parents, walking, and removing everything below a
//! directory.

use super::bytes;
use super::copy::PathError;
use super::dir::Dir;
use super::read_dir::{DirEntry, ReadDir};
use crate::base::error::{Error, Result};
use crate::inodes::attributes::Metadata;
use ext4_format::{FileType, InodeNr};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Deeper than this no tree is: damage leads in a circle.
const MAX_DEPTH: usize = 50_000;

/// An entry found by a [`Walk`].
///
/// ```
/// # let volume = extant::doc_volume();
/// volume.create_dir_all("/a/b")?;
/// let last = volume.walk("/a")?.last().expect("it has one")?;
/// assert_eq!((last.path().to_str(), last.depth()), (Some("/a/b"), 1));
/// assert_eq!(last.file_type(), extant::FileType::Directory);
/// assert!(last.metadata()?.is_dir());
/// assert_eq!(last.parent().metadata(last.file_name())?.ino(), last.ino());
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone)]
pub struct WalkEntry {
    parent: Arc<Dir>,
    entry: DirEntry,
    path: PathBuf,
    depth: usize,
}

impl WalkEntry {
    /// Returns the path: the path of the walk's top with the names below it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the last name of the path.
    pub fn file_name(&self) -> &OsStr {
        self.entry.file_name()
    }

    /// Returns the directory that holds the name. Operations on it with [`file_name`](Self::file_name) reach the entry,
    /// however long its path is.
    pub fn parent(&self) -> &Dir {
        &self.parent
    }

    /// Returns the type of the entry. Links are not followed.
    pub fn file_type(&self) -> FileType {
        self.entry.file_type()
    }

    /// Returns the inode number of the entry.
    pub fn ino(&self) -> u32 {
        self.entry.ino()
    }

    /// Returns the metadata of the entry. Links are not followed.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the name was removed meanwhile, and others of a look-up.
    pub fn metadata(&self) -> Result<Metadata> {
        self.parent.symlink_metadata(self.file_name())
    }

    /// Returns the number of names between the walk's top and the entry, including the entry's own.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

impl fmt::Debug for WalkEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WalkEntry").field(&self.path).finish()
    }
}

/// The names of a directory that are still to be shown.
enum Names {
    Listed(ReadDir),
    Sorted(std::vec::IntoIter<DirEntry>),
}

impl Names {
    fn of(dir: &Dir, sorted: bool) -> Result<Self> {
        let names = dir.read_dir(".")?;
        if !sorted {
            return Ok(Self::Listed(names));
        }
        let mut names = names.collect::<Result<Vec<_>>>()?;
        names.sort_by(|a, b| a.file_name().cmp(b.file_name()));
        Ok(Self::Sorted(names.into_iter()))
    }

    fn next(&mut self) -> Option<Result<DirEntry>> {
        match self {
            Self::Listed(names) => names.next(),
            Self::Sorted(names) => names.next().map(Ok),
        }
    }
}

/// A directory that the walk is in.
struct Level {
    dir: Arc<Dir>,
    path: PathBuf,
    names: Names,
    /// The directory below that was entered last, to be shown when all below it was.
    entered: Option<WalkEntry>,
}

/// A walk over everything below a directory: each directory before its contents, or after. The walk holds a handle for
/// each directory on the way down and no path, so that a tree may be of any depth. A directory that was removed
/// meanwhile is left out.
///
/// ```
/// # let volume = extant::doc_volume();
/// volume.create_dir_all("/a/b")?;
/// volume.write("/a/b/file", b"1")?;
/// let mut paths = Vec::new();
/// for entry in volume.walk("/a")?.sorted(true).contents_first(true) {
///     paths.push(entry?.path().to_owned());
/// }
/// assert_eq!(paths, ["/a/b/file", "/a/b"].map(std::path::PathBuf::from));
/// let mut walk = volume.walk("/a")?;
/// while let Some(entry) = walk.next() {
///     if entry?.file_name() == "b" {
///         walk.skip_contents();
///     }
/// }
/// # Ok::<(), extant::Error>(())
/// ```
#[must_use = "a walk goes on as it is asked for entries"]
pub struct Walk {
    /// The top, until the first entry is asked for.
    top: Option<(Arc<Dir>, PathBuf)>,
    levels: Vec<Level>,
    /// The directory that was shown last, to be entered next.
    pending: Option<WalkEntry>,
    /// Inodes of the directories that were entered. A directory has one name; one that is met again makes a circle, or
    /// a tree that grows without end.
    met: HashSet<u32>,
    contents_first: bool,
    sorted: bool,
}

impl Walk {
    /// Returns each directory after its contents.
    pub fn contents_first(mut self, yes: bool) -> Self {
        self.contents_first = yes;
        self
    }

    /// Returns the names of each directory in the order of their bytes.
    pub fn sorted(mut self, yes: bool) -> Self {
        self.sorted = yes;
        self
    }

    /// Skips the contents of the directory that was returned last.
    pub fn skip_contents(&mut self) {
        self.pending = None;
    }

    fn push(&mut self, dir: Arc<Dir>, path: &Path) -> Result<()> {
        let ino = InodeNr(dir.ino());
        if !self.met.insert(ino.0) {
            return Err(Error::corrupt_inode("directory with a second name", ino));
        }
        if self.levels.len() > MAX_DEPTH {
            return Err(Error::corrupt_inode("directory nested too deeply", ino));
        }
        let names = Names::of(&dir, self.sorted)?;
        self.levels.push(Level {
            dir,
            path: path.to_path_buf(),
            names,
            entered: None,
        });
        Ok(())
    }

    fn enter(&mut self, entry: WalkEntry) -> Result<(), PathError> {
        let opened = entry.parent.open_dir(entry.file_name());
        match opened.and_then(|dir| self.push(Arc::new(dir), &entry.path)) {
            // The entry was removed since its name was read.
            Err(Error::NotFound | Error::NotDirectory) => Ok(()),
            Err(source) => Err(PathError {
                path: entry.path,
                source,
            }),
            Ok(()) => {
                let above = self.levels.len().checked_sub(2);
                if let Some(level) = above.and_then(|above| self.levels.get_mut(above)) {
                    level.entered = Some(entry).filter(|_| self.contents_first);
                }
                Ok(())
            }
        }
    }

    fn step(&mut self) -> Result<Option<WalkEntry>, PathError> {
        if let Some((dir, path)) = self.top.take() {
            let pushed = self.push(dir, &path);
            pushed.map_err(|source| PathError { path, source })?;
        }
        if let Some(entry) = self.pending.take() {
            self.enter(entry)?;
        }
        loop {
            let depth = self.levels.len();
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            if let Some(done) = level.entered.take() {
                return Ok(Some(done));
            }
            let entry = match level.names.next() {
                None => {
                    self.levels.pop();
                    continue;
                }
                Some(entry) => entry.map_err(|source| PathError {
                    path: level.path.clone(),
                    source,
                })?,
            };
            let entry = WalkEntry {
                parent: Arc::clone(&level.dir),
                path: level.path.join(entry.file_name()),
                entry,
                depth,
            };
            if entry.file_type() != FileType::Directory {
                return Ok(Some(entry));
            }
            if !self.contents_first {
                self.pending = Some(entry.clone());
                return Ok(Some(entry));
            }
            self.enter(entry)?;
        }
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry, PathError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").finish_non_exhaustive()
    }
}

impl Dir {
    /// Walks over everything below a directory. Links are not followed, except one that the path ends in.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create_dir_all("/a/b/c")?;
    /// assert_eq!(volume.walk("/a")?.count(), 2);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let top = self.open_dir(&path)?;
        Ok(Walk {
            top: Some((Arc::new(top), path.as_ref().to_path_buf())),
            levels: Vec::new(),
            pending: None,
            met: HashSet::new(),
            contents_first: false,
            sorted: false,
        })
    }

    /// Makes a directory and those above it that are missing. Directories that exist are left as they are.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create_dir_all("/usr/share/doc")?;
    /// volume.create_dir_all("/usr/share")?;
    /// assert!(volume.metadata("/usr/share/doc")?.is_dir());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let is_dir = || self.metadata(path).is_ok_and(|found| found.is_dir());
        match self.create_dir(path) {
            Ok(_) => return Ok(()),
            Err(Error::NotFound) => {}
            Err(_) if is_dir() => return Ok(()),
            Err(e) => return Err(e),
        }
        // A path has at most 4096 bytes, so it has at most 4096 names.
        let parent = path.parent().filter(|parent| !bytes(parent).is_empty());
        self.create_dir_all(parent.ok_or(Error::NotFound)?)?;
        match self.create_dir(path) {
            Err(_) if is_dir() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Removes a directory with everything below it. Links are removed, not followed, at `path` too; anything else
    /// there is [`Error::NotDirectory`]. Entries that another caller removes meanwhile are skipped.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create_dir_all("/a/b")?;
    /// volume.write("/a/b/file", b"1")?;
    /// volume.remove_dir_all("/a")?;
    /// assert!(!volume.exists("/a")?);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        match self.symlink_metadata(&path)?.file_type() {
            FileType::Directory => {}
            FileType::Symlink => return self.remove_file(path),
            _ => return Err(Error::NotDirectory),
        }
        for entry in self.walk(&path)?.contents_first(true) {
            let entry = entry?;
            let removed = match entry.file_type() {
                FileType::Directory => entry.parent().remove_dir(entry.file_name()),
                _ => entry.parent().remove_file(entry.file_name()),
            };
            match removed {
                Err(Error::NotFound) => {}
                other => other?,
            }
        }
        self.remove_dir(path)
    }
}
