//! Attributes and space of open files.

use crate::border::{self, Fail, call, call_long, call_offset, handle, path};
use crate::open_file::OpenFile;
use crate::{Time, names_to_c, owners, times};
use engine::{Fallocate, SetAttributes, SetXattr};
use std::ffi::{c_char, c_int, c_void};

// Directions of lseek(2), which have these values on all machines of Linux.
const SEEK_DATA: c_int = 3;
const SEEK_HOLE: c_int = 4;

/// Functions of an open file.
macro_rules! on_file {
    ($($name:ident($($arg:ident: $type:ty),*) => |$file:ident| $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(file: *mut OpenFile $(, $arg: $type)*) -> c_int {
            call(|| {
                // SAFETY: a file.
                let $file = unsafe { handle(file)? };
                $body
            })
        }
    )*};
}

on_file! {
    extant_fdatasync() => |file| Ok(file.sync_data()?);
    extant_fchmod(mode: u32) => |file| {
        let set = SetAttributes {
            mode: Some((mode & 0o7777) as u16),
            ..SetAttributes::default()
        };
        Ok(file.set_attributes(&set)?)
    };
    extant_fchown(uid: u32, gid: u32) => |file| Ok(file.set_attributes(&owners(uid, gid))?);
    extant_futimens(atime: *const Time, mtime: *const Time) => |file| {
        // SAFETY: times, or null.
        Ok(file.set_attributes(&unsafe { times(atime, mtime)? })?)
    };
    extant_fsetxattr(name: *const c_char, value: *const c_void, size: usize) => |file| {
        // SAFETY: a string, and `size` bytes.
        let (name, value) = unsafe { (path(name)?, border::bytes(value, size)?) };
        Ok(file.set_xattr(name, value, SetXattr::Any)?)
    };
    extant_fremovexattr(name: *const c_char) => |file| {
        // SAFETY: a string.
        Ok(file.remove_xattr(unsafe { path(name)? })?)
    };
    extant_fallocate(mode: c_int, offset: u64, length: u64) => |file| {
        let Some(how) = Fallocate::from_mode(mode.cast_unsigned()) else {
            let text = format!("mode {mode:#x} of fallocate is not supported");
            return Err(Fail::Text(border::EOPNOTSUPP, text));
        };
        Ok(file.fallocate(how, offset, length)?)
    };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_lseek(file: *mut OpenFile, offset: u64, whence: c_int) -> i64 {
    call_offset(|| {
        // SAFETY: a file.
        let file = unsafe { handle(file)? };
        let found = match whence {
            SEEK_DATA => file.seek_data(offset)?,
            SEEK_HOLE => file.seek_hole(offset)?,
            _ => {
                let text = "a handle has no offset: whence must be SEEK_DATA or SEEK_HOLE";
                return Err(Fail::Text(border::EINVAL, text.into()));
            }
        };
        // Offsets of ext4 have less than 48 bits.
        Ok(i64::try_from(found).map_err(|_| border::Errno(border::EINVAL))?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_fgetxattr(
    file: *mut OpenFile,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> isize {
    call_long(|| {
        // SAFETY: a file, a string, and room for `size` bytes.
        unsafe {
            let found = handle(file)?.get_xattr(path(name)?)?;
            border::fill_all(value.cast(), size, &found)
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_flistxattr(
    file: *mut OpenFile,
    list: *mut c_char,
    size: usize,
) -> isize {
    // SAFETY: a file, and room for `size` bytes.
    call_long(|| unsafe { names_to_c(handle(file)?.list_xattrs()?, list, size) })
}
