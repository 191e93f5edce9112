//! Sending a request to this process's own file system.
//!
//! The thread is a caller of its own file system and waits for the answer. Two precautions are needed:
//!
//! - If the process is killed, the answer never comes, and the kernel would wait for this thread before it closes the
//!   process's files, and for that before it gives up on the answer. So the thread has given up its files.
//! - An open file or a path that is being walked keeps the file system from being unmounted. ustat(2) finds it by its
//!   device number and uses neither. Where there is no ustat, an unmount may fail once in a long while with `EBUSY`.
#![allow(unsafe_code)] // Two system calls that rustix does not have.

use crate::mount::MountPoint;

/// Sends a request through the queue of this CPU and waits for its answer. The thread has no files afterwards.
pub(super) fn send(place: &MountPoint) {
    if give_up_files() && !ask_statistics(place.device()) {
        place.ask_root();
    }
}

fn give_up_files() -> bool {
    // SAFETY: this thread gets a table of files of its own, which is empty then; no other thread's files are
    // closed. Only `send` runs on this thread from here on, and it uses no earlier file.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            0,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        ) == 0
    }
}

/// Asks by ustat(2); false if the system has no such call.
#[cfg(target_arch = "x86_64")]
fn ask_statistics((major, minor): (u32, u32)) -> bool {
    let device = libc::c_ulong::from((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12));
    // `struct ustat` has 32 bytes.
    let mut answer = [0u64; 8];
    // SAFETY: the call writes a `struct ustat` at most, for which there is room.
    let result = unsafe { libc::syscall(libc::SYS_ustat, device, answer.as_mut_ptr()) };
    result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}

#[cfg(not(target_arch = "x86_64"))]
fn ask_statistics(_: (u32, u32)) -> bool {
    false
}
