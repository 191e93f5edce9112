//! The new size, and what else changes.

/// The new size of an image.
///
/// ```
/// use extant_resize::NewSize;
/// assert_ne!(NewSize::Bytes(1 << 30), NewSize::Least);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// This number of bytes, rounded down to a block, and without a last group that is too short.
    Bytes(u64),
    /// The present size.
    Same,
    /// The least size for its files.
    Least,
}

/// How an image is resized.
///
/// ```
/// use extant_resize::{NewSize, ResizeOptions};
/// let options = ResizeOptions { wide: Some(true), ..ResizeOptions::new(NewSize::Same) };
/// assert_eq!(options.now, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeOptions {
    /// The new size.
    pub size: NewSize,
    /// Whether the new volume has the feature `64bit`; `None` keeps it.
    pub wide: Option<bool>,
    /// Bytes of an inode, no fewer than before; `None` keeps the size.
    pub inode_size: Option<u16>,
    /// The time of the change, in seconds; 0 leaves the old one.
    pub now: i64,
}

impl ResizeOptions {
    /// Options for a size.
    pub const fn new(size: NewSize) -> Self {
        Self {
            size,
            wide: None,
            inode_size: None,
            now: 0,
        }
    }
}
