//! Path operations, relative to a directory.

use super::file::{File, OpenFlags};
use super::volume::Guard;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::namespace::attributes::{Attributes, SetAttributes};
use crate::namespace::create::New;
use crate::namespace::credentials::{Credentials, EXECUTE, READ, WRITE};
use crate::namespace::inode::Inode;
use crate::namespace::rename::RenameMode;
use crate::namespace::xattrs::SetXattr;
use ext4_format::{FileType, InodeNr};
use std::sync::Arc;

/// A directory to work from, and the caller in whose name. Paths are bytes separated by '/'; one that
/// begins with '/' starts at the root, any other at this directory.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// volume.create_dir("/var", 0o755)?;
/// let var = volume.open_dir("/var")?;
/// var.create("log", 0o644)?;
/// assert_eq!(var.read_dir(".")?.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Dir {
    engine: Arc<Engine>,
    inode: Arc<Inode>,
    who: Arc<Credentials>,
    /// Keeps the volume open.
    guard: Option<Arc<Guard>>,
}

/// One name of a directory.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// volume.create("a", 0o600)?;
/// let entry = &volume.read_dir("/")?[0];
/// assert_eq!((entry.name.as_slice(), entry.file_type), (&b"a"[..], extant::FileType::Regular));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// Where it leads.
    pub ino: u32,
    /// Type of that inode.
    pub file_type: FileType,
    /// Position: listing from here on gives what comes after this name, whatever was added or removed
    /// before it meanwhile.
    pub cookie: u64,
}

impl Dir {
    pub(crate) fn of(engine: Arc<Engine>, inode: Arc<Inode>, who: Arc<Credentials>) -> Self {
        Self { engine, inode, who, guard: None }
    }

    pub(crate) fn with_guard(mut self, guard: &Arc<Guard>) -> Self {
        self.guard = Some(Arc::clone(guard));
        self
    }

    /// The same directory as seen by another caller.
    #[must_use]
    pub fn as_user(&self, credentials: Credentials) -> Self {
        Self { who: Arc::new(credentials), ..self.clone() }
    }

    /// Inode number of the directory.
    pub fn ino(&self) -> u32 {
        self.inode.ino.0
    }

    fn walk(&self, path: impl AsRef<[u8]>, follow: bool) -> Result<Arc<Inode>> {
        let path = path.as_ref();
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        self.engine.walk(&self.who, &self.inode, path, follow)
    }

    /// Directory and last component of a path to something that need not exist.
    fn split(&self, path: &[u8]) -> Result<(Arc<Inode>, Vec<u8>)> {
        // The common case needs no walk.
        if !path.contains(&b'/') && !path.is_empty() {
            self.engine.permit(&self.who, &self.inode, EXECUTE)?;
            return Ok((Arc::clone(&self.inode), path.to_vec()));
        }
        self.engine.walk_to_parent(&self.who, &self.inode, path, false)
    }

    /// A handle on an inode that counts it already.
    fn handle(&self, inode: Arc<Inode>, flags: OpenFlags) -> File {
        File::of(Arc::clone(&self.engine), inode, Arc::clone(&self.who), flags, self.guard.clone())
    }

    /// Opens a directory to work from.
    pub fn open_dir(&self, path: impl AsRef<[u8]>) -> Result<Self> {
        let inode = self.walk(path, true)?;
        if inode.directory().is_none() {
            return Err(Error::NotDirectory);
        }
        Ok(Self { inode, ..self.clone() })
    }

    /// Opens, and with [`OpenFlags::CREATE`] makes, a regular file. `mode` counts only when it is made.
    pub fn open(&self, path: impl AsRef<[u8]>, flags: OpenFlags, mode: u16) -> Result<File> {
        let path = path.as_ref();
        if flags.contains(OpenFlags::CREATE) {
            let follow = !flags.intersects(OpenFlags::EXCLUSIVE | OpenFlags::NO_FOLLOW);
            let split = if follow && path.contains(&b'/') {
                self.engine.walk_to_parent(&self.who, &self.inode, path, true)
            } else {
                self.split(path)
            };
            let (dir, name) = split.map_err(|e| match e {
                // The root itself: it exists and is no file.
                Error::Exists => Error::IsDirectory,
                other => other,
            })?;
            if path.ends_with(b"/") {
                return Err(Error::IsDirectory);
            }
            let exclusive = flags.contains(OpenFlags::EXCLUSIVE);
            let (mut inode, mut made) =
                self.engine.create(&self.who, &dir, &name, &New::File, mode, exclusive, true)?;
            if inode.ftype == FileType::Symlink && !flags.contains(OpenFlags::NO_FOLLOW) {
                self.engine.closed(&inode)?;
                let (dir, name) = self.engine.walk_to_parent(&self.who, &dir, &name, true)?;
                (inode, made) = self.engine.create(&self.who, &dir, &name, &New::File, mode, exclusive, true)?;
            }
            return self.finish_open(self.handle(inode, flags), made);
        }
        let inode = self.walk(path, !flags.contains(OpenFlags::NO_FOLLOW))?;
        self.engine.opened(&inode)?;
        self.finish_open(self.handle(inode, flags), false)
    }

    /// Checks what a handle was opened for, and cuts the file if asked.
    fn finish_open(&self, file: File, made: bool) -> Result<File> {
        let (inode, flags) = file.parts();
        if inode.ftype == FileType::Symlink {
            return Err(Error::SymlinkLoop);
        }
        if !made {
            let mut wanted = 0;
            if flags.contains(OpenFlags::READ) {
                wanted |= READ;
            }
            if flags.intersects(OpenFlags::WRITE | OpenFlags::APPEND | OpenFlags::TRUNCATE) {
                if inode.directory().is_some() {
                    return Err(Error::IsDirectory);
                }
                wanted |= WRITE;
            }
            self.engine.permit(&self.who, inode, wanted)?;
        }
        let truncate = flags.contains(OpenFlags::TRUNCATE) && !made && inode.ftype == FileType::Regular;
        if truncate {
            file.truncate_unchecked(0)?;
        }
        Ok(file)
    }

    /// Makes a regular file that must not exist, and opens it for reading and writing.
    pub fn create(&self, path: impl AsRef<[u8]>, mode: u16) -> Result<File> {
        self.open(path, OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE, mode)
    }

    fn make(&self, path: impl AsRef<[u8]>, what: &New<'_>, mode: u16) -> Result<Arc<Inode>> {
        let path = path.as_ref();
        let (dir, name) = self.split(path)?;
        if path.ends_with(b"/") && !matches!(what, New::Directory) {
            return Err(Error::NotFound);
        }
        Ok(self.engine.create(&self.who, &dir, &name, what, mode, true, false)?.0)
    }

    /// Makes a directory.
    pub fn create_dir(&self, path: impl AsRef<[u8]>, mode: u16) -> Result<Self> {
        let inode = self.make(path, &New::Directory, mode)?;
        Ok(Self { inode, ..self.clone() })
    }

    /// Makes a symbolic link that points to `target`.
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<()> {
        self.make(path, &New::Symlink(target.as_ref()), 0o777).map(|_| ())
    }

    /// Makes a device, FIFO or socket; `rdev` counts for devices only.
    pub fn mknod(&self, path: impl AsRef<[u8]>, file_type: FileType, mode: u16, rdev: u32) -> Result<()> {
        let what = match file_type {
            FileType::Regular => New::File,
            FileType::Directory | FileType::Symlink => return Err(Error::Invalid("mknod of this type")),
            FileType::CharDevice | FileType::BlockDevice if !self.who.is_privileged() => {
                return Err(Error::NotPermitted);
            }
            special => New::Special(special, rdev),
        };
        self.make(path, &what, mode).map(|_| ())
    }

    /// Gives what `old` leads to (a symbolic link itself) another name.
    pub fn link(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<()> {
        let inode = self.walk(old, false)?;
        let (dir, name) = self.split(new.as_ref())?;
        self.engine.link(&self.who, &inode, &dir, &name)
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        if !path.contains(&b'/') && !path.is_empty() {
            return self.engine.unlink(&self.who, &self.inode, path);
        }
        let (dir, name) = self.split(path).map_err(exists_is_directory)?;
        if path.ends_with(b"/") {
            let inode = self.engine.lookup(&dir, &name)?;
            return Err(if inode.directory().is_some() { Error::IsDirectory } else { Error::NotDirectory });
        }
        self.engine.unlink(&self.who, &dir, &name)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (dir, name) = self.split(path.as_ref()).map_err(|e| match e {
            Error::Exists => Error::Busy("the root directory cannot be removed"),
            other => other,
        })?;
        self.engine.rmdir(&self.who, &dir, &name)
    }

    /// Moves a name.
    pub fn rename(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>, mode: RenameMode) -> Result<()> {
        let (old, new) = (old.as_ref(), new.as_ref());
        let busy = |e| match e {
            Error::Exists => Error::Busy("the root directory cannot be renamed"),
            other => other,
        };
        let (old_dir, old_name) = self.split(old).map_err(busy)?;
        let (new_dir, new_name) = self.split(new).map_err(busy)?;
        if old.ends_with(b"/") || new.ends_with(b"/") {
            let source = self.engine.lookup(&old_dir, &old_name)?;
            if source.directory().is_none() {
                return Err(Error::NotDirectory);
            }
        }
        self.engine.rename(&self.who, (&old_dir, &old_name), (&new_dir, &new_name), mode)
    }

    /// Attributes; a last symbolic link is followed.
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Attributes> {
        self.engine.attributes(&*self.walk(path, true)?)
    }

    /// Attributes of the name itself.
    pub fn lstat(&self, path: impl AsRef<[u8]>) -> Result<Attributes> {
        self.engine.attributes(&*self.walk(path, false)?)
    }

    /// Changes attributes; a last symbolic link is followed.
    pub fn set_attributes(&self, path: impl AsRef<[u8]>, set: &SetAttributes) -> Result<()> {
        self.engine.set_attributes(&self.who, &self.walk(path, true)?, set)
    }

    /// Changes attributes of the name itself.
    pub fn lset_attributes(&self, path: impl AsRef<[u8]>, set: &SetAttributes) -> Result<()> {
        self.engine.set_attributes(&self.who, &self.walk(path, false)?, set)
    }

    /// Sets the size of a file.
    pub fn truncate(&self, path: impl AsRef<[u8]>, size: u64) -> Result<()> {
        let inode = self.walk(path, true)?;
        self.engine.permit(&self.who, &inode, WRITE)?;
        self.engine.truncate(&inode, size)
    }

    /// Where a symbolic link points.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        Ok(self.engine.symlink_target(&*self.walk(path, false)?)?.into_vec())
    }

    /// All names of a directory, in the order of its hash.
    pub fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<Vec<DirEntry>> {
        self.read_dir_from(path, 0, usize::MAX)
    }

    /// Names after a cookie (0: from the start), at least `at_least` if there are so many; an empty
    /// answer is the end.
    pub fn read_dir_from(&self, path: impl AsRef<[u8]>, cookie: u64, at_least: usize) -> Result<Vec<DirEntry>> {
        let inode = self.walk(path, true)?;
        if inode.directory().is_none() {
            return Err(Error::NotDirectory);
        }
        self.engine.permit(&self.who, &inode, READ)?;
        Ok(self
            .engine
            .list(&inode, cookie, at_least)?
            .into_iter()
            .map(|e| DirEntry {
                cookie: e.hash.cookie(),
                name: e.name.as_bytes().to_vec(),
                ino: e.ino.0,
                file_type: e.ftype,
            })
            .collect())
    }

    /// Value of an extended attribute of the name itself.
    pub fn get_xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.engine.get_xattr(&self.who, &*self.walk(path, false)?, name.as_ref())
    }

    /// Names of the extended attributes of the name itself.
    pub fn list_xattrs(&self, path: impl AsRef<[u8]>) -> Result<Vec<Vec<u8>>> {
        self.engine.list_xattrs(&self.who, &*self.walk(path, false)?)
    }

    /// Sets an extended attribute of the name itself.
    pub fn set_xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>, value: &[u8], how: SetXattr) -> Result<()> {
        self.engine.set_xattr(&self.who, &self.walk(path, false)?, name.as_ref(), Some(value), how)
    }

    /// Removes an extended attribute of the name itself.
    pub fn remove_xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<()> {
        self.engine.set_xattr(&self.who, &self.walk(path, false)?, name.as_ref(), None, SetXattr::Any)
    }

    /// Makes the directory's names durable.
    pub fn fsync(&self) -> Result<()> {
        self.engine.fsync(&self.inode)
    }

    /// Opens a regular file by inode number; for servers that keep numbers.
    pub fn open_ino(&self, ino: u32, flags: OpenFlags) -> Result<File> {
        let inode = self.engine.inode_in_use(InodeNr(ino))?;
        self.engine.opened(&inode)?;
        self.finish_open(self.handle(inode, flags), false)
    }

    /// The whole content of a file.
    pub fn read_file(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let file = self.open(path, OpenFlags::READ, 0)?;
        let mut content = vec![0; usize::try_from(file.stat()?.size).map_err(|_| Error::FileTooLarge)?];
        let n = file.read_at(0, &mut content)?;
        content.truncate(n);
        Ok(content)
    }

    /// Makes or replaces a file with this content.
    pub fn write_file(&self, path: impl AsRef<[u8]>, content: &[u8]) -> Result<()> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;
        self.open(path, flags, 0o644)?.write_at(0, content).map(|_| ())
    }
}

fn exists_is_directory(e: Error) -> Error {
    match e {
        Error::Exists => Error::IsDirectory,
        other => other,
    }
}
