//! Reading entries: every record is checked before use.

use super::{
    Entry, HEAD_LEN, MIN_REC_LEN, Record, corrupt, decode_rec_len, has_bad_byte, rec_len_for,
};
use crate::error::{FormatError, Result};
use crate::types::{FileType, InodeNr};

/// The names of a block, in their order. Made by [`entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a>(Records<'a>);

/// Iterates over the live names of a directory block. The first error ends the iteration.
///
/// ```
/// use ext4_format::{dir_entry, FileType, InodeNr};
/// let mut block = [0; 1024];
/// dir_entry::init_block(&mut block, true);
/// assert!(dir_entry::insert(&mut block, true, b"hello", InodeNr(12), Some(FileType::Regular)).unwrap());
/// let names: Vec<_> = dir_entry::entries(&block).map(|e| e.unwrap().name.to_vec()).collect();
/// assert_eq!(names, [b"hello".to_vec()]);
/// ```
pub const fn entries(block: &[u8]) -> Entries<'_> {
    entries_of(block, false)
}

/// Like [`entries`], for a directory that may be encrypted. Encrypted names may hold any byte.
pub const fn entries_of(block: &[u8], encrypted: bool) -> Entries<'_> {
    Entries(records(block, 0, encrypted))
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let record = self.0.next()?;
        Some(record.map(|record| Entry {
            offset: record.offset as u32,
            rec_len: record.rec_len as u32,
            inode: record.inode,
            file_type: FileType::from_dir_byte(record.file_type),
            name: record.name,
        }))
    }
}

/// A live record in its stored form, for copying.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// Byte offset in the block.
    pub offset: usize,
    /// Bytes that the record covers, slack included.
    pub rec_len: usize,
    /// Bytes that its name needs.
    pub used: usize,
    /// The inode, never 0; not checked against the volume's inode count.
    pub inode: InodeNr,
    /// The byte of the file type, not checked.
    pub file_type: u8,
    /// The name.
    pub name: &'a [u8],
}

/// The live records of a block. Made by [`records`].
#[derive(Clone, Debug)]
pub struct Records<'a> {
    block: &'a [u8],
    offset: usize,
    checked: bool,
}

/// Iterates over the live records of a directory block from `offset` on, where a record begins. Names are not checked
/// if the caller knows that they are valid (`checked`); the bounds of records are always checked. The first error
/// ends the iteration.
///
/// ```
/// use ext4_format::{dir_entry::{self, LeafBuilder}, InodeNr};
/// let mut block = [0; 1024];
/// let mut leaf = LeafBuilder::new(&mut block, false);
/// assert!(leaf.push(b"a", InodeNr(11), None).unwrap());
/// assert!(leaf.push(b"b", InodeNr(12), None).unwrap());
/// leaf.finish();
/// let records: Vec<_> = dir_entry::records(&block, 0, false).map(|r| r.unwrap()).collect();
/// assert_eq!((records[1].offset, records[1].used, records[1].rec_len), (12, 12, 1024 - 12));
/// ```
pub const fn records(block: &[u8], offset: usize, checked: bool) -> Records<'_> {
    Records {
        block,
        offset,
        checked,
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        while let Some(rest) = self.block.get(self.offset..).filter(|r| !r.is_empty()) {
            let offset = self.offset;
            // The stored head as one word: inode, length, length of the name, type.
            let Some(head) = rest.first_chunk::<HEAD_LEN>() else {
                return self.malformed(offset);
            };
            let head = u64::from_le_bytes(*head);
            let rec_len = decode_rec_len((head >> 32) as u16, self.block.len());
            let name_len = usize::from((head >> 48) as u8);
            let used = rec_len_for(name_len);
            if rec_len < used.max(MIN_REC_LEN) || !rec_len.is_multiple_of(4) {
                return self.malformed(offset);
            }
            if rec_len > rest.len() {
                return self.malformed(offset);
            }
            self.offset = offset + rec_len;
            let inode = head as u32;
            if inode == 0 {
                continue;
            }
            let name = rest.get(HEAD_LEN..HEAD_LEN + name_len).unwrap_or(&[]);
            if name.is_empty() {
                return self.fail(corrupt("directory entry without a name", offset));
            }
            if !self.checked && has_bad_byte(name) {
                return self.fail(corrupt("directory entry name with NUL or slash", offset));
            }
            return Some(Ok(RawRecord {
                offset,
                rec_len,
                used,
                inode: InodeNr(inode),
                file_type: (head >> 56) as u8,
                name,
            }));
        }
        None
    }
}

impl<'a> Records<'a> {
    /// Ends the iteration with the error of the record at `offset`.
    #[cold]
    #[inline(never)]
    fn malformed(&mut self, offset: usize) -> Option<Result<RawRecord<'a>>> {
        let what = || corrupt("directory record", offset);
        let e = Record::at(self.block, offset).err().unwrap_or_else(what);
        self.fail(e)
    }

    #[cold]
    #[inline(never)]
    fn fail(&mut self, e: FormatError) -> Option<Result<RawRecord<'a>>> {
        self.offset = self.block.len();
        Some(Err(e))
    }
}

/// Consecutive records at the start of a block. Found by [`packed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Their number.
    pub records: usize,
    /// Their bytes: where the next record begins.
    pub bytes: usize,
    /// Start of the last of them.
    pub last: usize,
}

/// Counts the live records at the start of a block that have no gap behind them and a name for which `goes_on` holds.
/// Most blocks of a large directory are such records and one with the free space, so the cost for each is a few
/// instructions. The first other record, even if malformed, is left to [`records`]. `checked` has the same meaning as
/// there.
///
/// ```
/// use ext4_format::{dir_entry::{packed, LeafBuilder}, InodeNr};
/// let mut block = [0; 1024];
/// let mut leaf = LeafBuilder::new(&mut block, false);
/// for name in ["a", "b", "c"] {
///     assert!(leaf.push(name.as_bytes(), InodeNr(11), None).unwrap());
/// }
/// leaf.finish();
/// let found = packed(&block, false, |_| true);
/// assert_eq!((found.records, found.bytes, found.last), (2, 24, 12));
/// ```
#[inline]
pub fn packed(block: &[u8], checked: bool, goes_on: impl Fn(&[u8]) -> bool) -> Packed {
    let mut packed = Packed::default();
    while let Some((head, rest)) = block
        .get(packed.bytes..)
        .and_then(<[u8]>::split_first_chunk::<HEAD_LEN>)
    {
        // The stored head as one word: inode, length, length of the name, type.
        let head = u64::from_le_bytes(*head);
        let name_len = usize::from((head >> 48) as u8);
        let used = rec_len_for(name_len);
        // The length of such a record is stored unencoded, also in blocks of 64 KiB.
        let has_gap = (head >> 32) as u16 as usize != used;
        let Some(name) = rest.get(..name_len) else {
            break;
        };
        if head as u32 == 0 || name_len == 0 || has_gap || rest.len() < used - HEAD_LEN {
            break;
        }
        if !goes_on(name) || (!checked && has_bad_byte(name)) {
            break;
        }
        packed.records += 1;
        packed.last = packed.bytes;
        packed.bytes += used;
    }
    packed
}

/// Returns the entry of a name, if the block has it.
///
/// # Errors
/// `Corrupt` when a record before it is malformed.
pub fn find<'a>(block: &'a [u8], name: &[u8]) -> Result<Option<Entry<'a>>> {
    for entry in entries(block) {
        let entry = entry?;
        if entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}
