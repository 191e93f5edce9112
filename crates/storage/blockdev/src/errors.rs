//! Errors of files, with their paths and their numbers.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// An error at a path, as the content of an [`io::Error`] of the same kind.
#[derive(Debug)]
struct AtPath {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for AtPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for AtPath {}

pub(crate) fn in_use(path: &Path) -> io::Error {
    let text = "already in use by another process or mount (locked)";
    let error = io::Error::new(io::ErrorKind::ResourceBusy, text);
    at_path(path, error)
}

/// Adds the path to an error and keeps its kind.
pub(crate) fn at_path(path: &Path, error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) {
        return in_use(path);
    }
    let path = path.to_owned();
    io::Error::new(error.kind(), AtPath { path, error })
}

/// Returns an error of a [`FileDevice`](crate::FileDevice) without its path, for callers that name the path.
#[doc(hidden)]
pub fn without_path(error: io::Error) -> io::Error {
    error.downcast().map_or_else(|e| e, |at: AtPath| at.error)
}

/// Returns the errno of an error: that of the system if it is known, and else one of the same kind.
///
/// ```
/// use extant_blockdev::{Access, FileDevice, errno_of};
/// let missing = FileDevice::open("/none/disk.img", Access::ReadOnly).unwrap_err();
/// assert_eq!(errno_of(&missing), rustix::io::Errno::NOENT.raw_os_error());
/// ```
pub fn errno_of(error: &io::Error) -> i32 {
    use io::ErrorKind as K;
    if let Some(at) = error.get_ref().and_then(|e| e.downcast_ref::<AtPath>()) {
        return errno_of(&at.error);
    }
    if let Some(number) = error.raw_os_error() {
        return number;
    }
    let errno = match error.kind() {
        K::NotFound => Errno::NOENT,
        K::Interrupted => Errno::INTR,
        K::PermissionDenied => Errno::ACCESS,
        K::WouldBlock | K::ResourceBusy => Errno::BUSY,
        K::AlreadyExists => Errno::EXIST,
        K::NotADirectory => Errno::NOTDIR,
        K::IsADirectory => Errno::ISDIR,
        K::InvalidInput => Errno::INVAL,
        K::StorageFull => Errno::NOSPC,
        K::ReadOnlyFilesystem => Errno::ROFS,
        _ => Errno::IO,
    };
    errno.raw_os_error()
}
