//! The memory that an open volume may use, and its settings.

use crate::types::access_times::AccessTimes;
use std::time::Duration;

/// Limits and settings of an open volume.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Data pages, clean and dirty, in bytes.
    pub cache_bytes: u64,
    /// Dirty data pages, in bytes: past it a writer writes back its own.
    pub dirty_bytes: u64,
    /// Clean inodes kept in core.
    pub inodes: u64,
    /// Time between timed commits.
    pub commit_interval: Duration,
    /// The rule for access times.
    pub access_times: AccessTimes,
    /// Times alone are not written before a day has passed.
    pub lazy_times: bool,
    /// Reading a directory counts for its access time.
    pub directory_times: bool,
    /// A file's new contents are written before it replaces another.
    pub auto_da_alloc: bool,
}

#[cfg(test)]
impl Limits {
    /// For a layer that is tested alone.
    pub(crate) fn small() -> Self {
        Self {
            cache_bytes: 1 << 20,
            dirty_bytes: 1 << 18,
            inodes: 1000,
            commit_interval: Duration::from_secs(5),
            access_times: AccessTimes::default(),
            lazy_times: false,
            directory_times: true,
            auto_da_alloc: true,
        }
    }
}
