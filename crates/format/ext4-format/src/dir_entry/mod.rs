//! Linear directory blocks: a chain of records that covers the block exactly.
//!
//! Each record is an 8-byte head and a name, padded to four bytes; a record's `rec_len` may reach further than its
//! name, and a new name is stored in the slack. Inode 0 marks a record unused. With `metadata_csum` the last twelve
//! bytes are a record that no name may use: the checksum tail. An indexed directory's root and nodes read as linear
//! blocks too (see [`crate::htree`]), which is how file systems that know no htree can read them.
//!
//! Reading is fully checked. Writing is in place, in the caller's block. Inode numbers are checked
//! here for being non-zero only; whoever knows the volume checks that they are in range.

mod build;
mod deleted;
mod edit;
mod read;

pub use build::{LeafBuilder, NewEntry, build};
pub use deleted::deleted;
pub use edit::{init_block, init_dir, insert, insert_any, make_leaf, remove, replace, type_byte};
use edit::{put_tail, writable};
pub use read::{Entries, Packed, RawRecord, Records, entries, entries_of, find, packed, records};

use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};
use crate::types::{FileType, InodeNr};
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// The smallest record: a head and a padded one-byte name.
pub const MIN_REC_LEN: usize = 12;
/// Length of the checksum tail.
pub const TAIL_LEN: usize = size_of::<RawTail>();
pub(crate) const HEAD_LEN: usize = size_of::<RawHead>();
/// The tail's file type byte.
const TAIL_FILE_TYPE: u8 = 0xde;

/// A record's head. Without the `filetype` feature the last byte is the high byte of the name
/// length and therefore zero.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawHead {
    pub(crate) inode: U32,
    pub(crate) rec_len: U16,
    pub(crate) name_len: u8,
    pub(crate) file_type: u8,
}

/// The checksum tail, dressed as an unused record.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawTail {
    head: RawHead,
    checksum: U32,
}

const _: () = {
    assert!(size_of::<RawHead>() == 8 && size_of::<RawTail>() == 12);
    assert!(offset_of!(RawHead, rec_len) == 4 && offset_of!(RawHead, file_type) == 7);
    assert!(offset_of!(RawTail, checksum) == 8);
};

/// A live name of a directory block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Byte offset of the record in its block.
    pub offset: u32,
    /// Bytes the record covers, slack included.
    pub rec_len: u32,
    /// The inode, never 0; not checked against the volume's inode count.
    pub inode: InodeNr,
    /// Type of the inode; `None` when the volume does not record it.
    pub file_type: Option<FileType>,
    /// The name: 1 to 255 bytes, no NUL, no slash. "." and ".." are names here.
    pub name: &'a [u8],
}

/// Returns the number of bytes for a record with a name of `name_len` bytes.
///
/// ```
/// use ext4_format::dir_entry::rec_len_for;
/// assert_eq!((rec_len_for(1), rec_len_for(4), rec_len_for(5)), (12, 12, 16));
/// ```
pub const fn rec_len_for(name_len: usize) -> usize {
    (HEAD_LEN + name_len + 3) & !3
}

/// Returns the number of bytes of a block that names can use.
pub const fn usable(block_len: usize, has_csum: bool) -> usize {
    block_len.saturating_sub(if has_csum { TAIL_LEN } else { 0 })
}

/// Encodes a record length for storing: 16 bits that also express 64 KiB.
pub const fn encode_rec_len(len: usize, block_len: usize) -> u16 {
    if len < 0x1_0000 {
        len as u16
    } else if len == block_len && block_len == 0x1_0000 {
        0xffff
    } else {
        // Lengths are multiples of four: the low bits hold the bits above 16.
        ((len & 0xfffc) | ((len >> 16) & 3)) as u16
    }
}

/// Decodes a stored record length.
pub const fn decode_rec_len(stored: u16, block_len: usize) -> usize {
    let len = stored as usize;
    if block_len < 0x1_0000 {
        len
    } else if len == 0xffff || len == 0 {
        block_len
    } else {
        (len & 0xfffc) | ((len & 3) << 16)
    }
}

const fn corrupt(what: &'static str, offset: usize) -> FormatError {
    FormatError::corrupt(what, Where::Buffer(offset as u32))
}

/// Checks that a name is valid in a directory ("." and ".." are refused).
///
/// # Errors
/// `Unrepresentable` for an empty or too long name, or one with NUL or a slash.
pub fn check_name(name: &[u8]) -> Result<()> {
    check_name_len(name)?;
    if has_bad_byte(name) {
        return Err(FormatError::Unrepresentable("name with NUL or slash"));
    }
    Ok(())
}

fn check_name_len(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return Err(FormatError::Unrepresentable("empty name"));
    }
    if name.len() > NAME_MAX {
        return Err(FormatError::Unrepresentable("name longer than 255 bytes"));
    }
    Ok(())
}

fn has_bad_byte(name: &[u8]) -> bool {
    let bad = |byte: u8| byte == 0 || byte == b'/';
    let Some(last) = name.last_chunk::<8>() else {
        return name.iter().any(|&b| bad(b));
    };
    // Eight at a time, the last eight once more: nearly every name is good, and most have not many more bytes than a
    // vector has.
    let (words, _) = name.as_chunks::<8>();
    const SLASHES: u64 = u64::from_ne_bytes([b'/'; 8]);
    let found = words.iter().chain([last]).fold(0, |found, &word| {
        let word = u64::from_ne_bytes(word);
        found | zeros(word) | zeros(word ^ SLASHES)
    });
    found != 0
}

/// Returns a number other than 0 if one of the eight bytes is 0.
const fn zeros(word: u64) -> u64 {
    const LOW: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    // A borrow sets a byte's clear high bit only if a byte is 0.
    word.wrapping_sub(LOW) & !word & HIGH
}

/// A record of the chain, live or not. Its bounds are checked, its name is not.
#[derive(Clone, Copy)]
struct Record {
    offset: usize,
    len: usize,
    inode: u32,
    name_len: usize,
    file_type: u8,
}

impl Record {
    fn at(block: &[u8], offset: usize) -> Result<Self> {
        let bytes = block.get(offset..).unwrap_or(&[]);
        let Ok((head, _)) = RawHead::ref_from_prefix(bytes) else {
            return Err(corrupt("directory record head", offset));
        };
        let len = decode_rec_len(head.rec_len.get(), block.len());
        let name_len = usize::from(head.name_len);
        let what = if len < MIN_REC_LEN {
            "directory record shorter than the minimum"
        } else if !len.is_multiple_of(4) {
            "directory record length alignment"
        } else if len > bytes.len() {
            "directory record beyond its block"
        } else if len < rec_len_for(name_len) {
            "directory record shorter than its name"
        } else {
            let (inode, file_type) = (head.inode.get(), head.file_type);
            return Ok(Self {
                offset,
                len,
                inode,
                name_len,
                file_type,
            });
        };
        Err(corrupt(what, offset))
    }

    const fn end(&self) -> usize {
        self.offset + self.len
    }

    /// Returns the number of bytes the record must keep.
    const fn used(&self) -> usize {
        if self.inode == 0 {
            0
        } else {
            rec_len_for(self.name_len)
        }
    }

    fn name<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        let start = self.offset + HEAD_LEN;
        block.get(start..start + self.name_len).unwrap_or(&[])
    }
}

/// How full a leaf is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Live names.
    pub names: u32,
    /// Free bytes in all gaps together, available in a rebuilt leaf.
    pub free: u32,
    /// The largest gap, available to [`insert`].
    pub largest: u32,
}

/// Counts a leaf's names and free bytes.
///
/// # Errors
/// `Corrupt` for a malformed block.
pub fn space(block: &[u8], has_csum: bool) -> Result<Space> {
    let (mut sum, mut offset) = (Space::default(), 0);
    while let Some(record) = writable(block, has_csum, offset)? {
        let gap = (record.len - record.used()) as u32;
        sum.names += u32::from(record.inode != 0);
        sum.free += gap;
        sum.largest = sum.largest.max(gap);
        offset = record.end();
    }
    Ok(sum)
}

fn tail_checksum(block: &[u8], inode_seed: u32) -> u32 {
    crc32c(
        inode_seed,
        block.get(..usable(block.len(), true)).unwrap_or(&[]),
    )
}

/// Writes the checksum tail over a finished leaf. `inode_seed` is
/// [`inode_seed`](crate::checksum::inode_seed) of the directory.
pub fn set_tail(block: &mut [u8], inode_seed: u32) {
    let sum = tail_checksum(block, inode_seed);
    put_tail(block);
    if let Some((_, last)) = block.split_last_chunk_mut::<4>() {
        *last = sum.to_le_bytes();
    }
}

/// Checks the tail and its checksum.
///
/// # Errors
/// `Corrupt` when the tail is missing, `Checksum` when it does not match.
pub fn verify_tail(block: &[u8], inode_seed: u32) -> Result<()> {
    let offset = usable(block.len(), true);
    let tail = match RawTail::read_from_suffix(block) {
        Ok((_, tail))
            if tail.head.inode == 0
                && tail.head.rec_len == TAIL_LEN as u16
                && tail.head.name_len == 0
                && tail.head.file_type == TAIL_FILE_TYPE =>
        {
            tail
        }
        _ => return Err(corrupt("directory block checksum tail", offset)),
    };
    let (stored, computed) = (tail.checksum.get(), tail_checksum(block, inode_seed));
    if stored == computed {
        return Ok(());
    }
    let at = Where::Buffer(offset as u32);
    Err(FormatError::Checksum {
        what: "directory block",
        at,
        stored,
        computed,
    })
}

#[cfg(test)]
mod tests;
