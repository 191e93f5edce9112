//! A device in memory that knows what its flushes have covered.

use blockdev::{BlockDevice, MemDevice};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Memory, and what would be left of it after a cut.
pub struct Medium {
    pub now: MemDevice,
    /// The content when the last flush that has returned began.
    durable: Mutex<MemDevice>,
    writes: AtomicU64,
}

impl Medium {
    pub fn new(now: MemDevice) -> Arc<Self> {
        let durable = Mutex::new(now.snapshot());
        Arc::new(Self {
            now,
            durable,
            writes: AtomicU64::new(0),
        })
    }

    /// The content after a cut at which all that was not flushed is lost.
    pub fn after_cut(&self) -> MemDevice {
        self.durable.lock().unwrap().snapshot()
    }

    /// How often it was written to.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }
}

impl BlockDevice for Medium {
    fn len(&self) -> u64 {
        self.now.len()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        extant::schedule::pass();
        self.now.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        extant::schedule::pass();
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.now.write_at(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        let covered = self.now.snapshot();
        extant::schedule::pass();
        *self.durable.lock().unwrap() = covered;
        Ok(())
    }
    fn read_only(&self) -> bool {
        false
    }
}
