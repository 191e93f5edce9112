//! Options for opening a volume.

use crate::store::damage::Damage;
use crate::store::health::{DamageHook, StopHook};
use crate::store::limits::Limits;
use crate::types::settings::{AccessTimes, BlockScan, ErrorPolicy, Settings};
use std::sync::Arc;
use std::time::Duration;

/// Options for opening a volume.
///
/// ```no_run
/// let volume = extant::VolumeOptions::new().read_only(true).open("disk.img")?;
/// println!("{} free blocks", volume.statfs()?.free_blocks);
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    pub(super) read_only: bool,
    pub(super) force: bool,
    pub(super) cache_bytes: Option<u64>,
    pub(super) inodes: Option<u64>,
    pub(super) settings: Settings,
    pub(super) background: bool,
    pub(super) most_log_blocks: Option<u64>,
    pub(super) on_stop: Option<StopHook>,
    pub(super) on_damage: Option<DamageHook>,
    pub(super) noload: bool,
    pub(super) leave_out_damage: bool,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl VolumeOptions {
    /// Makes options for reading and writing, with a quarter of the machine's memory for caches and a commit every 5 s.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new();
    /// # let _ = options;
    /// ```
    pub fn new() -> Self {
        Self {
            read_only: false,
            force: false,
            cache_bytes: None,
            inodes: None,
            settings: Settings::default(),
            background: true,
            most_log_blocks: None,
            on_stop: None,
            on_damage: None,
            noload: false,
            leave_out_damage: false,
        }
    }

    /// Opens a read-only volume although a group descriptor, the journal or the list of orphans is damaged. Inodes of
    /// such a group cannot be read, and a damaged journal counts as empty. [`on_damage`](Self::on_damage) is notified.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().read_only(true).leave_out_damage(true);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn leave_out_damage(mut self, yes: bool) -> Self {
        self.leave_out_damage = yes;
        self
    }

    /// Limits the blocks of a transaction of the journal, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn most_log_blocks(mut self, blocks: u64) -> Self {
        self.most_log_blocks = Some(blocks);
        self
    }

    /// Changes nothing on the device. The journal is not recovered, but replayed in memory.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().read_only(true);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn read_only(mut self, yes: bool) -> Self {
        self.read_only = yes;
        self
    }

    /// Writes to a volume that is marked as having errors, or that has no journal and was not closed.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().force(true);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn force(mut self, yes: bool) -> Self {
        self.force = yes;
        self
    }

    /// Sets the bytes of memory for data pages.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().cache_bytes(64 << 20);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = Some(bytes);
        self
    }

    /// Sets the number of inodes kept in memory without handles, at about 600 bytes each. Default: an eighth of the
    /// machine's memory.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().inodes_in_core(100_000);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn inodes_in_core(mut self, inodes: u64) -> Self {
        self.inodes = Some(inodes);
        self
    }

    /// Sets all settings of mount options at once.
    ///
    /// ```
    /// let settings = extant::Settings::default();
    /// let options = extant::VolumeOptions::new().settings(settings);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the time between timed commits.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().commit_interval(std::time::Duration::from_secs(30));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn commit_interval(mut self, interval: Duration) -> Self {
        self.settings.commit_interval = interval;
        self
    }

    /// Sets how groups with free blocks are found.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().block_scan(extant::BlockScan::Linear);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn block_scan(mut self, scan: BlockScan) -> Self {
        self.settings.block_scan = scan;
        self
    }

    /// Sets whether a background thread commits. Without it, commits happen only by sync, by fsync and when a context
    /// is full.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().background(false);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn background(mut self, yes: bool) -> Self {
        self.background = yes;
        self
    }

    /// Sets the reads that change the time of the last access. Default: no reads.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().access_times(extant::AccessTimes::Relative);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn access_times(mut self, which: AccessTimes) -> Self {
        self.settings.access_times = which;
        self
    }

    /// Keeps a time that changed alone in memory, and writes it with the next change of its inode, at sync and close,
    /// or after a day. A crash loses it.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().lazy_times(true);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn lazy_times(mut self, yes: bool) -> Self {
        self.settings.lazy_times = yes;
        self
    }

    /// Sets the reaction when the volume stops after a failure.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().errors(extant::ErrorPolicy::Shutdown);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn errors(mut self, policy: ErrorPolicy) -> Self {
        self.settings.errors = policy;
        self
    }

    /// Calls `hook` with the reason, once, when the volume stops after a failure; not when it is shut down on demand.
    /// The thread that met the failure calls it, perhaps with locks held: it must not call the volume, only take note
    /// or wake another thread.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().on_stop(|why| eprintln!("stopped: {why}"));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn on_stop(mut self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_stop = Some(StopHook(Arc::new(hook)));
        self
    }

    /// Calls `hook` for every finding of damage, each once while the volume is open, with the caveats of
    /// [`VolumeOptions::on_stop`]. [`ErrorPolicy`] decides whether the volume stops.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().on_damage(|damage| eprintln!("damaged: {damage}"));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn on_damage(mut self, hook: impl Fn(&Damage) + Send + Sync + 'static) -> Self {
        self.on_damage = Some(DamageHook(Arc::new(hook)));
        self
    }

    /// Ignores the journal, as ext4's `noload`: the volume is opened read-only as it is on the device, without the
    /// contents of its journal. This is a way to read a volume whose journal is damaged. The data may be old, or torn.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().noload(true);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn noload(mut self, yes: bool) -> Self {
        self.noload = yes;
        self
    }

    /// Sets whether reading directories counts for their access times (not with `nodiratime`).
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().directory_access_times(false);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn directory_access_times(mut self, yes: bool) -> Self {
        self.settings.directory_times = yes;
        self
    }

    /// Sets whether the data of a file that replaces another go to the device first, so that a crash leaves the old or
    /// the new contents (ext4's `auto_da_alloc`). A file replaces another by rename, or because it was cut to nothing
    /// and written again. Default: true.
    ///
    /// ```
    /// let options = extant::VolumeOptions::new().auto_da_alloc(false);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn auto_da_alloc(mut self, yes: bool) -> Self {
        self.settings.auto_da_alloc = yes;
        self
    }

    /// Returns true if nothing will be written to the device.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only || self.noload
    }

    pub(super) fn limits(&self) -> Limits {
        let memory = crate::base::system::memory();
        let cache_bytes = self.cache_bytes.unwrap_or(memory / 4).max(1 << 20);
        Limits {
            cache_bytes,
            dirty_bytes: cache_bytes / 4,
            inodes: self.inodes.unwrap_or((memory / 8 / 640).max(10_000)),
        }
    }
}
