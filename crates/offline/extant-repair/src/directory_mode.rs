//! Directories with the mode of another type: their first block, or the data inside the inode, identifies them.

use crate::error::Error;
use crate::mapping;
use crate::record::Record;
use crate::session::Session;
use ext4_format::inode::inline::Inline;
use ext4_format::inode::{self, flags};
use ext4_format::{FileType, InodeNr, dir_entry};

/// Permission bits of a mode.
const PERMISSIONS: u16 = 0o7777;

/// Sets the mode of an inode that can have no data, by its mode, and has those of a directory.
pub(crate) fn mend(session: &mut Session<'_, '_>, record: &mut Record) -> Result<(), Error> {
    let data = matches!(
        record.core.file_type(),
        Some(FileType::Regular | FileType::Directory | FileType::Symlink)
    );
    if data || !looks_like_one(session, record)? {
        return Ok(());
    }
    let text = "its mode is that of a directory, which it is";
    if session.ask(record.place(), text, None) {
        let mode = record.core.mode & PERMISSIONS;
        record.core.mode = FileType::Directory.mode_bits() | mode;
        inode::encode_core(&record.core, &mut record.raw, &session.geo);
        // The size is read by the type.
        record.core = inode::decode_verified(&record.raw, &session.geo, record.ino)?;
    }
    Ok(())
}

fn looks_like_one(session: &Session<'_, '_>, record: &Record) -> Result<bool, Error> {
    if record.has(flags::INLINE_DATA) {
        return Ok(session.geo.features.has_inline_data() && holds_names(session, record));
    }
    let root = inode::i_block(&record.raw)?;
    // A device has its number here. A directory has a block, and most have only direct ones.
    let indirect = root.get(12 * 4..).is_some_and(|rest| rest != [0; 12]);
    if !record.has(flags::EXTENTS) && indirect {
        return Ok(false);
    }
    let seed = session.seed(record.ino, record.core.generation);
    let map = mapping::read(session, record.core.flags, root, seed)?;
    let first = map.extents.first().filter(|extent| extent.logical == 0);
    let Some(first) = first.filter(|_| map.problem.is_none()) else {
        return Ok(false);
    };
    let bytes = session.read(first.physical)?;
    let mut records = dir_entry::records(&bytes, 0, true);
    let (Some(Ok(own)), Some(Ok(parent))) = (records.next(), records.next()) else {
        return Ok(false);
    };
    let dots = own.name == b"." && own.inode == record.ino && parent.name == b"..";
    Ok(dots && own.offset == 0 && parent.offset == dir_entry::MIN_REC_LEN)
}

/// Returns whether the data inside an inode are those of a directory with a name or without any.
fn holds_names(session: &Session<'_, '_>, record: &Record) -> bool {
    let Ok(inline) = Inline::parse(&record.raw, &session.geo) else {
        return false;
    };
    let possible = |ino: InodeNr| session.geo.group_of_inode(ino).is_some();
    let [own, rest] = inline.records();
    let sound = |run: &[u8]| {
        let mut records = dir_entry::records(run, 0, false);
        records.all(|record| record.is_ok_and(|record| possible(record.inode)))
    };
    possible(inline.parent()) && sound(own) && sound(rest)
}
