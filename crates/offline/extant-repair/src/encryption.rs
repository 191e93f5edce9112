//! Encrypted inodes: the flag without a context is cleared, names in encrypted directories lead to files of the same policy.

use crate::error::Error;
use crate::record::Record;
use crate::session::Session;
use ext4_format::inode::{self, encryption, flags};
use ext4_format::xattr::{self, Stored};
use ext4_format::{BlockNr, FileType, InodeNr};

const fn can_be_encrypted(file_type: FileType) -> bool {
    matches!(
        file_type,
        FileType::Regular | FileType::Directory | FileType::Symlink
    )
}

/// Notes the policy of an encrypted inode. An inode without a context loses the flag; its bytes stay unchanged.
pub(crate) fn mend(
    session: &mut Session<'_, '_>,
    record: &mut Record,
    file_type: FileType,
) -> Result<(), Error> {
    let features = session.geo.features;
    if !record.has(flags::ENCRYPT) || !features.has_encrypt() || !can_be_encrypted(file_type) {
        return Ok(());
    }
    let context = context(session, record)?;
    let Some(context) = context else {
        let text = "the flag of encryption is cleared, as it has no context";
        if session.ask(record.place(), text, None) {
            record.core.flags &= !flags::ENCRYPT;
        }
        return Ok(());
    };
    if let Some(policy) = encryption::policy(&context) {
        session.policies.insert(record.ino.0, policy.to_vec());
        return Ok(());
    }
    let text = "its context of encryption is removed, as it is damaged";
    if session.ask(record.place(), text, Some("the key's name")) {
        record.core.flags &= !flags::ENCRYPT;
        remove_context(session, record)?;
    }
    Ok(())
}

fn context(session: &Session<'_, '_>, record: &Record) -> Result<Option<Vec<u8>>, Error> {
    let geo = &session.geo;
    let mut context = None;
    let mut find = |index: u8, rest: &[u8], value: Stored<'_>| {
        if let Stored::Here(value) = value
            && (index, rest) == encryption::ATTRIBUTE
        {
            context = Some(value.to_vec());
        }
        Ok(())
    };
    // `attributes::mend` removes damaged attributes.
    let area = inode::xattr_area(&record.raw, geo).and_then(|range| record.raw.get(range));
    let _ = xattr::walk_inode_area(area.unwrap_or(&[]), &mut find);
    let block = inode::file_acl(&record.raw, geo);
    if geo.is_valid_data_range(block, 1) {
        let _ = xattr::walk_block(&session.read(block)?, &mut find);
    }
    Ok(context)
}

fn remove_context(session: &mut Session<'_, '_>, record: &mut Record) -> Result<(), Error> {
    let geo = session.geo.clone();
    let area = inode::xattr_area(&record.raw, &geo);
    if let Some(area) = area.and_then(|range| record.raw.get_mut(range)) {
        xattr::remove_in_inode(area, |a| (a.index, a.rest) == encryption::ATTRIBUTE);
    }
    let block: BlockNr = inode::file_acl(&record.raw, &geo);
    if geo.is_valid_data_range(block, 1) {
        let mut bytes = session.read(block)?;
        if xattr::remove_in_block(&mut bytes, |a| (a.index, a.rest) == encryption::ATTRIBUTE) > 0 {
            if session.has_csum() {
                xattr::set_checksum(&mut bytes, geo.csum_seed, block);
            }
            session.write(block, &bytes)?;
        }
    }
    Ok(())
}

/// Returns whether the names of a directory are encrypted with a known policy.
pub(crate) fn is_encrypted(session: &Session<'_, '_>, dir: InodeNr) -> bool {
    session.policies.contains_key(&dir.0)
}

/// Returns the reason why a name of an encrypted directory cannot stay, if any.
pub(crate) fn verdict(
    session: &Session<'_, '_>,
    dir: InodeNr,
    (name, ino, file_type): (&[u8], InodeNr, FileType),
) -> Option<&'static str> {
    let policy = session.policies.get(&dir.0)?;
    if name.len() < encryption::MIN_NAME_LEN {
        return Some("has a name too short to be encrypted");
    }
    let same = session.policies.get(&ino.0) == Some(policy);
    (can_be_encrypted(file_type) && !same).then_some("is not encrypted as its directory is")
}
