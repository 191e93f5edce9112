//! Progress and cancellation of a reader.

use crate::error::{Result, SourceError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Callbacks of a reader to its caller.
#[doc(hidden)]
pub trait ReadMonitor: Sync {
    /// Fails if the caller has canceled the read.
    fn check(&self) -> Result<()>;
    /// Reports the start of reading. `spools` is true if the data are spooled to a temporary file.
    fn begins(&self, spools: bool) {
        let _ = spools;
    }
    /// Reports `done` more bytes or members.
    fn advance(&self, done: u64) {
        let _ = done;
    }
}

/// Flag of the caller that cancels a read.
pub(crate) struct CancelFlag(pub(crate) Option<Arc<AtomicBool>>);

impl ReadMonitor for CancelFlag {
    fn check(&self) -> Result<()> {
        match &self.0 {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(SourceError::Interrupted),
            _ => Ok(()),
        }
    }
}
