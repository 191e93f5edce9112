//! [`SlowDevice`]: a device whose flushes take time, as those of disks do.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::device::BlockDevice;

/// Passes operations on to `D`, and waits after each flush before it returns. Writes during the wait are not
/// covered by that flush.
///
/// ```
/// use extant_blockdev::{BlockDevice, MemDevice, SlowDevice};
/// use std::time::{Duration, Instant};
/// let disk = SlowDevice::new(MemDevice::new(4096), Duration::from_millis(2));
/// let start = Instant::now();
/// disk.flush().unwrap();
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// assert_eq!(disk.flushes(), 1);
/// ```
#[derive(Debug)]
pub struct SlowDevice<D> {
    inner: D,
    flush: Duration,
    flushes: AtomicU64,
}

impl<D: BlockDevice> SlowDevice<D> {
    /// Makes a device whose flushes each take `flush` longer than those of `inner`.
    pub fn new(inner: D, flush: Duration) -> Self {
        Self {
            inner,
            flush,
            flushes: AtomicU64::new(0),
        }
    }

    /// Returns the device behind.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the number of flushes.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }
}

impl<D: BlockDevice> BlockDevice for SlowDevice<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
        self.inner.write_vectored_at(offset, bufs)
    }

    fn write_unit(&self) -> u64 {
        self.inner.write_unit()
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()?;
        self.flushes.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.flush);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.trim(offset, len)
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
}
