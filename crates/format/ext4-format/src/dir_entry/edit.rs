//! Blocks made, and entries put in, taken out and replaced in place.

use super::read::find;
use super::{
    HEAD_LEN, MIN_REC_LEN, RawHead, Record, TAIL_FILE_TYPE, TAIL_LEN, check_name, check_name_len,
    corrupt, encode_rec_len, rec_len_for, usable,
};
use crate::error::Result;
use crate::types::{FileType, InodeNr};
use zerocopy::{FromBytes, IntoBytes};

/// Writes a record; the caller has checked that it fits (a buffer too small to be a block stays unchanged). Slack
/// after the name is not written.
pub(super) fn put(
    block: &mut [u8],
    offset: usize,
    len: usize,
    ino: u32,
    name: &[u8],
    file_type: u8,
) {
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

pub(super) fn set_rec_len(block: &mut [u8], offset: usize, len: usize) {
    let stored = encode_rec_len(len, block.len()).to_le_bytes();
    if let Some(bytes) = block.get_mut(offset + 4..offset + 6) {
        bytes.copy_from_slice(&stored);
    }
}

/// Returns the byte of a type in a directory entry; 0 on volumes without `filetype`.
///
/// ```
/// use ext4_format::{FileType, dir_entry::type_byte};
/// assert_eq!(type_byte(Some(FileType::Directory)), 2);
/// assert_eq!(type_byte(None), 0);
/// ```
pub fn type_byte(file_type: Option<FileType>) -> u8 {
    file_type.map_or(0, |t| t as u8)
}

/// Writes an empty checksum tail; its checksum is set by [`set_tail`].
pub(super) fn put_tail(block: &mut [u8]) {
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

/// Makes room for the tail in a block whose last record covers it, as that of an index does, and writes the tail without its
/// checksum.
///
/// # Errors
/// `Corrupt` for a malformed block, or a last record that needs the room.
pub fn make_leaf(block: &mut [u8]) -> Result<()> {
    let end = usable(block.len(), true);
    let mut offset = 0;
    loop {
        let record = Record::at(block, offset)?;
        if record.end() < block.len() {
            offset = record.end();
            continue;
        }
        let room = end.checked_sub(offset);
        let Some(room) = room.filter(|room| *room >= record.used().max(MIN_REC_LEN)) else {
            return Err(corrupt("directory record over the checksum tail", offset));
        };
        set_rec_len(block, offset, room);
        put_tail(block);
        return Ok(());
    }
}

/// Makes a block the first of a new directory: "." and "..", nothing else. `filetype` is true if the volume records
/// types.
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

/// Returns the records a name may use: all but the tail.
pub(super) fn writable(block: &[u8], has_csum: bool, offset: usize) -> Result<Option<Record>> {
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
    insert_any(block, has_csum, name, ino, file_type)
}

/// Like [`insert`], for a name of any bytes, as in encrypted directories.
///
/// # Errors
/// `Unrepresentable` for a name that is empty or too long, `Corrupt` for a malformed block.
pub fn insert_any(
    block: &mut [u8],
    has_csum: bool,
    name: &[u8],
    ino: InodeNr,
    file_type: Option<FileType>,
) -> Result<bool> {
    check_name_len(name)?;
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

/// Removes a name and returns its inode; its space is added to the record before it. The tail's checksum is not
/// updated.
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

/// Points an existing name at another inode (rename over it, a moved directory's ".."). `Ok(None)` if the block does
/// not have the name, otherwise the old inode.
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
