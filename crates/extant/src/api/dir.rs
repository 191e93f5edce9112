//! Path operations, relative to a directory.

use super::file::{File, OpenFlags, check_open};
use super::watch::Watch;
use crate::base::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::inodes::new::New;
use crate::inodes::open_files::Opened;
use crate::inodes::walk_cache::At;
use crate::names::create::How;
use crate::names::lookup::PATH_MAX;
use crate::names::rename::RenameMode;
use crate::types::credentials::{Credentials, EXECUTE};
use crate::types::dentry::Dentry;
use crate::volume::caller::{Caller, Hold};
use crate::volume::engine::Engine;
use crate::volume::guard::Guard;
use crossbeam_utils::CachePadded;
use ext4_format::FileType;
use std::sync::Arc;

/// A directory to work from, and the caller in whose name. Paths are bytes separated by '/'; a path that begins with
/// '/' starts at the root, any other at this directory.
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
///
/// Threads that work at once should each have a clone of their own: the count of files opened through a handle is
/// then on a cache line of its own.
pub struct Dir {
    inode: Arc<Inode>,
    caller: Arc<Caller>,
}

impl Clone for Dir {
    fn clone(&self) -> Self {
        self.to(Arc::clone(&self.inode))
    }
}

/// One name of a directory.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// volume.create("a", 0o600)?;
/// let names = volume.read_dir("/")?;
/// let entry = names.iter().find(|e| e.name == b"a").expect("just made");
/// assert_eq!(entry.file_type, extant::FileType::Regular);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode it leads to.
    pub ino: u32,
    /// Type of that inode.
    pub file_type: FileType,
    /// Position: listing from here on gives what comes after this name, whatever was added or removed
    /// before it meanwhile.
    pub cookie: u64,
}

/// Names of a directory after a cookie.
pub(crate) fn entries(
    engine: &Engine,
    dir: &Arc<Inode>,
    cookie: u64,
    at_least: usize,
) -> Result<Vec<DirEntry>> {
    let entry = |e: Dentry| DirEntry {
        cookie: e.hash.cookie(),
        name: e.name.as_bytes().to_vec(),
        ino: e.ino.0,
        file_type: e.ftype,
    };
    let names = engine.names.list(dir, cookie, at_least)?;
    engine.inodes.accessed(dir);
    Ok(names.into_iter().map(entry).collect())
}

impl Dir {
    pub(crate) fn root_of(engine: &Arc<Engine>, guard: &Arc<Guard>) -> Result<Self> {
        let caller = Caller {
            hold: Hold::of(engine, guard),
            who: Credentials::root(),
        };
        Ok(Self {
            inode: engine.names.root()?,
            caller: Arc::new(caller),
        })
    }

    /// Another directory, same caller, with a share of its own.
    pub(super) fn to(&self, inode: Arc<Inode>) -> Self {
        Self {
            inode,
            caller: self.caller.to(self.caller.who.clone()),
        }
    }

    /// The same directory as seen by another caller.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Credentials, Error};
    /// volume.create_dir("/home", 0o755)?;
    /// let home = volume.open_dir("/home")?.as_user(Credentials::new(1000, 1000, &[]));
    /// assert!(matches!(home.create("notes", 0o600), Err(Error::PermissionDenied)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    #[must_use]
    pub fn as_user(&self, credentials: Credentials) -> Self {
        Self {
            inode: Arc::clone(&self.inode),
            caller: self.caller.to(credentials),
        }
    }

    pub(super) fn engine(&self) -> Result<&Engine> {
        self.caller.engine()
    }

    pub(crate) fn who(&self) -> &Credentials {
        &self.caller.who
    }

    /// Inode number of the directory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert_eq!(volume.root().ino(), 2);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn ino(&self) -> u32 {
        self.inode.ino.0
    }

    pub(super) fn walk(&self, path: impl AsRef<[u8]>, follow: bool) -> Result<At<'_>> {
        let path = path.as_ref();
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        self.engine()?
            .names
            .walk(self.who(), &self.inode, path, follow)
    }

    /// Does something to what a path leads to. If that is removed before it is done, the name may well be
    /// there, and lead to something else: it was replaced, at one moment. Then the path is walked again.
    pub(super) fn at_inode<R>(
        &self,
        path: impl AsRef<[u8]>,
        follow: bool,
        mut f: impl FnMut(&Arc<Inode>) -> Result<R>,
    ) -> Result<R> {
        let mut before: Option<Arc<Inode>> = None;
        loop {
            let inode = self.walk(path.as_ref(), follow)?;
            match f(&inode) {
                // A removed directory that is open is found again by its own ".".
                Err(_)
                    if inode.is_gone()
                        && !before.is_some_and(|before| Arc::ptr_eq(&before, &inode)) =>
                {
                    before = Some(inode.into_arc());
                }
                done => return done,
            }
        }
    }

    /// The same for reading what is loaded from the inode's place on disk, where there may be another by now.
    pub(super) fn of_inode<R>(
        &self,
        path: impl AsRef<[u8]>,
        f: impl Fn(&Arc<Inode>) -> Result<R>,
    ) -> Result<R> {
        self.at_inode(path, false, |inode| {
            let read = f(inode);
            if inode.is_gone() {
                return Err(Error::NotFound);
            }
            read
        })
    }

    /// The directory that holds the last component of a path, which the caller may search, and that component; for what
    /// can be done there without counting a use of what it leads to. `None`: the path has to be walked to its end.
    pub(super) fn last_step<'a>(&'a self, path: &'a [u8]) -> Result<Option<(At<'a>, &'a [u8])>> {
        let (head, last) = match path.iter().rposition(|&b| b == b'/') {
            Some(slash) => path.split_at(slash + 1),
            None => (&path[..0], path),
        };
        if matches!(last, b"" | b"." | b"..") || path.len() > PATH_MAX {
            return Ok(None);
        }
        let dir = match head {
            b"" => At::Start(&self.inode),
            _ => self.walk(head, true)?,
        };
        if dir.directory().is_none() {
            return Err(Error::NotDirectory);
        }
        self.engine()?.inodes.permit(self.who(), &dir, EXECUTE)?;
        Ok(Some((dir, last)))
    }

    /// Runs `f` on the directory and last component of a path to something that need not exist.
    pub(super) fn at_parent<R>(
        &self,
        path: &[u8],
        f: impl FnOnce(&Arc<Inode>, &[u8]) -> Result<R>,
    ) -> Result<R> {
        // The common case needs no walk, and counts no use of the directory.
        if !path.contains(&b'/') && !path.is_empty() {
            self.engine()?
                .inodes
                .permit(self.who(), &self.inode, EXECUTE)?;
            return f(&self.inode, path);
        }
        let (dir, name) =
            self.engine()?
                .names
                .walk_to_parent(self.who(), &self.inode, path, false)?;
        f(&dir, &name)
    }

    /// A handle on an inode that counts it already.
    pub(super) fn handle(&self, inode: Arc<Inode>, flags: OpenFlags) -> File {
        File::of(Arc::clone(&self.caller), Opened::There(inode), flags)
    }

    /// Watches a directory or file.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::WatchEvent;
    /// let watch = volume.watch("/")?;
    /// volume.create("new", 0o600)?;
    /// assert!(matches!(watch.try_next(), Some(WatchEvent::Created { name, .. }) if name == b"new"));
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of a look-up of the path.
    pub fn watch(&self, path: impl AsRef<[u8]>) -> Result<Watch> {
        let inode = self.walk(path, true)?;
        Ok(self.watch_inode(Some(inode.into_arc())))
    }

    pub(crate) fn watch_inode(&self, inode: Option<Arc<Inode>>) -> Watch {
        let hold = Hold {
            engine: Arc::clone(self.caller.any_engine()),
            guard: None,
        };
        let caller = Caller {
            hold: Arc::new(CachePadded::new(hold)),
            who: self.who().clone(),
        };
        Watch::new(caller, inode)
    }

    /// Opens a directory to work from.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::RenameMode;
    /// volume.create_dir("/var", 0o755)?;
    /// let var = volume.open_dir("/var")?;
    /// volume.rename("/var", "/moved", RenameMode::Replace)?;
    /// var.create("log", 0o644)?;
    /// assert!(volume.stat("/moved/log").is_ok());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn open_dir(&self, path: impl AsRef<[u8]>) -> Result<Self> {
        let inode = self.walk(path, true)?;
        if inode.directory().is_none() {
            return Err(Error::NotDirectory);
        }
        Ok(self.to(inode.into_arc()))
    }

    /// Opens, and with [`OpenFlags::CREATE`] makes, a regular file. `mode` counts only when it is made.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Error, OpenFlags};
    /// let log = volume.open("/log", OpenFlags::CREATE | OpenFlags::APPEND, 0o644)?;
    /// log.append(b"started\n")?;
    /// let again = OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    /// assert!(matches!(volume.open("/log", again, 0o644), Err(Error::Exists)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn open(&self, path: impl AsRef<[u8]>, flags: OpenFlags, mode: u16) -> Result<File> {
        let path = path.as_ref();
        if flags.contains(OpenFlags::CREATE) {
            return self.open_or_create(path, flags, mode);
        }
        if self.engine()?.inodes.open_files.has_some()
            && let Some((dir, name)) = self.last_step(path)?
            && let Some(opened) = self.engine()?.inodes.open_remembered(&dir, name)
        {
            let file = File::of(Arc::clone(&self.caller), opened, flags);
            return self.finish_open(file, false);
        }
        let inode = self.at_inode(path, !flags.contains(OpenFlags::NO_FOLLOW), |inode| {
            self.engine()?.lifecycle.opened(inode)?;
            Ok(Arc::clone(inode))
        })?;
        let opened = self.engine()?.inodes.remember_open(inode);
        let file = File::of(Arc::clone(&self.caller), opened, flags);
        self.finish_open(file, false)
    }

    fn open_or_create(&self, path: &[u8], flags: OpenFlags, mode: u16) -> Result<File> {
        if path.ends_with(b"/") {
            return Err(Error::IsDirectory);
        }
        let exclusive = flags.contains(OpenFlags::EXCLUSIVE);
        let follow = !flags.intersects(OpenFlags::EXCLUSIVE | OpenFlags::NO_FOLLOW);
        let create = |dir: &Arc<Inode>, name: &[u8]| {
            self.engine()?.names.create(
                self.who(),
                dir,
                name,
                &New::File,
                How {
                    mode,
                    exclusive,
                    open: true,
                },
            )
        };
        let (inode, made) = self
            .at_parent(path, |dir, name| {
                let found = create(dir, name)?;
                if !follow || found.0.ftype != FileType::Symlink {
                    return Ok(found);
                }
                self.engine()?.lifecycle.closed(&found.0)?;
                let (dir, name) =
                    self.engine()?
                        .names
                        .walk_to_parent(self.who(), dir, name, true)?;
                create(&dir, &name)
            })
            .map_err(|e| match e {
                // The root itself: it exists and is no file.
                Error::Exists if !exclusive => Error::IsDirectory,
                other => other,
            })?;
        self.finish_open(self.handle(inode, flags), made)
    }

    /// Checks what a handle was opened for, and cuts the file if asked.
    pub(super) fn finish_open(&self, file: File, made: bool) -> Result<File> {
        let (inode, flags) = file.parts();
        if inode.ftype == FileType::Symlink {
            return Err(Error::SymlinkLoop);
        }
        if !made {
            check_open(self.engine()?, self.who(), inode, flags)?;
        }
        let truncate =
            flags.contains(OpenFlags::TRUNCATE) && !made && inode.ftype == FileType::Regular;
        if truncate {
            file.truncate_unchecked(0)?;
        }
        Ok(file)
    }

    /// Makes a regular file that must not exist, and opens it for reading and writing.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/new", 0o640)?;
    /// file.write_at(0, b"data")?;
    /// assert_eq!(file.stat()?.mode, 0o100640);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn create(&self, path: impl AsRef<[u8]>, mode: u16) -> Result<File> {
        self.open(
            path,
            OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE,
            mode,
        )
    }

    fn make(&self, path: impl AsRef<[u8]>, what: &New<'_>, mode: u16) -> Result<Arc<Inode>> {
        let path = path.as_ref();
        self.at_parent(path, |dir, name| {
            if path.ends_with(b"/") && !matches!(what, New::Directory) {
                return Err(Error::NotFound);
            }
            let how = How {
                mode,
                exclusive: true,
                open: false,
            };
            Ok(self
                .engine()?
                .names
                .create(self.who(), dir, name, what, how)?
                .0)
        })
    }

    /// Makes a directory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let etc = volume.create_dir("/etc", 0o755)?;
    /// etc.write_file("motd", b"hello\n")?;
    /// assert_eq!(volume.read_file("/etc/motd")?, b"hello\n");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn create_dir(&self, path: impl AsRef<[u8]>, mode: u16) -> Result<Self> {
        let inode = self.make(path, &New::Directory, mode)?;
        Ok(self.to(inode))
    }

    /// Makes a symbolic link that points to `target`.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write_file("/file", b"data")?;
    /// volume.symlink("file", "/link")?;
    /// assert_eq!(volume.read_file("/link")?, b"data");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<()> {
        self.make(path, &New::Symlink(target.as_ref()), 0o777)
            .map(|_| ())
    }

    /// Makes a device, FIFO or socket; `rdev` counts for devices only.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::FileType;
    /// use ext4_format::inode::makedev;
    /// volume.mknod("/null", FileType::CharDevice, 0o666, makedev(1, 3))?;
    /// assert_eq!(volume.stat("/null")?.rdev, makedev(1, 3));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn mknod(
        &self,
        path: impl AsRef<[u8]>,
        file_type: FileType,
        mode: u16,
        rdev: u32,
    ) -> Result<()> {
        let what = New::special(file_type, rdev)?;
        self.make(path, &what, mode).map(|_| ())
    }

    /// Gives what `old` leads to (a symbolic link itself) another name.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create("/a", 0o600)?;
    /// volume.link("/a", "/b")?;
    /// assert_eq!(volume.stat("/a")?.links, 2);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn link(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<()> {
        self.link_from(self, old, new)
    }

    /// The same, where `old` starts at another directory of the volume, as with linkat: no path has to lead
    /// from one to the other.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// let (a, b) = (volume.create_dir("/a", 0o755)?, volume.create_dir("/b", 0o755)?);
    /// a.create("file", 0o644)?;
    /// b.link_from(&a, "file", "again")?;
    /// assert_eq!(volume.stat("/b/again")?.links, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::CrossDevice`] for a directory of another volume, and whatever [`link`](Self::link) returns.
    pub fn link_from(
        &self,
        from: &Self,
        old: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
    ) -> Result<()> {
        if !Arc::ptr_eq(self.caller.any_engine(), from.caller.any_engine()) {
            return Err(Error::CrossDevice);
        }
        from.at_inode(old, false, |inode| {
            self.at_parent(new.as_ref(), |dir, name| {
                self.engine()?.names.link(self.who(), inode, dir, name)
            })
        })
    }

    /// Makes a regular file without a name in this directory, and opens it for reading and writing: it goes when it is
    /// closed, or in a crash, unless [`link_file`](Self::link_file) names it.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_unnamed(0o644)?;
    /// file.write_all_at(0, b"whole or not at all")?;
    /// volume.link_file(&file, "/report")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_unnamed(&self, mode: u16) -> Result<File> {
        let inode = self
            .engine()?
            .names
            .create_unnamed(self.who(), &self.inode, mode)?;
        Ok(self.handle(inode, OpenFlags::READ | OpenFlags::WRITE))
    }

    /// Gives an open file another name; or a first one, if it was made without.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::RenameMode;
    /// let file = volume.create("/a", 0o600)?;
    /// volume.rename("/a", "/elsewhere", RenameMode::Replace)?;
    /// volume.link_file(&file, "/b")?;
    /// assert_eq!(file.stat()?.links, 2);
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if all its names were removed, [`Error::CrossDevice`] for a file of another volume.
    pub fn link_file(&self, file: &File, path: impl AsRef<[u8]>) -> Result<()> {
        if !file.is_of(self.caller.any_engine()) {
            return Err(Error::CrossDevice);
        }
        self.at_parent(path.as_ref(), |dir, name| {
            self.engine()?
                .names
                .link(self.who(), file.inode(), dir, name)
        })
    }

    /// Removes a name of anything but a directory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::Error;
    /// let file = volume.create("/temporary", 0o600)?;
    /// volume.unlink("/temporary")?;
    /// assert!(matches!(volume.stat("/temporary"), Err(Error::NotFound)));
    /// // It stays until it is closed.
    /// file.append(b"still here")?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn unlink(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let unlink = |dir: &Arc<Inode>, name: &[u8]| {
            if path.ends_with(b"/") {
                let inode = self.engine()?.names.lookup(dir, name)?;
                return Err(if inode.directory().is_some() {
                    Error::IsDirectory
                } else {
                    Error::NotDirectory
                });
            }
            self.engine()?.names.unlink(self.who(), dir, name)
        };
        self.at_parent(path, unlink).map_err(|e| match e {
            Error::Exists => Error::IsDirectory,
            other => other,
        })
    }

    /// Removes an empty directory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::Error;
    /// volume.create_dir("/dir", 0o755)?;
    /// volume.create("/dir/file", 0o600)?;
    /// assert!(matches!(volume.remove_dir("/dir"), Err(Error::NotEmpty)));
    /// volume.unlink("/dir/file")?;
    /// volume.remove_dir("/dir")?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn remove_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        self.at_parent(path.as_ref(), |dir, name| {
            self.engine()?.names.rmdir(self.who(), dir, name)
        })
        .map_err(|e| match e {
            Error::Exists => Error::Busy("the root directory cannot be removed"),
            other => other,
        })
    }

    /// Moves a name.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Error, RenameMode};
    /// volume.write_file("/a", b"one")?;
    /// volume.write_file("/b", b"two")?;
    /// assert!(matches!(volume.rename("/a", "/b", RenameMode::NoReplace), Err(Error::Exists)));
    /// volume.rename("/a", "/b", RenameMode::Exchange)?;
    /// assert_eq!(volume.read_file("/a")?, b"two");
    /// volume.rename("/a", "/b", RenameMode::Replace)?;
    /// assert_eq!(volume.read_file("/b")?, b"two");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn rename(
        &self,
        old: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
        mode: RenameMode,
    ) -> Result<()> {
        let (old, new) = (old.as_ref(), new.as_ref());
        let moved = self.at_parent(old, |old_dir, old_name| {
            if old.ends_with(b"/") || new.ends_with(b"/") {
                let source = self.engine()?.names.lookup(old_dir, old_name)?;
                if source.directory().is_none() {
                    return Err(Error::NotDirectory);
                }
            }
            // A second root in the way is told from a taken name by asking first.
            let is_root = !new.is_empty() && new.iter().all(|&b| b == b'/');
            if is_root {
                return Err(Error::Busy("the root directory cannot be renamed"));
            }
            self.at_parent(new, |new_dir, new_name| {
                self.engine()?.names.rename(
                    self.who(),
                    (old_dir, old_name),
                    (new_dir, new_name),
                    mode,
                )
            })
        });
        match moved {
            Err(Error::Exists) if old.iter().all(|&b| b == b'/') => {
                Err(Error::Busy("the root directory cannot be renamed"))
            }
            other => other,
        }
    }

    /// Makes the directory's names durable.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let dir = volume.create_dir("/spool", 0o755)?;
    /// dir.create("message", 0o600)?;
    /// dir.fsync()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn fsync(&self) -> Result<()> {
        self.engine()?.data.fsync(&self.inode, false)
    }
}
