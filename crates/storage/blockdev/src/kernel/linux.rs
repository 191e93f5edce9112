//! Linux' calls for devices and image files. The discard of a block device is an ioctl.
#![allow(unsafe_code)] // an ioctl, whose argument is two numbers, and a call that rustix does not have

use super::Cached;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// `BLKDISCARD`, `_IO(0x12, 119)`.
const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);

/// Tells a block device that the range is not needed; it must be aligned to the device's blocks.
pub(crate) fn discard(device: &File, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: the kernel reads two 64-bit numbers, start and length, which live until it returns.
    unsafe {
        let range = rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len]);
        rustix::ioctl::ioctl(device, range)?;
    }
    Ok(())
}

/// Makes the range read as zeros and frees its space, on block devices too; or the kernel refuses.
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, offset, len)
}

/// `cachestat(2)`, the same on all processors of the Linux that Rust knows.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat`; all are numbers of pages.
#[repr(C)]
#[derive(Default)]
struct PageCounts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Returns how much of a range the system has in memory. Before Linux 6.5, and for a file of another user, the system
/// does not report it.
pub(crate) fn cached(file: &File, offset: u64, len: u64) -> Option<Cached> {
    // An empty range would mean everything up to the end.
    let range = [offset, len.max(1)];
    let mut counts = PageCounts::default();
    // SAFETY: the kernel reads two 64-bit numbers, start and length, and writes five. Both live until it returns.
    let refused = unsafe {
        let (range, counts) = (range.as_ptr(), &raw mut counts);
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range, counts, 0u32)
    };
    let page = rustix::param::page_size() as u64;
    (refused == 0).then(|| Cached {
        bytes: counts.cached.saturating_mul(page),
        dirty: (counts.dirty + counts.writeback).saturating_mul(page),
    })
}

/// Opens the same file again to read past the cache, if its file system allows that.
pub(crate) fn uncached(file: &File) -> Option<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(OFlags::DIRECT.bits() as i32);
    options.open(path).ok()
}

/// Makes a new file in a directory, without a name.
pub(crate) fn unnamed(dir: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags((OFlags::TMPFILE | OFlags::CLOEXEC).bits() as i32)
        .open(dir)
}

/// Returns true if a block device refuses writes. Without sysfs, only the first write shows it.
pub(crate) fn protects(device: &Metadata) -> bool {
    let (major, minor) = (
        rustix::fs::major(device.rdev()),
        rustix::fs::minor(device.rdev()),
    );
    let said = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    said.is_ok_and(|said| said.trim() == "1")
}

/// Returns whether QEMU writes an image, or keeps others from it. QEMU locks a byte for each thing that it does with an image, and
/// another for each that it does not share (its `block/file-posix.c`).
pub(crate) fn is_written_by_qemu(image: &File) -> bool {
    const WRITES: libc::off_t = 101;
    const SHARES_NO_WRITES: libc::off_t = 201;
    [WRITES, SHARES_NO_WRITES].into_iter().any(|at| {
        // SAFETY: all zeros is a lock, as it has numbers only.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        (lock.l_start, lock.l_len) = (at, 1);
        // SAFETY: the kernel reads and writes the lock, which lives until it returns.
        let done = unsafe { libc::fcntl(image.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        done == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
    })
}
