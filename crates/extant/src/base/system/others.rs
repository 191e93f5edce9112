//! Systems that are not Linux.

use rustix::fs::{Dir, OFlags, Stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

pub(crate) const DAMAGED: i32 = Errno::IO.raw_os_error();
pub(crate) const NO_KEY: i32 = Errno::ACCESS.raw_os_error();
pub(crate) const NO_ATTRIBUTE: i32 = Errno::NOENT.raw_os_error();
pub(crate) const NO_ATIME: OFlags = OFlags::empty();

/// There is no one way to ask: half of what a small machine has. Callers who know better set their limits.
pub(crate) fn memory() -> u64 {
    2 << 30
}

pub(crate) fn now() -> (i64, u32) {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    (t.tv_sec, t.tv_nsec as u32)
}

#[allow(clippy::unnecessary_cast)] // its type differs
pub(crate) fn device_of(stat: &Stat) -> u64 {
    stat.st_dev as u64
}

pub(crate) fn directory_names(
    dir: &OwnedFd,
    _: &mut Vec<u8>,
    mut each: impl FnMut(u64, &[u8]),
) -> Result<(), Errno> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        each(entry.ino(), entry.file_name().to_bytes());
    }
    Ok(())
}

/// Their name spaces are not those of ext4: trees are taken over without them.
pub(crate) fn attribute_names(_: &[u8], _: &mut [u8]) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn attribute(_: &[u8], _: &[u8], _: &mut [u8]) -> Result<Option<usize>, Errno> {
    Ok(None)
}
