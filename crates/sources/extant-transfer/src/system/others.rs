//! System calls on systems other than Linux.

use crate::meta::{Meta, Xattr};
use anyhow::Result;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};

pub(crate) const SEARCH: OFlags = OFlags::RDONLY;

/// Opens a directory. Fails if the last component of the path is a symbolic link.
pub(crate) fn open_without_links(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(dir, path, flags | OFlags::NOFOLLOW, Mode::empty())
}

/// Fails, because some of these systems do not have mknodat.
pub(crate) fn make_special(_: BorrowedFd<'_>, _: &[u8], _: &Meta) -> rustix::io::Result<()> {
    Err(Errno::OPNOTSUPP)
}

/// Returns no attributes, because these systems do not have the name spaces of ext4.
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
