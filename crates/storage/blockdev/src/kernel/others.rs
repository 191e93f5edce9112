//! Systems other than Linux: calls that they lack fail, and callers use another way.

use super::Cached;
use crate::host::{Extents, Move};
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

pub(crate) fn is_written_by_qemu(_: &File) -> bool {
    false
}

pub(crate) fn refuse_loop(_: &File, _: &Path) -> io::Result<()> {
    Ok(())
}

pub(crate) fn lock_backing(_: &File, _: &Path, _: bool, _: &mut Vec<File>) -> io::Result<()> {
    Ok(())
}

pub(crate) fn generation(_: &File) -> io::Result<u32> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn set_generation(_: &File, _: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn project(_: &File) -> io::Result<u32> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn set_project(_: &File, _: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn grow(_: &File, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn set_label(_: &File, _: [u8; 256]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn set_uuid(_: &File, _: [u8; 16]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn extents(_: &File) -> io::Result<Extents> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn move_extents(_: &File, _: &File, _: Move) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}
