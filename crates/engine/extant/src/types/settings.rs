//! The settings of an open volume, as set by mount options.

use std::time::Duration;

/// The settings of an open volume, as mount options have them. More fields may be added.
///
/// ```
/// use extant::{AccessTimes, Settings, VolumeOptions};
/// let mut settings = Settings::default();
/// settings.access_times = AccessTimes::Relative;
/// settings.lazy_times = true;
/// let as_linux_mounts = VolumeOptions::new().settings(settings);
/// # let _ = as_linux_mounts;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Time between timed commits.
    pub commit_interval: Duration,
    /// The reads that change the time of the last access.
    pub access_times: AccessTimes,
    /// Whether reading directories counts for their access times (not with `nodiratime`).
    pub directory_times: bool,
    /// A time that changed alone is kept in memory, and written with the next change of its inode, at sync and close,
    /// or after a day; a crash loses it.
    pub lazy_times: bool,
    /// Whether the data of a file that replaces another go to the device first, so that a crash leaves the old or the
    /// new contents. A file replaces another by rename, or because it was cut to nothing and written again.
    pub auto_da_alloc: bool,
    /// Search for groups with free blocks.
    pub block_scan: BlockScan,
    /// The reaction to a failure, or to damage.
    pub errors: ErrorPolicy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            commit_interval: Duration::from_secs(5),
            access_times: AccessTimes::default(),
            directory_times: true,
            lazy_times: false,
            auto_da_alloc: true,
            block_scan: BlockScan::default(),
            errors: ErrorPolicy::default(),
        }
    }
}

/// The reads that change the time of the last access.
///
/// ```
/// use extant::{AccessTimes, VolumeOptions};
/// let as_linux_mounts = VolumeOptions::new().access_times(AccessTimes::Relative).lazy_times(true);
/// # let _ = as_linux_mounts;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// No read.
    #[default]
    None,
    /// The first read after a change, and the first in a day.
    Relative,
    /// Every read.
    Strict,
}

/// The way in which groups with room are found.
///
/// ```no_run
/// use extant::{BlockScan, VolumeOptions};
/// let volume = VolumeOptions::new().block_scan(BlockScan::Linear).open("disk.img")?;
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockScan {
    /// By lists of groups with the same largest free run, and the same mean free run.
    #[default]
    Lists,
    /// Searches one group after the other.
    Linear,
}

impl BlockScan {
    /// Returns the scan that the value of ext4's mount option `mb_optimize_scan` asks for.
    ///
    /// ```
    /// use extant::BlockScan;
    /// assert_eq!(BlockScan::of_option("0"), Some(BlockScan::Linear));
    /// assert_eq!(BlockScan::of_option("1"), Some(BlockScan::Lists));
    /// assert_eq!(BlockScan::of_option("2"), None);
    /// ```
    pub fn of_option(value: &str) -> Option<Self> {
        match value {
            "0" => Some(Self::Linear),
            "1" => Some(Self::Lists),
            _ => None,
        }
    }
}

/// The reaction of a volume to a failure, or to damage found on it. A failure to write metadata or the journal always
/// stops it. Damage that an operation meets stops it if the policy is set so.
///
/// ```
/// let options = extant::VolumeOptions::new().errors(extant::ErrorPolicy::Shutdown);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// The superblock's own policy: `remount-ro` and `panic` are [`ErrorPolicy::ReadOnly`], everything else
    /// [`ErrorPolicy::Continue`].
    #[default]
    Superblock,
    /// Damage is recorded, and the volume stays usable except for the damaged parts. After a failed write nothing can
    /// be changed any more.
    Continue,
    /// No change is possible any more, but reading is.
    ReadOnly,
    /// Every further operation fails.
    Shutdown,
}
