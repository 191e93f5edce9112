//! The path to the device. In a push the formatter turns a context into block images, and the journal makes them
//! durable. No other code writes metadata.

pub mod begin;
pub mod fast;
mod growth;
pub mod journal;
pub mod push;
pub mod stages;
pub mod statistics;
pub mod superblock;

use crate::base::error::Result;
use crate::base::locks::{self, Mutex};
use crate::base::upward::Upward;
use crate::log::Log;
use crate::space::Space;
use crate::store::Store;
use crate::store::health::Waiters;
use extant_formatter::{Formatter, Published};
use fast::FastCommits;
use journal::Writer;
use journal::commit_stage::CommitStage;
use statistics::Totals;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An upper layer that must learn of a push's results.
pub(crate) trait PushObserver: Send + Sync {
    /// Publishes a change by the formatter of the attributes that stat shows.
    fn published(&self, published: &Published);
    /// Prepares for a volume that is about to have this number of inodes.
    fn will_grow(&self, inodes: u32);
}

/// An upper layer that holds blocks which are counted as taken and may be returned.
pub(crate) trait BlockHolders: Send + Sync {
    /// Frees the blocks set aside for files that may grow. Returns false if that was already done in this context.
    fn discard_aside(&self) -> bool;
    /// Returns true if some data are not yet written back, for which the worst case is reserved.
    fn holds_promises(&self) -> bool;
    /// Writes such data back, where no other thread holds the file.
    fn write_back_promised(&self) -> Result<()>;
}

/// Pushes contexts, and opens the transactions that fill them.
pub(crate) struct Committer {
    pub(crate) store: Arc<Store>,
    pub(crate) space: Arc<Space>,
    pub(crate) log: Arc<Log>,
    pub(crate) formatter: Mutex<Formatter, locks::Formatter>,
    pub(crate) journal: Mutex<Writer, locks::Journal>,
    pub(crate) commit_stage: CommitStage,
    /// Fast commits, of a volume with the feature.
    pub(crate) fast: Option<FastCommits>,
    /// Blocks and numbers freed by contexts that are not yet released, in the order of the contexts.
    pub(crate) releases: Mutex<VecDeque<push::Release>, locks::Releases>,
    pub(crate) totals: Totals,
    /// Held during a push by a caller that found the free count at zero.
    short_of_space: Mutex<(), locks::ShortOfSpace>,
    /// The superblock on the device marks the volume as in use from the first commit on: an unchanged volume keeps
    /// every byte. Set with the formatter's lock held.
    pub(crate) marked_open: AtomicBool,
    pub(crate) observer: Upward<dyn PushObserver>,
    pub(crate) holders: Upward<dyn BlockHolders>,
}

impl Committer {
    /// Makes the committer that pushes the contexts of `log`, to a journal or straight to their place.
    pub fn new(
        log: Arc<Log>,
        formatter: Formatter,
        journal: Writer,
        commit_stage: CommitStage,
    ) -> Self {
        let fast = match &journal {
            Writer::Journal(journal) => journal.fast_area(),
            Writer::Direct => None,
        };
        let fast = fast.map(|(area, first)| FastCommits::new(area, first, log.most()));
        let waiters: Arc<dyn Waiters> = Arc::<Log>::clone(&log);
        log.store.health.waiters.set(Arc::downgrade(&waiters));
        Self {
            store: Arc::clone(&log.store),
            space: Arc::clone(&log.space),
            formatter: Mutex::new(formatter),
            journal: Mutex::new(journal),
            commit_stage,
            fast,
            releases: Mutex::default(),
            totals: Default::default(),
            short_of_space: Mutex::new(()),
            marked_open: AtomicBool::new(false),
            observer: Default::default(),
            holders: Default::default(),
            log,
        }
    }
}

#[cfg(test)]
mod bound_tests;
#[cfg(test)]
mod scarce_tests;
