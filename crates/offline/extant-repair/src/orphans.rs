//! Inodes that waited for their end: the list in the superblock, and the orphan file.

use crate::error::Error;
use crate::mapping;
use crate::session::Session;
use ext4_format::features::{Compat, RoCompat};
use ext4_format::{BlockNr, InodeNr, inode, orphan_file};

/// Empties both; the inodes without links are free then, and the others are cut to their size.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let first = session.sb.last_orphan.get();
    if first != 0 && session.ask("superblock", "its list of orphans is worked off", None) {
        let mut next = first;
        while next != 0 && session.orphans.insert(next) {
            let raw = session.read_record(InodeNr(next))?;
            let core =
                raw.and_then(|raw| inode::decode_verified(&raw, &session.geo, InodeNr(next)).ok());
            next = core.map_or(0, |core| core.dtime);
        }
        session.sb.last_orphan.set(0);
        session.write_superblock()?;
    }
    if session.geo.features.has_orphan_file() && !file(session)? {
        let loses = Some("the list of inodes that waited for their end");
        if session.ask("orphan file", "the feature is cleared", loses) {
            let (compat, ro) = (
                session.sb.feature_compat.get(),
                session.sb.feature_ro_compat.get(),
            );
            session
                .sb
                .feature_compat
                .set(compat & !Compat::ORPHAN_FILE.bits());
            session
                .sb
                .feature_ro_compat
                .set(ro & !RoCompat::ORPHAN_PRESENT.bits());
            let ino = InodeNr(session.sb.orphan_file_inum.get());
            session.sb.orphan_file_inum.set(0);
            if let Some(mut raw) = session.read_record(ino)? {
                raw.fill(0);
                session.write_record(ino, &mut raw)?;
            }
            session.write_superblock()?;
        }
    }
    Ok(())
}

/// Returns whether the orphan file can be used.
fn file(session: &mut Session<'_, '_>) -> Result<bool, Error> {
    let ino = InodeNr(session.geo.orphan_file_ino);
    let Some(raw) = session.read_record(ino)? else {
        return Ok(false);
    };
    let Ok(core) = inode::decode_verified(&raw, &session.geo, ino) else {
        return Ok(false);
    };
    let seed = session.seed(ino, core.generation);
    let root = inode::i_block(&raw).map_err(Error::Format)?;
    let map = mapping::read(session, core.flags, root, seed)?;
    let size = map.end() * u64::from(session.geo.block_size);
    let regular = core.file_type() == Some(ext4_format::FileType::Regular);
    if core.links == 0
        || !regular
        || map.problem.is_some()
        || map.blocks() != map.end()
        || size != core.size
    {
        return Ok(false);
    }
    for extent in &map.extents {
        for i in 0..extent.len {
            let block = BlockNr(extent.physical.0 + u64::from(i));
            let bytes = session.read(block)?;
            let valid = orphan_file::verify(&bytes, seed, block).is_ok();
            let waiting: Vec<u32> = orphan_file::orphans(&bytes).map(|(_, ino)| ino.0).collect();
            if valid && waiting.is_empty() {
                continue;
            }
            if !session.ask("orphan file", format!("block {block} is emptied"), None) {
                continue;
            }
            if valid {
                session.orphans.extend(waiting);
            }
            let bytes = orphan_file::empty_block(bytes.len(), seed, block);
            session.write(block, &bytes)?;
        }
    }
    let ro = session.sb.feature_ro_compat.get();
    let text = "orphan_present is cleared, as the orphan file is empty";
    if ro & RoCompat::ORPHAN_PRESENT.bits() != 0 && session.ask("superblock", text, None) {
        session
            .sb
            .feature_ro_compat
            .set(ro & !RoCompat::ORPHAN_PRESENT.bits());
        session.write_superblock()?;
    }
    Ok(true)
}
