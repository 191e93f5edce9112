//! A device with a limited read rate, so that other users of the storage get their share.

use blockdev::BlockDevice;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Unused time that counts towards later reads, at most.
const CREDIT: Duration = Duration::from_millis(100);

/// A device with a rate.
pub struct PacedDevice {
    device: Arc<dyn BlockDevice>,
    /// Bytes per second.
    rate: u64,
    begun: Instant,
    /// Time that the bytes read until now take at the rate, in nanoseconds after `begun`.
    paid: AtomicU64,
}

impl PacedDevice {
    /// Limits `device` to `rate` bytes per second.
    pub fn new(device: Arc<dyn BlockDevice>, rate: u64) -> Self {
        Self {
            device,
            rate: rate.max(1),
            begun: Instant::now(),
            paid: AtomicU64::new(0),
        }
    }

    /// Sleeps until the rate allows `bytes` more bytes.
    fn wait(&self, bytes: u64) {
        let takes = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate);
        let takes = u64::try_from(takes).unwrap_or(u64::MAX);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = nanos(self.begun.elapsed());
        let next = |paid: u64| {
            paid.max(now.saturating_sub(nanos(CREDIT)))
                .saturating_add(takes)
        };
        let before = self
            .paid
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid| {
                Some(next(paid))
            });
        // The update always succeeds, because the closure always returns a value.
        let due = next(before.unwrap_or(0));
        sleep(Duration::from_nanos(due.saturating_sub(now)));
    }
}

impl BlockDevice for PacedDevice {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.wait(buf.len() as u64);
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.device.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn read_only(&self) -> bool {
        self.device.read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::MemDevice;

    #[test]
    fn bytes_wait_for_their_turn() {
        let device = PacedDevice::new(Arc::new(MemDevice::new(1 << 20)), 1 << 20);
        let began = Instant::now();
        for at in 0..4 {
            device.read_at(at << 16, &mut [0; 1 << 16]).unwrap();
        }
        // The reads take a quarter of a second, less the credit before the first one.
        assert!(began.elapsed() >= Duration::from_millis(140));
    }
}
