//! The flag that a signal raises, and the error of work that sees it.

use anyhow::Result;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

/// The user asked to stop.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Whether the user has asked to stop.
pub(crate) static RAISED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Fails once the user has asked to stop.
pub fn check() -> Result<()> {
    if RAISED.load(Ordering::Relaxed) {
        Err(Interrupted.into())
    } else {
        Ok(())
    }
}
