//! [`TimedDevice`]: notes when each write and flush began and ended, in one order with the calls of programs above it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::device::BlockDevice;
use crate::mem::MemDevice;
use crate::record::{Event, Log, recorded};

/// A recorded call: it began and ended at these ticks of the device's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedEvent {
    /// Tick at which the call began.
    pub start: u64,
    /// Tick at which the call had returned.
    pub end: u64,
    /// The operation.
    pub event: Event,
}

/// Passes operations on to `D`, concurrently as they come, and notes writes, discards and flushes with their
/// beginning and end. Its clock is a counter that every caller may advance by [`tick`](Self::tick), so promises
/// to programs have a place in the same order.
///
/// [`RecordingDevice`](crate::RecordingDevice) puts calls one after the other instead.
///
/// ```
/// use extant_blockdev::{BlockDevice, MemDevice, TimedDevice, TimedReplay};
/// let base = MemDevice::new(4096);
/// let dev = TimedDevice::new(base.snapshot(), std::time::Duration::ZERO);
/// dev.write_at(0, &[1; 512])?;
/// dev.flush()?;
/// let flushed = dev.tick();
/// dev.write_at(512, &[2; 512])?;
/// let (written, events) = (dev.tick(), dev.take());
///
/// let mut replay = TimedReplay::new(events, &base);
/// assert_eq!(replay.cut(flushed)?.1.events().len(), 0);
/// let (durable, pending) = replay.cut(written)?;
/// assert_eq!((durable.to_bytes()?[0], pending.events().len()), (1, 1));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TimedDevice<D> {
    inner: D,
    /// Additional time of a flush.
    flush: Duration,
    clock: AtomicU64,
    recording: AtomicBool,
    events: Mutex<Vec<TimedEvent>>,
}

impl<D: BlockDevice> TimedDevice<D> {
    /// Starts recording; each flush takes `flush` longer than it takes `inner`.
    pub fn new(inner: D, flush: Duration) -> Self {
        Self {
            inner,
            flush,
            clock: AtomicU64::new(1),
            recording: AtomicBool::new(true),
            events: Mutex::default(),
        }
    }

    /// Returns the device that is recorded.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns a new time, later than all earlier ones.
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Stops noting calls: an image of a cut at a later tick would lack them.
    pub fn stop_recording(&self) {
        self.recording.store(false, Ordering::SeqCst);
    }

    /// Takes the noted calls, in the order in which they ended. Recording continues with an empty list.
    pub fn take(&self) -> Vec<TimedEvent> {
        std::mem::take(&mut self.events.lock())
    }

    fn record(
        &self,
        run: impl FnOnce(&D) -> io::Result<()>,
        event: impl FnOnce() -> Event,
    ) -> io::Result<()> {
        let start = self.tick();
        run(&self.inner)?;
        if self.recording.load(Ordering::SeqCst) {
            let event = event();
            let mut events = self.events.lock();
            let end = self.tick();
            events.push(TimedEvent { start, end, event });
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for TimedDevice<D> {
    recorded!();

    fn flush(&self) -> io::Result<()> {
        let slow = |dev: &D| {
            dev.flush()?;
            if !self.flush.is_zero() {
                std::thread::sleep(self.flush);
            }
            Ok(())
        };
        self.record(slow, || Event::Flush)
    }
}

/// Steps through the calls that a [`TimedDevice`] noted, cut by cut.
#[derive(Debug)]
pub struct TimedReplay {
    /// Events in the order of their ends.
    events: Vec<TimedEvent>,
    /// Number of events that have been searched for flushes.
    seen: usize,
    /// Begin of the last finished flush, of the events searched.
    flushed: u64,
    durable: MemDevice,
    /// Writes that are in `durable`.
    applied: Vec<bool>,
    /// All events before this one are flushes or are in `durable`.
    first: usize,
}

impl TimedReplay {
    /// Starts a replay from `base`, the contents when recording began.
    pub fn new(mut events: Vec<TimedEvent>, base: &MemDevice) -> Self {
        events.sort_by_key(|e| e.end);
        Self {
            applied: vec![false; events.len()],
            events,
            seen: 0,
            flushed: 0,
            durable: base.snapshot(),
            first: 0,
        }
    }

    /// Returns the image after a power cut at tick `at`, which is not before the tick of the last call. It holds the
    /// writes that are certainly on the medium. The log, to be replayed over it in any part, holds the writes that
    /// began before the cut and may be lost: they had not ended when the last flush that returned before the cut began.
    pub fn cut(&mut self, at: u64) -> io::Result<(MemDevice, Log)> {
        while let Some(e) = self.events.get(self.seen).filter(|e| e.end < at) {
            if e.event == Event::Flush {
                self.flushed = self.flushed.max(e.start);
            }
            self.seen += 1;
        }
        let mut pending = Vec::new();
        for (i, e) in self.events.iter().enumerate().skip(self.first) {
            if e.event == Event::Flush || self.applied[i] {
                continue;
            }
            if e.end < self.flushed {
                Log::of(vec![e.event.clone()]).apply_to(&self.durable)?;
                self.applied[i] = true;
            } else if e.start < at {
                pending.push(e);
            }
            // No call overlaps more than this many others.
            if e.end > at && i > self.seen + 4096 {
                break;
            }
        }
        let done = |i: &usize| self.applied[*i] || self.events[*i].event == Event::Flush;
        self.first = (self.first..self.seen).take_while(done).count() + self.first;
        pending.sort_by_key(|e| e.start);
        let pending = pending.into_iter().map(|e| e.event.clone()).collect();
        Ok((self.durable.snapshot(), Log::of(pending)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(start: u64, end: u64, event: Event) -> TimedEvent {
        TimedEvent { start, end, event }
    }

    fn write(byte: u8) -> Event {
        Event::Write {
            offset: u64::from(byte) * 512,
            data: Arc::from([byte; 512]),
        }
    }

    /// A flush covers the writes that had ended when it began, and only once it has ended.
    #[test]
    fn a_flush_covers_what_ended_before_it_began() {
        let events = vec![
            event(1, 2, write(1)),
            event(3, 6, write(2)),
            event(4, 9, Event::Flush),
            event(7, 8, write(3)),
            event(10, 12, Event::Flush),
        ];
        let mut replay = TimedReplay::new(events, &MemDevice::new(4096));
        let mut at = |tick| {
            let (durable, pending) = replay.cut(tick).unwrap();
            let bytes = durable.to_bytes().unwrap();
            let there: Vec<u8> = (1..4).filter(|b| bytes[*b as usize * 512] == *b).collect();
            (there, pending.events().len())
        };
        assert_eq!(at(5), (vec![], 2));
        assert_eq!(at(9), (vec![], 3));
        assert_eq!(at(10), (vec![1], 2));
        assert_eq!(at(13), (vec![1, 2, 3], 0));
    }

    #[test]
    fn calls_are_noted_in_one_order_with_ticks() {
        let dev = TimedDevice::new(MemDevice::new(4096), Duration::ZERO);
        let before = dev.tick();
        dev.write_vectored_at(0, &[b"a", b"b"]).unwrap();
        dev.flush().unwrap();
        let after = dev.tick();
        assert!(dev.write_at(4096, b"x").is_err());
        dev.stop_recording();
        dev.write_at(0, b"c").unwrap();
        let events = dev.take();
        assert_eq!(events.len(), 2);
        assert!(before < events[0].start && events[0].end < events[1].start);
        assert!(events[1].end < after);
    }
}
