//! Functions whose paths start at an open directory.

use crate::border::{self, Errno, Fail, call, call_long, handle, path, to_c};
use crate::open_file::OpenFile;
use crate::trees::DirHandle;
use crate::{Stat, Time, link_to_c, make_node, owners, stat, times};
use engine::{Dir, RenameMode, SetAttributes};
use std::ffi::{c_char, c_int, c_uint};
use std::path::Path;

// Flags of <fcntl.h>, which have these values on all machines of Linux.
const AT_SYMLINK_NOFOLLOW: c_int = 0x100;
const AT_REMOVEDIR: c_int = 0x200;

// Flags of `extant_renameat`.
const NOREPLACE: c_uint = 1;
const EXCHANGE: c_uint = 2;

/// Returns whether the one known flag is set.
fn has(flags: c_int, known: c_int) -> Result<bool, Fail> {
    border::known_flags(flags.cast_unsigned(), known.cast_unsigned())?;
    Ok(flags & known != 0)
}

/// Changes attributes of the inode that a path leads to, or with `AT_SYMLINK_NOFOLLOW` of a link itself.
fn set(dir: &Dir, at: &Path, flags: c_int, set: &SetAttributes) -> Result<(), Fail> {
    if has(flags, AT_SYMLINK_NOFOLLOW)? {
        Ok(dir.set_symlink_attributes(at, set)?)
    } else {
        Ok(dir.set_attributes(at, set)?)
    }
}

/// Functions of a directory and a path.
macro_rules! on_dir {
    ($($name:ident($($arg:ident: $type:ty),*) => |$dir:ident, $path:ident| $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(dir: *mut DirHandle, at: *const c_char $(, $arg: $type)*) -> c_int {
            call(|| {
                // SAFETY: a directory and a string.
                let ($dir, $path) = unsafe { (&handle(dir)?.dir, path(at)?) };
                $body
            })
        }
    )*};
}

on_dir! {
    extant_openat(flags: c_int, mode: u32, out: *mut *mut OpenFile) => |dir, at| {
        // SAFETY: a place.
        unsafe { to_c(OpenFile::open(dir, at, flags, mode)?, out) }
    };
    extant_opendirat(out: *mut *mut DirHandle) => |dir, at| {
        // SAFETY: a place.
        unsafe { to_c(DirHandle::new(dir.open_dir(at)?), out) }
    };
    extant_fstatat(st: *mut Stat, flags: c_int) => |dir, at| {
        let found = if has(flags, AT_SYMLINK_NOFOLLOW)? {
            dir.symlink_metadata(at)?
        } else {
            dir.metadata(at)?
        };
        // SAFETY: a place.
        unsafe { border::store(st, stat(&found)) }
    };
    extant_mkdirat(mode: u32) => |dir, at| Ok(dir.create_dir_with_mode(at, mode).map(drop)?);
    extant_mknodat(mode: u32, rdev: u32) => |dir, at| make_node(dir, at, mode, rdev);
    extant_unlinkat(flags: c_int) => |dir, at| {
        if has(flags, AT_REMOVEDIR)? {
            Ok(dir.remove_dir(at)?)
        } else {
            Ok(dir.remove_file(at)?)
        }
    };
    extant_fchmodat(mode: u32) => |dir, at| Ok(dir.set_permissions(at, mode)?);
    extant_fchownat(uid: u32, gid: u32, flags: c_int) => |dir, at| set(dir, at, flags, &owners(uid, gid));
    extant_utimensat(atime: *const Time, mtime: *const Time, flags: c_int) => |dir, at| {
        // SAFETY: times, or null.
        set(dir, at, flags, &unsafe { times(atime, mtime)? })
    };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_symlinkat(
    target: *const c_char,
    dir: *mut DirHandle,
    at: *const c_char,
) -> c_int {
    // SAFETY: a directory and strings.
    call(|| unsafe { Ok(handle(dir)?.dir.symlink(path(target)?, path(at)?)?) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readlinkat(
    dir: *mut DirHandle,
    at: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> isize {
    // SAFETY: a directory, a string, and room for `size` bytes.
    call_long(|| unsafe { link_to_c(&handle(dir)?.dir.read_link(path(at)?)?, buffer, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_realpathat(
    dir: *mut DirHandle,
    at: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> isize {
    // SAFETY: a directory, a string, and room for `size` bytes.
    call_long(|| unsafe { link_to_c(&handle(dir)?.dir.canonicalize(path(at)?)?, buffer, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_linkat(
    from_dir: *mut DirHandle,
    from: *const c_char,
    to_dir: *mut DirHandle,
    to: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: directories and strings.
        let (from_dir, to_dir) = unsafe { (&handle(from_dir)?.dir, &handle(to_dir)?.dir) };
        // SAFETY: as above.
        let (from, to) = unsafe { (path(from)?, path(to)?) };
        Ok(to_dir.hard_link_from(from_dir, from, to)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_renameat(
    from_dir: *mut DirHandle,
    from: *const c_char,
    to_dir: *mut DirHandle,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    call(|| {
        border::known_flags(flags, NOREPLACE | EXCHANGE)?;
        let mode = match flags {
            NOREPLACE => RenameMode::NoReplace,
            EXCHANGE => RenameMode::Exchange,
            0 => RenameMode::Replace,
            _ => return Err(Errno(border::EINVAL).into()),
        };
        // SAFETY: directories and strings.
        let (from_dir, to_dir) = unsafe { (&handle(from_dir)?.dir, &handle(to_dir)?.dir) };
        // SAFETY: as above.
        let (from, to) = unsafe { (path(from)?, path(to)?) };
        Ok(to_dir.rename_from(from_dir, from, to, mode)?)
    })
}
