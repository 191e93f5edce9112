//! Files opened by handle, as in NFS servers and backup programs, after the kernel has forgotten them.
#![allow(unsafe_code)] // Calls of libc with pointers to what lives longer than the call.

use super::support::{Mounted, image, over_each, place, script};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// `struct file_handle` with room for the largest handle.
#[repr(C)]
#[derive(Clone)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

fn handle_of(path: &Path) -> Handle {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        data: [0; 128],
    };
    let mut mount = 0i32;
    // SAFETY: name, handle and mount are valid, and the handle has the room that it specifies.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            name.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            0,
        )
    };
    assert_eq!(
        done,
        0,
        "{}: {}",
        path.display(),
        std::io::Error::last_os_error()
    );
    handle
}

fn open(dir: &File, handle: &Handle) -> std::io::Result<OwnedFd> {
    let mut handle = handle.clone();
    // SAFETY: the handle is valid; the opened descriptor is new, and has no other owner.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_open_by_handle_at,
            dir.as_raw_fd(),
            &raw mut handle,
            libc::O_PATH | libc::O_CLOEXEC,
        );
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()))
    }
}

fn forget_all() {
    std::fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

#[test]
fn files_of_every_type_are_found_by_handle() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        script(
            mounted.dir(),
            "mkdir -p d/e; echo text >d/file; ln -s file d/link; mkfifo d/fifo; mknod d/null c 1 3",
        );
        let names = ["d/file", "d/link", "d/fifo", "d/null", "d/e", "d", ""];
        let known: Vec<_> = names
            .iter()
            .map(|name| {
                let path = mounted.dir().join(name);
                let ino = rustix::fs::lstat(&path).unwrap().st_ino;
                (*name, handle_of(&path), ino)
            })
            .collect();
        forget_all();
        for again in [false, true] {
            let dir = File::open(mounted.dir()).unwrap();
            for (name, handle, ino) in &known {
                let found = open(&dir, handle).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(rustix::fs::fstat(&found).unwrap().st_ino, *ino, "{name}");
            }
            drop(dir);
            if !again {
                // With the files still cached, and without.
                forget_all();
            }
        }
        // A reused number does not stand for the removed file.
        let (_, old, number) = &known[0];
        script(mounted.dir(), "rm d/file");
        let mut others = 0;
        while others < 2000 {
            let path = mounted.dir().join(format!("other{others}"));
            File::create(&path).unwrap();
            others += 1;
            if rustix::fs::lstat(&path).unwrap().st_ino == *number {
                break;
            }
            if others % 50 == 0 {
                script(mounted.dir(), "sync -f .; sync d");
            }
        }
        forget_all();
        let dir = File::open(mounted.dir()).unwrap();
        let stale = open(&dir, old).unwrap_err();
        assert_eq!(stale.raw_os_error(), Some(libc::ESTALE));
        drop(dir);
        mounted.unmount();
    });
}

/// Until the next commit, the record of a removed file is on the device: its handle must not open it.
#[test]
fn a_removed_file_is_stale_at_once() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, transport, &["commit=300"]);
        script(mounted.dir(), "mkdir dir; sync -f .");
        let dir = File::open(mounted.dir()).unwrap();
        for name in ["file", "dir"] {
            let path = mounted.dir().join(name);
            if name == "file" {
                std::fs::write(&path, [b'V'; 65536]).unwrap();
                File::open(&path).unwrap().sync_all().unwrap();
            }
            let handle = handle_of(&path);
            drop(open(&dir, &handle).unwrap());
            match name {
                "file" => std::fs::remove_file(&path).unwrap(),
                _ => std::fs::remove_dir(&path).unwrap(),
            }
            // Linux holds the inode until the server has answered the release of the last handle, and sends the server
            // no requests meanwhile.
            let start = Instant::now();
            while open(&dir, &handle).is_ok() {
                assert!(start.elapsed() < Duration::from_secs(10), "{name}");
            }
            for moment in 0..60 {
                let stale = open(&dir, &handle).unwrap_err();
                let found = stale.raw_os_error();
                assert_eq!(found, Some(libc::ESTALE), "{name}, moment {moment}");
                if moment == 30 {
                    script(mounted.dir(), "sync -f .");
                    forget_all();
                }
            }
        }
        drop(dir);
        mounted.unmount();
    });
}
