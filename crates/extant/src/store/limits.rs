//! How much memory an open volume may use, and the habits it keeps to.

use crate::types::access_times::AccessTimes;
use std::time::Duration;

/// Sizes and habits that an open volume keeps to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Data pages, clean and dirty, in bytes.
    pub cache_bytes: u64,
    /// Dirty data pages, in bytes: past it a writer writes back what it dirtied.
    pub dirty_bytes: u64,
    /// Clean inodes kept in core.
    pub inodes: u64,
    /// Time between timed commits.
    pub commit_interval: Duration,
    /// Which reads are noted.
    pub access_times: AccessTimes,
    /// Times alone are not written before a day has passed.
    pub lazy_times: bool,
    /// Reading a directory counts for its access time.
    pub directory_times: bool,
    /// What replaces a file is written first.
    pub auto_da_alloc: bool,
}
