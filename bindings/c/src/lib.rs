//! The C library `libextant`. `include/extant.h` is its documentation: this file has the bodies of its functions.
//!
//! All of it is the border to C, and so `unsafe`: pointers come from the caller, and obey the rules of the header.
//! Each function converts its arguments to Rust's at once, and calls the library. No panic crosses the border.

#![allow(clippy::missing_safety_doc)] // The header says what callers must keep.

mod at;
mod batch;
mod border;
mod device;
mod offline;
mod open_file;
mod opened;
mod trees;

use border::{Errno, Fail, call, call_long, handle, path, text, to_c};
use engine::mkfs::{self, MkfsOptions};
use engine::{
    Dir, Error, File, FileType, Metadata, OpenOptions, SetAttributes, SetTime, SetXattr, Timestamp,
    Volume, VolumeOptions,
};
use open_file::OpenFile;
use std::ffi::{OsString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

const READ_ONLY: c_uint = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Time {
    sec: i64,
    nsec: u32,
}

#[repr(C)]
pub struct Stat {
    size: u64,
    blocks: u64,
    ino: u32,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    atime: Time,
    mtime: Time,
    ctime: Time,
}

#[repr(C)]
pub struct StatFs {
    blocks: u64,
    free_blocks: u64,
    available_blocks: u64,
    inodes: u64,
    free_inodes: u64,
    block_size: u32,
    name_max: u32,
    uuid: [u8; 16],
}

#[repr(C)]
pub struct CreateOptions {
    size: u64,
    block_size: u32,
    journal_size: u64,
    features: *const c_char,
    label: *const c_char,
    source: *const c_char,
}

fn time(time: Timestamp) -> Time {
    Time {
        sec: time.secs(),
        nsec: time.nanos(),
    }
}

fn stat(found: &Metadata) -> Stat {
    Stat {
        size: found.len(),
        blocks: found.blocks(),
        ino: found.ino(),
        mode: found.mode(),
        nlink: found.nlink(),
        uid: found.uid(),
        gid: found.gid(),
        rdev: found.rdev(),
        atime: time(found.atime()),
        mtime: time(found.mtime()),
        ctime: time(found.ctime()),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn extant_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_last_error() -> *const c_char {
    border::last_error()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_create(
    at: *const c_char,
    options: *const CreateOptions,
    out: *mut *mut Volume,
) -> c_int {
    call(|| {
        // SAFETY: the header asks for a structure.
        let given = unsafe { options.as_ref() }.ok_or(Fail::Null)?;
        // SAFETY: strings, or null.
        let [features, label] = unsafe { [text(given.features)?, text(given.label)?] };
        let source = if given.source.is_null() {
            None
        } else {
            // SAFETY: a string.
            Some(trees::source(unsafe { path(given.source)? }))
        };
        if given.size == 0 && source.is_none() {
            return Err(Fail::Text(
                border::EINVAL,
                "an empty volume needs a size".into(),
            ));
        }
        let some = |n: u64| Some(n).filter(|&n| n > 0);
        let options = MkfsOptions {
            size: some(given.size),
            block_size: Some(given.block_size).filter(|&n| n > 0),
            journal_size: some(given.journal_size),
            features,
            label,
            ..MkfsOptions::default()
        };
        // SAFETY: a string.
        let at = unsafe { path(at)? };
        let made = match source {
            Some(source) => mkfs::prepare_from(&options, source),
            None => mkfs::prepare(&options),
        };
        let made = made.map_err(Error::from)?;
        let device = engine::blockdev::FileDevice::create(at, made.size())?;
        made.write(&device).map_err(Error::from)?;
        drop(device);
        // SAFETY: the header asks for a place.
        unsafe { to_c(Volume::open(at)?, out) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_open(
    at: *const c_char,
    flags: c_uint,
    out: *mut *mut Volume,
) -> c_int {
    call(|| {
        border::known_flags(flags, READ_ONLY)?;
        let options = VolumeOptions::new().read_only(flags & READ_ONLY != 0);
        // SAFETY: a string and a place.
        unsafe { to_c(options.open(path(at)?)?, out) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_close(volume: *mut Volume) -> c_int {
    call(|| {
        if volume.is_null() {
            return Ok(());
        }
        // SAFETY: the handle was made by `to_c`, and by the rules of the header it is no longer in use.
        let volume = unsafe { Box::from_raw(volume) };
        Ok(volume.close()?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_sync(volume: *mut Volume) -> c_int {
    // SAFETY: a volume.
    call(|| Ok(unsafe { handle(volume)? }.sync()?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_grow(volume: *mut Volume, size: u64, grown: *mut u64) -> c_int {
    call(|| {
        let size = Some(size).filter(|&size| size > 0);
        // SAFETY: a volume.
        let volume = unsafe { handle(volume)? };
        let blocks = volume.grow(size)?;
        let now = blocks.saturating_mul(volume.geometry().block_size.into());
        if grown.is_null() {
            Ok(())
        } else {
            // SAFETY: a place.
            unsafe { border::store(grown, now) }
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_read_only(
    volume: *mut Volume,
    buffer: *mut c_char,
    size: usize,
) -> isize {
    call_long(|| {
        // SAFETY: a volume.
        let Some(reason) = unsafe { handle(volume)? }.read_only() else {
            return Ok(0);
        };
        let reason = reason.replace('\0', "?");
        // SAFETY: room for `size` bytes.
        unsafe { border::text_to_c(&reason, buffer, size)? };
        Ok(reason.len())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_statfs(volume: *mut Volume, st: *mut StatFs) -> c_int {
    call(|| {
        // SAFETY: a volume.
        let found = unsafe { handle(volume)? }.statfs()?;
        let found = StatFs {
            blocks: found.blocks,
            free_blocks: found.free_blocks,
            available_blocks: found.available_blocks,
            inodes: found.inodes,
            free_inodes: found.free_inodes,
            block_size: found.block_size,
            name_max: found.name_max,
            uuid: found.uuid,
        };
        // SAFETY: a place.
        unsafe { border::store(st, found) }
    })
}

/// Returns the change of owners, of which `u32::MAX` leaves one unchanged.
fn owners(uid: u32, gid: u32) -> SetAttributes {
    let given = |id: u32| Some(id).filter(|&id| id != u32::MAX);
    SetAttributes {
        uid: given(uid),
        gid: given(gid),
        ..SetAttributes::default()
    }
}

/// Returns the change of times, of which null is the present time.
///
/// # Safety
/// Each pointer is null or that of a time.
unsafe fn times(atime: *const Time, mtime: *const Time) -> Result<SetAttributes, Fail> {
    let given = |time: *const Time| {
        // SAFETY: by the caller.
        match unsafe { time.as_ref() } {
            None => Ok(Some(SetTime::Now)),
            Some(t) if t.nsec < 1_000_000_000 => {
                Ok(Some(SetTime::At(Timestamp::new(t.sec, t.nsec))))
            }
            Some(t) => {
                let text = format!(
                    "{} nanoseconds: the number must be below 1000000000",
                    t.nsec
                );
                Err(Fail::Text(border::EINVAL, text))
            }
        }
    };
    Ok(SetAttributes {
        atime: given(atime)?,
        mtime: given(mtime)?,
        ..SetAttributes::default()
    })
}

/// Makes what mknod(2) makes for a mode.
fn make_node(dir: &Dir, at: &Path, mode: u32, rdev: u32) -> Result<(), Fail> {
    let bits = u16::try_from(mode).map_err(|_| Errno(border::EINVAL))?;
    match FileType::from_mode(bits) {
        // mknod(2) makes a regular file of a mode without a type.
        Some(FileType::Regular) => {}
        None if bits & 0o170_000 == 0 => {}
        Some(other) => return Ok(dir.mknod(at, other, mode, rdev)?),
        None => return Err(Errno(border::EINVAL).into()),
    }
    let options = OpenOptions::new().write(true).create_new(true);
    Ok(dir.open_file_with(at, &options.mode(mode)).map(drop)?)
}

/// Stores names, each with a NUL behind it.
///
/// # Safety
/// `list` has room for `size` bytes.
unsafe fn names_to_c(names: Vec<OsString>, list: *mut c_char, size: usize) -> Result<usize, Fail> {
    let names: Vec<u8> = names
        .into_iter()
        .map(OsString::into_vec)
        .flat_map(|name| name.into_iter().chain([0]))
        .collect();
    // SAFETY: by the caller.
    unsafe { border::fill_all(list.cast(), size, &names) }
}

/// Stores the target of a link, or what fits of it; returns its length.
///
/// # Safety
/// `buffer` has room for `size` bytes.
unsafe fn link_to_c(target: &Path, buffer: *mut c_char, size: usize) -> Result<usize, Fail> {
    let target = target.as_os_str().as_bytes();
    let stored = target.len().min(size);
    // SAFETY: by the caller.
    unsafe { border::fill(buffer.cast(), size, &target[..stored])? };
    Ok(target.len())
}

/// Functions of a volume and a path.
macro_rules! on_path {
    ($($name:ident($($arg:ident: $type:ty),*) => |$volume:ident, $path:ident| $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(volume: *mut Volume, at: *const c_char $(, $arg: $type)*) -> c_int {
            call(|| {
                // SAFETY: a volume and a string.
                let ($volume, $path) = unsafe { (handle(volume)?, path(at)?) };
                $body
            })
        }
    )*};
}

on_path! {
    extant_stat(st: *mut Stat) => |volume, at| {
        // SAFETY: a place.
        unsafe { border::store(st, stat(&volume.metadata(at)?)) }
    };
    extant_lstat(st: *mut Stat) => |volume, at| {
        // SAFETY: a place.
        unsafe { border::store(st, stat(&volume.symlink_metadata(at)?)) }
    };
    extant_mkdir(mode: u32) => |volume, at| Ok(volume.create_dir_with_mode(at, mode).map(drop)?);
    extant_rmdir() => |volume, at| Ok(volume.remove_dir(at)?);
    extant_unlink() => |volume, at| Ok(volume.remove_file(at)?);
    extant_rename(to: *const c_char) => |volume, at| {
        // SAFETY: a string.
        Ok(volume.rename(at, unsafe { path(to)? })?)
    };
    extant_link(to: *const c_char) => |volume, at| {
        // SAFETY: a string.
        Ok(volume.hard_link(at, unsafe { path(to)? })?)
    };
    extant_symlink(to: *const c_char) => |volume, target| {
        // SAFETY: a string.
        Ok(volume.symlink(target, unsafe { path(to)? })?)
    };
    extant_chmod(mode: u32) => |volume, at| Ok(volume.set_permissions(at, mode)?);
    extant_chown(uid: u32, gid: u32) => |volume, at| Ok(volume.set_attributes(at, &owners(uid, gid))?);
    extant_truncate(size: u64) => |volume, at| Ok(volume.set_len(at, size)?);
    extant_utimens(atime: *const Time, mtime: *const Time) => |volume, at| {
        // SAFETY: times, or null.
        Ok(volume.set_attributes(at, &unsafe { times(atime, mtime)? })?)
    };
    extant_mknod(mode: u32, rdev: u32) => |volume, at| make_node(volume, at, mode, rdev);
    extant_setxattr(name: *const c_char, value: *const c_void, size: usize) => |volume, at| {
        // SAFETY: a string, and `size` bytes.
        let (name, value) = unsafe { (path(name)?, border::bytes(value, size)?) };
        Ok(volume.set_xattr(at, name, value, SetXattr::Any)?)
    };
    extant_removexattr(name: *const c_char) => |volume, at| {
        // SAFETY: a string.
        Ok(volume.remove_xattr(at, unsafe { path(name)? })?)
    };
    extant_open_file(flags: c_int, mode: u32, out: *mut *mut OpenFile) => |volume, at| {
        // SAFETY: a place.
        unsafe { to_c(OpenFile::open(volume, at, flags, mode)?, out) }
    };
    extant_opendir(out: *mut *mut trees::DirHandle) => |volume, at| {
        // SAFETY: a place.
        unsafe { to_c(trees::DirHandle::new(volume.open_dir(at)?), out) }
    };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readlink(
    volume: *mut Volume,
    at: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> isize {
    call_long(|| {
        // SAFETY: a volume, a string, and room for `size` bytes.
        unsafe { link_to_c(&handle(volume)?.read_link(path(at)?)?, buffer, size) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_realpath(
    volume: *mut Volume,
    at: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> isize {
    call_long(|| {
        // SAFETY: a volume, a string, and room for `size` bytes.
        unsafe { link_to_c(&handle(volume)?.canonicalize(path(at)?)?, buffer, size) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_getxattr(
    volume: *mut Volume,
    at: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> isize {
    call_long(|| {
        // SAFETY: a volume and strings.
        let found = unsafe { handle(volume)?.get_xattr(path(at)?, path(name)?)? };
        // SAFETY: room for `size` bytes.
        unsafe { border::fill_all(value.cast(), size, &found) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_listxattr(
    volume: *mut Volume,
    at: *const c_char,
    list: *mut c_char,
    size: usize,
) -> isize {
    call_long(|| {
        // SAFETY: a volume, a string, and room for `size` bytes.
        unsafe { names_to_c(handle(volume)?.list_xattrs(path(at)?)?, list, size) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_close_file(file: *mut OpenFile) {
    call(|| {
        if !file.is_null() {
            // SAFETY: the handle was made by `to_c`, and by the rules of the header it is no longer in use.
            drop(unsafe { Box::from_raw(file) });
        }
        Ok(())
    });
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize, Fail> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], after(offset, done)?)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_pread(
    file: *mut OpenFile,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
) -> isize {
    call_long(|| {
        // SAFETY: a file, and room for `length` bytes.
        let (file, buffer) = unsafe { (handle(file)?, border::room(buffer, length)?) };
        read_full(file, buffer, offset)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_pwrite(
    file: *mut OpenFile,
    buffer: *const c_void,
    length: usize,
    offset: u64,
) -> isize {
    call_long(|| {
        // SAFETY: a file, and `length` bytes.
        let (file, buffer) = unsafe { (handle(file)?, border::bytes(buffer, length)?) };
        file.write_all_at(buffer, offset)?;
        Ok(length)
    })
}

/// A part of a vector of buffers, as in `<sys/uio.h>`.
#[repr(C)]
pub struct IoVec {
    base: *mut c_void,
    len: usize,
}

/// Returns the offset of the next buffer of a vector, after `done` bytes.
fn after(offset: u64, done: usize) -> Result<u64, Fail> {
    Ok(offset.checked_add(done as u64).ok_or(Errno(22))?)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_preadv(
    file: *mut OpenFile,
    vectors: *const IoVec,
    count: usize,
    offset: u64,
) -> isize {
    call_long(|| {
        // SAFETY: `count` vectors.
        let vectors = unsafe { border::slice(vectors, count)? };
        let mut done = 0_usize;
        for vector in vectors {
            // SAFETY: a file, and room in each vector.
            let (file, room) = unsafe { (handle(file)?, border::room(vector.base, vector.len)?) };
            let read = read_full(file, room, after(offset, done)?)?;
            done = done.saturating_add(read);
            if read < vector.len {
                break;
            }
        }
        Ok(done)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_pwritev(
    file: *mut OpenFile,
    vectors: *const IoVec,
    count: usize,
    offset: u64,
) -> isize {
    call_long(|| {
        // SAFETY: `count` vectors.
        let vectors = unsafe { border::slice(vectors, count)? };
        // SAFETY: a file.
        let file = unsafe { handle(file)? };
        // SAFETY: bytes in each vector.
        let bytes = |vector: &IoVec| unsafe { border::bytes(vector.base, vector.len) };
        if file.appends() && vectors.len() > 1 {
            // A single write keeps writes of other threads out from between the buffers.
            let whole = vectors.iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
            let whole = whole.concat();
            file.write_all_at(&whole, offset)?;
            return Ok(whole.len());
        }
        let mut done = 0_usize;
        for vector in vectors {
            file.write_all_at(bytes(vector)?, after(offset, done)?)?;
            done = done.saturating_add(vector.len);
        }
        Ok(done)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_fsync(file: *mut OpenFile) -> c_int {
    // SAFETY: a file.
    call(|| Ok(unsafe { handle(file)? }.sync_all()?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_ftruncate(file: *mut OpenFile, size: u64) -> c_int {
    // SAFETY: a file.
    call(|| Ok(unsafe { handle(file)? }.set_len(size)?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_fstat(file: *mut OpenFile, st: *mut Stat) -> c_int {
    call(|| {
        // SAFETY: a file and a place.
        unsafe { border::store(st, stat(&handle(file)?.metadata()?)) }
    })
}
