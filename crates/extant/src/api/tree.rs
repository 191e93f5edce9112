//! Whole trees: directories made with those above them, walked, and removed with everything below.

use super::dir::{Dir, DirEntry};
use crate::base::error::{Error, Result};
use ext4_format::FileType;

/// One step of a [`Walk`].
///
/// ```
/// # let volume = extant::doc_volume();
/// volume.create_dir_all("/a/b", 0o755)?;
/// let last = volume.walk_tree("/a")?.last().expect("a and b")?;
/// assert_eq!((last.path.as_slice(), last.depth), (&b"/a/b"[..], 1));
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalkEntry {
    /// The path, that of the start with the names below it.
    pub path: Vec<u8>,
    /// Type of what it leads to; links are not followed.
    pub file_type: FileType,
    /// Its inode.
    pub ino: u32,
    /// 0 for the start.
    pub depth: usize,
}

/// A walk over a tree, every directory before the names in it. A directory that was removed meanwhile is left out.
///
/// ```
/// # let volume = extant::doc_volume();
/// volume.create_dir_all("/a/b", 0o755)?;
/// volume.write_file("/a/b/file", b"1")?;
/// let paths = volume.walk_tree("/a")?.map(|entry| Ok(entry?.path));
/// let paths = paths.collect::<extant::Result<Vec<_>>>()?;
/// assert_eq!(paths, [&b"/a"[..], b"/a/b", b"/a/b/file"]);
/// # Ok::<(), extant::Error>(())
/// ```
#[must_use = "a walk goes on as it is asked for entries"]
pub struct Walk {
    dir: Dir,
    /// Still to be shown, the next one last.
    waiting: Vec<WalkEntry>,
    /// Directories on the way to what was shown last: by damage a directory can be below itself.
    above: Vec<u32>,
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.waiting.pop()?;
        self.above.truncate(entry.depth);
        if entry.file_type == FileType::Directory {
            if self.above.contains(&entry.ino) {
                let ino = ext4_format::InodeNr(entry.ino);
                return Some(Err(Error::corrupt_inode("directory below itself", ino)));
            }
            self.above.push(entry.ino);
            if let Err(e) = self.enter(&entry) {
                return Some(Err(e));
            }
        }
        Some(Ok(entry))
    }
}

impl Walk {
    fn enter(&mut self, dir: &WalkEntry) -> Result<()> {
        let names = match self.dir.read_dir(&dir.path) {
            Err(Error::NotFound | Error::NotDirectory) if dir.depth > 0 => return Ok(()),
            other => other?,
        };
        let below = |entry: DirEntry| WalkEntry {
            path: join(&dir.path, &entry.name),
            file_type: entry.file_type,
            ino: entry.ino,
            depth: dir.depth + 1,
        };
        self.waiting.extend(names.into_iter().rev().map(below));
        Ok(())
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}

/// The path without its last name; `None` if that is all of it.
fn parent_of(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|b| *b != b'/')?;
    let name = path[..end].iter().rposition(|b| *b == b'/')?;
    let above = path[..name].iter().rposition(|b| *b != b'/')?;
    Some(&path[..=above])
}

impl Dir {
    /// Walks the tree at a path.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create_dir_all("/a/b/c", 0o755)?;
    /// assert_eq!(volume.walk_tree("/a")?.count(), 3);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn walk_tree(&self, path: impl AsRef<[u8]>) -> Result<Walk> {
        let path = path.as_ref();
        let start = self.lstat(path)?;
        Ok(Walk {
            dir: self.clone(),
            waiting: vec![WalkEntry {
                path: path.to_vec(),
                file_type: start.file_type,
                ino: start.ino,
                depth: 0,
            }],
            above: Vec::new(),
        })
    }

    /// Makes a directory and those above it that are missing. Directories that exist are left as they are.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create_dir_all("/usr/share/doc", 0o755)?;
    /// volume.create_dir_all("/usr/share", 0o700)?;
    /// assert_eq!(volume.stat("/usr/share")?.mode & 0o777, 0o755);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn create_dir_all(&self, path: impl AsRef<[u8]>, mode: u16) -> Result<()> {
        let path = path.as_ref();
        let is_dir = || {
            let found = self.stat(path);
            found.is_ok_and(|found| found.file_type == FileType::Directory)
        };
        match self.create_dir(path, mode) {
            Ok(_) => return Ok(()),
            Err(Error::NotFound) => {}
            Err(_) if is_dir() => return Ok(()),
            Err(e) => return Err(e),
        }
        // A path has at most 4096 bytes, and as many names.
        self.create_dir_all(parent_of(path).ok_or(Error::NotFound)?, mode)?;
        match self.create_dir(path, mode) {
            Err(_) if is_dir() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Removes a directory with everything below it. Links are removed, not followed, at `path` too; anything else there is
    /// [`Error::NotDirectory`]. An entry that another caller removes meanwhile is no error.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create_dir_all("/a/b", 0o755)?;
    /// volume.write_file("/a/b/file", b"1")?;
    /// volume.remove_dir_all("/a")?;
    /// assert!(volume.lstat("/a").is_err());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn remove_dir_all(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let walk = self.walk_tree(path)?;
        match walk.waiting.last().map(|start| start.file_type) {
            Some(FileType::Directory | FileType::Symlink) => {}
            _ => return Err(Error::NotDirectory),
        }
        let entries = walk.collect::<Result<Vec<_>>>()?;
        // From the end, so that every directory is empty when its turn comes.
        for entry in entries.iter().rev() {
            let removed = match entry.file_type {
                FileType::Directory => self.remove_dir(&entry.path),
                _ => self.unlink(&entry.path),
            };
            match removed {
                Err(Error::NotFound) if entry.depth > 0 => {}
                other => other?,
            }
        }
        Ok(())
    }
}
