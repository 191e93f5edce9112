//! [`PartDevice`]: a part of another device, such as a partition.

use std::io;
use std::ops::Range;

use crate::device::{BlockDevice, check_range, total_len};

/// The bytes of `D` from an offset on, as a separate device. Nothing outside of the part is read or written.
///
/// ```
/// use extant_blockdev::{BlockDevice, MemDevice, PartDevice};
/// let disk = MemDevice::new(1 << 20);
/// let partition = PartDevice::new(&disk, 4096..8192).unwrap();
/// partition.write_at(0, b"boot").unwrap();
/// let mut buf = [0; 4];
/// disk.read_at(4096, &mut buf).unwrap();
/// assert_eq!(&buf, b"boot");
/// assert!(partition.write_at(4094, b"boot").is_err());
/// ```
#[derive(Debug)]
pub struct PartDevice<D> {
    inner: D,
    start: u64,
    len: u64,
}

impl<D: BlockDevice> PartDevice<D> {
    /// Makes a device of the bytes in `range`. Fails with `UnexpectedEof` if the range does not lie on the device.
    pub fn new(inner: D, range: Range<u64>) -> io::Result<Self> {
        let len = range.end.saturating_sub(range.start);
        check_range(inner.len(), range.start, len, "part")?;
        Ok(Self {
            inner,
            start: range.start,
            len,
        })
    }

    /// Returns the device behind.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the offset of the first byte on the device behind.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the place on the device behind. It is in range there, because the part lies on the device.
    fn place(&self, offset: u64, len: u64, what: &str) -> io::Result<u64> {
        check_range(self.len, offset, len, what)?;
        Ok(self.start + offset)
    }
}

impl<D: BlockDevice> BlockDevice for PartDevice<D> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let at = self.place(offset, buf.len() as u64, "read")?;
        self.inner.read_at(at, buf)
    }

    fn will_read(&self, offset: u64, len: u64) {
        if let Ok(at) = self.place(offset, len, "read") {
            self.inner.will_read(at, len);
        }
    }

    fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        let at = self.place(offset, buf.len() as u64, "read")?;
        self.inner.read_uncached(at, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let at = self.place(offset, buf.len() as u64, "write")?;
        self.inner.write_at(at, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
        let at = self.place(offset, total_len(bufs), "write")?;
        self.inner.write_vectored_at(at, bufs)
    }

    fn write_unit(&self) -> u64 {
        self.inner.write_unit()
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let at = self.place(offset, len, "discard")?;
        self.inner.discard(at, len)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        let at = self.place(offset, len, "trim")?;
        self.inner.trim(at, len)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        if offset >= self.len() {
            return Ok(None);
        }
        let at = self.place(offset, 0, "look for data")?;
        let (start, end) = (at - offset, at - offset + self.len());
        let data = self.inner.next_data(at)?.filter(|data| data.start < end);
        Ok(data.map(|data| data.start - start..data.end.min(end) - start))
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
    fn nothing_outside_is_touched() {
        let disk = MemDevice::from_bytes(&[7; 4096]);
        let part = PartDevice::new(&disk, 1000..3000).unwrap();
        assert_eq!((part.len(), part.start()), (2000, 1000));
        part.write_vectored_at(1990, &[&[1; 5], &[2; 5]]).unwrap();
        part.discard(0, 10).unwrap();
        part.trim(20, 10).unwrap();
        for error in [
            part.write_at(1999, &[0; 2]),
            part.write_vectored_at(1995, &[&[1; 5], &[2; 5]]),
            part.discard(1999, 2),
            part.trim(u64::MAX, 2),
            part.read_at(2000, &mut [0]),
        ] {
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        let mut all = vec![0; 4096];
        disk.read_at(0, &mut all).unwrap();
        assert!(all[..1000].iter().chain(&all[3000..]).all(|b| *b == 7));
        assert_eq!(&all[2988..3000], &[7, 7, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
        assert_eq!(&all[1000..1010], &[0; 10]);
    }

    #[test]
    fn a_part_lies_on_its_device() {
        let disk = MemDevice::new(4096);
        assert!(PartDevice::new(&disk, 0..4097).is_err());
        assert!(PartDevice::new(&disk, 4097..4097).is_err());
        assert!(PartDevice::new(&disk, u64::MAX - 1..u64::MAX).is_err());
        let empty = PartDevice::new(&disk, 4096..4096).unwrap();
        assert!(empty.is_empty());
    }
}
