//! What the log of a volume has done since it was opened.

use crate::formatter::Output;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What the log of a volume has done since it was opened: figures that only grow. What is committed but not yet
/// pushed does not count.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// let before = volume.statistics();
/// volume.create("/file", 0o644)?;
/// volume.unlink("/file")?;
/// volume.sync()?;
/// let after = volume.statistics();
/// assert_eq!(after.commits - before.commits, 2);
/// assert_eq!(after.pushes - before.pushes, 1);
/// assert!(after.log_bytes > before.log_bytes);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Transactions that were pushed.
    pub commits: u64,
    /// Pushes that had anything to format.
    pub pushes: u64,
    /// Flushes of the device that were begun.
    pub flushes: u64,
    /// Bytes written to the journal's log.
    pub log_bytes: u64,
    /// Time spent on bringing the items of contexts into order.
    pub sort_time: Duration,
}

/// The same while it grows. Written by pushes only.
#[derive(Default)]
pub(crate) struct Totals {
    commits: AtomicU64,
    log_blocks: AtomicU64,
    sort_ns: AtomicU64,
}

impl Totals {
    /// A context of so many commits was formatted.
    pub fn formatted(&self, commits: u64, parts: &[Output]) {
        let sorted: Duration = parts.iter().map(|p| p.sorting).sum();
        let ns = u64::try_from(sorted.as_nanos()).unwrap_or(u64::MAX);
        self.commits.fetch_add(commits, Ordering::Relaxed);
        self.sort_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// So many blocks go to the log.
    pub fn logged(&self, blocks: u32) {
        self.log_blocks.fetch_add(blocks.into(), Ordering::Relaxed);
    }

    /// As they are now.
    pub fn read(&self, pushes: u64, flushes: u64, block_size: u32) -> Statistics {
        let blocks = self.log_blocks.load(Ordering::Relaxed);
        Statistics {
            commits: self.commits.load(Ordering::Relaxed),
            pushes,
            flushes,
            log_bytes: blocks.saturating_mul(block_size.into()),
            sort_time: Duration::from_nanos(self.sort_ns.load(Ordering::Relaxed)),
        }
    }
}
