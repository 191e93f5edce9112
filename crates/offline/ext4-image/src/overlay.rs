//! The image as a repair sees it: a device that is only read, under grains in memory that take all writes.

use crate::changes::Changes;
use blockdev::BlockDevice;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io;

/// A device under changes in memory, which can be listed afterwards; `blockdev::Overlay` keeps its changes in a store instead.
///
/// ```
/// use ext4_image::{MemOverlay, blockdev::{BlockDevice, MemDevice}};
/// let image = MemDevice::from_bytes(&[1; 8192]);
/// let overlay = MemOverlay::new(&image);
/// overlay.write_at(512, &[2; 512])?;
/// let changes = overlay.into_changes()?;
/// assert_eq!((image.to_bytes()?, changes.bytes()), (vec![1; 8192], 4096));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemOverlay<'d> {
    base: &'d dyn BlockDevice,
    /// Bytes of a grain. The last one of a device may be shorter.
    grain: u64,
    grains: RwLock<BTreeMap<u64, Vec<u8>>>,
}

impl<'d> MemOverlay<'d> {
    /// Creates an overlay without changes.
    pub const fn new(base: &'d dyn BlockDevice) -> Self {
        Self::with_grain(base, 4096)
    }

    /// Creates an overlay whose changes are listed in pieces of `grain` bytes, a power of two from 512 to 1 MiB.
    /// Pieces without a write are not part of the changes.
    pub const fn with_grain(base: &'d dyn BlockDevice, grain: u32) -> Self {
        Self {
            base,
            grain: grain as u64,
            grains: RwLock::new(BTreeMap::new()),
        }
    }

    /// Returns the grains that differ from those of the base. If any does, the superblock is among them: the time of
    /// its last write becomes later where nothing else in it has changed. So the undo file of one change does not fit
    /// an image after the next.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn into_changes(self) -> io::Result<Changes> {
        if self.differs()? {
            self.stamp()?;
        }
        let mut changes = BTreeMap::new();
        let mut old = Vec::new();
        for (grain, bytes) in self.grains.into_inner() {
            old.resize(bytes.len(), 0);
            self.base.read_at(grain * self.grain, &mut old)?;
            if old != bytes {
                changes.insert(grain * self.grain, bytes);
            }
        }
        Ok(Changes(changes))
    }

    /// Returns whether any grain differs from that of the base.
    pub fn differs(&self) -> io::Result<bool> {
        let mut old = Vec::new();
        for (grain, bytes) in self.grains.read().iter() {
            old.resize(bytes.len(), 0);
            self.base.read_at(grain * self.grain, &mut old)?;
            if old != *bytes {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sets the time of the last write one second later if the superblock equals that of the base.
    fn stamp(&self) -> io::Result<()> {
        if self.len() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
            return Ok(());
        }
        let (mut old, mut new) = ([0; SUPERBLOCK_SIZE], [0; SUPERBLOCK_SIZE]);
        self.base.read_at(SUPERBLOCK_OFFSET, &mut old)?;
        self.read_at(SUPERBLOCK_OFFSET, &mut new)?;
        match RawSuperblock::parse(&new) {
            Ok(mut sb) if old == new => {
                sb.wtime.set(sb.wtime.get().wrapping_add(1));
                sb.set_checksum();
                self.write_at(SUPERBLOCK_OFFSET, sb.bytes())
            }
            _ => Ok(()),
        }
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.base.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Calls `f` with the grain, the first byte in it, and the part of a buffer of each grain that a range touches.
fn pieces(
    grain: u64,
    offset: u64,
    len: usize,
    mut f: impl FnMut(u64, usize, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = (at % grain) as usize;
        let n = (grain as usize - within).min(len - done);
        f(at / grain, within, done..done + n);
        done += n;
    }
}

impl BlockDevice for MemOverlay<'_> {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        self.base.read_at(offset, buf)?;
        let grains = self.grains.read();
        pieces(self.grain, offset, buf.len(), |grain, within, part| {
            let to = buf.get_mut(part.clone());
            let from = grains.get(&grain);
            let from = from.and_then(|bytes| bytes.get(within..within + part.len()));
            if let (Some(to), Some(from)) = (to, from) {
                to.copy_from_slice(from);
            }
        });
        Ok(())
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.base.will_read(offset, len);
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let mut grains = self.grains.write();
        let mut done = Ok(());
        pieces(self.grain, offset, buf.len(), |grain, within, part| {
            let bytes = match grains.entry(grain) {
                std::collections::btree_map::Entry::Occupied(old) => old.into_mut(),
                std::collections::btree_map::Entry::Vacant(new) => {
                    let at = grain * self.grain;
                    let mut bytes = vec![0; self.grain.min(self.base.len() - at) as usize];
                    if let Err(error) = self.base.read_at(at, &mut bytes) {
                        // The bytes outside of this write are unknown.
                        if part.len() != bytes.len() {
                            done = Err(error);
                            return;
                        }
                    }
                    new.insert(bytes)
                }
            };
            let from = buf.get(part.clone());
            let to = bytes.get_mut(within..within + part.len());
            if let (Some(to), Some(from)) = (to, from) {
                to.copy_from_slice(from);
            }
        });
        done
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn read_only(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::MemDevice;

    #[test]
    fn writes_stay_above() {
        let base = MemDevice::from_bytes(&[7; 10_000]);
        let over = MemOverlay::new(&base);
        over.write_at(4000, &[1; 200]).unwrap();
        over.write_at(9990, &[2; 10]).unwrap();
        over.write_at(0, &[7; 10]).unwrap();
        assert!(over.write_at(9991, &[2; 10]).is_err());
        let mut bytes = vec![0; 10_000];
        over.read_at(0, &mut bytes).unwrap();
        assert_eq!(
            (
                bytes[3999],
                bytes[4000],
                bytes[4199],
                bytes[4200],
                bytes[9999]
            ),
            (7, 1, 1, 7, 2)
        );
        assert_eq!(base.to_bytes().unwrap(), [7; 10_000]);
        let changes = over.into_changes().unwrap();
        let sizes: Vec<_> = changes.0.iter().map(|(at, b)| (*at, b.len())).collect();
        assert_eq!(sizes, [(0, 4096), (4096, 4096), (8192, 10_000 - 8192)]);
    }
}
