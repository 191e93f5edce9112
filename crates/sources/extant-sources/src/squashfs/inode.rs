//! Inodes: fourteen types, two of each kind of file.

use super::Image;
use super::metadata::Cursor;
use crate::error::Result;

/// Bytes of the longest target of a symbolic link; Linux takes 4,095.
const MOST_TARGET: u32 = 65_535;
/// No fragment, no attributes.
const NONE: u32 = u32::MAX;
/// The difference between the two types of a kind.
const EXTENDED: u16 = 7;

/// Type-specific part of an inode.
pub(super) enum Body {
    Directory(Listing),
    File(FileBody),
    Symlink(Vec<u8>),
    BlockDevice(u32),
    CharDevice(u32),
    Fifo,
    Socket,
}

/// Place of a directory's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listing {
    /// The block in the directory table, and the offset in it.
    pub reference: u64,
    /// Bytes.
    pub len: u32,
}

/// A file, before the list of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileBody {
    /// Place of the first block.
    pub start: u64,
    pub size: u64,
    /// The fragment with the end of the file, and the offset in it.
    pub fragment: Option<(u32, u32)>,
}

/// An inode.
pub(super) struct Inode {
    /// The type as directories know it, 1 to 7.
    pub kind: u16,
    /// Permissions.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: u32,
    pub number: u32,
    pub links: u32,
    /// The number of its set of extended attributes.
    pub xattrs: Option<u32>,
    pub body: Body,
}

impl Image {
    /// Reads an inode. The cursor is left behind it: of a file, at the list of its blocks.
    pub(super) fn inode(&self, reference: u64) -> Result<(Inode, Cursor<'_>)> {
        let mut at = Cursor::of(self, self.sb.inode_table, reference)?;
        let (kind, mode) = (at.u16()?, at.u16()?);
        let (uid, gid) = (at.u16()?, at.u16()?);
        let (mtime, number) = (at.u32()?, at.u32()?);
        let id = |index: u16| {
            let id = self.ids.get(usize::from(index)).copied();
            id.ok_or_else(|| at.error(format!("inode {number}: an owner that is not in the table")))
        };
        let (uid, gid) = (id(uid)?, id(gid)?);
        if number == 0 || number > self.sb.inodes {
            let most = self.sb.inodes;
            return Err(at.error(format!(
                "an inode of number {number}, where there are {most}"
            )));
        }
        let (links, xattrs, body) = match kind {
            1 | 8 => directory(&mut at, kind)?,
            2 | 9 => file(&mut at, kind)?,
            3..=7 | 10..=14 => other(&mut at, kind, number)?,
            _ => return Err(at.error(format!("inode {number}: unknown type {kind}"))),
        };
        let inode = Inode {
            kind: if kind > EXTENDED {
                kind - EXTENDED
            } else {
                kind
            },
            mode: mode & 0o7777,
            uid,
            gid,
            mtime,
            number,
            links,
            xattrs: Some(xattrs).filter(|x| *x != NONE),
            body,
        };
        Ok((inode, at))
    }
}

/// Links, attributes, and other fields.
type Rest = (u32, u32, Body);

fn directory(at: &mut Cursor<'_>, kind: u16) -> Result<Rest> {
    let (block, links, len, offset, xattrs);
    if kind > EXTENDED {
        (links, len) = (at.u32()?, at.u32()?);
        block = at.u32()?;
        let (_parent, _indexes) = (at.u32()?, at.u16()?);
        (offset, xattrs) = (at.u16()?, at.u32()?);
    } else {
        (block, links) = (at.u32()?, at.u32()?);
        (len, offset) = (u32::from(at.u16()?), at.u16()?);
        (_, xattrs) = (at.u32()?, NONE);
    }
    let listing = Listing {
        reference: u64::from(block) << 16 | u64::from(offset),
        // The names . and .., which are not there, count three bytes.
        len: len.saturating_sub(3),
    };
    Ok((links, xattrs, Body::Directory(listing)))
}

fn file(at: &mut Cursor<'_>, kind: u16) -> Result<Rest> {
    let (start, size, links, fragment, xattrs);
    if kind > EXTENDED {
        (start, size) = (at.u64()?, at.u64()?);
        let _holes = at.u64()?;
        links = at.u32()?;
        fragment = (at.u32()?, at.u32()?);
        xattrs = at.u32()?;
    } else {
        (start, links, xattrs) = (u64::from(at.u32()?), 1, NONE);
        fragment = (at.u32()?, at.u32()?);
        size = u64::from(at.u32()?);
    }
    let body = FileBody {
        start,
        size,
        fragment: Some(fragment).filter(|f| f.0 != NONE),
    };
    Ok((links, xattrs, Body::File(body)))
}

fn other(at: &mut Cursor<'_>, kind: u16, number: u32) -> Result<Rest> {
    let links = at.u32()?;
    let body = match kind {
        3 | 10 => {
            let len = at.u32()?;
            if len > MOST_TARGET {
                let what = "a symbolic link to more than 64 KiB";
                return Err(at.error(format!("inode {number}: {what}")));
            }
            let target = at.bytes(len as usize)?;
            if target.is_empty() || target.contains(&0) {
                let what = "a symbolic link to nothing, or to a name with a NUL";
                return Err(at.error(format!("inode {number}: {what}")));
            }
            Body::Symlink(target)
        }
        4 | 11 => Body::BlockDevice(at.u32()?),
        5 | 12 => Body::CharDevice(at.u32()?),
        6 | 13 => Body::Fifo,
        _ => Body::Socket,
    };
    let xattrs = if kind > EXTENDED { at.u32()? } else { NONE };
    Ok((links, xattrs, body))
}
