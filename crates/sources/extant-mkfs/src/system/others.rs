//! Systems that are not Linux.

use rustix::fs::{Dir, OFlags, Stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

pub(crate) const NO_ATIME: OFlags = OFlags::empty();

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

/// Reports that attributes are not supported: their name spaces are not those of ext4, so trees are read without
/// them.
pub(crate) fn attribute_names(_: &[u8], _: &mut [u8]) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn attribute(_: &[u8], _: &[u8], _: &mut [u8]) -> Result<Option<usize>, Errno> {
    Ok(None)
}

pub(crate) fn flags(_: &OwnedFd) -> Option<u32> {
    None
}
