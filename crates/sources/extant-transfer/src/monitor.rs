//! Progress, warnings and cancellation of a copy.

use anyhow::Result;
use ext4_format::FileType;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Callbacks of a copy to its caller. Any thread of the copy may call any of them.
pub trait Monitor: Sync {
    /// Fails if the caller has canceled the copy.
    ///
    /// # Errors
    /// The error with which the copy ends.
    fn check(&self) -> Result<()>;
    /// Returns the flag that cancels the reading of an archive, if the caller has such a flag.
    fn cancel(&self) -> Option<Arc<AtomicBool>> {
        None
    }
    /// Counts a created file of this type.
    fn made(&self, kind: FileType);
    /// Counts a created hard link.
    fn linked(&self);
    /// Counts copied bytes of data.
    fn moved(&self, bytes: u64);
    /// Reports a file that is copied only in part, or with changes.
    fn warn(&self, what: &str, place: &str);
    /// Reports a device or an attribute that the process is not permitted to create or set.
    fn refused(&self, what: &str, place: &str) {
        self.warn(what, place);
    }
    /// Reports that the calling thread has completed a piece of work.
    fn step(&self) {}
}
