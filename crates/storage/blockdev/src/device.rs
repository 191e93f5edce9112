//! The trait of all devices, and what their implementations share.

use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A grain of 512 bytes: the unit a disk writes atomically, and the unit at which [`Replayer`](crate::Replayer)
/// tears writes.
pub const SECTOR: u64 = 512;

/// A linear, randomly addressed store of bytes. Offsets and lengths are in bytes.
///
/// ```
/// use extant_blockdev::{BlockDevice, MemDevice};
/// let dev: Box<dyn BlockDevice> = Box::new(MemDevice::new(8192));
/// dev.write_vectored_at(0, &[b"ab", b"cd"]).unwrap();
/// dev.flush().unwrap();
/// let err = dev.read_at(8000, &mut [0; 512]).unwrap_err();
/// assert_eq!(err.kind(), std::io::ErrorKind::UnexpectedEof);
/// ```
pub trait BlockDevice: Send + Sync {
    /// Returns the size of the device in bytes.
    fn len(&self) -> u64;

    /// Returns true if the device has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from `offset`. A range beyond the end is `UnexpectedEof`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Announces that the range will be read soon. A device that can reads it ahead; the call returns at once and
    /// reports no error.
    fn will_read(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Fills `buf` from `offset` without keeping the bytes in memory. Returns false if the device cannot do that, or
    /// has most of the range in memory already; then use [`read_at`](Self::read_at). Disks want places, lengths and
    /// addresses that are multiples of their sectors. A call for no bytes shows whether a device can do it at all.
    fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        let _ = (offset, buf);
        Ok(false)
    }

    /// Writes all of `buf` at `offset`. A range beyond the end is `UnexpectedEof`; a device
    /// opened for reading answers `ReadOnlyFilesystem`.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Writes `bufs` one after the other as one contiguous range starting at `offset`.
    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
        check_range(self.len(), offset, total_len(bufs), "write")?;
        let mut at = offset;
        for buf in bufs {
            self.write_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Returns the alignment, in bytes, at which a write needs no read if all bytes around it were written before: a power of
    /// two. Shorter or unaligned writes may cost a read. Default: 4096.
    ///
    /// ```
    /// use extant_blockdev::{BlockDevice, MemDevice};
    /// assert_eq!(MemDevice::new(8192).write_unit(), 512);
    /// ```
    fn write_unit(&self) -> u64 {
        4096
    }

    /// Returns once every write that returned before this call is durable. After a failed flush
    /// it is not known what reached the medium: stop using the device for writing.
    fn flush(&self) -> io::Result<()>;

    /// Frees the range on the device; it reads as zeros afterwards.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        write_zeroes(self, offset, len)
    }

    /// Reports to the device that the range's contents are not needed; its bytes are unspecified afterwards. A device
    /// without such a function answers `Unsupported`, and `ResourceBusy` if it cannot do so at the moment.
    ///
    /// ```
    /// use extant_blockdev::{BlockDevice, MemDevice};
    /// let dev = MemDevice::from_bytes(&[1; 1 << 20]);
    /// dev.trim(0, 1 << 20).unwrap();
    /// assert_eq!(dev.allocated(), 0);
    /// ```
    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the device cannot trim",
        ))
    }

    /// Makes the device at least `len` bytes long, the new bytes zeros. A file becomes longer, and the length of a
    /// block device is read again. A device that stays shorter answers `Unsupported`.
    ///
    /// ```
    /// use extant_blockdev::{BlockDevice, MemDevice};
    /// let dev = MemDevice::new(4096);
    /// dev.extend(8192).unwrap();
    /// assert_eq!(dev.len(), 8192);
    /// ```
    fn extend(&self, len: u64) -> io::Result<()> {
        if len <= self.len() {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "the device has {} bytes and does not become longer",
                    self.len()
                ),
            ))
        }
    }

    /// Makes the device `len` bytes long if it is longer, which ends a change that [`extend`](Self::extend) began: a
    /// file becomes shorter. A device that keeps its length answers `Unsupported`.
    ///
    /// ```
    /// use extant_blockdev::{BlockDevice, MemDevice};
    /// let dev = MemDevice::new(8192);
    /// dev.shorten(4096).unwrap();
    /// assert_eq!(dev.len(), 4096);
    /// ```
    fn shorten(&self, len: u64) -> io::Result<()> {
        if self.len() <= len {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("the device keeps its {} bytes", self.len()),
        ))
    }

    /// Returns the next range at or behind `offset` that may hold other bytes than zeros, or `None` if only zeros follow. A device that
    /// cannot tell returns the rest of its bytes.
    ///
    /// ```
    /// use extant_blockdev::{BlockDevice, MemDevice};
    /// let dev = MemDevice::new(1 << 30);
    /// dev.write_at(1 << 20, b"x").unwrap();
    /// let data = dev.next_data(0).unwrap().unwrap();
    /// assert!(data.contains(&(1 << 20)) && data.end < 1 << 29);
    /// assert_eq!(dev.next_data(data.end).unwrap(), None);
    /// ```
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        Ok((offset < self.len()).then(|| offset..self.len()))
    }

    /// Returns true if writes are refused.
    fn read_only(&self) -> bool;
}

/// The methods of a device that is only read, but for `len` and `read_at`: writes are refused.
///
/// ```
/// use extant_blockdev::{BlockDevice, only_read};
/// struct Zeros(u64);
/// impl BlockDevice for Zeros {
///     fn len(&self) -> u64 {
///         self.0
///     }
///     fn read_at(&self, _: u64, buf: &mut [u8]) -> std::io::Result<()> {
///         buf.fill(0);
///         Ok(())
///     }
///     only_read!();
/// }
/// let refused = Zeros(512).write_at(0, &[1]).unwrap_err();
/// assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
/// assert!(Zeros(512).read_only());
/// ```
#[macro_export]
macro_rules! only_read {
    () => {
        fn write_at(&self, _: u64, _: &[u8]) -> std::io::Result<()> {
            Err($crate::refuse_read_only("write"))
        }

        fn flush(&self) -> std::io::Result<()> {
            Ok(())
        }

        fn read_only(&self) -> bool {
            true
        }
    };
}

/// Forwards every method, so that shared and boxed devices are devices.
macro_rules! forward {
    ($($ty:ty),*) => {$(
        impl<D: BlockDevice + ?Sized> BlockDevice for $ty {
            fn len(&self) -> u64 { (**self).len() }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
                (**self).read_at(offset, buf)
            }
            fn will_read(&self, offset: u64, len: u64) { (**self).will_read(offset, len) }
            fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
                (**self).read_uncached(offset, buf)
            }
            fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
                (**self).write_at(offset, buf)
            }
            fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
                (**self).write_vectored_at(offset, bufs)
            }
            fn write_unit(&self) -> u64 { (**self).write_unit() }
            fn flush(&self) -> io::Result<()> { (**self).flush() }
            fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
                (**self).discard(offset, len)
            }
            fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
                (**self).trim(offset, len)
            }
            fn extend(&self, len: u64) -> io::Result<()> { (**self).extend(len) }
            fn shorten(&self, len: u64) -> io::Result<()> { (**self).shorten(len) }
            fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
                (**self).next_data(offset)
            }
            fn read_only(&self) -> bool { (**self).read_only() }
        }
    )*};
}
forward!(Arc<D>, Box<D>, &D);

/// Returns the sum of the lengths, saturating. A sum that saturates fails any range check.
pub(crate) fn total_len(bufs: &[&[u8]]) -> u64 {
    bufs.iter()
        .fold(0u64, |n, b| n.saturating_add(b.len() as u64))
}

/// Checks that a range does not lie past the end of a device. All devices use this check.
pub(crate) fn check_range(device_len: u64, offset: u64, len: u64, what: &str) -> io::Result<()> {
    if offset.checked_add(len).is_some_and(|end| end <= device_len) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!(
            "{what} of {len} bytes at offset {offset} runs past the end of the device \
             ({device_len} bytes): is the image truncated?"
        ),
    ))
}

/// Returns whether all bytes are zeros.
///
/// ```
/// assert!(extant_blockdev::is_zero(&[0; 4096]));
/// assert!(!extant_blockdev::is_zero(&[0, 0, 1]));
/// ```
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    match bytes {
        [] => true,
        // A comparison of the bytes with those one further on is one call of memcmp, also in builds that do not optimise loops.
        [first, rest @ ..] => *first == 0 && *rest == bytes[..rest.len()],
    }
}

/// Makes the error for [`only_read`].
#[doc(hidden)]
#[must_use]
pub fn refuse_read_only(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::ReadOnlyFilesystem,
        format!("{what} refused: the device is open for reading only"),
    )
}

/// Writes `len` bytes of zeros at `offset`, for devices that do not support discard.
///
/// # Errors
/// The errors of [`BlockDevice::write_at`].
///
/// ```
/// use extant_blockdev::{BlockDevice, MemDevice, write_zeroes};
/// let device = MemDevice::new(4096);
/// device.write_at(0, &[7; 4096])?;
/// write_zeroes(&device, 0, 4096)?;
/// let mut bytes = [7; 4096];
/// device.read_at(0, &mut bytes)?;
/// assert_eq!(bytes, [0; 4096]);
/// # std::io::Result::Ok(())
/// ```
pub fn write_zeroes<D: BlockDevice + ?Sized>(dev: &D, offset: u64, len: u64) -> io::Result<()> {
    const PIECE: u64 = 1 << 18;
    check_range(dev.len(), offset, len, "discard")?;
    let zeroes = vec![0u8; len.min(PIECE) as usize];
    let end = offset + len;
    let mut at = offset;
    while at < end {
        let n = (end - at).min(PIECE);
        dev.write_at(at, &zeroes[..n as usize])?;
        at += n;
    }
    Ok(())
}
