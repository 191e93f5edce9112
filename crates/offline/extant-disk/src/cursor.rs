//! A device as a stream with a position, which the crate `gpt` needs.

use blockdev::BlockDevice;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// A position on a device.
pub struct Cursor<D> {
    device: D,
    at: u64,
}

impl<D: BlockDevice> Cursor<D> {
    pub fn new(device: D) -> Self {
        Self { device, at: 0 }
    }

    /// Returns the number of bytes of a buffer that fit on the device.
    fn fits(&self, len: usize) -> usize {
        let left = self.device.len().saturating_sub(self.at);
        usize::try_from(left).map_or(len, |left| left.min(len))
    }
}

impl<D> fmt::Debug for Cursor<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("at", &self.at).finish()
    }
}

impl<D: BlockDevice> Read for Cursor<D> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let fits = self.fits(buf.len());
        let buf = buf.get_mut(..fits).unwrap_or_default();
        self.device.read_at(self.at, buf)?;
        self.at += fits as u64;
        Ok(fits)
    }
}

impl<D: BlockDevice> Write for Cursor<D> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let fits = self.fits(buf.len());
        self.device
            .write_at(self.at, buf.get(..fits).unwrap_or_default())?;
        self.at += fits as u64;
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.device.flush()
    }
}

impl<D: BlockDevice> Seek for Cursor<D> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.device.len().checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
