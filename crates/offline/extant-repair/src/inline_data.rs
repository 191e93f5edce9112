//! Data inside records (`inline_data`), of files, links and directories.

use crate::attributes;
use crate::error::Error;
use crate::record::{self, Record};
use crate::session::Session;
use ext4_format::FileType;
use ext4_format::inode::inline::{ATTRIBUTE_NAME, Inline};
use ext4_format::inode::{self, encryption, flags};
use ext4_format::xattr::{self, XattrSet};

/// Mends an inode with the flag of inline data. `inline` is the length of the attribute with the rest of the data. Returns whether
/// the inode stays, and whether its data are inside it.
pub(crate) fn mend(
    session: &mut Session<'_, '_>,
    record: &mut Record,
    inline: Option<usize>,
    file_type: FileType,
) -> Result<(bool, bool), Error> {
    if inline.is_none() && record::has_tree(session, &record.raw) {
        let text = "its data are not inside it: it has the root of an extent tree";
        if session.geo.features.has_extents() && session.ask(record.place(), text, None) {
            record.core.flags &= !flags::INLINE_DATA;
            record.core.flags |= flags::EXTENTS;
            return Ok((true, false));
        }
    }
    let mapped = file_type != FileType::Directory
        && inode::sectors(&record.raw, &session.geo) > own_sectors(session, record)?;
    if inline.is_none() && mapped {
        let text = "its data are not inside it: it counts blocks";
        if session.ask(record.place(), text, None) {
            record.core.flags &= !flags::INLINE_DATA;
            return Ok((true, false));
        }
    }
    if inline.is_none() {
        let loses = (record.core.size > inode::I_BLOCK_SIZE as u64)
            .then_some("what did not fit into the first part of the inode");
        let text = "the attribute for its data is replaced by an empty one";
        if session.ask(record.place(), text, loses) && !add_attribute(session, record, true) {
            let text = "its attributes make room for the attribute of its data";
            let loses = Some("the attributes inside it");
            if !session.ask(record.place(), text, loses) || !add_attribute(session, record, false) {
                let text = "data inside it, without room";
                return Ok((!record::clear(session, record.ino, text)?, true));
            }
        }
    }
    if file_type == FileType::Symlink {
        return Ok((target(session, record)?, true));
    }
    size(session, record, inline, file_type);
    Ok((true, true))
}

/// Sectors that an inode counts for its attributes.
fn own_sectors(session: &Session<'_, '_>, record: &Record) -> Result<u64, Error> {
    let geo = &session.geo;
    let each = geo.sectors_per_cluster();
    Ok(attributes::clusters(session, &record.raw)? * each)
}

/// Adds an empty `system.data` to the attributes inside an inode; returns whether that is possible. Unless all are kept, damaged
/// attributes are replaced, and the longest ones make room. The context of an encrypted inode stays.
fn add_attribute(session: &Session<'_, '_>, record: &mut Record, keep: bool) -> bool {
    let Some(range) = inode::xattr_area(&record.raw, &session.geo) else {
        return false;
    };
    let Some(area) = record.raw.get_mut(range) else {
        return false;
    };
    let mut set = match XattrSet::parse(Some(area), None) {
        Ok(set) => set,
        Err(_) if keep => return false,
        Err(_) => XattrSet::default(),
    };
    if set.set(ATTRIBUTE_NAME, b"").is_err() {
        return false;
    }
    loop {
        if let Ok((Some(new), None)) = xattr::place(&set, area.len(), session.block_size()) {
            area.copy_from_slice(&new);
            return true;
        }
        let others = set.iter().filter(|(name, _)| may_go(name));
        let longest = others.max_by_key(|(name, value)| name.len() + value.len());
        let Some(longest) = longest.filter(|_| !keep).map(|(name, _)| name.to_vec()) else {
            return false;
        };
        set.remove(&longest);
    }
}

fn may_go(name: &[u8]) -> bool {
    name != ATTRIBUTE_NAME && name != encryption::ATTRIBUTE_NAME
}

fn size(
    session: &mut Session<'_, '_>,
    record: &mut Record,
    inline: Option<usize>,
    file_type: FileType,
) {
    let room = (inode::I_BLOCK_SIZE + inline.unwrap_or(0)) as u64;
    let (fits, wanted) = if file_type == FileType::Directory {
        (record.core.size == room, room)
    } else {
        // A file may end in a hole, unless the rest of its data is lost.
        let most = session.geo.max_addressed_size(record.has(flags::EXTENTS));
        let fits = record.core.size <= room || inline.is_some() && record.core.size <= most;
        // If only the high half is wrong, the low one is the size.
        (fits, (record.core.size & u64::from(u32::MAX)).min(room))
    };
    if !fits && session.ask(record.place(), format!("its size is set to {wanted}"), None) {
        record.core.size = wanted;
    }
}

/// Mends the target of a symbolic link, which fills the data inside the inode; returns whether the link stays.
fn target(session: &mut Session<'_, '_>, record: &mut Record) -> Result<bool, Error> {
    let bytes = Inline::undamaged_part(&record.raw, &session.geo)?.bytes();
    let sound = if record.has(flags::ENCRYPT) {
        encryption::target_size(&bytes, session.block_size()) == Some(record.core.size)
    } else {
        !bytes.contains(&0)
    };
    let room = bytes.len() as u64;
    if sound && record.core.size == room {
        return Ok(true);
    }
    if sound && session.ask(record.place(), format!("its size is set to {room}"), None) {
        record.core.size = room;
        return Ok(true);
    }
    Ok(!record::clear(
        session,
        record.ino,
        "a symbolic link without a target",
    )?)
}
