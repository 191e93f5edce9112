//! Changes of an image that were made in memory first.

use crate::Undo;
use blockdev::BlockDevice;
use std::collections::BTreeMap;
use std::io;

/// Pieces that follow on one another are written as one, at most so many.
const MOST_PIECES: usize = 256;

/// Parts of an image with what they are to become, by their place in bytes.
///
/// ```
/// use extant_repair::{MemOverlay, blockdev::{BlockDevice, MemDevice}};
/// let image = MemDevice::from_bytes(&[1; 4096]);
/// let overlay = MemOverlay::new(&image);
/// overlay.write_at(0, &[2; 4096])?;
/// let changes = overlay.into_changes()?;
/// let undo = changes.undo(&image)?;
/// changes.apply(&image)?;
/// assert_eq!(image.to_bytes()?, [2; 4096]);
/// undo.take_back(&image)?;
/// assert_eq!(image.to_bytes()?, [1; 4096]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(pub(crate) BTreeMap<u64, Vec<u8>>);

impl Changes {
    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that are to be written.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(|bytes| bytes.len() as u64).sum()
    }

    /// What takes the changes back. It is to be durable before [`Self::apply`].
    ///
    /// # Errors
    /// Those of the device.
    pub fn undo(&self, image: &dyn BlockDevice) -> io::Result<Undo> {
        Undo::before(image, &self.0)
    }

    /// Writes the changes, and returns when they are durable. A cut in the middle is for [`Undo::take_back`].
    ///
    /// # Errors
    /// Those of the device.
    pub fn apply(&self, image: &dyn BlockDevice) -> io::Result<()> {
        let mut run: Vec<&[u8]> = Vec::new();
        let (mut start, mut end) = (0, 0);
        for (&at, bytes) in &self.0 {
            if at != end || run.len() == MOST_PIECES {
                image.write_vectored_at(start, &run)?;
                run.clear();
                start = at;
            }
            run.push(bytes);
            end = at + bytes.len() as u64;
        }
        image.write_vectored_at(start, &run)?;
        image.flush()
    }
}
