//! Linux.

use crate::meta::{Meta, Xattr};
use crate::paths::show;
use anyhow::Result;
use ext4_format::FileType;
use ext4_format::inode::{dev_major, dev_minor};
use rustix::fs::{Mode, OFlags, ResolveFlags, XattrFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Flag for opening a directory as the start of paths.
pub(crate) const SEARCH: OFlags = OFlags::PATH;

/// Opens a directory. Fails if any component of the path is a symbolic link.
pub(crate) fn open_without_links(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve) {
        // Linux before 5.6 does not have openat2, and some containers forbid it.
        Err(Errno::NOSYS | Errno::PERM) => {
            rustix::fs::openat(dir, path, flags | OFlags::NOFOLLOW, Mode::empty())
        }
        other => other,
    }
}

/// Makes a device, FIFO or socket.
pub(crate) fn make_special(
    dir: BorrowedFd<'_>,
    path: &[u8],
    meta: &Meta,
) -> rustix::io::Result<()> {
    use rustix::fs::FileType as T;
    let (kind, device) = match meta.kind {
        FileType::CharDevice => (T::CharacterDevice, meta.rdev),
        FileType::BlockDevice => (T::BlockDevice, meta.rdev),
        FileType::Fifo => (T::Fifo, 0),
        _ => (T::Socket, 0),
    };
    let device = rustix::fs::makedev(dev_major(device), dev_minor(device));
    let mode = Mode::from_raw_mode((meta.mode & 0o777).into());
    rustix::fs::mknodat(dir, path, kind, mode, device)
}

/// Returns the extended attributes of the file at a path. Does not follow a symbolic link.
pub(crate) fn xattrs(path: &[u8]) -> Result<Vec<Xattr>> {
    xattrs_by(
        |buf| rustix::fs::llistxattr(path, buf),
        |name, buf| rustix::fs::lgetxattr(path, name, buf),
    )
}

/// Returns the extended attributes of an open file.
pub(crate) fn xattrs_of(file: &File) -> Result<Vec<Xattr>> {
    xattrs_by(
        |buf| rustix::fs::flistxattr(file, buf),
        |name, buf| rustix::fs::fgetxattr(file, name, buf),
    )
}

/// Sets an extended attribute of the file at a path. Does not follow a symbolic link.
pub(crate) fn set_xattr(path: &[u8], (name, value): &Xattr) -> rustix::io::Result<()> {
    rustix::fs::lsetxattr(path, name.as_slice(), value, XattrFlags::empty())
}

/// Sets an extended attribute of an open file.
pub(crate) fn set_xattr_of(file: &File, (name, value): &Xattr) -> rustix::io::Result<()> {
    rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty())
}

/// Calls with a buffer that grows until the answer fits: the kernel's limit is 64 KiB.
fn sized(
    mut call: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    let mut buf = vec![0; 512];
    loop {
        match call(&mut buf) {
            Ok(n) => {
                buf.truncate(n);
                return Ok(buf);
            }
            Err(Errno::RANGE) if buf.len() < 1 << 17 => buf.resize(buf.len() * 4, 0),
            Err(e) => return Err(e),
        }
    }
}

/// Returns the extended attributes that ext4 can store and the caller may read. `list` returns the names, and `read` a value.
fn xattrs_by(
    list: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
    mut read: impl FnMut(&[u8], &mut [u8]) -> rustix::io::Result<usize>,
) -> Result<Vec<Xattr>> {
    let failed = |errno: Errno, what: String| anyhow::Error::new(errno).context(what);
    let names = match sized(list) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        other => other.map_err(|errno| failed(errno, "list extended attributes".into()))?,
    };
    let mut found = Vec::new();
    let kept = |name: &&[u8]| extant_sources::parts::is_kept_xattr(name);
    for name in names.split(|&b| b == 0).filter(kept) {
        match sized(|buf| read(name, buf)) {
            Ok(value) => found.push((name.to_vec(), value)),
            // The attribute is gone, or this caller may not read it.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(failed(errno, show(name))),
        }
    }
    Ok(found)
}
