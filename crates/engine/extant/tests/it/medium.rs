//! A device in memory that knows what its flushes have covered, and in which a flush can be held.
#![allow(dead_code)] // each test binary uses its own part

use blockdev::{BlockDevice, MemDevice};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// Number of flushes before the one to hold, the channel that reports its begin, and the channel that releases it.
type HeldFlush = (u32, Sender<()>, Receiver<()>);

/// A device in memory, with the content that a power cut would leave.
pub struct Medium {
    pub now: MemDevice,
    /// The content when the last flush that has returned began.
    durable: Mutex<MemDevice>,
    writes: AtomicU64,
    /// Holds the flush after this number of others: reports that the flush began, and waits.
    held: Mutex<Option<HeldFlush>>,
}

impl Medium {
    pub fn new(now: MemDevice) -> Arc<Self> {
        let durable = Mutex::new(now.snapshot());
        Arc::new(Self {
            now,
            durable,
            writes: AtomicU64::new(0),
            held: Mutex::default(),
        })
    }

    /// Holds a flush. Returns the receiver that reports its begin, and the sender that releases it.
    pub fn hold(&self, after: u32) -> (Receiver<()>, Sender<()>) {
        let ((began, wait), (go, gone)) = (channel(), channel());
        *self.held.lock().unwrap() = Some((after, began, gone));
        (wait, go)
    }

    /// The flush to be held, if it is this one.
    fn held_now(&self) -> Option<(Sender<()>, Receiver<()>)> {
        let mut held = self.held.lock().unwrap();
        match held.take()? {
            (0, began, gone) => Some((began, gone)),
            (n, began, gone) => {
                *held = Some((n - 1, began, gone));
                None
            }
        }
    }

    /// Returns the content after a cut at which all unflushed writes are lost.
    pub fn after_cut(&self) -> MemDevice {
        self.durable.lock().unwrap().snapshot()
    }

    /// Returns how often the device was written to.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }
}

impl BlockDevice for Medium {
    fn len(&self) -> u64 {
        self.now.len()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        extant::unstable::schedule::pass();
        self.now.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        extant::unstable::schedule::pass();
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.now.write_at(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        let covered = self.now.snapshot();
        if let Some((began, gone)) = self.held_now() {
            began.send(()).unwrap();
            gone.recv().unwrap();
        }
        extant::unstable::schedule::pass();
        *self.durable.lock().unwrap() = covered;
        Ok(())
    }
    fn read_only(&self) -> bool {
        false
    }
}
