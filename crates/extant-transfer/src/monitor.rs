//! What the caller of a copy hears.

use anyhow::Result;
use ext4_format::FileType;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The caller of a copy. All functions may be called from any thread of the copy.
pub trait Monitor: Sync {
    /// Fails once the caller wants the copy to end.
    ///
    /// # Errors
    /// The error with which the copy ends.
    fn check(&self) -> Result<()>;
    /// Returns the flag that ends the reading of an archive, if there is one.
    fn cancel(&self) -> Option<Arc<AtomicBool>> {
        None
    }
    /// Counts something that was made.
    fn made(&self, kind: FileType);
    /// Counts another name of a file.
    fn linked(&self);
    /// Counts bytes of data.
    fn moved(&self, bytes: u64);
    /// Takes note of a member of an archive that is not kept as it is.
    fn warn(&self, what: &str, place: &str);
    /// Takes note of something that this caller may not make or set.
    fn refused(&self, what: &str, place: &str) {
        self.warn(what, place);
    }
    /// Is called after each piece of work, by the thread that did it.
    fn step(&self) {}
}
