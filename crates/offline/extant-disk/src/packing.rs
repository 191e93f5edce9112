//! Parameters and helpers that all writers of packed formats share.

use std::io;

/// Parameters of [`NewImage::finish`](crate::NewImage::finish).
///
/// ```
/// let packing = extant_disk::Packing { threads: 2, step: &|_| Ok(()) };
/// # drop(packing);
/// ```
#[derive(Clone, Copy)]
pub struct Packing<'s> {
    /// Number of threads that compress. The bytes of the file do not depend on it.
    pub threads: usize,
    /// Called with the number of image bytes packed since the last call; an error ends the work.
    pub step: &'s (dyn Fn(u64) -> io::Result<()> + Sync),
}

/// Returns whether all bytes are zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
