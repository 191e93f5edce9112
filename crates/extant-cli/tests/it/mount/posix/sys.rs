//! System calls that rustix does not have, or only without what a table of bad uses needs.
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

/// An ioctl whose argument is of the length that its number says, or longer.
pub fn ioctl(fd: BorrowedFd<'_>, command: u32, argument: &mut [u8]) -> Result<()> {
    let len = (command >> 16 & 0x3fff) as usize;
    assert!(argument.len() >= len, "an argument of {len} bytes");
    // SAFETY: the kernel reads and writes as many bytes as the number says, which are there.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), command.into(), argument.as_mut_ptr()) }.into())
        .map(|_| ())
}

/// A lock of POSIX (`F_SETLK`) or of the open file (`F_OFD_SETLK`), or the holder of a lock that conflicts with it
/// (`F_GETLK`).
pub fn lock(
    fd: BorrowedFd<'_>,
    command: i32,
    kind: i32,
    (start, len): (i64, i64),
) -> Result<libc::flock> {
    // SAFETY: the struct is plain numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    (lock.l_start, lock.l_len) = (start, len);
    // SAFETY: the struct is there, and of the type that these commands take.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut lock) }.into())?;
    Ok(lock)
}

/// Runs `f` on a thread with a table of open files of its own: to POSIX locks another process.
pub fn with_own_files<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    let own = || {
        // SAFETY: the copies of this table's descriptors go with the thread, and none of them leaves it.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FILES) }.unwrap();
        let result = f();
        // Now, and with them the locks: a thread's end may be later than what is seen of it.
        // SAFETY: they are copies, as above.
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
        // Or the kernel would read more than is asked for, how much depends on the device.
        rustix::mm::madvise(map, len, Advice::Random)?;
        let result = f(std::slice::from_raw_parts_mut(map.cast(), len));
        rustix::mm::munmap(map, len)?;
        Ok(result)
    }
}

/// Maps a part of a file, writes there and waits until it is in the file.
pub fn msync(fd: BorrowedFd<'_>, (offset, len): (u64, usize), byte: u8) -> Result<()> {
    let synced = mapped(fd, (offset, len), true, |map| {
        map.fill(byte);
        // SAFETY: all of it is mapped.
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
    // SAFETY: as many bytes are there as the handle says.
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
    // SAFETY: the handle is as long as it says, and a returned descriptor is new, so it has no other owner.
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

/// faccessat2, which looks at the effective identity when asked to.
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

/// Memory that starts at a multiple of 4 KiB, for direct input and output.
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
