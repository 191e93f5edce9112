//! The image as a device whose writes do not wait for the store.

use super::device::Objects;
use super::log::Log;
use super::segment::SegmentKind;
use crate::address::Address;
use blockdev::BlockDevice;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Image of objects whose writes do not wait for the store.
pub struct ObjectsDevice(pub(super) Arc<Objects>);

impl ObjectsDevice {
    /// Opens an image. Unless `read_only`, the image is claimed, or made if the address has a size.
    pub fn open(address: Address, runtime: Runtime, read_only: bool) -> io::Result<Self> {
        Self::open_log(Log::new(address, runtime), read_only)
    }

    pub(super) fn open_log(log: Log, read_only: bool) -> io::Result<Self> {
        Ok(Self(Arc::new(Objects::open_log(log, read_only)?)))
    }

    /// Writes the blocks in memory and releases the image.
    pub fn release(&self) -> io::Result<()> {
        self.0.release()
    }

    /// Sends the blocks in memory by another thread if there are enough for a segment. Waits if too many segments are being sent.
    fn send_if_full(&self) -> io::Result<()> {
        let Some(upload) = self.0.begin_if_full()? else {
            return Ok(());
        };
        let (image, sent) = (Arc::clone(&self.0), upload.clone());
        let send = move || {
            // A failure is kept for the next write and flush.
            if image.finish(sent).is_ok() {
                image.write_map_if_due(SegmentKind::Data);
            }
        };
        let thread = std::thread::Builder::new().name("segment".into());
        if thread.spawn(send).is_err() {
            // The system has no thread left.
            self.0.finish(upload)?;
        }
        Ok(())
    }
}

impl BlockDevice for ObjectsDevice {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, buf)?;
        self.send_if_full()
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.discard(offset, len)?;
        self.send_if_full()
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.discard(offset, len)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.0.next_data(offset)
    }

    fn read_only(&self) -> bool {
        self.0.read_only()
    }
}
