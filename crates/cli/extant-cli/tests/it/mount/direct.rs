//! Direct I/O together with the kernel's page cache, and mounts with mapped owners.
#![allow(unsafe_code)] // Calls of libc with pointers to what lives longer than the call.

use super::support::{Mounted, image, over_each, place};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// A block that direct I/O can be done from.
#[repr(align(4096))]
struct Block([u8; 4096]);

/// The kernel's report of a completed request (`struct io_event`).
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    more: i64,
}

/// A context of asynchronous I/O.
struct Context(libc::c_ulong);

impl Context {
    fn new() -> Self {
        let mut context = 0;
        // SAFETY: the kernel writes a number to this variable.
        let done = unsafe { libc::syscall(libc::SYS_io_setup, 8, &raw mut context) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        Self(context)
    }

    /// Writes a block, and waits for the completion.
    fn write(&self, file: &File, block: &Block, offset: i64) {
        // SAFETY: the struct consists of plain numbers.
        let mut request: libc::iocb = unsafe { std::mem::zeroed() };
        request.aio_lio_opcode = 1; // IOCB_CMD_PWRITE
        request.aio_fildes = file.as_raw_fd() as u32;
        request.aio_buf = block.0.as_ptr() as u64;
        request.aio_nbytes = 4096;
        request.aio_offset = offset;
        let requests = [&raw mut request];
        let mut event = Event::default();
        // SAFETY: the request and its block live until the completion event.
        unsafe {
            let done = libc::syscall(libc::SYS_io_submit, self.0, 1, requests.as_ptr());
            assert_eq!(done, 1, "{}", std::io::Error::last_os_error());
            let no_time = std::ptr::null::<libc::timespec>();
            let done = libc::syscall(
                libc::SYS_io_getevents,
                self.0,
                1,
                1,
                &raw mut event,
                no_time,
            );
            assert_eq!(done, 1, "{}", std::io::Error::last_os_error());
        }
        assert_eq!(event.result, 4096);
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: no request is pending.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// A read during an asynchronous direct write may cache old pages; no later read may return them.
#[test]
fn an_asynchronous_direct_write_is_read_afterwards() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &["-b", "4096"]);
        let mounted = Mounted::new(&image, transport, &[]);
        let path = mounted.dir().join("file");
        std::fs::write(&path, [0; 4096]).unwrap();
        let open = |flags| {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(true)
                .custom_flags(flags)
                .open(&path)
                .unwrap()
        };
        let (direct, buffered) = (open(libc::O_DIRECT), open(0));
        buffered.sync_all().unwrap();
        let context = Context::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                let other = open(0);
                let mut bytes = [0; 4096];
                while !stop.load(Ordering::Relaxed) {
                    other.read_exact_at(&mut bytes, 0).unwrap();
                }
            });
            let mut read = [0; 4096];
            for round in 0..4000u32 {
                let value = (round % 250) as u8 + 1;
                context.write(&direct, &Block([value; 4096]), 0);
                buffered.read_exact_at(&mut read, 0).unwrap();
                let fresh = read == [value; 4096];
                if !fresh {
                    stop.store(true, Ordering::Relaxed);
                }
                assert!(fresh, "round {round}: {} and not {value}", read[0]);
            }
            stop.store(true, Ordering::Relaxed);
        });
        drop((direct, buffered));
        mounted.unmount();
    });
}

/// Requests on such a mount would not name their caller, so the mount does not support it; Linux refuses it.
#[test]
fn mounts_with_mapped_owners_are_refused() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "16M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let mut other = Command::new("unshare")
            .args(["--user", "--map-root-user", "sh", "-c", "echo; read _"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut line).unwrap();
        let users = File::open(format!("/proc/{}/ns/user", other.id())).unwrap();
        let name = std::ffi::CString::new(mounted.dir().to_str().unwrap()).unwrap();
        let empty = c"";
        // `struct mount_attr`: what to set, what to clear, propagation, the name space of users.
        let attributes: [u64; 4] = [0x0010_0000, 0, 0, users.as_raw_fd() as u64];
        // SAFETY: the paths end with a NUL, the attributes have the given length, and only this function uses the
        // tree's descriptor.
        let (done, error) = unsafe {
            let tree = libc::syscall(
                libc::SYS_open_tree,
                libc::AT_FDCWD,
                name.as_ptr(),
                1 | libc::O_CLOEXEC,
            );
            assert!(tree >= 0, "{}", std::io::Error::last_os_error());
            let tree = OwnedFd::from_raw_fd(tree as i32);
            let done = libc::syscall(
                libc::SYS_mount_setattr,
                tree.as_raw_fd(),
                empty.as_ptr(),
                libc::AT_EMPTY_PATH,
                attributes.as_ptr(),
                size_of_val(&attributes),
            );
            (done, std::io::Error::last_os_error())
        };
        drop(other.stdin.take());
        other.wait().unwrap();
        assert_eq!((done, error.raw_os_error()), (-1, Some(libc::EINVAL)));
        mounted.unmount();
    });
}
