//! A device of the caller's functions.

use crate::READ_ONLY;
use crate::border::{Fail, call, known_flags, to_c};
use engine::blockdev::BlockDevice;
use engine::{Volume, VolumeOptions};
use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::sync::Arc;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Device {
    user: *mut c_void,
    size: u64,
    read: Option<unsafe extern "C" fn(*mut c_void, u64, *mut c_void, usize) -> c_int>,
    write: Option<unsafe extern "C" fn(*mut c_void, u64, *const c_void, usize) -> c_int>,
    flush: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

// SAFETY: according to the header, several threads call the functions at once, with the same `user`.
unsafe impl Send for Device {}
// SAFETY: the same.
unsafe impl Sync for Device {}

fn result(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(
            code.checked_abs().unwrap_or(5),
        )),
    }
}

impl Device {
    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        let end = offset.checked_add(len as u64);
        if end.is_some_and(|end| end <= self.size) {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

impl BlockDevice for Device {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        self.write.is_none()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let read = self.read.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: as the header asks for; the buffer has that length.
        result(unsafe { read(self.user, offset, buf.as_mut_ptr().cast(), buf.len()) })
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let write = self.write.ok_or(io::ErrorKind::ReadOnlyFilesystem)?;
        // SAFETY: the same.
        result(unsafe { write(self.user, offset, buf.as_ptr().cast(), buf.len()) })
    }

    fn flush(&self) -> io::Result<()> {
        match self.flush {
            // SAFETY: the same.
            Some(flush) => result(unsafe { flush(self.user) }),
            None => Ok(()),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_open_device(
    device: *const Device,
    flags: c_uint,
    out: *mut *mut Volume,
) -> c_int {
    call(|| {
        known_flags(flags, READ_ONLY)?;
        // SAFETY: the header asks for a structure.
        let device = *unsafe { device.as_ref() }.ok_or(Fail::Null)?;
        let read_only = flags & READ_ONLY != 0;
        if device.read.is_none() || !read_only && (device.write.is_none() || device.flush.is_none())
        {
            return Err(Fail::Null);
        }
        let options = VolumeOptions::new().read_only(read_only);
        let volume = options.open_device(Arc::new(device))?;
        // SAFETY: a place.
        unsafe { to_c(volume, out) }
    })
}
