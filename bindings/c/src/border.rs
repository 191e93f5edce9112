//! Arguments from C, results to C: checked pointers, errors as negative numbers with a text, no panic beyond.

use engine::Error;
use extant_offline::errno_of;
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// A number of the system's.
pub struct Errno(pub i32);

/// Error of a call.
pub enum Fail {
    Engine(Error),
    Io(io::Error),
    Errno(i32),
    Text(i32, String),
    /// A pointer that must not be null.
    Null,
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<io::Error> for Fail {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<extant_offline::Failure> for Fail {
    fn from(failure: extant_offline::Failure) -> Self {
        Self::Text(failure.errno, failure.text)
    }
}

impl From<Errno> for Fail {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno.0)
    }
}

/// Fails if there are flags other than the known ones, which a later version may define.
pub fn known_flags(flags: u32, known: u32) -> Result<(), Fail> {
    if flags & !known != 0 {
        return Err(Fail::Text(EINVAL, format!("unknown flags {flags:#x}")));
    }
    Ok(())
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

pub fn last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

// Numbers of Linux.
const EIO: i32 = 5;
pub const EINVAL: i32 = 22;
pub const EOPNOTSUPP: i32 = 95;

/// Returns the error of a panic, which is a fault of the library.
pub fn fault() -> Fail {
    Fail::Text(EIO, "a fault in the library".into())
}

/// Records the error of a call; returns its number, which is positive.
pub fn errno(fail: Fail) -> i32 {
    let (errno, text) = match fail {
        Fail::Engine(error) => match &error {
            Error::Io { source, .. } => (errno_of(source), error.to_string()),
            _ => (error.errno(), error.to_string()),
        },
        Fail::Io(error) => (errno_of(&error), error.to_string()),
        Fail::Errno(errno) => (errno, io::Error::from_raw_os_error(errno).to_string()),
        Fail::Text(errno, text) => (errno, text),
        Fail::Null => (EINVAL, "a pointer is null".into()),
    };
    let text = text.replace('\0', "?");
    LAST.with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
    errno.max(1)
}

/// Runs a call; returns 0 or a negative number.
pub fn call(f: impl FnOnce() -> Result<(), Fail>) -> c_int {
    call_long(|| f().map(|()| 0)) as c_int
}

/// Runs a call that returns a count.
pub fn call_long(f: impl FnOnce() -> Result<usize, Fail>) -> isize {
    // Counts are lengths of buffers.
    call_offset(|| f().map(|n| n as i64)) as isize
}

/// Runs a call that returns an offset, which is not negative.
pub fn call_offset(f: impl FnOnce() -> Result<i64, Fail>) -> i64 {
    let done = catch_unwind(AssertUnwindSafe(f));
    let done = done.unwrap_or_else(|_| Err(fault()));
    done.unwrap_or_else(|fail| -i64::from(errno(fail)))
}

/// Hands a value to the caller, as a handle.
///
/// # Safety
/// `out` is null or a place for a pointer.
pub unsafe fn to_c<T>(value: T, out: *mut *mut T) -> Result<(), Fail> {
    if out.is_null() {
        return Err(Fail::Null);
    }
    // SAFETY: by the caller.
    unsafe { out.write(Box::into_raw(Box::new(value))) };
    Ok(())
}

/// Returns the value behind a handle.
///
/// # Safety
/// The handle is null, or was made by [`to_c`] and is not closed.
pub unsafe fn handle<'h, T>(handle: *mut T) -> Result<&'h T, Fail> {
    // SAFETY: by the caller. Only shared references are made of handles.
    unsafe { handle.as_ref() }.ok_or(Fail::Null)
}

/// # Safety
/// `place` is null or points to room for a `T`.
pub unsafe fn store<T>(place: *mut T, value: T) -> Result<(), Fail> {
    if place.is_null() {
        return Err(Fail::Null);
    }
    // SAFETY: by the caller.
    unsafe { place.write(value) };
    Ok(())
}

/// # Safety
/// `text` is null or ends with a NUL, and stays unchanged during the call.
pub unsafe fn path<'p>(text: *const c_char) -> Result<&'p Path, Fail> {
    if text.is_null() {
        return Err(Fail::Null);
    }
    // SAFETY: by the caller.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Returns the text behind a pointer, empty for null.
///
/// # Safety
/// As of [`path`].
pub unsafe fn text(text: *const c_char) -> Result<String, Fail> {
    if text.is_null() {
        return Ok(String::new());
    }
    // SAFETY: by the caller.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    String::from_utf8(bytes.to_vec())
        .map_err(|_| Fail::Text(EINVAL, "an option is not UTF-8".into()))
}

/// # Safety
/// `bytes` has `len` bytes, unless that is 0.
pub unsafe fn bytes<'b>(bytes: *const c_void, len: usize) -> Result<&'b [u8], Fail> {
    match (bytes.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Fail::Null),
        // SAFETY: by the caller; the length of the slice fits an isize.
        _ if isize::try_from(len).is_ok() => {
            Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), len) })
        }
        _ => Err(Fail::Errno(EINVAL)),
    }
}

/// Returns `count` values.
///
/// # Safety
/// `values` has `count` values, unless that is 0.
pub unsafe fn slice<'s, T>(values: *const T, count: usize) -> Result<&'s [T], Fail> {
    match (values.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Fail::Null),
        // SAFETY: by the caller. The values are in memory, so their size fits an isize.
        _ => Ok(unsafe { std::slice::from_raw_parts(values, count) }),
    }
}

/// Returns the room of a buffer that the library only writes to. Bytes that the call does not fill keep their value, and cost nothing:
/// a caller may give much more room than a file has bytes.
///
/// # Safety
/// `buffer` has room for `len` bytes, unless that is 0.
pub unsafe fn room<'b>(buffer: *mut c_void, len: usize) -> Result<&'b mut [u8], Fail> {
    match (buffer.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Fail::Null),
        // SAFETY: by the caller. The memory comes from code that this compiler does not see, so that each byte has some value, and the
        // library does not read a byte before it has written it.
        _ if isize::try_from(len).is_ok() => {
            Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), len) })
        }
        _ => Err(Fail::Errno(EINVAL)),
    }
}

/// Stores bytes, which fit.
///
/// # Safety
/// As of [`room`].
pub unsafe fn fill(buffer: *mut u8, size: usize, from: &[u8]) -> Result<(), Fail> {
    match (buffer.is_null(), from.len()) {
        (_, 0) => Ok(()),
        (true, _) => Err(Fail::Null),
        (_, len) if len > size => Err(Fail::Errno(34)),
        // SAFETY: by the caller; the two do not overlap, as one is the library's.
        (_, len) => {
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), buffer, len) };
            Ok(())
        }
    }
}

/// Stores all bytes, or with a size of 0 none; returns the total number of bytes. ERANGE if they do not fit.
///
/// # Safety
/// As of [`room`].
pub unsafe fn fill_all(buffer: *mut u8, size: usize, from: &[u8]) -> Result<usize, Fail> {
    if size > 0 {
        // SAFETY: by the caller.
        unsafe { fill(buffer, size, from)? };
    }
    Ok(from.len())
}

/// Stores what fits of a text, and a NUL behind it.
///
/// # Safety
/// As of [`room`].
pub unsafe fn text_to_c(text: &str, buffer: *mut c_char, size: usize) -> Result<(), Fail> {
    let Some(most) = size.checked_sub(1) else {
        return Ok(());
    };
    let mut bytes = text.as_bytes()[..text.floor_char_boundary(most)].to_vec();
    bytes.push(0);
    // SAFETY: by the caller.
    unsafe { fill(buffer.cast(), size, &bytes) }
}
