//! Linux.

use ext4_format::FileType;
use ext4_format::inode::{dev_major, dev_minor};
use rustix::fs::{CWD, Mode, XattrFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The error number of bytes that break the format: that of Linux' ext4, EFSCORRUPTED.
pub(crate) const DAMAGED: i32 = Errno::UCLEAN.raw_os_error();
/// The error number of reading without a key.
pub(crate) const NO_KEY: i32 = Errno::NOKEY.raw_os_error();
/// The error number of a missing extended attribute.
pub(crate) const NO_ATTRIBUTE: i32 = Errno::NODATA.raw_os_error();

/// Returns the memory of the machine, in bytes.
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

/// Names and values of extended attributes.
type RawXattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the names and values of the extended attributes of a host file that ext4 can hold and the caller may read.
/// `list` lists the names, and `read` reads a value. An error holds the name that could not be read, or an empty name
/// if the names could not be listed.
pub fn xattrs_by(
    list: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
    mut read: impl FnMut(&[u8], &mut [u8]) -> rustix::io::Result<usize>,
) -> Result<RawXattrs, (Vec<u8>, Errno)> {
    let names = match sized(list) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        other => other.map_err(|errno| (Vec::new(), errno))?,
    };
    let mut found = Vec::new();
    let kept = |name: &&[u8]| extant_mkfs::is_kept_xattr(name);
    for name in names.split(|&b| b == 0).filter(kept) {
        match sized(|buf| read(name, buf)) {
            Ok(value) => found.push((name.to_vec(), value)),
            // The attribute is gone, or this caller may not read it.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err((name.to_vec(), errno)),
        }
    }
    Ok(found)
}

/// Returns the extended attributes of the file at a path. A link is not followed.
pub(crate) fn xattrs(path: &Path) -> rustix::io::Result<Vec<(OsString, Vec<u8>)>> {
    let found = xattrs_by(
        |buf| rustix::fs::llistxattr(path, buf),
        |name, buf| rustix::fs::lgetxattr(path, name, buf),
    );
    let found = found.map_err(|(_, errno)| errno)?.into_iter();
    Ok(found
        .map(|(name, value)| (OsString::from_vec(name), value))
        .collect())
}

/// Sets an extended attribute of a file of the host; of a link itself.
pub(crate) fn set_xattr(path: &Path, name: &OsStr, value: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::lsetxattr(path, name.as_bytes(), value, XattrFlags::empty())
}

/// Makes a device, FIFO or socket on the host.
pub(crate) fn mknod(path: &Path, kind: FileType, mode: u32, rdev: u32) -> rustix::io::Result<()> {
    use rustix::fs::FileType as T;
    let (kind, device) = match kind {
        FileType::CharDevice => (T::CharacterDevice, rdev),
        FileType::BlockDevice => (T::BlockDevice, rdev),
        FileType::Fifo => (T::Fifo, 0),
        _ => (T::Socket, 0),
    };
    let device = rustix::fs::makedev(dev_major(device), dev_minor(device));
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(mode & 0o777), device)
}
