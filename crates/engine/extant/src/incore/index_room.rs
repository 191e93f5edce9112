//! Room in the index of a large directory.

use crate::base::locks::{self, Mutex};
use percpu::BoundedCounter;
use std::sync::atomic::AtomicU64;

/// Tokens in a slot's stock.
const BATCH: u64 = 1 << 14;

/// The account of one directory.
pub struct IndexRoom {
    /// Bytes of names that may be added before the next measurement.
    pub(crate) tokens: BoundedCounter,
    /// Number of measurements. Written with all buckets of the directory locked.
    pub(crate) measured: AtomicU64,
    /// Held by a thread that measures, and by one that adds a name for which there were too few tokens.
    pub(crate) alone: Mutex<(), locks::IndexFull>,
}

impl IndexRoom {
    pub(crate) fn new(tokens: u64) -> Self {
        Self {
            tokens: BoundedCounter::new(tokens, BATCH),
            measured: AtomicU64::new(1),
            alone: Mutex::new(()),
        }
    }
}
