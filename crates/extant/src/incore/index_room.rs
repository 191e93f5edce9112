//! Room in the index of a large directory.

use crate::base::locks::{self, Mutex};
use percpu::{BoundedCounter, PerSlot};
use std::sync::atomic::AtomicU64;

/// The account of one directory.
pub struct IndexRoom {
    pub(crate) tokens: BoundedCounter,
    /// All tokens: those of slots, of operations in progress, and those used in contexts not yet formatted.
    pub(crate) there: AtomicU64,
    /// Tokens used in a context, by its parity.
    pub(crate) used: [PerSlot<AtomicU64>; 2],
    /// Context in which a push was asked for because tokens became few.
    pub(crate) asked: AtomicU64,
    /// Held by an operation for which there were too few tokens.
    pub(crate) alone: Mutex<(), locks::IndexFull>,
}

impl IndexRoom {
    pub(crate) fn new(tokens: u64) -> Self {
        Self {
            tokens: BoundedCounter::new(tokens, BATCH),
            there: AtomicU64::new(tokens),
            used: Default::default(),
            asked: AtomicU64::new(0),
            alone: Mutex::new(()),
        }
    }

    pub(crate) fn give(&self, tokens: u64) {
        if tokens > 0 {
            self.tokens.give(tokens);
        }
    }
}

/// Tokens in a slot's stock.
pub(crate) const BATCH: u64 = 1 << 14;
