//! [`RecordingDevice`]: notes every write and flush in the order in which they took effect.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::BlockDevice;
use crate::mem::MemDevice;

/// A write, flush, discard or mark on a recorded device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes were written; a vectored write is one event.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// A range was discarded and reads as zero.
    Discard {
        /// Where, in bytes.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// A flush returned: all events before this one are durable.
    Flush,
    /// [`RecordingDevice::mark`] was called, by a test that later needs the promises made up to this point.
    Mark(u64),
}

/// Events in order. Cloning copies no data.
///
/// ```
/// use extant_blockdev::{BlockDevice, Event, MemDevice, RecordingDevice};
/// let dev = RecordingDevice::new(MemDevice::new(4096));
/// dev.write_at(0, b"a").unwrap();
/// dev.flush().unwrap();
/// dev.mark(7);
/// let log = dev.log();
/// assert_eq!(log.events()[1..], [Event::Flush, Event::Mark(7)]);
/// let image = log.image_at(&MemDevice::new(4096), 1).unwrap(); // after one event
/// assert_eq!(image.to_bytes().unwrap()[0], b'a');
/// ```
#[derive(Clone, Debug, Default)]
pub struct Log {
    events: Vec<Event>,
}

impl Log {
    pub(crate) fn of(events: Vec<Event>) -> Self {
        Self { events }
    }

    /// Applies the event to a device.
    pub(crate) fn apply_to(&self, device: &MemDevice) -> io::Result<()> {
        for event in &self.events {
            match event {
                Event::Write { offset, data } => device.write_at(*offset, data)?,
                Event::Discard { offset, len } => device.discard(*offset, *len)?,
                Event::Flush | Event::Mark(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the events in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

/// Passes everything on to `D` and notes writes, discards and flushes that succeeded.
///
/// They run one at a time, so that the order of the log is the order in which they took effect.
/// For an example see [`Log`].
#[derive(Debug)]
pub struct RecordingDevice<D> {
    inner: D,
    log: Mutex<Log>,
}

impl<D: BlockDevice> RecordingDevice<D> {
    /// Starts recording. Snapshot a [`MemDevice`] before, to have the base for replay.
    pub fn new(inner: D) -> Self {
        RecordingDevice {
            inner,
            log: Mutex::default(),
        }
    }

    /// Returns the device that is recorded.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the log until now.
    pub fn log(&self) -> Log {
        self.log.lock().clone()
    }

    /// Returns the log until now, leaving an empty one.
    pub fn take_log(&self) -> Log {
        std::mem::take(&mut self.log.lock())
    }

    /// Puts a mark into the log, after everything that has returned.
    pub fn mark(&self, value: u64) {
        self.log.lock().events.push(Event::Mark(value));
    }

    fn record(
        &self,
        run: impl FnOnce(&D) -> io::Result<()>,
        event: impl FnOnce() -> Event,
    ) -> io::Result<()> {
        let mut log = self.log.lock();
        run(&self.inner)?;
        log.events.push(event());
        Ok(())
    }
}

/// Methods of a [`BlockDevice`] over `inner` that call `record` for every change.
macro_rules! recorded {
    () => {
        fn len(&self) -> u64 {
            self.inner.len()
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.inner.read_at(offset, buf)
        }

        fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
            self.record(
                |dev| dev.write_at(offset, buf),
                || Event::Write {
                    offset,
                    data: Arc::from(buf),
                },
            )
        }

        fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
            self.record(
                |dev| dev.write_vectored_at(offset, bufs),
                || Event::Write {
                    offset,
                    data: Arc::from(bufs.concat()),
                },
            )
        }

        fn write_unit(&self) -> u64 {
            self.inner.write_unit()
        }

        fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
            self.record(
                |dev| dev.discard(offset, len),
                || Event::Discard { offset, len },
            )
        }

        /// Records a discard, because the former contents are lost.
        fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
            self.record(
                |dev| dev.trim(offset, len),
                || Event::Discard { offset, len },
            )
        }

        fn read_only(&self) -> bool {
            self.inner.read_only()
        }
    };
}
pub(crate) use recorded;

impl<D: BlockDevice> BlockDevice for RecordingDevice<D> {
    recorded!();

    fn flush(&self) -> io::Result<()> {
        self.record(|dev| dev.flush(), || Event::Flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vectored_write_is_one_event_and_failures_are_none() {
        let dev = RecordingDevice::new(MemDevice::new(100));
        dev.write_vectored_at(1, &[b"ab", b"", b"c"]).unwrap();
        dev.discard(0, 2).unwrap();
        assert!(dev.write_at(99, b"xx").is_err());
        let log = dev.take_log();
        assert_eq!(
            log.events(),
            [
                Event::Write {
                    offset: 1,
                    data: Arc::from(*b"abc")
                },
                Event::Discard { offset: 0, len: 2 },
            ]
        );
        assert!(dev.log().events().is_empty());
        let replayed = log.image_at(&MemDevice::new(100), 2).unwrap();
        assert_eq!(
            replayed.to_bytes().unwrap(),
            dev.inner().to_bytes().unwrap()
        );
    }
}
