//! Systems that are not Linux.

use crate::meta::{Meta, Xattr};
use anyhow::Result;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};

pub(crate) const SEARCH: OFlags = OFlags::RDONLY;

/// Opens a directory that is not a symbolic link itself.
pub(crate) fn open_without_links(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(dir, path, flags | OFlags::NOFOLLOW, Mode::empty())
}

/// Fails, because some of these systems do not have the call.
pub(crate) fn make_special(_: BorrowedFd<'_>, _: &[u8], _: &Meta) -> rustix::io::Result<()> {
    Err(Errno::OPNOTSUPP)
}

/// Attributes of these systems have no name spaces that ext4 has.
pub(crate) fn xattrs(_: &[u8]) -> Result<Vec<Xattr>> {
    Ok(Vec::new())
}

pub(crate) fn xattrs_of(_: &File) -> Result<Vec<Xattr>> {
    Ok(Vec::new())
}

pub(crate) fn set_xattr(_: &[u8], _: &Xattr) -> rustix::io::Result<()> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn set_xattr_of(_: &File, _: &Xattr) -> rustix::io::Result<()> {
    Err(Errno::OPNOTSUPP)
}
