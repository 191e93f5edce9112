//! Directories: runs of at most 256 entries, each behind a header with their common fields.

use super::Image;
use super::inode::Listing;
use super::metadata::Cursor;
use crate::error::{Result, show};
use std::collections::BTreeMap;

/// The longest name.
const MOST_NAME: usize = 255;
/// The most entries behind a header.
const MOST_ENTRIES: u32 = 256;
/// Bytes of a header, and of an entry before its name.
const HEADER: u32 = 12;
const ENTRY: u32 = 8;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub name: Vec<u8>,
    /// Place of the inode in the inode table.
    pub inode: u64,
    /// The inode's number and type.
    pub number: u32,
    pub kind: u16,
}

/// The parts of the directory table that were read, starts and ends. No two directories share a part: a small image would
/// hold names without end otherwise.
#[derive(Default)]
pub(super) struct Read(BTreeMap<(u64, usize), (u64, usize)>);

impl Read {
    /// Returns whether no byte of a part was read before.
    fn is_new(&mut self, start: (u64, usize), end: (u64, usize)) -> bool {
        let before = self.0.range(..=start).next_back();
        let after = self.0.range(start..).next();
        let is_new =
            before.is_none_or(|(_, e)| *e <= start) && after.is_none_or(|(s, _)| *s >= end);
        self.0.insert(start, end);
        is_new
    }
}

impl Image {
    /// Returns the entries of a directory, in their order.
    pub(super) fn entries(&self, listing: Listing, read: &mut Read) -> Result<Vec<Entry>> {
        let mut left = listing.len;
        let mut entries = Vec::new();
        if left == 0 {
            return Ok(entries);
        }
        let mut at = Cursor::of(self, self.sb.directory_table, listing.reference)?;
        let start = at.place();
        while left > 0 {
            take(&mut left, HEADER, &at)?;
            let (count, block, base) = (at.u32()?, at.u32()?, at.u32()?);
            if count >= MOST_ENTRIES {
                return Err(at.error("a header of a directory with more than 256 entries"));
            }
            for _ in 0..=count {
                entries.push(entry(&mut at, &mut left, block, base)?);
            }
        }
        if !read.is_new(start, at.place()) {
            return Err(at.error("directories that share their entries"));
        }
        let mut names: Vec<_> = entries.iter().map(|e| &e.name).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let what = format!("a directory with two entries {}", show(twice[0])); // of two names
            return Err(at.error(what));
        }
        Ok(entries)
    }
}

/// Takes bytes from the rest of a directory.
fn take(left: &mut u32, bytes: u32, at: &Cursor<'_>) -> Result<()> {
    let rest = left.checked_sub(bytes);
    *left =
        rest.ok_or_else(|| at.error("a directory with an entry that reaches beyond its end"))?;
    Ok(())
}

/// Reads an entry; its header says the block of the inode, and the number that entries count from.
fn entry(at: &mut Cursor<'_>, left: &mut u32, block: u32, base: u32) -> Result<Entry> {
    take(left, ENTRY, at)?;
    let (offset, delta, kind) = (at.u16()?, at.u16()?, at.u16()?);
    let len = usize::from(at.u16()?) + 1;
    if len > MOST_NAME {
        return Err(at.error("a name of more than 255 bytes"));
    }
    take(left, len as u32, at)?;
    let name = at.bytes(len)?;
    if name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        return Err(at.error(format!("an impossible name, {}", show(&name))));
    }
    Ok(Entry {
        name,
        inode: u64::from(block) << 16 | u64::from(offset),
        number: base.wrapping_add_signed(i32::from(delta as i16)),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_once() {
        let mut read = Read::default();
        assert!(read.is_new((10, 5), (10, 50)));
        assert!(read.is_new((10, 50), (20, 3)));
        assert!(read.is_new((10, 0), (10, 5)));
        assert!(!read.is_new((10, 5), (10, 6)));
        assert!(!read.is_new((15, 0), (15, 1)));
        assert!(!read.is_new((0, 0), (10, 1)));
        assert!(read.is_new((20, 3), (20, 4)));
    }
}
