//! Entries as they are read: every record is checked before it is believed.

use super::{Entry, Record, corrupt, has_bad_byte};
use crate::error::Result;
use crate::types::{FileType, InodeNr};

/// The names of a block, in the order they stand there. Made by [`entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    block: &'a [u8],
    offset: usize,
    /// Names are any bytes.
    encrypted: bool,
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
    Entries {
        block,
        offset: 0,
        encrypted: false,
    }
}

/// The same for an encrypted directory, whose names may hold any byte.
pub const fn encrypted_entries(block: &[u8]) -> Entries<'_> {
    Entries {
        encrypted: true,
        ..entries(block)
    }
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
            } else if !self.encrypted && has_bad_byte(name) {
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
