//! Stopping and freezing a volume, and the memory that it uses.

use super::volume::Volume;
use crate::base::error::{Error, Result};
use crate::store::health::ended;
use crate::volume::guard::Guard;
use blockdev::Snapshot;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A way in which [`Volume::shutdown`] stops a volume: the three ways of Linux's `FS_IOC_SHUTDOWN`.
///
/// ```
/// assert_eq!(extant::Shutdown::default(), extant::Shutdown::Sync);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shutdown {
    /// Everything is made durable first (`GOING_DOWN`'s default).
    #[default]
    Sync,
    /// The contents of the log are made durable, data that are only in memory are lost (`LOGFLUSH`).
    LogFlush,
    /// At once, as when the power is cut (`NOLOGFLUSH`).
    NoLogFlush,
}

/// Bytes and objects that a volume has in memory.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// volume.write("/a", &[1; 5000])?;
/// let memory = volume.memory();
/// // Five blocks of 1 KiB, not written back yet.
/// assert_eq!((memory.data, memory.dirty), (5120, 5120));
/// assert!(memory.inodes >= 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Bytes of data pages.
    pub data: u64,
    /// Bytes of data pages that are not on the device.
    pub dirty: u64,
    /// Bytes of metadata blocks.
    pub metadata: u64,
    /// Bytes of metadata blocks that are not at their place on the device.
    pub dirty_metadata: u64,
    /// Inodes in core.
    pub inodes: u64,
}

/// A volume held still, by [`Volume::freeze`], until this is dropped.
#[must_use = "the volume is thawed when this is dropped"]
pub struct Frozen {
    guard: Arc<Guard>,
}

impl Frozen {
    /// Lets changes continue. Dropping does the same.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let frozen = volume.freeze()?;
    /// frozen.thaw();
    /// volume.create_new_file("/file")?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn thaw(self) {}

    /// Keeps this moment, as [`Volume::snapshot`] does; it stays when the volume is thawed.
    ///
    /// # Errors
    /// As for [`Volume::snapshot`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.guard.engine.snapshot_frozen()
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.guard.engine.thaw();
    }
}

impl Volume {
    /// Stops the volume: every later operation fails with [`Error::Stopped`] (`EIO`), one that is under way perhaps
    /// with another error. If the changes cannot be made durable, the volume stops all the same and the error is
    /// returned. Handles stay, and the volume must still be closed, which writes nothing.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// volume.shutdown(extant::Shutdown::Sync)?;
    /// assert!(matches!(volume.metadata("/"), Err(extant::Error::Stopped(_))));
    /// # Ok(())
    /// # }
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> Result<()> {
        let engine = &self.guard.engine;
        engine.store.check_here()?;
        let writes = engine.store.health.read_only.is_none();
        let done = match how {
            Shutdown::Sync => match engine.freeze() {
                // If frozen, everything is durable already.
                Err(Error::Busy(_)) => Ok(()),
                other => other,
            },
            Shutdown::LogFlush if writes && !engine.store.gate.is_shut() => {
                engine.commit.push_all()
            }
            Shutdown::LogFlush | Shutdown::NoLogFlush => Ok(()),
        };
        engine.cut_off(ended::SHUT_DOWN, "the volume was shut down");
        done
    }

    /// Freezes the volume until the answer is dropped. All changes until now are durable and at their place, the
    /// journal is empty and the superblock is marked clean. So a copy of the device is a volume that was closed
    /// cleanly, except for open files without a name, which opening the copy frees. Nothing is written meanwhile:
    /// changes wait, also a [`Volume::sync`] that comes while the volume is being frozen. Reads continue.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is frozen already.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// let frozen = volume.freeze()?;
    /// // copy the image here
    /// assert!(volume.metadata("/").is_ok());
    /// frozen.thaw();
    /// volume.create_new_file("/a")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn freeze(&self) -> Result<Frozen> {
        self.guard.engine.freeze()?;
        Ok(Frozen {
            guard: Arc::clone(&self.guard),
        })
    }

    /// Takes a snapshot of the volume, as a device to read: that of a volume that was closed cleanly, except for open
    /// files without a name. The snapshot can be checked or copied while changes continue. They wait only while it is
    /// taken, for as long as a [`Volume::freeze`] takes after a [`Volume::sync`]. Blocks in use that are overwritten
    /// later are kept in memory, up to 256 MiB: beyond that the snapshot ends, and reading it fails. Blocks that were
    /// free are not kept, and may show later contents. The snapshot ends with the volume.
    ///
    /// # Errors
    /// [`Error::Busy`] if the volume is frozen, or while there is another snapshot.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let volume = extant::doc_volume();
    /// volume.write("/file", b"old")?;
    /// let snapshot = volume.snapshot()?;
    /// volume.write("/file", b"new")?;
    /// let then = extant::VolumeOptions::new().read_only(true).open_device(std::sync::Arc::new(snapshot))?;
    /// assert_eq!(then.read("/file")?, b"old");
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.guard.engine.snapshot()
    }

    /// Reports to the device that the free blocks in `[start, start + len)`, in bytes, are not needed, if they form
    /// runs of at least `least` bytes: Linux's `FITRIM`. An image file becomes sparse by it. Returns the number of
    /// trimmed bytes. On a nearly full volume in use, some free blocks may be left out.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device cannot trim; [`Error::Invalid`] if the range holds no block of the volume,
    /// or `least` is more than a group of blocks.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// let trimmed = volume.trim(0, u64::MAX, 0)?;
    /// let stats = volume.statfs()?;
    /// assert_eq!(trimmed, stats.free_blocks * u64::from(stats.block_size));
    /// # Ok(())
    /// # }
    /// ```
    pub fn trim(&self, start: u64, len: u64, least: u64) -> Result<u64> {
        let engine = &self.guard.engine;
        engine.store.check_here()?;
        engine.trim(start, len, least)
    }

    /// Grows the volume to the size of `bytes` while it is used. The end that does not fill a group is left out if it
    /// is too short for one. An image file becomes longer if needed. `None` takes the whole device. Returns the count
    /// of blocks. A crash leaves the old size or the new one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the reason: for example, that the volume would not become larger, that too few
    /// blocks are reserved for the new descriptors, or that the volume has no journal. `extant-resize` can grow such
    /// volumes while they are not open.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// let before = volume.statfs()?;
    /// let blocks = volume.grow(Some(40 << 20))?;
    /// assert_eq!((blocks, volume.geometry().blocks_count), (40960, 40960));
    /// assert!(volume.statfs()?.free_blocks > before.free_blocks + 20_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn grow(&self, bytes: Option<u64>) -> Result<u64> {
        let engine = &self.guard.engine;
        engine.store.check_here()?;
        engine.grow(bytes)
    }

    /// Returns the volume's use of memory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/file", &[1; 5000])?;
    /// assert!(volume.memory().dirty >= 5000);
    /// volume.sync()?;
    /// assert_eq!(volume.memory().dirty, 0);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn memory(&self) -> Memory {
        let engine = &self.guard.engine;
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        let block = u64::from(engine.store.geometry.block_size);
        Memory {
            data: count(engine.data.cached_bytes.sum()),
            dirty: count(engine.data.dirty_bytes.sum()),
            metadata: engine.store.buffers.count() as u64 * block,
            dirty_metadata: engine.store.buffers.dirty_count() as u64 * block,
            inodes: engine.inodes.in_core.len() as u64,
        }
    }

    /// Returns true if the volume was shut down, has failed, or was closed.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert!(!volume.is_over());
    /// volume.shutdown(extant::Shutdown::Sync)?;
    /// assert!(volume.is_over());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn is_over(&self) -> bool {
        self.guard.engine.store.health.ended.load(Ordering::Acquire) != ended::NOT
    }
}
