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

/// The name spaces of extended attributes that ext4 holds; others are those of network and other file systems.
fn is_kept(name: &[u8]) -> bool {
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    spaces.iter().any(|space| name.starts_with(space))
        || [&b"system.posix_acl_access"[..], b"system.posix_acl_default"].contains(&name)
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

/// Names and values of the extended attributes of a file of the host, as far as the caller may read them; of a link itself.
pub(crate) fn xattrs(path: &Path) -> rustix::io::Result<Vec<(OsString, Vec<u8>)>> {
    let names = match sized(|buf| rustix::fs::llistxattr(path, buf)) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for name in names.split(|&b| b == 0).filter(|name| is_kept(name)) {
        match sized(|buf| rustix::fs::lgetxattr(path, name, buf)) {
            Ok(value) => found.push((OsString::from_vec(name.to_vec()), value)),
            // Gone, or not this caller's to read.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
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
