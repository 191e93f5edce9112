//! Answers, written straight into the transport's buffer.

use std::time::Duration;

use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use crate::attr::{Attr, Entry, FileLock, Opened, StatFs, Time, valid};
use crate::listing::Listing;
use crate::wire::{self, bits};

/// The answer to one request, in the making.
///
/// A handler calls the one method that fits the operation, or none if success has no data. If the handler fails after
/// that call, its error is the answer. Nothing is allocated: the answer is built in the buffer that is passed to the
/// kernel.
///
/// ```
/// use fuse_server::{Answer, Errno};
///
/// let mut buffer = [0; 512];
/// let mut answer = Answer::new(&mut buffer);
/// answer.fill(5, |room| {
///     room.copy_from_slice(b"hello");
///     Ok(5)
/// })?;
/// assert_eq!(answer.payload(), b"hello");
/// # Ok::<(), Errno>(())
/// ```
#[derive(Debug)]
pub struct Answer<'a> {
    buffer: &'a mut [u8],
    length: usize,
    /// Whether the handler's data exceed the room.
    overflow: bool,
    /// Whether [`copied`](Self::copied) answers with 64 bits.
    wide: bool,
}

impl<'a> Answer<'a> {
    /// Smallest buffer of any transport: the longest of the fixed answers fits.
    pub const SMALL: usize = 512;

    /// Makes an answer in `buffer`, as a transport does; also for tests of handlers.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self {
            buffer,
            length: 0,
            overflow: false,
            wide: false,
        }
    }

    pub(crate) fn for_operation(buffer: &'a mut [u8], code: u32) -> Self {
        Self {
            wide: code == wire::opcode::COPY_FILE_RANGE_64,
            ..Self::new(buffer)
        }
    }

    /// Returns the data of the answer, without the header.
    pub fn payload(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    /// Returns the length of the answer, or `EIO` if it did not fit.
    pub(crate) fn finish(self) -> Result<usize, Errno> {
        if self.overflow {
            Err(Errno::IO)
        } else {
            Ok(self.length)
        }
    }

    fn put(&mut self, parts: &[&[u8]]) {
        self.length = 0;
        for part in parts {
            match self.buffer.get_mut(self.length..self.length + part.len()) {
                Some(room) => room.copy_from_slice(part),
                None => {
                    self.overflow = true;
                    return;
                }
            }
            self.length += part.len();
        }
    }

    fn put_one<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.put(&[value.as_bytes()]);
    }

    /// Answers with a name that was found or made.
    pub fn entry(&mut self, entry: &Entry) {
        self.put_one(&entry.to_wire());
    }

    /// Answers with attributes, which may be cached for `ttl`.
    pub fn attr(&mut self, attr: &Attr, ttl: Duration) {
        let (attr_valid, attr_valid_nsec) = valid(ttl);
        self.put_one(&wire::AttrOut {
            attr_valid,
            attr_valid_nsec,
            dummy: 0,
            attr: attr.to_wire(),
        });
    }

    /// Answers with attributes and the time of birth; `attributes` are the `STATX_ATTR_*` that are set, of `known`.
    pub fn statx(&mut self, attr: &Attr, ttl: Duration, attributes: u64, known: u64) {
        let (attr_valid, attr_valid_nsec) = valid(ttl);
        let time = |time: Time| wire::StatxTime {
            seconds: time.seconds,
            nanoseconds: time.nanoseconds,
            reserved: 0,
        };
        let stat = wire::Statx {
            mask: bits::STATX_BASIC_STATS | bits::STATX_BTIME,
            blksize: attr.blksize,
            attributes,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            // Only the low sixteen bits, type and permissions, are used.
            mode: attr.mode as u16,
            spare0: 0,
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            attributes_mask: known,
            atime: time(attr.atime),
            btime: time(attr.btime),
            ctime: time(attr.ctime),
            mtime: time(attr.mtime),
            rdev_major: (attr.rdev & 0xf_ff00) >> 8,
            rdev_minor: (attr.rdev & 0xff) | ((attr.rdev >> 12) & 0xf_ff00),
            dev_major: 0,
            dev_minor: 0,
            spare2: [0; 14],
        };
        self.put_one(&wire::StatxOut {
            attr_valid,
            attr_valid_nsec,
            flags: 0,
            spare: [0; 2],
            stat,
        });
    }

    /// Answers that a file or directory is open.
    pub fn opened(&mut self, opened: Opened) {
        self.put_one(&opened.to_wire());
    }

    /// Answers that a file was made and is open.
    pub fn created(&mut self, entry: &Entry, opened: Opened) {
        self.put(&[entry.to_wire().as_bytes(), opened.to_wire().as_bytes()]);
    }

    /// Answers with the number of bytes written.
    pub fn written(&mut self, size: u32) {
        self.put_one(&wire::WriteOut { size, padding: 0 });
    }

    /// Answers with the number of bytes copied between files.
    pub fn copied(&mut self, size: u64) {
        if self.wide {
            self.put_one(&wire::CopyFileRangeOut { bytes_copied: size });
        } else {
            // The decoder limits requests to this size.
            self.written(u32::try_from(size).unwrap_or(u32::MAX));
        }
    }

    /// Answers with raw bytes: data, a link's target, the value of an attribute.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.put(&[bytes]);
    }

    /// Answers with at most `max` bytes, which `f` writes to the buffer; `f` returns their number.
    pub fn fill(
        &mut self,
        max: usize,
        f: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        let room = max.min(self.buffer.len());
        self.length = f(&mut self.buffer[..room])?.min(room);
        Ok(())
    }

    /// Answers with the sizes of the file system.
    pub fn statfs(&mut self, stat: &StatFs) {
        self.put_one(&wire::StatFsOut {
            blocks: stat.blocks,
            bfree: stat.free,
            bavail: stat.available,
            files: stat.files,
            ffree: stat.free_files,
            bsize: stat.block_size,
            namelen: stat.name_length,
            frsize: stat.fragment_size,
            padding: 0,
            spare: [0; 6],
        });
    }

    /// Answers with the length of an attribute's value, or of the list of names.
    pub fn xattr_size(&mut self, size: u32) {
        self.put_one(&wire::GetXattrOut { size, padding: 0 });
    }

    /// Answers with the start of data or of a hole.
    pub fn offset(&mut self, offset: u64) {
        self.put_one(&wire::LseekOut { offset });
    }

    /// Answers with the number of a block, 0 for a hole.
    pub fn block(&mut self, block: u64) {
        self.put_one(&wire::BmapOut { block });
    }

    /// Starts a listing of at most `size` bytes.
    pub fn directory(&mut self, size: u32) -> Listing<'_> {
        let room =
            usize::try_from(size).map_or(self.buffer.len(), |size| size.min(self.buffer.len()));
        self.length = 0;
        Listing::new(&mut self.buffer[..room], &mut self.length)
    }

    /// Answers with the result of an ioctl, and the bytes for its argument.
    pub fn ioctl(&mut self, result: i32, output: &[u8]) {
        let out = wire::IoctlOut {
            result,
            flags: 0,
            in_iovs: 0,
            out_iovs: 0,
        };
        self.put(&[out.as_bytes(), output]);
    }

    /// Answers with the pending events.
    pub fn poll(&mut self, events: u32) {
        self.put_one(&wire::PollOut {
            revents: events,
            padding: 0,
        });
    }

    /// Answers with the conflicting lock, or with one of kind `F_UNLCK`.
    pub fn lock(&mut self, lock: &FileLock) {
        self.put_one(&wire::FileLockWire {
            start: lock.start,
            end: lock.end,
            kind: lock.kind,
            pid: lock.pid,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use zerocopy::FromBytes;

    #[test]
    fn every_fixed_answer_fits_the_smallest_buffer() {
        let mut buffer = [0; Answer::SMALL];
        let mut answer = Answer::new(&mut buffer);
        answer.created(&Entry::default(), Opened::default());
        assert_eq!(answer.payload().len(), 144);
        answer.statx(&Attr::default(), Duration::ZERO, 0, 0);
        assert_eq!(answer.payload().len(), 288);
        assert_eq!(answer.finish(), Ok(288));
    }

    #[test]
    fn too_much_is_an_error() {
        let mut buffer = [0; 8];
        let mut answer = Answer::new(&mut buffer);
        answer.bytes(b"123456789");
        assert_eq!(answer.finish(), Err(Errno::IO));
    }

    #[test]
    fn what_is_filled_is_what_was_said() {
        let mut buffer = [0; 8];
        let mut answer = Answer::new(&mut buffer);
        assert_eq!(answer.fill(100, |room| Ok(room.len() + 5)), Ok(()));
        assert_eq!(answer.payload().len(), 8);
        assert_eq!(answer.fill(3, |_| Err(Errno::NOSPC)), Err(Errno::NOSPC));
    }

    #[test]
    fn times_and_devices_keep_their_values() {
        let mut buffer = [0; Answer::SMALL];
        let mut answer = Answer::new(&mut buffer);
        let old = Time {
            seconds: -5,
            nanoseconds: 7,
        };
        let attr = Attr {
            atime: old,
            btime: old,
            rdev: 0x1234_5678,
            mode: 0o060_600,
            ..Attr::default()
        };
        answer.statx(&attr, Duration::MAX, 1, 3);
        let out = wire::StatxOut::read_from_bytes(answer.payload()).unwrap();
        assert_eq!(
            (out.stat.btime.seconds, out.stat.btime.nanoseconds),
            (-5, 7)
        );
        assert_eq!((out.stat.rdev_major, out.stat.rdev_minor), (0x456, 0x12378));
        assert_eq!(out.attr_valid, i32::MAX as u64);
        assert_eq!(out.stat.mode, 0o060_600);
    }

    #[test]
    fn copies_are_counted_as_the_kernel_asked() {
        let mut buffer = [0; Answer::SMALL];
        let mut answer = Answer::for_operation(&mut buffer, wire::opcode::COPY_FILE_RANGE_64);
        answer.copied(1 << 40);
        assert_eq!(answer.payload(), (1u64 << 40).to_ne_bytes());
        let mut answer = Answer::for_operation(&mut buffer, wire::opcode::COPY_FILE_RANGE);
        answer.copied(4096);
        assert_eq!(answer.payload(), 4096u64.to_ne_bytes());
    }
}
