//! An open volume.

use super::dir::Dir;
use super::watch::Watch;
use crate::base::error::{Error, Result};
use crate::commit::journal::recovery::Recovery;
use crate::commit::statistics::Statistics;
use crate::inodes::observe::InodeObserver;
use crate::types::credentials::Credentials;
use crate::volume::engine::Engine;
use crate::volume::guard::Guard;
use crate::volume::statfs::StatFs;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::jbd2;
use ext4_format::superblock::RawSuperblock;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An open ext2, ext3 or ext4 volume. Cheap to clone; every clone may be used from any thread. It is
/// also its root directory: all path operations of [`Dir`] work on it.
///
/// The last clone closes the volume when it is dropped; [`Volume::close`] does so too and returns the error if it
/// fails.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// volume.create_dir("/etc")?;
/// volume.write("/etc/hostname", b"extant\n")?;
/// assert_eq!(volume.read("/etc/hostname")?, b"extant\n");
/// volume.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Volume {
    root: Dir,
    pub(super) guard: Arc<Guard>,
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let geometry = self.geometry();
        f.debug_struct("Volume")
            .field("blocks", &geometry.blocks_count)
            .field("block_size", &geometry.block_size)
            .field("read_only", &self.read_only().is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Volume {
    /// Returns the engine, for tests of internal state.
    pub(crate) fn guard_engine(&self) -> &Engine {
        &self.guard.engine
    }
}

impl Volume {
    /// Returns the volume that a guard keeps open.
    pub(super) fn of(guard: Arc<Guard>) -> Result<Self> {
        Ok(Self {
            root: Dir::root_of(&guard.engine, &guard)?,
            guard,
        })
    }

    /// Returns the same volume as seen by another caller: permissions are checked, and new files belong to that caller.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Credentials, Error, SetAttributes};
    /// volume.write("/secret", b"text")?;
    /// volume.set_attributes("/secret", &SetAttributes { mode: Some(0o600), ..Default::default() })?;
    /// let nobody = volume.as_user(Credentials::new(65534, 65534, &[]));
    /// assert!(matches!(nobody.read("/secret"), Err(Error::PermissionDenied)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    #[must_use]
    pub fn as_user(&self, credentials: Credentials) -> Self {
        Self {
            root: self.root.as_user(credentials),
            guard: Arc::clone(&self.guard),
        }
    }

    fn engine(&self) -> Result<&Engine> {
        self.guard.engine.store.check_here()?;
        Ok(&self.guard.engine)
    }

    /// Returns the root directory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let root = volume.root();
    /// root.create_new_file("file")?;
    /// assert!(volume.metadata("/file").is_ok());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn root(&self) -> Dir {
        self.root.clone()
    }

    /// Makes everything durable. Space that was freed before can be used, and [`statfs`](Self::statfs) shows it.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/file", b"not to be lost")?;
    /// volume.sync()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn sync(&self) -> Result<()> {
        self.engine()?.data.sync()
    }

    /// Makes everything durable, writes the journal home and marks the volume clean. Further operations through other
    /// clones, directories and files fail with [`Error::Stale`](crate::Error::Stale). Watchers are notified.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::Error;
    /// let file = volume.create_new_file("/file")?;
    /// volume.close()?;
    /// assert!(matches!(file.append(b"too late"), Err(Error::Stale)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn close(self) -> Result<()> {
        self.guard.close()
    }

    /// Closes the volume by force, as if the device had gone: nothing more is written, changes that are not durable are
    /// lost, and memory is freed though there are handles. Every later operation fails with
    /// [`Error::Stale`](crate::Error::Stale), one in progress perhaps with another error. Watchers are notified. When
    /// the call returns, no write is on its way to the device. The image is as after a power cut: the next opening
    /// recovers it.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/a")?;
    /// volume.invalidate();
    /// assert!(matches!(file.write_at(b"x", 0), Err(extant::Error::Stale)));
    /// assert!(matches!(volume.metadata("/"), Err(extant::Error::Stale)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn invalidate(&self) {
        self.guard.invalidate();
    }

    /// Watches everything that happens on the volume.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::WatchEvent;
    /// let watch = volume.watch_volume();
    /// volume.create_dir("/dir")?;
    /// assert!(matches!(watch.try_next(), Some(WatchEvent::Created { name, .. }) if name == b"dir"));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn watch_volume(&self) -> Watch {
        self.root.watch_inode(None)
    }

    /// Shows an observer every inode in core, now and when inodes enter and leave, until [`Volume::stop_observing`].
    /// Returns false if an observer is set already.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// struct Print;
    /// impl extant::unstable::InodeObserver for Print {
    ///     fn comes(&self, inode: &extant::unstable::InodeInCore) { println!("{} comes", inode.ino); }
    ///     fn goes(&self, inode: &extant::unstable::InodeInCore) { println!("{} goes", inode.ino); }
    /// }
    /// assert!(volume.observe_inodes(std::sync::Arc::new(Print)));
    /// assert!(!volume.observe_inodes(std::sync::Arc::new(Print)), "one at a time");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn observe_inodes(&self, observer: Arc<dyn InodeObserver>) -> bool {
        self.guard.engine.inodes.observe(observer)
    }

    /// Removes the observer, which is called once more for every inode in core.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.stop_observing(); // nobody did
    /// assert!(volume.metadata("/").is_ok());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn stop_observing(&self) {
        self.guard.engine.inodes.stop_observing();
    }

    /// Returns the free and total space.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let before = volume.statfs()?;
    /// volume.write("/file", &[1; 100_000])?;
    /// volume.sync()?;
    /// let after = volume.statfs()?;
    /// assert_eq!(before.free_inodes - after.free_inodes, 1);
    /// assert!(before.free_blocks > after.free_blocks);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn statfs(&self) -> Result<StatFs> {
        self.engine()?.statfs()
    }

    /// Returns the number of blocks that any caller may take, as in [`statfs`](Self::statfs), for callers that ask
    /// often.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert_eq!(volume.available_blocks(), volume.statfs()?.available_blocks);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn available_blocks(&self) -> u64 {
        self.guard.engine.space.counts.free().1
    }

    /// Figures of the log since the volume was opened.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create_new_file("/file")?;
    /// volume.sync()?;
    /// assert!(volume.statistics().commits >= 1);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn statistics(&self) -> Statistics {
        let engine = &self.guard.engine;
        let pushes = engine.log.pushes.load(Ordering::Relaxed);
        engine.commit.totals.read(
            pushes,
            engine.store.flushes.mark(),
            engine.store.geometry.block_size,
            engine.space.blocks.searches.read(),
        )
    }

    /// Returns the sizes, features and identity of the volume.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let geometry = volume.geometry();
    /// assert_eq!((geometry.block_size, geometry.blocks_count), (1024, 16384));
    /// assert!(geometry.features.has_extents());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn geometry(&self) -> &Geometry {
        &self.guard.engine.store.geometry
    }

    /// Returns the work of recovery when the volume was opened.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert_eq!(volume.recovery().transactions, 0, "it was new");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn recovery(&self) -> Recovery {
        self.guard.recovery
    }

    /// Returns the superblock, as the last commit left it.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert_eq!(volume.superblock()?.uuid, volume.statfs()?.uuid);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn superblock(&self) -> Result<RawSuperblock> {
        self.engine()?.store.raw_superblock()
    }

    /// Returns the group descriptors as they were when the volume was opened. On a volume of more than 16,384 groups,
    /// each descriptor is as it was when it was first read.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// for (nr, group) in volume.groups().enumerate() {
    ///     println!("group {nr}: {} free blocks", group?.free_blocks);
    /// }
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn groups(&self) -> impl Iterator<Item = Result<&GroupDesc>> {
        let store = &self.guard.engine.store;
        let groups = store.groups.iter(&store.geometry, &store.buffers);
        groups.map(|desc| Ok(desc?))
    }

    /// Returns the journal's superblock as it was before the volume was opened and recovered, or `None` without a
    /// journal.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let journal = volume.journal().expect("ext4 has one");
    /// assert_eq!(journal.start, 0, "it was empty");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn journal(&self) -> Option<&jbd2::Superblock> {
        self.guard.journal.as_ref()
    }

    /// Returns the number of files without a name, left open by a cut, that still hold their space because the volume
    /// was opened read-only. Opening it for writing frees them.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert_eq!(volume.orphans_left(), 0);
    /// ```
    pub fn orphans_left(&self) -> usize {
        self.guard.orphans_left
    }

    /// Returns the reason why the volume cannot be written, if it cannot.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert_eq!(volume.read_only(), None);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_only(&self) -> Option<String> {
        self.guard
            .engine
            .store
            .check_writable()
            .err()
            .map(|e| e.to_string())
    }

    /// Drops everything clean from memory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/file", &[1; 5000])?;
    /// volume.sync()?;
    /// volume.drop_caches();
    /// assert_eq!(volume.memory().data, 0);
    /// assert_eq!(volume.read("/file")?, [1; 5000]);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn drop_caches(&self) {
        self.guard.engine.lifecycle.drop_clean();
    }

    /// Names the objects of this volume at addresses of this process, for tests of shared cache lines.
    #[doc(hidden)]
    pub fn what_is_at(&self, addresses: &[u64]) -> Vec<String> {
        let name = |&at: &u64| self.guard.engine.what_is_at(usize::try_from(at).ok()?);
        addresses
            .iter()
            .map(|at| name(at).unwrap_or_default())
            .collect()
    }

    /// Sets the label of the volume: at most 16 bytes. The label is durable when this returns.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// volume.set_label("backups")?;
    /// assert_eq!(volume.label()?, "backups");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a label that is too long or holds a NUL byte,
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) for any caller but root.
    pub fn set_label(&self, label: impl AsRef<[u8]>) -> Result<()> {
        let engine = self.engine()?;
        if !self.root.who().is_unbound() {
            return Err(Error::NotPermitted);
        }
        engine.set_label(label.as_ref())
    }

    /// Returns the volume's label.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert_eq!(volume.label()?, "");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn label(&self) -> Result<String> {
        self.engine()?.label()
    }
}

impl Deref for Volume {
    type Target = Dir;
    fn deref(&self) -> &Dir {
        &self.root
    }
}
