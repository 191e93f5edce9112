//! Descriptors that a process inherited.
#![allow(unsafe_code)] // A system call that rustix does not have.

/// From now on no program that this process starts, or becomes, gets its descriptors beyond the three standard
/// ones. Before Linux 5.11 the call does nothing.
///
/// ```
/// fuse_server::close_on_exec();
/// ```
pub fn close_on_exec() {
    // SAFETY: no descriptor is closed, and no memory is passed; a flag that this process does not look at is set.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
}
