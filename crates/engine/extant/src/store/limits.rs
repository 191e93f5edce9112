//! The memory that an open volume may use.

/// Limits of an open volume.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Data pages, clean and dirty, in bytes.
    pub cache_bytes: u64,
    /// Dirty data pages, in bytes: past it a writer writes back its own.
    pub dirty_bytes: u64,
    /// Clean inodes kept in core.
    pub inodes: u64,
}

#[cfg(test)]
impl Limits {
    /// Limits for a layer that is tested alone.
    pub(crate) fn small() -> Self {
        Self {
            cache_bytes: 1 << 20,
            dirty_bytes: 1 << 18,
            inodes: 1000,
        }
    }
}
