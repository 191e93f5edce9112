//! Descriptors that a process inherited.
#![allow(unsafe_code)] // A system call that rustix does not have.

use std::io;
use std::os::unix::fs::MetadataExt;

/// Closes all descriptors except the standard ones in every program that this process starts, or becomes, from now on.
/// Before Linux 5.11 the call does nothing.
///
/// ```
/// fuse_server::close_on_exec();
/// ```
pub fn close_on_exec() {
    let (first, last) = (3, libc::c_uint::MAX);
    // SAFETY: no descriptor is closed, and no memory is passed; only a flag is set that this process does not use.
    // The flag has its effect or not: a program with more descriptors works, too.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            last,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
}

/// Closes the descriptors that lie on a device (`st_dev`), except the standard ones, in every program that this process starts, or
/// becomes, from now on. Returns how many there are.
///
/// # Errors
/// Errors of reading /proc/self/fd.
///
/// ```
/// use std::os::unix::fs::MetadataExt;
/// let _open = std::fs::File::open("/proc/self/stat")?;
/// let device = std::fs::metadata("/proc/self/stat")?.dev();
/// assert!(fuse_server::close_on_exec_of(device)? >= 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn close_on_exec_of(device: u64) -> io::Result<usize> {
    let mut found = 0;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        let Some(number) = number.filter(|&number: &libc::c_int| number > 2) else {
            continue;
        };
        // A descriptor that no longer exists is the one that read this list.
        let on_device = std::fs::metadata(entry.path()).is_ok_and(|m| m.dev() == device);
        if on_device {
            mark_one(number)?;
            found += 1;
        }
    }
    Ok(found)
}

/// Marks a descriptor to be closed by exec.
fn mark_one(number: libc::c_int) -> io::Result<()> {
    // SAFETY: as above.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
