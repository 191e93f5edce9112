//! Linux.

use rustix::fs::{OFlags, RawDir, Stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The error number of bytes that break the format: that of Linux' ext4, EFSCORRUPTED.
pub(crate) const DAMAGED: i32 = Errno::UCLEAN.raw_os_error();
/// The error number of what cannot be read without a key.
pub(crate) const NO_KEY: i32 = Errno::NOKEY.raw_os_error();
/// The error number of an extended attribute that is not there.
pub(crate) const NO_ATTRIBUTE: i32 = Errno::NODATA.raw_os_error();
/// Opens a file so that reading it does not change its access time.
pub(crate) const NO_ATIME: OFlags = OFlags::NOATIME;

/// Memory of the machine, in bytes.
pub(crate) fn memory() -> u64 {
    let memory = rustix::system::sysinfo();
    (memory.totalram as u64).saturating_mul(u64::from(memory.mem_unit.max(1)))
}

/// Seconds and nanoseconds of the coarse clock, as the kernel uses it for inode times: a few nanoseconds to read, a few
/// milliseconds of grain.
#[inline]
pub(crate) fn now() -> (i64, u32) {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    (t.tv_sec, t.tv_nsec as u32)
}

/// The device that a file is on.
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

/// Names of a file's extended attributes, each with a NUL byte behind it; how many bytes. Links are not followed.
pub(crate) fn attribute_names(path: &[u8], names: &mut [u8]) -> Result<usize, Errno> {
    rustix::fs::llistxattr(path, names)
}

/// The value of an extended attribute; how many bytes, if it is there. Links are not followed.
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
