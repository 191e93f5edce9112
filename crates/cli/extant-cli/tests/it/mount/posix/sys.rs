//! System calls that rustix lacks, or does not offer for bad uses.
#![allow(unsafe_code)] // Calls of libc with pointers to what lives longer than the call.

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub type Result<T> = std::result::Result<T, Errno>;

fn checked(result: i64) -> Result<i64> {
    if result >= 0 {
        return Ok(result);
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_raw_os_error(error.raw_os_error().unwrap()))
}

fn text(path: &[u8]) -> CString {
    CString::new(path).expect("no NUL in a path")
}

pub fn truncate(path: &[u8], size: i64) -> Result<()> {
    let path = text(path);
    // SAFETY: the path ends with a NUL.
    checked(unsafe { libc::truncate(path.as_ptr(), size) }.into()).map(|_| ())
}

/// Calls an ioctl whose argument is at least as long as its number specifies.
pub fn ioctl(fd: BorrowedFd<'_>, command: u32, argument: &mut [u8]) -> Result<()> {
    let len = (command >> 16 & 0x3fff) as usize;
    assert!(argument.len() >= len, "an argument of {len} bytes");
    // SAFETY: the kernel reads and writes the length that the number specifies, and the argument has that length.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), command.into(), argument.as_mut_ptr()) }.into())
        .map(|_| ())
}

/// Sets a lock of POSIX (`F_SETLK`) or of the open file (`F_OFD_SETLK`), or returns the holder of a conflicting lock
/// (`F_GETLK`).
pub fn lock(
    fd: BorrowedFd<'_>,
    command: i32,
    kind: i32,
    (start, len): (i64, i64),
) -> Result<libc::flock> {
    // SAFETY: the struct consists of plain numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    (lock.l_start, lock.l_len) = (start, len);
    // SAFETY: the struct is valid, and of the type that these commands take.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut lock) }.into())?;
    Ok(lock)
}

/// Runs `f` on a thread with a separate table of open files, which POSIX locks treat as another process.
pub fn with_own_files<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    let own = || {
        // SAFETY: the copies of this table's descriptors are closed with the thread, and none of them leaves it.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FILES) }.unwrap();
        let result = f();
        // Close the descriptors now to release the locks, because the thread may end later than its result is visible.
        // SAFETY: the descriptors are copies, as above.
        checked(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) }).unwrap();
        result
    };
    std::thread::scope(|s| s.spawn(own).join()).unwrap()
}

/// Runs `f` with a part of a file mapped shared.
pub fn mapped<R>(
    fd: BorrowedFd<'_>,
    (offset, len): (u64, usize),
    write: bool,
    f: impl FnOnce(&mut [u8]) -> R,
) -> Result<R> {
    let mut protection = ProtFlags::READ;
    protection.set(ProtFlags::WRITE, write);
    let nowhere = std::ptr::null_mut();
    // SAFETY: the mapping is new, and no thread truncates the file meanwhile.
    unsafe {
        let map = rustix::mm::mmap(nowhere, len, protection, MapFlags::SHARED, fd, offset)?;
        // Otherwise the kernel would read ahead, and the amount depends on the device.
        rustix::mm::madvise(map, len, Advice::Random)?;
        let result = f(std::slice::from_raw_parts_mut(map.cast(), len));
        rustix::mm::munmap(map, len)?;
        Ok(result)
    }
}

/// Maps a part of a file, writes to the mapping and waits until the data are in the file.
pub fn msync(fd: BorrowedFd<'_>, (offset, len): (u64, usize), byte: u8) -> Result<()> {
    let synced = mapped(fd, (offset, len), true, |map| {
        map.fill(byte);
        // SAFETY: the whole range is mapped.
        checked(unsafe { libc::msync(map.as_mut_ptr().cast(), len, libc::MS_SYNC) }.into())
    });
    synced?.map(|_| ())
}

/// Returns the handle of a file, as NFS servers keep it, and its mount.
pub fn handle(path: &[u8]) -> Result<Vec<u8>> {
    let path = text(path);
    let mut handle = vec![0u8; 8 + 128];
    handle[..4].copy_from_slice(&128u32.to_ne_bytes());
    let mut mount = 0i32;
    // SAFETY: the buffer has the length that the handle specifies.
    checked(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            handle.as_mut_ptr(),
            &raw mut mount,
            0,
        )
    })?;
    Ok(handle)
}

pub fn open_handle(mount: BorrowedFd<'_>, handle: &[u8], flags: i32) -> Result<OwnedFd> {
    let mut handle = handle.to_vec();
    // SAFETY: the handle has its specified length, and a returned descriptor is new, so it has no other owner.
    unsafe {
        let fd = checked(libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            handle.as_mut_ptr(),
            flags,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Calls faccessat2, which checks the effective identity if asked to.
pub fn access(path: &[u8], mode: i32, flags: i32) -> Result<()> {
    let path = text(path);
    // SAFETY: the path ends with a NUL.
    checked(unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            libc::AT_FDCWD,
            path.as_ptr(),
            mode,
            flags,
        )
    })
    .map(|_| ())
}

/// Returns memory aligned to 4 KiB, for direct I/O.
pub fn aligned(len: usize) -> impl AsMut<[u8]> {
    struct Aligned(Vec<u8>, usize, usize);
    impl AsMut<[u8]> for Aligned {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0[self.1..self.2]
        }
    }
    let memory = vec![0u8; len + 4096];
    let start = memory.as_ptr().align_offset(4096);
    Aligned(memory, start, start + len)
}
