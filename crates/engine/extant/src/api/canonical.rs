//! Paths without links.

use super::bytes;
use super::dir::Dir;
use crate::base::error::{Error, Result};
use crate::names::lookup::{MAX_LINKS, PATH_MAX};
use ext4_format::InodeNr;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Names of a directory that are fetched at a time.
const BATCH: usize = 1000;

impl Dir {
    /// Returns the absolute path of what a path leads to, without symbolic links, `.` and `..`.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::Error;
    /// let usr = volume.create_dir("/usr")?;
    /// usr.write("libc.so", b"code")?;
    /// volume.symlink("usr", "/lib")?;
    /// volume.symlink("loop", "/loop")?;
    /// assert_eq!(volume.canonicalize("/lib/./libc.so")?.to_str(), Some("/usr/libc.so"));
    /// assert_eq!(usr.canonicalize("../lib")?.to_str(), Some("/usr"));
    /// assert!(matches!(volume.canonicalize("/none"), Err(Error::NotFound)));
    /// assert!(matches!(volume.canonicalize("/loop"), Err(Error::SymlinkLoop)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of a look-up of the path: [`Error::NotFound`], [`Error::NotDirectory`], [`Error::SymlinkLoop`] and
    /// others. [`Error::NotFound`] for a relative path if the directory was removed. A relative path needs search permission from the
    /// root on.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        // Fail as a look-up does. The loop only builds the path.
        self.resolve(bytes(&path), true)?;
        let mut links = MAX_LINKS;
        let mut done = if path.as_ref().has_root() {
            PathBuf::new()
        } else {
            self.own_path()?
        };
        let mut rest = path.as_ref().to_owned();
        loop {
            let mut parts = rest.components();
            let Some(part) = parts.next() else {
                return Ok(done);
            };
            let later = parts.as_path();
            let name = match part {
                Component::RootDir | Component::Prefix(_) => {
                    done = PathBuf::from("/");
                    None
                }
                Component::CurDir => None,
                Component::ParentDir => {
                    done.pop();
                    None
                }
                Component::Normal(name) => Some(name),
            };
            rest = match name.map(|name| done.join(name)) {
                None => later.to_owned(),
                Some(next) => match self.read_link(&next) {
                    Ok(target) => {
                        // A name that is replaced meanwhile could lead on for ever.
                        links = links.checked_sub(1).ok_or(Error::SymlinkLoop)?;
                        target.join(later)
                    }
                    Err(Error::Invalid(_)) => {
                        done = next;
                        later.to_owned()
                    }
                    Err(e) => return Err(e),
                },
            };
        }
    }

    /// Returns the path of this directory, found from its parents.
    fn own_path(&self) -> Result<PathBuf> {
        let names = &self.engine()?.names;
        let (mut reversed, mut seen) = (Vec::new(), BTreeSet::new());
        let mut dir = Arc::clone(&self.inode);
        while dir.ino != InodeNr::ROOT {
            let parent = names.lookup(&dir, b"..")?;
            let mut cookie = 0;
            let name = loop {
                let batch = names.list(&parent, cookie, BATCH)?;
                cookie = batch.last().ok_or(Error::NotFound)?.hash.cookie();
                if let Some(entry) = batch.into_iter().find(|entry| entry.ino == dir.ino) {
                    break entry.name;
                }
            };
            reversed.push(name);
            if reversed.len() > PATH_MAX / 2 {
                return Err(Error::NameTooLong);
            }
            // A damaged volume may have directories that are each other's parents.
            if !seen.insert(dir.ino) {
                return Err(Error::corrupt_inode("parents up to the root", dir.ino));
            }
            dir = parent;
        }
        let mut path = PathBuf::from("/");
        let names = reversed.iter().rev();
        path.extend(names.map(|name| OsStr::from_bytes(name.as_bytes())));
        Ok(path)
    }
}
