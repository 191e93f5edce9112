//! Data inside an inode's record (`inline_data`).
//!
//! The first 60 bytes are where the mapping would be. The rest is the value of the attribute `system.data` in the
//! space behind the record's fixed part; the attribute exists even if its value is empty. The size counts both parts.
//! A file may be smaller than both, or larger: mke2fs stores files here that consist of a hole, and the bytes beyond
//! the two parts are zeros.
//!
//! A directory begins with the number of its parent in four bytes. The rest of the 60 bytes and the value are two runs of
//! records as in a directory block, without `.`, `..` and checksum tails.

use crate::error::{FormatError, Result, Where};
use crate::geometry::Geometry;
use crate::inode::{self, I_BLOCK_SIZE};
use crate::types::InodeNr;
use crate::xattr::{self, Stored};
use crate::{dir_entry, dir_entry::RawRecord};
use std::ops::Range;

/// Index and rest of the name of the attribute with the rest of the data: `system.data`.
pub const ATTRIBUTE: (u8, &[u8]) = (7, b"data");
/// The whole name of the attribute. No system call shows it.
pub const ATTRIBUTE_NAME: &[u8] = b"system.data";

/// The data inside one inode's record.
///
/// ```
/// use ext4_format::inode::inline::Inline;
/// use ext4_format::{geometry::Geometry, layout::{Layout, LayoutParams}};
/// let sb = Layout::new(&LayoutParams::for_size(1 << 30)).unwrap().superblock;
/// let geo = Geometry::new(&sb).unwrap();
/// let mut record = vec![0; 256];
/// record[40..45].copy_from_slice(b"hello");
/// // The attribute with the rest is missing.
/// assert!(Inline::parse(&record, &geo).is_err());
/// let inline = Inline::undamaged_part(&record, &geo).unwrap();
/// assert_eq!(inline.target(5).unwrap(), b"hello");
/// assert!(inline.target(61).is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Inline<'a> {
    head: &'a [u8; I_BLOCK_SIZE],
    rest: Option<&'a [u8]>,
}

impl<'a> Inline<'a> {
    /// Returns the data of a record with the flag for inline data.
    ///
    /// # Errors
    /// `Corrupt` or `Checksum` if the attributes of the record are damaged, or `system.data` is missing or elsewhere.
    pub fn parse(raw: &'a [u8], geo: &Geometry) -> Result<Self> {
        let mut inline = Self::new(raw)?;
        inline.find_rest(raw, geo)?;
        match inline.rest {
            Some(_) => Ok(inline),
            None => Err(corrupt("inline data without system.data")),
        }
    }

    /// Like [`parse`](Self::parse) for a damaged record: damage among the attributes ends the search for
    /// `system.data`.
    ///
    /// # Errors
    /// `Corrupt` if the record is too short.
    pub fn undamaged_part(raw: &'a [u8], geo: &Geometry) -> Result<Self> {
        let mut inline = Self::new(raw)?;
        // Attributes before the damage count.
        let _ = inline.find_rest(raw, geo);
        Ok(inline)
    }

    fn new(raw: &'a [u8]) -> Result<Self> {
        let head = inode::i_block(raw)?;
        Ok(Self { head, rest: None })
    }

    fn find_rest(&mut self, raw: &'a [u8], geo: &Geometry) -> Result<()> {
        let area = inode::xattr_area(raw, geo).and_then(|range| raw.get(range));
        xattr::walk_inode_area(area.unwrap_or(&[]), |index, rest, value| {
            if (index, rest) != ATTRIBUTE {
                return Ok(());
            }
            match (value, self.rest) {
                (Stored::Here(value), None) => self.rest = Some(value),
                (Stored::Here(_), Some(_)) => return Err(corrupt("system.data twice")),
                (Stored::Inode(_), _) => return Err(corrupt("system.data in an inode")),
            }
            Ok(())
        })
    }

    /// Returns the number of stored bytes. The size of a directory is the same.
    pub const fn room(&self) -> usize {
        match self.rest {
            Some(rest) => I_BLOCK_SIZE + rest.len(),
            None => I_BLOCK_SIZE,
        }
    }

    /// Returns the part in `system.data`, empty if the attribute is missing.
    pub const fn rest(&self) -> &'a [u8] {
        match self.rest {
            Some(rest) => rest,
            None => &[],
        }
    }

    /// Returns all stored bytes.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head, self.rest()].concat()
    }

    /// Returns the target of a symbolic link: the stored bytes up to the size.
    ///
    /// # Errors
    /// `Corrupt` if there are fewer.
    pub fn target(&self, size: u64) -> Result<Vec<u8>> {
        let mut data = self.bytes();
        match usize::try_from(size) {
            Ok(size) if size <= data.len() => data.truncate(size),
            _ => return Err(corrupt("size beyond the inline data")),
        }
        Ok(data)
    }

    /// Returns the stored parent of a directory, not checked.
    pub const fn parent(&self) -> InodeNr {
        let [a, b, c, d, ..] = *self.head;
        InodeNr(u32::from_le_bytes([a, b, c, d]))
    }

    /// Returns the records of a directory, in two parts that no record crosses. The second one may be empty.
    pub fn records(&self) -> [&'a [u8]; 2] {
        let own = self.head.get(PARENT_LEN..).unwrap_or(&[]);
        [own, self.rest()]
    }

    /// Checks that the size of a directory is that of the two parts.
    ///
    /// # Errors
    /// `Corrupt` if it is not.
    pub fn check_directory_size(&self, size: u64) -> Result<()> {
        if size == self.room() as u64 {
            Ok(())
        } else {
            Err(corrupt("size of a directory with inline data"))
        }
    }
}

/// Returns the places in a record of the two runs of directory records. The second one may be empty.
///
/// # Errors
/// `Corrupt` if the record is too short.
pub fn record_ranges(raw: &[u8], geo: &Geometry) -> Result<[Range<usize>; 2]> {
    let inline = Inline::undamaged_part(raw, geo)?;
    Ok(inline.records().map(|run| {
        let at = run.as_ptr().addr().wrapping_sub(raw.as_ptr().addr());
        // An empty run may be no part of the record.
        if run.is_empty() {
            0..0
        } else {
            at..at + run.len()
        }
    }))
}

/// Changes the inode numbers and the types in the names of a directory, whose record is `raw`. `change` returns the new
/// number and the new byte of the type. Returns whether a name changed. The checksum of the record must be set again.
///
/// # Errors
/// `Corrupt` for a damaged directory record, and the errors of `change`.
pub fn change_records<E: From<FormatError>>(
    raw: &mut [u8],
    geo: &Geometry,
    mut change: impl FnMut(&RawRecord<'_>) -> std::result::Result<(InodeNr, u8), E>,
) -> std::result::Result<bool, E> {
    let mut changed = false;
    for range in record_ranges(raw, geo)? {
        let Some(run) = raw.get_mut(range) else {
            continue;
        };
        let mut heads = Vec::new();
        for record in dir_entry::records(run, 0, true) {
            let record = record?;
            let new = change(&record)?;
            if new != (record.inode, record.file_type) {
                heads.push((record.offset, new));
            }
        }
        for (at, (ino, file_type)) in heads {
            changed = true;
            if let Some(head) = run.get_mut(at..at + dir_entry::HEAD_LEN) {
                head[..4].copy_from_slice(&ino.0.to_le_bytes());
                head[7] = file_type;
            }
        }
    }
    if changed {
        clear_hash(raw, geo);
    }
    Ok(changed)
}

/// Clears the hash of the attribute in a record whose value was changed in place. The hash is over the value.
pub fn clear_hash(raw: &mut [u8], geo: &Geometry) {
    let area = inode::xattr_area(raw, geo);
    if let Some(area) = area.and_then(|range| raw.get_mut(range)) {
        xattr::clear_hash(area, ATTRIBUTE);
    }
}

/// Bytes of the number of the parent, with which a directory begins.
const PARENT_LEN: usize = 4;
/// Offset of a directory's records in the inode's record.
pub const RECORDS_AT: usize = inode::I_BLOCK_OFFSET + PARENT_LEN;

const fn corrupt(what: &'static str) -> FormatError {
    FormatError::corrupt(what, Where::Buffer(0))
}

#[cfg(test)]
mod tests {
    use super::{ATTRIBUTE, ATTRIBUTE_NAME, Inline};
    use crate::geometry::Geometry;
    use crate::inode;
    use crate::layout::{Layout, LayoutParams};
    use crate::types::InodeNr;
    use crate::xattr::{self, XattrSet};

    fn geometry() -> Geometry {
        let sb = Layout::new(&LayoutParams::for_size(1 << 30)).unwrap();
        Geometry::new(&sb.superblock).unwrap()
    }

    /// Returns a record with 60 bytes `a`, and attributes.
    fn record(geo: &Geometry, attributes: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut raw = vec![0; usize::from(geo.inode_size)];
        raw[128] = 32;
        inode::i_block_mut(&mut raw).unwrap().fill(b'a');
        let area = inode::xattr_area(&raw, geo).unwrap();
        let mut set = XattrSet::default();
        for (name, value) in attributes {
            set.set(name, value).unwrap();
        }
        let (inside, block) = xattr::place(&set, area.len(), 4096).unwrap();
        assert!(block.is_none());
        raw[area].copy_from_slice(&inside.unwrap());
        raw
    }

    #[test]
    fn both_parts_and_neighbours() {
        let geo = geometry();
        let name = xattr::name_prefix(ATTRIBUTE.0).unwrap();
        assert_eq!([name, ATTRIBUTE.1].concat(), ATTRIBUTE_NAME);
        let raw = record(&geo, &[(b"user.x", b"y"), (ATTRIBUTE_NAME, &[b'b'; 30])]);
        let inline = Inline::parse(&raw, &geo).unwrap();
        assert_eq!((inline.room(), inline.rest()), (90, &[b'b'; 30][..]));
        let data = inline.target(75).unwrap();
        assert_eq!(data, [vec![b'a'; 60], vec![b'b'; 15]].concat());
        assert!(inline.target(91).is_err() && inline.target(u64::MAX).is_err());
        assert!(inline.target(0).unwrap().is_empty());
        assert_eq!(inline.parent(), InodeNr(0x6161_6161));
        assert_eq!(inline.records().map(<[u8]>::len), [56, 30]);
        assert!(inline.check_directory_size(90).is_ok());
        assert!(inline.check_directory_size(89).is_err());
    }

    #[test]
    fn what_is_missing_or_damaged() {
        let geo = geometry();
        let raw = record(&geo, &[(b"user.x", b"y")]);
        let error = Inline::parse(&raw, &geo).unwrap_err().to_string();
        assert!(error.contains("without system.data"), "{error}");
        // An empty value is enough.
        let mut raw = record(&geo, &[(ATTRIBUTE_NAME, b"")]);
        assert_eq!(Inline::parse(&raw, &geo).unwrap().room(), 60);
        // A value that ends outside of the record.
        let area = inode::xattr_area(&raw, &geo).unwrap();
        raw[area.start + 4 + 8..][..4].copy_from_slice(&200u32.to_le_bytes());
        assert!(Inline::parse(&raw, &geo).is_err());
        assert_eq!(Inline::undamaged_part(&raw, &geo).unwrap().room(), 60);
        assert!(Inline::undamaged_part(&raw[..90], &geo).is_err());
    }
}
