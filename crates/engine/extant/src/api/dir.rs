//! Path operations, relative to a directory.

use super::bytes;
use super::watch::Watch;
use crate::base::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::inodes::walk_cache::At;
use crate::names::lookup::PATH_MAX;
use crate::types::credentials::{Credentials, EXECUTE};
use crate::volume::caller::{Caller, Hold};
use crate::volume::engine::Engine;
use crate::volume::guard::Guard;
use crossbeam_utils::CachePadded;
use extant_formatter::name::NameRef;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A directory to work from, and the caller in whose name. The operations are those of `std::fs`, with the same names;
/// a path that begins with '/' starts at the volume's root, any other at this directory. A path may hold any bytes but
/// NUL.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// volume.create_dir("/var")?;
/// let var = volume.open_dir("/var")?;
/// var.create_new_file("log")?;
/// assert_eq!(var.read_dir(".")?.count(), 1);
/// # Ok(())
/// # }
/// ```
///
/// Threads that work at the same time should each have a separate clone, because each clone counts the files opened
/// through it on a separate cache line.
pub struct Dir {
    pub(super) inode: Arc<Inode>,
    pub(super) caller: Arc<Caller>,
}

impl Clone for Dir {
    fn clone(&self) -> Self {
        self.to(Arc::clone(&self.inode))
    }
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dir")
            .field("ino", &self.ino())
            .finish_non_exhaustive()
    }
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

    /// Returns another directory for the same caller, with a separate share.
    pub(super) fn to(&self, inode: Arc<Inode>) -> Self {
        Self {
            inode,
            caller: self.caller.to(self.caller.who.clone()),
        }
    }

    /// Returns the same directory as seen by another caller.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Credentials, Error};
    /// volume.create_dir("/home")?;
    /// let home = volume.open_dir("/home")?.as_user(Credentials::new(1000, 1000, &[]));
    /// assert!(matches!(home.create_new_file("notes"), Err(Error::PermissionDenied)));
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

    /// Returns the inode number of the directory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert_eq!(volume.root().ino(), 2);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn ino(&self) -> u32 {
        self.inode.ino.0
    }

    /// Returns the inode that a path leads to.
    pub(super) fn resolve(&self, path: &[u8], follow: bool) -> Result<At<'_>> {
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        self.engine()?
            .names
            .walk(self.who(), &self.inode, path, follow)
    }

    /// Runs `f` on the inode that a path leads to. If the inode is removed before `f` is done, the name may have been
    /// replaced at one moment and still exist. Then the path is walked again.
    pub(super) fn at_inode<R>(
        &self,
        path: &[u8],
        follow: bool,
        mut f: impl FnMut(&Arc<Inode>) -> Result<R>,
    ) -> Result<R> {
        let mut before: Option<Arc<Inode>> = None;
        loop {
            let inode = self.resolve(path, follow)?;
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

    /// Like [`at_inode`](Self::at_inode), for reading data that are loaded from the inode's place on disk, where
    /// another inode may be by now.
    pub(super) fn of_inode<R>(
        &self,
        path: &[u8],
        follow: bool,
        f: impl Fn(&Arc<Inode>) -> Result<R>,
    ) -> Result<R> {
        self.at_inode(path, follow, |inode| {
            let read = f(inode);
            if inode.is_gone() {
                return Err(Error::NotFound);
            }
            read
        })
    }

    /// Returns the directory that holds the last component of a path, which the caller may search, and that component.
    /// The caller works there without counting a use of the inode that the component leads to. If the result is `None`,
    /// the path must be walked to its end.
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
            _ => self.resolve(head, true)?,
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
        if NameRef::new(path).is_ok() {
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

    /// Watches a directory or file.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::WatchEvent;
    /// let watch = volume.watch("/")?;
    /// volume.create_new_file("new")?;
    /// assert!(matches!(watch.try_next(), Some(WatchEvent::Created { name, .. }) if name == b"new"));
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of a look-up of the path.
    pub fn watch(&self, path: impl AsRef<Path>) -> Result<Watch> {
        let inode = self.resolve(bytes(&path), true)?;
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
    /// volume.create_dir("/var")?;
    /// let var = volume.open_dir("/var")?;
    /// volume.rename("/var", "/moved")?;
    /// var.create_new_file("log")?;
    /// assert!(volume.metadata("/moved/log").is_ok());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Self> {
        let inode = self.resolve(bytes(&path), true)?;
        if inode.directory().is_none() {
            return Err(Error::NotDirectory);
        }
        Ok(self.to(inode.into_arc()))
    }

    /// Makes the directory's names durable.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let dir = volume.create_dir("/spool")?;
    /// dir.create_new_file("message")?;
    /// dir.sync_all()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn sync_all(&self) -> Result<()> {
        self.engine()?.data.fsync(&self.inode, false)
    }
}
