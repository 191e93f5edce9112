//! Linear directory blocks: a chain of records that covers the block exactly.
//!
//! Each record is an 8-byte head and a name, padded to four bytes; a record's `rec_len` may reach
//! further than its name and the slack is where the next name goes. Inode 0 marks a record unused.
//! With `metadata_csum` the last twelve bytes are a record that no name may use: the checksum tail.
//! An indexed directory's root and nodes read as linear blocks too (see [`crate::htree`]), which is
//! how file systems that know no htree can read them.
//!
//! Reading is fully checked. Writing is in place, in the caller's block. Inode numbers are checked
//! here for being non-zero only; whoever knows the volume checks that they are in range.

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
const HEAD_LEN: usize = size_of::<RawHead>();
/// What stands in the tail's file type byte.
const TAIL_FILE_TYPE: u8 = 0xde;

/// A record's head. Without the `filetype` feature the last byte is the high byte of the name
/// length and therefore zero.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHead {
    inode: U32,
    rec_len: U16,
    name_len: u8,
    file_type: u8,
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

/// One live name of a directory block.
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

/// Bytes a name of `name_len` bytes needs.
///
/// ```
/// use ext4_format::dir_entry::rec_len_for;
/// assert_eq!((rec_len_for(1), rec_len_for(4), rec_len_for(5)), (12, 12, 16));
/// ```
pub const fn rec_len_for(name_len: usize) -> usize {
    (HEAD_LEN + name_len + 3) & !3
}

/// Bytes of a block that names can use.
pub const fn usable(block_len: usize, has_csum: bool) -> usize {
    block_len.saturating_sub(if has_csum { TAIL_LEN } else { 0 })
}

/// A record length as stored: 16 bits that also express 64 KiB.
pub const fn encode_rec_len(len: usize, block_len: usize) -> u16 {
    if len < 0x1_0000 {
        len as u16
    } else if len == block_len && block_len == 0x1_0000 {
        0xffff
    } else {
        // Lengths are multiples of four: the low bits carry what is above 16 bits.
        ((len & 0xfffc) | ((len >> 16) & 3)) as u16
    }
}

/// A record length from its stored form.
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

/// Whether a name may stand in a directory (apart from "." and "..", which may not be made).
///
/// # Errors
/// `Unrepresentable` for an empty or too long name, or one with NUL or a slash.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return Err(FormatError::Unrepresentable("empty name"));
    }
    if name.len() > NAME_MAX {
        return Err(FormatError::Unrepresentable("name longer than 255 bytes"));
    }
    if has_bad_byte(name) {
        return Err(FormatError::Unrepresentable("name with NUL or slash"));
    }
    Ok(())
}

fn has_bad_byte(name: &[u8]) -> bool {
    // No early exit: the loop vectorises, and nearly every name is good.
    name.iter()
        .fold(false, |bad, &b| bad | (b == 0) | (b == b'/'))
}

/// One record of the chain, live or not. Its bounds are checked, its name is not.
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

    /// Bytes the record must keep.
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

/// The names of a block, in the order they stand there. Made by [`entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    block: &'a [u8],
    offset: usize,
}

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
    Entries { block, offset: 0 }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.offset < self.block.len() {
            let record = match Record::at(self.block, self.offset) {
                Ok(record) => record,
                Err(e) => {
                    self.offset = self.block.len();
                    return Some(Err(e));
                }
            };
            self.offset = record.end();
            if record.inode == 0 {
                continue;
            }
            let name = record.name(self.block);
            let what = if name.is_empty() {
                "directory entry without a name"
            } else if has_bad_byte(name) {
                "directory entry name with NUL or slash"
            } else {
                return Some(Ok(Entry {
                    offset: record.offset as u32,
                    rec_len: record.len as u32,
                    inode: InodeNr(record.inode),
                    file_type: FileType::from_dir_byte(record.file_type),
                    name,
                }));
            };
            self.offset = self.block.len();
            return Some(Err(corrupt(what, record.offset)));
        }
        None
    }
}

/// The entry of a name, if the block has it.
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

/// Writes a record; the caller has checked that it fits (a buffer too small to be a block stays as
/// it is). Slack after the name is left as it is.
fn put(block: &mut [u8], offset: usize, len: usize, ino: u32, name: &[u8], file_type: u8) {
    let block_len = block.len();
    let Some(bytes) = block
        .get_mut(offset..offset + len)
        .filter(|b| b.len() >= HEAD_LEN)
    else {
        return;
    };
    let head = RawHead {
        inode: ino.into(),
        rec_len: encode_rec_len(len, block_len).into(),
        name_len: name.len() as u8,
        file_type,
    };
    debug_assert!(len >= rec_len_for(name.len()));
    let (head_bytes, rest) = bytes.split_at_mut(HEAD_LEN);
    head_bytes.copy_from_slice(head.as_bytes());
    let padded = rec_len_for(name.len()) - HEAD_LEN;
    if let Some(rest) = rest.get_mut(..padded) {
        let (target, padding) = rest.split_at_mut(name.len());
        target.copy_from_slice(name);
        padding.fill(0);
    }
}

fn set_rec_len(block: &mut [u8], offset: usize, len: usize) {
    let stored = encode_rec_len(len, block.len()).to_le_bytes();
    if let Some(bytes) = block.get_mut(offset + 4..offset + 6) {
        bytes.copy_from_slice(&stored);
    }
}

fn type_byte(file_type: Option<FileType>) -> u8 {
    file_type.map_or(0, |t| t as u8)
}

/// Writes an empty checksum tail; its checksum is set by [`set_tail`].
fn put_tail(block: &mut [u8]) {
    let offset = usable(block.len(), true);
    put(block, offset, TAIL_LEN, 0, b"", TAIL_FILE_TYPE);
    if let Some(checksum) = block.get_mut(offset + HEAD_LEN..) {
        checksum.fill(0);
    }
}

/// Makes a block an empty directory leaf: one unused record, and a tail when `has_csum`.
pub fn init_block(block: &mut [u8], has_csum: bool) {
    block.fill(0);
    put(block, 0, usable(block.len(), has_csum), 0, b"", 0);
    if has_csum {
        put_tail(block);
    }
}

/// Makes a block the first of a new directory: "." and "..", nothing else. `filetype` says whether
/// the volume records types.
pub fn init_dir(block: &mut [u8], has_csum: bool, own: InodeNr, parent: InodeNr, filetype: bool) {
    block.fill(0);
    let kind = type_byte(filetype.then_some(FileType::Directory));
    put(block, 0, MIN_REC_LEN, own.0, b".", kind);
    put(
        block,
        MIN_REC_LEN,
        usable(block.len(), has_csum).saturating_sub(MIN_REC_LEN),
        parent.0,
        b"..",
        kind,
    );
    if has_csum {
        put_tail(block);
    }
}

/// The records a name may use: all but the tail.
fn writable(block: &[u8], has_csum: bool, offset: usize) -> Result<Option<Record>> {
    let end = usable(block.len(), has_csum);
    if offset >= end {
        return if offset == end {
            Ok(None)
        } else {
            Err(corrupt("directory record over the checksum tail", offset))
        };
    }
    Record::at(block, offset).map(Some)
}

/// Adds a name where the first gap has room. `Ok(false)` when no gap has; the caller knows that
/// the name is not in the directory yet. The tail's checksum is not updated.
///
/// # Errors
/// `Unrepresentable` for a bad name, `Corrupt` for a malformed block.
pub fn insert(
    block: &mut [u8],
    has_csum: bool,
    name: &[u8],
    ino: InodeNr,
    file_type: Option<FileType>,
) -> Result<bool> {
    check_name(name)?;
    let need = rec_len_for(name.len());
    let mut offset = 0;
    while let Some(record) = writable(block, has_csum, offset)? {
        let used = record.used();
        if record.end() > usable(block.len(), has_csum) {
            return Err(corrupt("directory record over the checksum tail", offset));
        }
        if record.len - used >= need {
            if used > 0 {
                set_rec_len(block, record.offset, used);
            }
            put(
                block,
                record.offset + used,
                record.len - used,
                ino.0,
                name,
                type_byte(file_type),
            );
            return Ok(true);
        }
        offset = record.end();
    }
    Ok(false)
}

/// Takes a name out and returns its inode; its space goes to the record before it. The tail's
/// checksum is not updated.
///
/// # Errors
/// `Corrupt` for a malformed block.
pub fn remove(block: &mut [u8], name: &[u8]) -> Result<Option<InodeNr>> {
    let (mut offset, mut previous) = (0, None::<Record>);
    while offset < block.len() {
        let record = Record::at(block, offset)?;
        if record.inode == 0 || record.name(block) != name {
            offset = record.end();
            previous = Some(record);
            continue;
        }
        // The bytes of a removed name are wiped, as the kernel does.
        let wiped = record.used();
        match previous {
            Some(before) => {
                if let Some(bytes) = block.get_mut(offset..offset + wiped) {
                    bytes.fill(0);
                }
                set_rec_len(block, before.offset, before.len + record.len);
            }
            None => {
                if let Some(bytes) = block.get_mut(offset + HEAD_LEN..offset + wiped) {
                    bytes.fill(0);
                }
                put(block, offset, record.len, 0, b"", 0);
            }
        }
        return Ok(Some(InodeNr(record.inode)));
    }
    Ok(None)
}

/// Points an existing name at another inode (rename over it, a moved directory's ".."). `Ok(None)`
/// when the block does not have it, else the inode it pointed at.
///
/// # Errors
/// `Corrupt` for a malformed block.
pub fn replace(
    block: &mut [u8],
    name: &[u8],
    ino: InodeNr,
    file_type: Option<FileType>,
) -> Result<Option<InodeNr>> {
    let Some(entry) = find(block, name)? else {
        return Ok(None);
    };
    let (offset, old) = (entry.offset as usize, entry.inode);
    if let Some(Ok((head, _))) = block.get_mut(offset..).map(RawHead::mut_from_prefix) {
        head.inode = ino.0.into();
        head.file_type = type_byte(file_type);
    }
    Ok(Some(old))
}

/// Packs names into a leaf one after the other.
///
/// ```
/// use ext4_format::{dir_entry::{entries, LeafBuilder}, InodeNr};
/// let mut block = [0; 1024];
/// let mut leaf = LeafBuilder::new(&mut block, false);
/// assert!(leaf.push(b"a", InodeNr(11), None).unwrap());
/// assert!(leaf.push(b"b", InodeNr(12), None).unwrap());
/// assert_eq!(leaf.free(), 1024 - 24);
/// leaf.finish();
/// assert_eq!(entries(&block).count(), 2);
/// ```
#[derive(Debug)]
pub struct LeafBuilder<'a> {
    block: &'a mut [u8],
    has_csum: bool,
    end: usize,
    /// Start of the last record and of the free space behind it.
    last: Option<usize>,
    next: usize,
}

impl<'a> LeafBuilder<'a> {
    /// Starts an empty leaf in `block`, whatever it held.
    pub fn new(block: &'a mut [u8], has_csum: bool) -> Self {
        let end = usable(block.len(), has_csum);
        Self {
            block,
            has_csum,
            end,
            last: None,
            next: 0,
        }
    }

    /// Bytes still free.
    pub const fn free(&self) -> usize {
        self.end - self.next
    }

    /// Appends a name; `Ok(false)` when it does not fit.
    ///
    /// # Errors
    /// `Unrepresentable` for a bad name.
    pub fn push(&mut self, name: &[u8], ino: InodeNr, file_type: Option<FileType>) -> Result<bool> {
        check_name(name)?;
        let len = rec_len_for(name.len());
        if self.free() < len {
            return Ok(false);
        }
        put(
            self.block,
            self.next,
            len,
            ino.0,
            name,
            type_byte(file_type),
        );
        self.last = Some(self.next);
        self.next += len;
        Ok(true)
    }

    /// Gives the free space to the last name and writes the tail.
    pub fn finish(self) {
        match self.last {
            Some(last) => {
                set_rec_len(self.block, last, self.end - last);
                if let Some(rest) = self.block.get_mut(self.next..) {
                    rest.fill(0);
                }
                if self.has_csum {
                    put_tail(self.block);
                }
            }
            None => init_block(self.block, self.has_csum),
        }
    }
}

/// A name to put into a leaf, as [`build`] takes them.
pub type NewEntry<'n> = (&'n [u8], InodeNr, Option<FileType>);

/// Fills a leaf with names until one does not fit or `keep_free` bytes would not stay free, and
/// returns how many it took. A name not taken stays in the iterator. One name is always taken if
/// it fits at all.
///
/// # Errors
/// `Unrepresentable` for a bad name.
pub fn build<'n, I>(
    block: &mut [u8],
    has_csum: bool,
    keep_free: usize,
    names: &mut core::iter::Peekable<I>,
) -> Result<usize>
where
    I: Iterator<Item = NewEntry<'n>>,
{
    let mut leaf = LeafBuilder::new(block, has_csum);
    let mut taken = 0;
    while let Some(&(name, ino, file_type)) = names.peek() {
        let room = leaf.free().saturating_sub(rec_len_for(name.len()));
        if (taken > 0 && room < keep_free) || !leaf.push(name, ino, file_type)? {
            break;
        }
        names.next();
        taken += 1;
    }
    leaf.finish();
    Ok(taken)
}

/// How full a leaf is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Live names.
    pub names: u32,
    /// Bytes free in all gaps together: what a rebuilt leaf could still take.
    pub free: u32,
    /// The largest gap: what [`insert`] can take now.
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, btree_map::Entry};

    fn list(block: &[u8]) -> Vec<(Vec<u8>, u32)> {
        entries(block)
            .map(|e| e.map(|e| (e.name.to_vec(), e.inode.0)).unwrap())
            .collect()
    }

    #[test]
    fn rec_len_of_large_blocks() {
        for block in [1024, 4096, 32_768, 65_536] {
            for len in (12..=block).step_by(4) {
                assert_eq!(decode_rec_len(encode_rec_len(len, block), block), len);
            }
        }
        let mut block = vec![0; 65_536];
        init_block(&mut block, false);
        assert_eq!(block[4..6], [0xff, 0xff]);
        assert!(insert(&mut block, false, b"x", InodeNr(9), None).unwrap());
        assert_eq!(list(&block), [(b"x".to_vec(), 9)]);
    }

    #[test]
    fn malformed_records_are_named() {
        let mut good = [0; 1024];
        init_dir(&mut good, true, InodeNr(2), InodeNr(2), true);
        assert_eq!(list(&good), [(b".".to_vec(), 2), (b"..".to_vec(), 2)]);
        for (offset, value, rule) in [
            (4, 8, "directory record shorter than the minimum"),
            (4, 13, "directory record length alignment"),
            (17, 0xff, "directory record beyond its block"),
            (6, 200, "directory record shorter than its name"),
            (6, 0, "directory entry without a name"),
            (8, b'/', "directory entry name with NUL or slash"),
        ] {
            let mut bad = good;
            bad[offset] = value;
            match entries(&bad).find_map(Result::err) {
                Some(FormatError::Corrupt { what, .. }) => assert_eq!(what, rule),
                other => panic!("{rule}: {other:?}"),
            }
        }
    }

    #[test]
    fn no_name_uses_the_tail() {
        let mut block = [0; 64];
        init_block(&mut block, true);
        let mut names = 0;
        while insert(&mut block, true, &[b'a' + names], InodeNr(5), None).unwrap() {
            names += 1;
        }
        assert_eq!(names, 4); // (64 - 12) / 12
        set_tail(&mut block, 77);
        verify_tail(&block, 77).unwrap();
        assert!(verify_tail(&block, 78).is_err());
        block[20] ^= 1;
        assert!(matches!(
            verify_tail(&block, 77),
            Err(FormatError::Checksum { .. })
        ));
    }

    fn name() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(b'0'..b'4', 1..12)
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut block in proptest::collection::vec(any::<u8>(), 0..300), csum: bool) {
            let _ = entries(&block).count();
            let _ = space(&block, csum);
            let _ = verify_tail(&block, 1);
            let _ = remove(&mut block.clone(), b"a");
            let _ = replace(&mut block.clone(), b"a", InodeNr(3), None);
            let _ = insert(&mut block, csum, b"abc", InodeNr(3), None);
        }

        #[test]
        fn acts_like_a_map(
            ops in proptest::collection::vec((any::<bool>(), name(), 1..1000_u32), 0..120),
            csum: bool,
        ) {
            let mut block = [0; 512];
            init_block(&mut block, csum);
            let mut model = BTreeMap::new();
            for (add, name, ino) in ops {
                if !add {
                    let gone = remove(&mut block, &name).unwrap();
                    prop_assert_eq!(gone.map(|i| i.0), model.remove(&name));
                } else if let Entry::Vacant(vacant) = model.entry(name.clone()) {
                    let room = space(&block, csum).unwrap();
                    let fits = room.largest as usize >= rec_len_for(name.len());
                    let done = insert(&mut block, csum, &name, InodeNr(ino), Some(FileType::Fifo)).unwrap();
                    prop_assert_eq!(done, fits);
                    if done {
                        vacant.insert(ino);
                    }
                }
                let used: usize = model.keys().map(|n| rec_len_for(n.len())).sum();
                let now = space(&block, csum).unwrap();
                prop_assert_eq!(now.names as usize, model.len());
                prop_assert_eq!(now.free as usize, usable(512, csum) - used);
            }
            let mut found = list(&block);
            found.sort();
            prop_assert_eq!(&found, &model.into_iter().collect::<Vec<_>>());
            // Rebuilt from its own names, the leaf has one gap.
            let mut again = [0xaa; 512];
            let mut names = found.iter().map(|(n, i)| (&n[..], InodeNr(*i), None)).peekable();
            prop_assert_eq!(build(&mut again, csum, 0, &mut names).unwrap(), found.len());
            prop_assert_eq!(list(&again), found);
            let room = space(&again, csum).unwrap();
            prop_assert_eq!(room.free, room.largest);
        }
    }
}
