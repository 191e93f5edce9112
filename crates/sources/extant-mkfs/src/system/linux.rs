//! Linux.

use rustix::fs::{OFlags, RawDir, Stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Opens a file so that reading it does not change its access time.
pub(crate) const NO_ATIME: OFlags = OFlags::NOATIME;

/// Returns the device that a file is on.
pub(crate) fn device_of(stat: &Stat) -> u64 {
    stat.st_dev
}

/// Gives each name of an open directory, with its inode number, `.` and `..` too. `buffer` is room to work in.
pub(crate) fn directory_names(
    dir: &OwnedFd,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(u64, &[u8]),
) -> Result<(), Errno> {
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        each(entry.ino(), entry.file_name().to_bytes());
    }
    Ok(())
}

/// Reads the names of a file's extended attributes, each with a NUL byte behind it; returns the number of bytes.
/// Links are not followed.
pub(crate) fn attribute_names(path: &[u8], names: &mut [u8]) -> Result<usize, Errno> {
    rustix::fs::llistxattr(path, names)
}

/// Reads the value of an extended attribute; returns the number of bytes if it exists. Links are not followed.
pub(crate) fn attribute(
    path: &[u8],
    name: &[u8],
    value: &mut [u8],
) -> Result<Option<usize>, Errno> {
    match rustix::fs::lgetxattr(path, name, value) {
        Ok(n) => Ok(Some(n)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Returns the flags of an open file as chattr sets them; `None` on a file system without flags.
pub(crate) fn flags(file: &OwnedFd) -> Option<u32> {
    rustix::fs::ioctl_getflags(file)
        .ok()
        .map(|flags| flags.bits())
}
