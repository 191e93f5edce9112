//! Finds the quota files of the new volume, and brings the use in them up to date.

use crate::error::Error;
use crate::quota::{File, Quota};
use crate::session::Session;
use ext4_format::extent::Extent;
use ext4_format::inode::InodeCore;
use ext4_format::quota::{QuotaFile, QuotaKind};
use ext4_format::{FormatError, InodeNr, Where};
use ext4_image::place_of;

/// Notes a quota file, and its number in the superblock. The superblock of an image without `quota` may name other inodes.
pub(crate) fn note_file(
    session: &mut Session<'_, '_>,
    (ino, new): (InodeNr, InodeNr),
    core: &InodeCore,
    extents: &[Extent],
) {
    if !session.geo.features.has_quota() {
        return;
    }
    for kind in QuotaKind::ALL {
        if kind.inode(&session.old.shape.sb) == ino.0 {
            kind.set_inode(&mut session.sb, new.0);
            session.quota.files.push(File {
                kind,
                ino: new,
                len: core.size,
                extents: extents.to_vec(),
            });
        }
    }
}

/// Brings the use in the quota files up to date. Limits and grace periods stay.
pub(crate) fn write(session: &Session<'_, '_>) -> Result<(), Error> {
    for file in &session.quota.files {
        one(session, file)?;
    }
    Ok(())
}

fn one(session: &Session<'_, '_>, file: &File) -> Result<(), Error> {
    let Quota { before, after, .. } = &session.quota;
    let (before, after) = (before.of(file.kind), after.of(file.kind));
    if before == after {
        return Ok(());
    }
    let corrupt = |what| FormatError::corrupt(what, Where::Inode(file.ino));
    let size = session.geo.block_size as usize;
    let mut content = QuotaFile::read_from(file.kind, file.len, size, |logical| {
        let at = place_of(&file.extents, logical);
        let at = at.ok_or_else(|| corrupt("a hole in a quota file"))?;
        let bytes = session.read(at);
        bytes.map_err(|_| corrupt("a block of a quota file that cannot be read"))
    })?;
    for (id, record) in &mut content.records {
        if let (Some(before), Some(after)) = (before.get(id), after.get(id)) {
            let bytes = &mut record.used.bytes;
            *bytes = bytes
                .saturating_sub(before.bytes)
                .saturating_add(after.bytes);
        }
    }
    // The tree has the same numbers as before, so it is not larger, unless the file was written by another rule.
    let bytes = content.to_bytes(file.kind);
    if bytes.len() as u64 > file.len {
        return Err(Error::Refused("quota files that need more blocks".into()));
    }
    for (logical, part) in (0..).zip(bytes.chunks(size)) {
        let at = place_of(&file.extents, logical);
        let at = at.ok_or_else(|| corrupt("a hole in a quota file"))?;
        let mut block = part.to_vec();
        block.resize(size, 0);
        session.write(at, &block)?;
    }
    Ok(())
}
