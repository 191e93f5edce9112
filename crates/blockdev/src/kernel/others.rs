//! Systems that are not Linux: calls they lack are refused, and callers have another way.

use super::Cached;
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

pub(crate) fn discard(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn punch_hole(_: &File, _: u64, _: u64) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn cached(_: &File, _: u64, _: u64) -> Option<Cached> {
    None
}

pub(crate) fn uncached(_: &File) -> Option<File> {
    None
}

pub(crate) fn unnamed(_: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn protects(_: &Metadata) -> bool {
    false
}

pub(crate) fn refuse_loop(_: &File, _: &Path) -> io::Result<()> {
    Ok(())
}

pub(crate) fn lock_backing(_: &File, _: &Path, _: bool) -> io::Result<Option<File>> {
    Ok(None)
}
