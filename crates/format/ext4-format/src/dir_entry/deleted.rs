//! Remains of removed names: records in the slack of others, and records without an inode.

use super::{Entry, MIN_REC_LEN, Record, has_bad_byte, rec_len_for};
use crate::types::{FileType, InodeNr};

/// Returns the remains of removed names in a directory block, in their order there. A name whose record was joined to
/// the one before it keeps its inode number; the number of a name at the start of a block is 0. A match may not have
/// been a record, and its inode may belong to another file by now. [`remove`](super::remove) and the kernel since
/// Linux 5.13 wipe a name completely.
///
/// ```
/// use ext4_format::{dir_entry, FileType, InodeNr};
/// let mut block = [0; 1024];
/// dir_entry::init_block(&mut block, false);
/// for (name, ino) in [(b"kept", 12), (b"gone", 13)] {
///     dir_entry::insert(&mut block, false, name, InodeNr(ino), Some(FileType::Regular))?;
/// }
/// // As older kernels remove a name: its record is joined to the one before it, at offset 0.
/// block[4..6].copy_from_slice(&1024_u16.to_le_bytes());
/// let deleted = dir_entry::deleted(&block);
/// assert_eq!((deleted.len(), deleted[0].name, deleted[0].inode), (1, &b"gone"[..], InodeNr(13)));
/// # Ok::<(), ext4_format::FormatError>(())
/// ```
pub fn deleted(block: &[u8]) -> Vec<Entry<'_>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Ok(record) = Record::at(block, at) {
        at = record.end();
        let mut slack = record.offset + record.used();
        while slack + MIN_REC_LEN <= at {
            match remains(block, slack, at) {
                Some(entry) => {
                    slack += rec_len_for(entry.name.len());
                    found.push(entry);
                }
                None => slack += 4,
            }
        }
    }
    found
}

/// Returns the removed name whose record was at `offset`, if one may have been there. It ended at `end` or before.
fn remains(block: &[u8], offset: usize, end: usize) -> Option<Entry<'_>> {
    let record = Record::at(block, offset).ok()?;
    let name = record.name(block);
    let fits = record.end() <= end && offset + rec_len_for(record.name_len) <= end;
    let is_name = !name.is_empty() && !has_bad_byte(name);
    (fits && is_name).then(|| Entry {
        offset: offset as u32,
        rec_len: record.len as u32,
        inode: InodeNr(record.inode),
        file_type: FileType::from_dir_byte(record.file_type),
        name,
    })
}
