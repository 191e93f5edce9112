//! The device below the mount. It uses the stamps in the data to record the last write of each program's data, and
//! records the flushes.

use blockdev::{BlockDevice, MemDevice, TimedDevice};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Mutex;
use std::time::Duration;

/// Numbers of writes start with the number of their program.
pub const PROGRAM_SHIFT: u32 = 26;

/// Number of flushes that are kept: far more than can be in progress at a time.
const KEPT: usize = 4096;

#[derive(Default)]
struct Seen {
    /// For each program, the end of its last write of data and the number of that write.
    data: HashMap<u32, (u64, u32)>,
    /// Start and end of the last flushes.
    flushes: VecDeque<(u64, u64)>,
}

/// A recorded device that reads stamps.
pub struct Witness {
    pub device: TimedDevice<MemDevice>,
    seen: Mutex<Seen>,
}

/// Violation of the guarantee of an fsync.
pub enum Broken {
    /// The data of the last write had not reached the device.
    NotWritten { last: u32, expected: u32 },
    /// No flush was begun after the last write and ended before the return.
    NotFlushed { written: u64, returned: u64 },
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotWritten { last, expected } => {
                write!(
                    f,
                    "write {expected} is not on the device, {last} is the last"
                )
            }
            Self::NotFlushed { written, returned } => {
                write!(
                    f,
                    "written at {written}, returned at {returned}, no flush between"
                )
            }
        }
    }
}

impl Witness {
    pub fn new(base: MemDevice, flush: Duration) -> Self {
        Self {
            device: TimedDevice::new(base, flush),
            seen: Mutex::default(),
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Checks an fsync of the only file of a program, after its return: all data must be durable. `expected` is the
    /// number of the last write. Returns the time of the return.
    pub fn returned(&self, program: u32, expected: u32) -> (u64, Result<(), Broken>) {
        let returned = self.device.tick();
        let seen = self.seen();
        let (written, last) = seen.data.get(&program).copied().unwrap_or_default();
        if last != expected {
            return (returned, Err(Broken::NotWritten { last, expected }));
        }
        let covers = |&(start, end): &(u64, u64)| start > written && end < returned;
        let result = if seen.flushes.iter().any(covers) {
            Ok(())
        } else {
            Err(Broken::NotFlushed { written, returned })
        };
        (returned, result)
    }

    fn look(&self, bytes: &[u8]) {
        let mut found: Option<u32> = None;
        for piece in bytes.chunks(1024) {
            if let Some(value) = piece.get(..16).and_then(crate::it::judge::stamp::parse)
                && value != 0
            {
                let write = (value >> 32) as u32;
                found = found.max(Some(write));
            }
        }
        if let Some(write) = found {
            let now = self.device.tick();
            let mut seen = self.seen();
            let entry = seen.data.entry(write >> PROGRAM_SHIFT).or_default();
            *entry = (now, entry.1.max(write));
        }
    }
}

impl BlockDevice for Witness {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.device.write_at(offset, buf)?;
        self.look(buf);
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
        self.device.write_vectored_at(offset, bufs)?;
        bufs.iter().for_each(|buf| self.look(buf));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let start = self.device.tick();
        self.device.flush()?;
        let end = self.device.tick();
        let mut seen = self.seen();
        if seen.flushes.len() == KEPT {
            seen.flushes.pop_front();
        }
        seen.flushes.push_back((start, end));
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.discard(offset, len)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.trim(offset, len)
    }

    fn read_only(&self) -> bool {
        false
    }
}
