//! Sending a request to this process's own file system.
//!
//! The thread is a caller of its own file system and waits for the answer. Two precautions are necessary:
//!
//! - If the process is killed, the answer never comes. The kernel would wait for this thread before closing the
//!   process's files, and it aborts the request only after closing them. So the thread closes its copies first.
//! - An open file or a path walk keeps the file system from being unmounted. ustat(2) finds it by its device number and
//!   uses neither. Without ustat, an unmount may rarely fail with `EBUSY`.
#![allow(unsafe_code)] // Two system calls that rustix does not have.

use crate::mount::MountPoint;

/// Sends a request through the queue of this CPU and waits for its answer. Closes all files of the thread.
pub(super) fn send(place: &MountPoint) {
    if give_up_files() && !ask_statistics(place.device()) {
        place.ask_root();
    }
}

fn give_up_files() -> bool {
    // SAFETY: this thread gets a separate, empty table of files; files of other threads are not closed. Only `send`
    // runs on this thread from here on, and it uses no earlier file.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            0,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        ) == 0
    }
}

/// Sends the request by ustat(2); returns false if the system lacks this call.
#[cfg(target_arch = "x86_64")]
fn ask_statistics((major, minor): (u32, u32)) -> bool {
    let device = libc::c_ulong::from((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12));
    // `struct ustat` has 32 bytes.
    let mut answer = [0u64; 8];
    // SAFETY: the call writes at most a `struct ustat`, for which there is room.
    let result = unsafe { libc::syscall(libc::SYS_ustat, device, answer.as_mut_ptr()) };
    result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}

#[cfg(not(target_arch = "x86_64"))]
fn ask_statistics(_: (u32, u32)) -> bool {
    false
}
