//! What the caller of a reader hears.

use crate::error::{Result, SourceError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The caller of a reader.
#[doc(hidden)]
pub trait ReadMonitor: Sync {
    /// Fails once the caller wants the reading to end.
    fn check(&self) -> Result<()>;
    /// Is called when reading begins, with whether the data go to a temporary file.
    fn begins(&self, spools: bool) {
        let _ = spools;
    }
    /// Counts bytes or members.
    fn advance(&self, done: u64) {
        let _ = done;
    }
}

/// A flag that ends the reading.
pub(crate) struct CancelFlag(pub(crate) Option<Arc<AtomicBool>>);

impl ReadMonitor for CancelFlag {
    fn check(&self) -> Result<()> {
        match &self.0 {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(SourceError::Interrupted),
            _ => Ok(()),
        }
    }
}
