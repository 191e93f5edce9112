//! Descriptors that a process inherited.
#![allow(unsafe_code)] // A system call that rustix does not have.

/// Closes all descriptors except the standard ones in every program that this process starts, or becomes, from now on.
/// Before Linux 5.11 the call does nothing.
///
/// ```
/// fuse_server::close_on_exec();
/// ```
pub fn close_on_exec() {
    // SAFETY: no descriptor is closed, and no memory is passed; only a flag is set that this process does not use.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
}
