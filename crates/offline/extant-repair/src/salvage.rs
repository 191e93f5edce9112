//! Records of a directory block around damage.

use crate::session::{InodeUse, Session};
use ext4_format::dir_entry::{self, MIN_REC_LEN, RawRecord};
use ext4_format::{FileType, InodeNr};

/// Bytes in front of a record's name.
const HEAD_LEN: usize = 8;

/// Live records of a block.
pub(crate) struct Records<'b> {
    pub(crate) records: Vec<RawRecord<'b>>,
    /// Whether a record between them is damaged.
    pub(crate) is_damaged: bool,
}

/// Reads the records of a block. After a damaged record, resumes at the next likely record from which the chain reaches the end.
pub(crate) fn records<'b>(session: &Session<'_, '_>, bytes: &'b [u8], any: bool) -> Records<'b> {
    let mut found = Records {
        records: Vec::new(),
        is_damaged: false,
    };
    let mut from = 0;
    while let Some(damage) = read_from(bytes, from, &mut found.records) {
        found.is_damaged = true;
        let mut next = damage + 4;
        if let Some(record) = without_len(session, bytes, damage, any) {
            next = damage + record.used;
            found.records.push(record);
        }
        let goes_on = |at: &usize| goes_on(session, bytes, *at, any);
        let Some(at) = (next..bytes.len()).step_by(4).find(goes_on) else {
            break;
        };
        from = at;
    }
    found
}

/// Reads records up to the end or to a damaged one, and returns the offset of the damaged one.
fn read_from<'b>(bytes: &'b [u8], from: usize, to: &mut Vec<RawRecord<'b>>) -> Option<usize> {
    let mut at = from;
    loop {
        // A record that is not live is passed over, so the damaged one is looked for behind the last that was read.
        let mut records = dir_entry::records(bytes, at, true);
        match records.next() {
            None => return None,
            Some(Ok(record)) => {
                at = record.offset + record.rec_len;
                to.push(record);
            }
            Some(Err(_)) => return Some(first_damaged(bytes, at)),
        }
    }
}

/// Returns the offset of the first record from `at` on that cannot be read.
fn first_damaged(bytes: &[u8], mut at: usize) -> usize {
    while let Some(len) = unused_len(bytes, at) {
        at += len;
    }
    at
}

/// Returns the length of a record that is not live.
fn unused_len(bytes: &[u8], at: usize) -> Option<usize> {
    let head = bytes.get(at..)?.first_chunk::<HEAD_LEN>()?;
    let [0, 0, 0, 0, low, high, ..] = *head else {
        return None;
    };
    let len = dir_entry::decode_rec_len(u16::from_le_bytes([low, high]), bytes.len());
    let fits = len >= MIN_REC_LEN && len.is_multiple_of(4) && at + len <= bytes.len();
    fits.then_some(len)
}

/// Returns the record at an offset, if only its length is wrong.
fn without_len<'b>(
    session: &Session<'_, '_>,
    bytes: &'b [u8],
    offset: usize,
    any: bool,
) -> Option<RawRecord<'b>> {
    let head = *bytes.get(offset..)?.first_chunk::<HEAD_LEN>()?;
    let [a, b, c, d, _, _, name_len, file_type] = head;
    let name = bytes.get(offset + HEAD_LEN..)?.get(..name_len.into())?;
    let used = dir_entry::rec_len_for(name.len());
    let record = RawRecord {
        offset,
        rec_len: used,
        used,
        inode: InodeNr(u32::from_le_bytes([a, b, c, d])),
        file_type,
        name,
    };
    is_likely(session, &record, any).then_some(record)
}

/// Returns whether a record leads to an inode in use of the record's type, and has a possible name.
fn is_likely(session: &Session<'_, '_>, record: &RawRecord<'_>, any: bool) -> bool {
    let named = if any {
        !record.name.is_empty()
    } else {
        dir_entry::check_name(record.name).is_ok()
    };
    let used = session.inodes.get(&record.inode.0);
    let typed = used.is_some_and(|used| match used.kind {
        InodeUse::File(is) if session.geo.features.has_filetype() => {
            // A name may be without its type.
            record.file_type == 0 || FileType::from_dir_byte(record.file_type) == Some(is)
        }
        InodeUse::File(_) => record.file_type == 0,
        _ => false,
    });
    named && typed
}

/// Returns whether a likely record is at an offset, from which records lead to the end of the block.
fn goes_on(session: &Session<'_, '_>, bytes: &[u8], at: usize, any: bool) -> bool {
    let first = match dir_entry::records(bytes, at, true).next() {
        Some(Ok(record)) if record.offset == at => record,
        _ => return false,
    };
    is_likely(session, &first, any) && dir_entry::records(bytes, at, true).all(|r| r.is_ok())
}
