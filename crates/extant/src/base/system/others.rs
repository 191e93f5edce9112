//! Systems that are not Linux.

use ext4_format::FileType;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::path::Path;

pub(crate) const DAMAGED: i32 = Errno::IO.raw_os_error();
pub(crate) const NO_KEY: i32 = Errno::ACCESS.raw_os_error();
pub(crate) const NO_ATTRIBUTE: i32 = Errno::NOENT.raw_os_error();

/// Returns half of a small machine's memory, because no portable call reports the size. Callers that know the size set
/// their limits.
pub(crate) fn memory() -> u64 {
    2 << 30
}

pub(crate) fn now() -> (i64, u32) {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    (t.tv_sec, t.tv_nsec as u32)
}

/// Attributes of these systems have no name spaces that ext4 has.
pub(crate) fn xattrs(_: &Path) -> rustix::io::Result<Vec<(OsString, Vec<u8>)>> {
    Ok(Vec::new())
}

pub(crate) fn set_xattr(_: &Path, _: &OsStr, _: &[u8]) -> rustix::io::Result<()> {
    Err(Errno::OPNOTSUPP)
}

/// Fails, because some of these systems do not have the call.
pub(crate) fn mknod(_: &Path, _: FileType, _: u32, _: u32) -> rustix::io::Result<()> {
    Err(Errno::OPNOTSUPP)
}
