//! [`FaultDevice`]: fails on demand, to test the layers above it.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::device::{BlockDevice, total_len};

/// The operations that a fault applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads.
    Read,
    /// Writes and discards.
    Write,
    /// Flushes.
    Flush,
}

#[derive(Debug, Default)]
struct Faults {
    ranges: Vec<(Op, Range<u64>)>,
    /// Number of operations of each [`Op`] that still succeed before all fail.
    left: [Option<u64>; 3],
    injected: u64,
}

/// Passes operations on to `D`, except the ones set to fail. A failed write has no effect. Faults can be set and
/// cleared at any time, from any thread.
///
/// ```
/// use extant_blockdev::{BlockDevice, FaultDevice, MemDevice, Op};
/// let dev = FaultDevice::new(MemDevice::new(8192));
/// dev.fail_range(Op::Read, 4096..4608);
/// assert!(dev.read_at(0, &mut [0; 4096]).is_ok());
/// assert!(dev.read_at(0, &mut [0; 4097]).is_err());
/// dev.fail_after(Op::Flush, 1);
/// assert!(dev.flush().is_ok() && dev.flush().is_err() && dev.flush().is_err());
/// dev.heal();
/// assert!(dev.flush().is_ok());
/// assert_eq!(dev.injected(), 3);
/// ```
#[derive(Debug)]
pub struct FaultDevice<D> {
    inner: D,
    /// Whether any fault is set, so that a healthy device takes no lock.
    armed: AtomicBool,
    faults: Mutex<Faults>,
}

impl<D: BlockDevice> FaultDevice<D> {
    /// Makes a healthy device.
    pub fn new(inner: D) -> Self {
        FaultDevice {
            inner,
            armed: AtomicBool::new(false),
            faults: Mutex::default(),
        }
    }

    /// Returns the device behind the faults.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Fails reads or writes that touch a byte of `range`. A flush touches none.
    pub fn fail_range(&self, op: Op, range: Range<u64>) {
        self.arm(|faults| faults.ranges.push((op, range)));
    }

    /// Lets `n` more operations succeed, then fails all.
    pub fn fail_after(&self, op: Op, n: u64) {
        self.arm(|faults| faults.left[op as usize] = Some(n));
    }

    /// Fails all from now on.
    pub fn fail_all(&self, op: Op) {
        self.fail_after(op, 0);
    }

    /// Clears all faults.
    pub fn heal(&self) {
        let mut faults = self.faults.lock();
        faults.ranges.clear();
        faults.left = [None; 3];
        self.armed.store(false, Ordering::Release);
    }

    /// Returns the number of operations failed until now.
    pub fn injected(&self) -> u64 {
        self.faults.lock().injected
    }

    fn arm(&self, set: impl FnOnce(&mut Faults)) {
        let mut faults = self.faults.lock();
        set(&mut faults);
        self.armed.store(true, Ordering::Release);
    }

    fn check(&self, op: Op, offset: u64, len: u64) -> io::Result<()> {
        if !self.armed.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut faults = self.faults.lock();
        let end = offset.saturating_add(len);
        let in_range = faults
            .ranges
            .iter()
            .any(|(of, r)| *of == op && r.start.max(offset) < r.end.min(end));
        let used_up = match &mut faults.left[op as usize] {
            Some(0) => true,
            Some(n) => {
                *n -= 1;
                false
            }
            None => false,
        };
        if !in_range && !used_up {
            return Ok(());
        }
        faults.injected += 1;
        let what = format!("{op:?}").to_lowercase();
        Err(io::Error::other(format!(
            "injected fault: {what} of {len} bytes at offset {offset}"
        )))
    }
}

impl<D: BlockDevice> BlockDevice for FaultDevice<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(Op::Read, offset, buf.len() as u64)?;
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check(Op::Write, offset, buf.len() as u64)?;
        self.inner.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
        self.check(Op::Write, offset, total_len(bufs))?;
        self.inner.write_vectored_at(offset, bufs)
    }

    fn write_unit(&self) -> u64 {
        self.inner.write_unit()
    }

    fn flush(&self) -> io::Result<()> {
        self.check(Op::Flush, 0, 0)?;
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(Op::Write, offset, len)?;
        self.inner.discard(offset, len)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(Op::Write, offset, len)?;
        self.inner.trim(offset, len)
    }

    fn extend(&self, len: u64) -> io::Result<()> {
        self.check(Op::Write, len, 0)?;
        self.inner.extend(len)
    }

    fn shorten(&self, len: u64) -> io::Result<()> {
        self.check(Op::Write, len, 0)?;
        self.inner.shorten(len)
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;

    #[test]
    fn faults_hit_their_kind_only() {
        let dev = FaultDevice::new(MemDevice::new(8192));
        dev.fail_range(Op::Write, 100..200);
        assert!(dev.write_at(0, &[1; 100]).is_ok());
        assert!(dev.write_at(200, &[1; 100]).is_ok());
        for result in [
            dev.write_at(99, &[1; 2]),
            dev.write_vectored_at(50, &[&[1; 25], &[1; 26]]),
            dev.discard(0, 8192),
        ] {
            assert!(result.unwrap_err().to_string().contains("injected"));
        }
        assert!(dev.read_at(0, &mut [0; 8192]).is_ok());
        assert_eq!(
            dev.inner().to_bytes().unwrap()[99..101],
            [1, 0],
            "no effect"
        );
        dev.fail_after(Op::Read, 2);
        let failed: Vec<bool> = (0..4)
            .map(|_| dev.read_at(0, &mut [0; 1]).is_err())
            .collect();
        assert_eq!(failed, [false, false, true, true]);
        dev.heal();
        assert!(dev.read_at(0, &mut [0; 1]).is_ok() && dev.write_at(150, &[1]).is_ok());
        assert_eq!(dev.injected(), 5);
    }
}
