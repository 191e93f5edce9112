//! Returns free blocks to the file system or device below the image, or zeroes them.

use crate::clean::require_clean;
use crate::error::Error;
use crate::image::Image;
use blockdev::BlockDevice;
use ext4_image::MemOverlay;

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;

/// The free blocks of an image that is clean.
///
/// ```no_run
/// use extant_tune::FreeSpace;
/// use extant_tune::blockdev::{Access, FileDevice};
/// let image = FileDevice::open("disk.img", Access::ReadWrite)?;
/// let freed = FreeSpace::of(&image)?.trim(&image)?;
/// println!("{} bytes in {} runs", freed.bytes, freed.runs);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// Places and lengths in bytes.
    ranges: Vec<(u64, u64)>,
    block_size: u64,
}

/// Result of trimming or zeroing free space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Runs of free blocks.
    pub runs: u64,
    /// Bytes that were trimmed, or zeros written.
    pub bytes: u64,
}

impl FreeSpace {
    /// Reads the bitmaps of an image, after a check that they mark no used block as free.
    ///
    /// # Errors
    /// [`Error::NotClean`]; [`Error::Refused`] if the journal must be replayed first.
    pub fn of(device: &dyn BlockDevice) -> Result<Self, Error> {
        let overlay = MemOverlay::new(device);
        let mut image = Image::open(&overlay, true)?;
        require_clean(device)?;
        let block_size = u64::from(image.geo.block_size);
        let runs = image.free_runs(1)?.into_iter();
        let ranges = runs.map(|(first, len)| (first * block_size, len * block_size));
        Ok(Self {
            ranges: ranges.collect(),
            block_size,
        })
    }

    /// Returns the number of runs of free blocks.
    pub const fn runs(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the runs, as places and lengths in bytes, in ascending order.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Returns the number of free bytes.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.1).sum()
    }

    /// Returns the free blocks to the host: as holes in a file, or discarded blocks of a device.
    ///
    /// # Errors
    /// The errors of the device, which may not be able to do this.
    pub fn trim(&self, device: &dyn BlockDevice) -> Result<Freed, Error> {
        let mut freed = Freed::default();
        for (at, len) in &self.ranges {
            match device.trim(*at, *len) {
                Ok(()) => {
                    freed.runs += 1;
                    freed.bytes += len;
                }
                // The device still has data to write there; such ranges are not counted.
                Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {}
                Err(e) => return Err(e.into()),
            }
        }
        device.flush()?;
        Ok(freed)
    }

    /// Writes zeros into free blocks with other bytes; without `write` they are only counted. Blocks that read as
    /// zeros, such as holes, are skipped.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn zero(&self, device: &dyn BlockDevice, write: bool) -> Result<Freed, Error> {
        let mut freed = Freed::default();
        let mut bytes = vec![0; PIECE as usize];
        let zeros = vec![0; self.block_size as usize];
        for (start, len) in &self.ranges {
            let mut at = *start;
            let mut touched = false;
            while at < start + len {
                let piece = PIECE.min(start + len - at);
                let read = bytes.get_mut(..piece as usize).unwrap_or_default();
                device.read_at(at, read)?;
                for (block, offset) in read.chunks(zeros.len()).zip((at..).step_by(zeros.len())) {
                    if blockdev::is_zero(block) {
                        continue;
                    }
                    touched = true;
                    freed.bytes += block.len() as u64;
                    if write {
                        device.write_at(offset, zeros.get(..block.len()).unwrap_or(&zeros))?;
                    }
                }
                at += piece;
            }
            freed.runs += u64::from(touched);
        }
        if write {
            device.flush()?;
        }
        Ok(freed)
    }
}
