//! Extended attributes: sets of them in a table, to which inodes refer by number.

use super::Image;
use super::metadata::Cursor;
use crate::error::{Result, show};
use crate::member::RawXattrs;

/// Bytes of attributes that an inode may have; those of Linux are far smaller.
const MOST: usize = 1 << 20;
/// Bytes of a value that Linux allows.
const MOST_VALUE: u32 = 65_536;
/// Marks an attribute whose value is somewhere else.
const ELSEWHERE: u16 = 1 << 8;

/// Places of the attributes.
pub(super) struct Table {
    /// Place of the first block of attributes.
    start: u64,
    /// Number of sets.
    sets: u32,
    /// The list of the blocks that describe the sets.
    list: u64,
}

impl Table {
    /// Reads where they are.
    pub fn read(image: &Image, at: u64) -> Result<Self> {
        let mut raw = [0; 16];
        image.read(at, &mut raw)?;
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = raw;
        Ok(Self {
            start: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            sets: u32::from_le_bytes([i, j, k, l]),
            list: at + raw.len() as u64, // it was read
        })
    }
}

impl Image {
    /// Reads a set of attributes, full names and values.
    pub(super) fn xattrs(&self, set: u32) -> Result<RawXattrs> {
        let Some(table) = &self.xattrs else {
            return Err(self.error(0, "attributes, where the image has no table of them"));
        };
        if set >= table.sets {
            let what = format!("set {set} of attributes, where there are {}", table.sets);
            return Err(self.error(table.list - 16, what)); // behind its header
        }
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = self.entry::<16>(table.list, set)?;
        let reference = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let count = u32::from_le_bytes([i, j, k, l]);
        let mut at = Cursor::of(self, table.start, reference)?;
        let (mut found, mut bytes) = (RawXattrs::new(), 0);
        for _ in 0..count {
            let (name, value) = self.xattr(table, &mut at)?;
            bytes += name.len() + value.len();
            if bytes > MOST {
                return Err(at.error(format!("set {set} of attributes: more than 1 MiB")));
            }
            found.push((name, value));
        }
        Ok(found)
    }

    fn xattr(&self, table: &Table, at: &mut Cursor<'_>) -> Result<(Vec<u8>, Vec<u8>)> {
        let (kind, len) = (at.u16()?, at.u16()?);
        let prefix: &[u8] = match kind & !ELSEWHERE {
            0 => b"user.",
            1 => b"trusted.",
            2 => b"security.",
            other => return Err(at.error(format!("an attribute of unknown type {other}"))),
        };
        let name = [prefix, &at.bytes(len.into())?].concat();
        if len == 0 || name.len() > 255 || name.contains(&0) {
            return Err(at.error(format!(
                "an impossible name of an attribute, {}",
                show(&name)
            )));
        }
        let value = if kind & ELSEWHERE == 0 {
            value(at)?
        } else {
            if at.u32()? != 8 {
                return Err(at.error("a value that is elsewhere, with a wrong length"));
            }
            value(&mut Cursor::of(self, table.start, at.u64()?)?)?
        };
        Ok((name, value))
    }
}

fn value(at: &mut Cursor<'_>) -> Result<Vec<u8>> {
    let len = at.u32()?;
    if len > MOST_VALUE {
        return Err(at.error("a value of an attribute of more than 64 KiB"));
    }
    at.bytes(len as usize)
}
