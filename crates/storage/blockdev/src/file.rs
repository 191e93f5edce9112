//! [`FileDevice`]: an image file or a block special file.
//!
//! Two users of one image would corrupt it, so opening takes a lock: exclusive for writing, shared for reading
//! (`flock`, held by the open file, released when it is dropped or the process dies). A block special file opened for
//! writing is also opened `O_EXCL`, by which the kernel refuses one that is mounted. An image file that a loop device
//! shows is not opened for writing: the kernel may have it mounted, and does not see our lock. Opening a loop device
//! locks the file that it shows.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{self, Advice, OFlags};

use rustix::io::Errno;

use crate::device::{BlockDevice, SECTOR, check_range, refuse_read_only, total_len, write_zeroes};
use crate::errors::{at_path, in_use};
use crate::kernel;
use crate::kernel::Cached;

/// Returns the reason why an image file or block device cannot be written, or should not be, or `None` if it can.
///
/// ```
/// let dir = tempfile::tempdir().unwrap();
/// let path = dir.path().join("disk.img");
/// std::fs::write(&path, b"").unwrap();
/// assert_eq!(extant_blockdev::write_protection(&path).unwrap(), None);
/// let mut mode = path.metadata().unwrap().permissions();
/// mode.set_readonly(true);
/// std::fs::set_permissions(&path, mode).unwrap();
/// assert_eq!(extant_blockdev::write_protection(&path).unwrap(), Some("the file is write-protected"));
/// ```
pub fn write_protection(path: impl AsRef<Path>) -> io::Result<Option<&'static str>> {
    let path = path.as_ref();
    let meta = std::fs::metadata(path).map_err(|e| at_path(path, e))?;
    if meta.file_type().is_block_device() {
        if kernel::protects(&meta) {
            return Ok(Some("the device is write-protected"));
        }
    } else if meta.permissions().readonly() {
        // Root could write the file, but its owner removed the permission bits on purpose.
        return Ok(Some("the file is write-protected"));
    }
    match rustix::fs::access(path, rustix::fs::Access::WRITE_OK) {
        Err(Errno::ROFS) => Ok(Some("it is on a read-only file system")),
        Err(Errno::PERM) => Ok(Some("the file is immutable")),
        Err(Errno::ACCESS) => Ok(Some("you may not write to it")),
        _ => Ok(None),
    }
}

/// Access by which [`FileDevice::open`] opens the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only, together with other readers.
    ReadOnly,
    /// Reading and writing, alone.
    ReadWrite,
}

/// A file or block special file used as a device, locked while it is open.
///
/// ```
/// use extant_blockdev::{Access, BlockDevice, FileDevice};
/// let dir = tempfile::tempdir().unwrap();
/// let path = dir.path().join("disk.img");
/// let dev = FileDevice::create(&path, 1 << 20).unwrap();
/// dev.write_at(0, b"data").unwrap();
/// dev.flush().unwrap();
/// // A second user is refused while the first lives.
/// let err = FileDevice::open(&path, Access::ReadOnly).unwrap_err();
/// assert_eq!(err.kind(), std::io::ErrorKind::ResourceBusy);
/// ```
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    len: AtomicU64,
    access: Access,
    block_special: bool,
    /// The files and devices below a loop device, locked as long as it is open.
    backing: Vec<File>,
    /// The file opened again to read past the system's cache, or `None` if that is not possible.
    uncached: OnceLock<Option<File>>,
    /// Set by a failed flush. The kernel reports a lost write once and then forgets it, so a
    /// later flush that succeeds would be a lie.
    flush_failed: AtomicBool,
}

impl FileDevice {
    /// Opens an existing image or block device.
    pub fn open(path: impl AsRef<Path>, access: Access) -> io::Result<Self> {
        let path = path.as_ref();
        let file_type = std::fs::metadata(path)
            .map_err(|e| at_path(path, e))?
            .file_type();
        let block_special = file_type.is_block_device();
        if !block_special && !file_type.is_file() {
            let kind = if file_type.is_dir() {
                io::ErrorKind::IsADirectory
            } else {
                io::ErrorKind::InvalidInput
            };
            let text = "neither a regular file nor a block device";
            return Err(at_path(path, io::Error::new(kind, text)));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::ReadWrite);
        if block_special && access == Access::ReadWrite {
            options.custom_flags(OFlags::EXCL.bits() as i32);
        }
        let file = options.open(path).map_err(|e| at_path(path, e))?;
        Self::from_file(file, path, access, block_special)
    }

    /// Opens a block device for reading and writing that the kernel holds already, for a mount that this
    /// process serves (`fuseblk`): no other process can open it exclusively.
    pub fn open_held(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|e| at_path(path, e))?;
        if !file.metadata()?.file_type().is_block_device() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{}: not a block device", path.display()),
            ));
        }
        Self::from_file(file, path, Access::ReadWrite, true)
    }

    /// Creates an image of `len` bytes, all zero and sparse. An existing regular file is
    /// replaced, unless it is in use.
    pub fn create(path: impl AsRef<Path>, len: u64) -> io::Result<Self> {
        let path = path.as_ref();
        let mut open = OpenOptions::new();
        open.read(true).write(true);
        let (file, is_new) = match open.clone().create_new(true).open(path) {
            Ok(file) => (file, true),
            // The path may be a link to nothing, whose target is made. Nothing is truncated, because the lock is not
            // ours yet.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let file = open.create(true).truncate(false).open(path);
                (file.map_err(|e| at_path(path, e))?, false)
            }
            Err(e) => return Err(at_path(path, e)),
        };
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{}: exists and is not a regular file", path.display()),
            ));
        }
        let dev = Self::from_file(file, path, Access::ReadWrite, false)?;
        // A length that the file system does not hold is refused before anything is lost.
        let sized = dev.set_len(len).and_then(|()| {
            dev.set_len(0)?;
            dev.set_len(len)
        });
        if sized.is_err() && is_new {
            // The first error is the one that matters.
            let _ = std::fs::remove_file(path);
        }
        sized.map(|()| dev)
    }

    /// Makes an image of `len` zero bytes, in a file without a name in `dir`. Its space is freed with the device.
    ///
    /// ```
    /// use extant_blockdev::{BlockDevice, FileDevice};
    /// let dev = FileDevice::temporary(std::env::temp_dir(), 1 << 20).unwrap();
    /// assert_eq!(dev.len(), 1 << 20);
    /// ```
    pub fn temporary(dir: impl AsRef<Path>, len: u64) -> io::Result<Self> {
        let dir = dir.as_ref();
        let file = unnamed_file(dir)?;
        let dev = Self::from_file(file, dir, Access::ReadWrite, false)?;
        dev.set_len(len)?;
        Ok(dev)
    }

    fn from_file(file: File, path: &Path, access: Access, block_special: bool) -> io::Result<Self> {
        let writes = access == Access::ReadWrite;
        // Before the lock, which NFS would show here as that of another.
        if writes && kernel::is_written_by_qemu(&file) {
            return Err(in_use(path));
        }
        let locked = match access {
            Access::ReadWrite => file.try_lock(),
            Access::ReadOnly => file.try_lock_shared(),
        };
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(path)),
            Err(TryLockError::Error(e)) => return Err(at_path(path, e)),
        }
        // From here on, every return unlocks the file.
        let mut device = FileDevice {
            file,
            path: path.to_owned(),
            len: AtomicU64::new(0),
            access,
            block_special,
            backing: Vec::new(),
            uncached: OnceLock::new(),
            flush_failed: AtomicBool::new(false),
        };
        if block_special {
            kernel::lock_backing(&device.file, path, writes, &mut device.backing)?;
        } else if writes {
            kernel::refuse_loop(&device.file, path)?;
        }
        // The end of a block special file is its size; no ioctl is needed.
        device.len = device.file.seek(SeekFrom::End(0))?.into();
        Ok(device)
    }

    /// Returns the path the device was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Grows (with zeroes) or shrinks an image file. A block device cannot be resized.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.may_write("resize")?;
        if self.block_special {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{}: a block device cannot be resized", self.path.display()),
            ));
        }
        self.file.set_len(len).map_err(|e| at_path(&self.path, e))?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn may_write(&self, what: &str) -> io::Result<()> {
        if self.read_only() {
            Err(refuse_read_only(what))
        } else {
            Ok(())
        }
    }

    /// Calls `pwritev` once per `IOV_MAX` buffers, repeated from where it stopped after a short write.
    fn write_batches(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
        const IOV_MAX: usize = 1024;
        let mut at = offset;
        for batch in bufs.chunks(IOV_MAX) {
            let mut slices: Vec<IoSlice<'_>> = batch.iter().map(|b| IoSlice::new(b)).collect();
            let mut rest = &mut slices[..];
            IoSlice::advance_slices(&mut rest, 0); // drops empty buffers in front
            while !rest.is_empty() {
                match rustix::io::pwritev(&self.file, rest, at) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(n) => {
                        at += n as u64;
                        IoSlice::advance_slices(&mut rest, n);
                    }
                    Err(Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
        Ok(())
    }
}

impl Drop for FileDevice {
    /// Unlocks explicitly: after a mere close a child that another thread is just starting would keep the lock,
    /// with its copy of the descriptor, until it executes its program.
    fn drop(&mut self) {
        // Unlocking an open file does not fail. If it does, closing must release the lock.
        let _ = self.file.unlock();
        for backing in &self.backing {
            let _ = backing.unlock();
        }
    }
}

impl BlockDevice for FileDevice {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.len(), offset, buf.len() as u64, "read")?;
        self.file
            .read_exact_at(buf, offset)
            .map_err(|e| at_path(&self.path, e))
    }

    fn will_read(&self, offset: u64, len: u64) {
        // The call is advice: a file that cannot take it is read anyway.
        let _ = rustix::fs::fadvise(&self.file, offset, NonZeroU64::new(len), Advice::WillNeed);
    }

    fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        check_range(self.len(), offset, buf.len() as u64, "read")?;
        let uncached = self.uncached.get_or_init(|| kernel::uncached(&self.file));
        let Some(file) = uncached else {
            return Ok(false);
        };
        let Some(Cached { bytes, dirty }) = kernel::cached(&self.file, offset, buf.len() as u64)
        else {
            return Ok(false);
        };
        // Dirty pages would have to be written first.
        if !buf.is_empty() && (dirty > 0 || bytes > buf.len() as u64 / 2) {
            return Ok(false);
        }
        match file.read_exact_at(buf, offset) {
            Ok(()) => Ok(true),
            // The range is not a multiple of the disk's sectors.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(false),
            Err(e) => Err(at_path(&self.path, e)),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.may_write("write")?;
        check_range(self.len(), offset, buf.len() as u64, "write")?;
        self.file
            .write_all_at(buf, offset)
            .map_err(|e| at_path(&self.path, e))
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
        self.may_write("write")?;
        check_range(self.len(), offset, total_len(bufs), "write")?;
        self.write_batches(offset, bufs)
            .map_err(|e| at_path(&self.path, e))
    }

    fn write_unit(&self) -> u64 {
        // The page cache has the rest of a page that was written before, unless memory was short since.
        SECTOR
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only() {
            return Ok(());
        }
        if self.flush_failed.load(Ordering::Acquire) {
            return Err(io::Error::other(format!(
                "{}: an earlier flush failed, what reached the medium is unknown",
                self.path.display()
            )));
        }
        self.file.sync_data().map_err(|e| {
            self.flush_failed.store(true, Ordering::Release);
            at_path(&self.path, e)
        })
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.may_write("discard")?;
        check_range(self.len(), offset, len, "discard")?;
        if len == 0 {
            return Ok(());
        }
        // A punched hole reads as zeros on block devices too, or the kernel refuses.
        match kernel::punch_hole(&self.file, offset, len) {
            Ok(()) => Ok(()),
            // Busy, because a block device has dirty pages there.
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::BUSY) => {
                write_zeroes(self, offset, len)
            }
            Err(e) => Err(at_path(&self.path, e.into())),
        }
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.may_write("trim")?;
        check_range(self.len(), offset, len, "trim")?;
        if len == 0 {
            return Ok(());
        }
        let release = || {
            if self.block_special && kernel::discard(&self.file, offset, len).is_ok() {
                return Ok(());
            }
            kernel::punch_hole(&self.file, offset, len)
        };
        let mut done = release();
        // Linux drops no page of a block device that is dirty, as the last contents of a freed block may be.
        if done == Err(Errno::BUSY) {
            self.flush()?;
            done = release();
        }
        match done {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{}: the device cannot trim", self.path.display()),
            )),
            Err(e) => Err(at_path(&self.path, e.into())),
        }
    }

    fn extend(&self, len: u64) -> io::Result<()> {
        if self.block_special {
            let end = (&self.file).seek(SeekFrom::End(0))?;
            self.len.store(end, Ordering::Release);
        }
        if len <= self.len() {
            Ok(())
        } else {
            self.set_len(len)
        }
    }

    fn shorten(&self, len: u64) -> io::Result<()> {
        if self.len() <= len {
            return Ok(());
        }
        self.set_len(len)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        if offset >= self.len() {
            return Ok(None);
        }
        let len = self.len();
        let start = match fs::seek(&self.file, fs::SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // Block devices and some file systems do not know.
            Err(_) => return Ok(Some(offset..len)),
        };
        let end = fs::seek(&self.file, fs::SeekFrom::Hole(start)).unwrap_or(len);
        Ok((start < len).then(|| start..end.min(len)))
    }

    fn read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }
}

/// A file or block special file that is only read, even if another user has it locked.
///
/// ```
/// use extant_blockdev::{BlockDevice, UnlockedFile};
/// let mut file = tempfile::NamedTempFile::new().unwrap();
/// std::io::Write::write_all(&mut file, b"data").unwrap();
/// let dev = UnlockedFile::new(file.reopen().unwrap()).unwrap();
/// let mut buf = [0; 2];
/// dev.read_at(2, &mut buf).unwrap();
/// assert_eq!((dev.len(), &buf), (4, b"ta"));
/// assert!(dev.write_at(0, b"x").is_err());
/// ```
#[derive(Debug)]
pub struct UnlockedFile {
    file: File,
    len: u64,
}

impl UnlockedFile {
    /// Takes a file that is open for reading.
    pub fn new(mut file: File) -> io::Result<Self> {
        // The end of a block special file is its size.
        let len = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, len })
    }
}

impl BlockDevice for UnlockedFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    only_read!();
}

/// Makes a new file in a directory, without a name or with one that is removed at once. No other process may open it.
///
/// ```
/// let file = extant_blockdev::unnamed_file(&std::env::temp_dir()).unwrap();
/// assert_eq!(file.metadata().unwrap().len(), 0);
/// ```
pub fn unnamed_file(dir: &Path) -> io::Result<File> {
    // Some file systems have no unnamed files.
    kernel::unnamed(dir).or_else(|_| named_for_a_moment(dir))
}

/// Makes a new file whose name is removed at once.
fn named_for_a_moment(dir: &Path) -> io::Result<File> {
    let mut tries = 0;
    loop {
        let path = dir.join(format!(".blockdev-{}-{tries}", std::process::id()));
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match made {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < 1000 => tries += 1,
            Err(e) => return Err(at_path(&path, e)),
            Ok(file) => {
                std::fs::remove_file(&path).map_err(|e| at_path(&path, e))?;
                return Ok(file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(len: u64) -> (tempfile::TempDir, FileDevice) {
        let dir = tempfile::tempdir().unwrap();
        let dev = FileDevice::create(dir.path().join("img"), len).unwrap();
        (dir, dev)
    }

    #[test]
    fn one_writer_or_many_readers() {
        let (_dir, dev) = image(4096);
        let path = dev.path().to_owned();
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let err = FileDevice::open(&path, access).unwrap_err();
            assert_eq!(err.kind(), io::ErrorKind::ResourceBusy);
            assert!(err.to_string().contains("already in use"), "{err}");
        }
        assert_eq!(
            FileDevice::create(&path, 1).unwrap_err().kind(),
            io::ErrorKind::ResourceBusy
        );
        assert_eq!(
            std::fs::metadata(&path).unwrap().len(),
            4096,
            "create truncated it"
        );
        drop(dev);
        let a = FileDevice::open(&path, Access::ReadOnly).unwrap();
        let _b = FileDevice::open(&path, Access::ReadOnly).unwrap();
        assert!(FileDevice::open(&path, Access::ReadWrite).is_err());
        assert_eq!(
            a.write_at(0, b"x").unwrap_err().kind(),
            io::ErrorKind::ReadOnlyFilesystem
        );
        a.flush().unwrap();
    }

    #[test]
    fn vectored_write_of_more_than_iov_max_buffers() {
        let (_dir, dev) = image(8192);
        let bytes: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
        let mut bufs: Vec<&[u8]> = vec![&[]];
        bufs.extend(bytes.chunks(1));
        bufs.push(&[]);
        dev.write_vectored_at(100, &bufs).unwrap();
        let mut back = vec![0; 3000];
        dev.read_at(100, &mut back).unwrap();
        assert_eq!(back, bytes);
        dev.write_vectored_at(0, &[]).unwrap();
        dev.write_vectored_at(0, &[&[], &[]]).unwrap();
    }

    #[test]
    fn ends_are_exact() {
        let (_dir, dev) = image(1000);
        dev.write_at(990, &[1; 10]).unwrap();
        for err in [
            dev.write_at(991, &[1; 10]).unwrap_err(),
            dev.read_at(u64::MAX, &mut [0; 10]).unwrap_err(),
            dev.write_vectored_at(995, &[&[1; 3], &[1; 3]]).unwrap_err(),
            dev.discard(1000, 1).unwrap_err(),
        ] {
            assert_eq!(err.kind(), io::ErrorKind::UnexpectedEof, "{err}");
        }
        // Another process truncates the file.
        std::fs::OpenOptions::new()
            .write(true)
            .open(dev.path())
            .unwrap()
            .set_len(10)
            .unwrap();
        let err = dev.read_at(500, &mut [0; 10]).unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_in_memory_is_not_read_past_it() {
        let (_dir, dev) = image(1 << 20);
        dev.write_at(0, &[7; 1 << 20]).unwrap();
        // The data are written, but not yet on a disk, so they are in memory. File systems on top of others may not see
        // that.
        if kernel::cached(&dev.file, 0, 1 << 20).is_some_and(|c| c.bytes == 0) {
            needs::told(
                "the file system of the directory for temporary files does not see what is in memory",
            );
            return;
        }
        let mut memory = vec![0; (64 << 10) + 4096];
        let skip = memory.as_ptr().align_offset(4096);
        let buf = &mut memory[skip..skip + (64 << 10)];
        assert!(!dev.read_uncached(0, buf).unwrap());
        dev.flush().unwrap();
        assert!(!dev.read_uncached(0, buf).unwrap());
        let (can, whole): (_, Option<NonZeroU64>) = (dev.read_uncached(0, &mut []), None);
        rustix::fs::fadvise(&dev.file, 0, whole, Advice::DontNeed).unwrap();
        let forgotten = kernel::cached(&dev.file, 0, 1 << 20).is_some_and(|c| c.bytes == 0);
        if !can.unwrap() || !forgotten {
            needs::told(
                "the file system of the directory for temporary files has no reads past its cache",
            );
            return;
        }
        assert!(dev.read_uncached(0, buf).unwrap());
        assert!(buf.iter().all(|&b| b == 7));
        assert_eq!(kernel::cached(&dev.file, 0, 1 << 20).unwrap().bytes, 0);
        let past = dev.read_uncached((1 << 20) - 4096, buf).unwrap_err();
        assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
        // An address that suits no disk is refused, or read anyway.
        let odd = dev.read_uncached(100, &mut memory[skip + 1..skip + 101]);
        assert!(odd.is_ok(), "{odd:?}");
    }

    #[test]
    fn discard_reads_zero_even_when_unaligned() {
        let (_dir, dev) = image(64 << 10);
        dev.write_at(0, &[7; 64 << 10]).unwrap();
        dev.discard(1000, 20_000).unwrap();
        let mut all = vec![0; 64 << 10];
        dev.read_at(0, &mut all).unwrap();
        assert!(
            all.iter()
                .enumerate()
                .all(|(i, &b)| b == if (1000..21_000).contains(&i) { 0 } else { 7 })
        );
    }
}
