//! Where the journal is: the mapping of its inode, or of the superblock's copy of it, and its own superblock.

use crate::error::Error;
use crate::mapping::{self, MapRead};
use crate::session::Session;
use ext4_format::extent::Extent;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::jbd2;
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_format::{BlockNr, FileType, FormatError, InodeNr, Where};

/// Returns the mapping of the journal, as far as it is known before the tables of inodes are: from the superblock's copy, or else from
/// the journal's inode.
pub(crate) fn known_map(session: &Session<'_, '_>) -> Result<Option<MapRead>, Error> {
    if let Some((core, root)) = copied(session, InodeCore::default()) {
        // The volume's checksums may all be wrong.
        if let Some(map) = copied_map(session, &core, &root, None)? {
            return Ok(Some(map));
        }
    }
    match session.read_record(InodeNr::JOURNAL)? {
        Some(raw) => sound_map(session, &raw, InodeNr::JOURNAL),
        None => Ok(None),
    }
}

/// Returns the superblock of the volume that a replay of the log would write, before the descriptors are read.
pub(crate) fn logged_superblock(
    session: &Session<'_, '_>,
) -> Result<Option<[u8; SUPERBLOCK_SIZE]>, Error> {
    let Some(map) = known_map(session)? else {
        return Ok(None);
    };
    let Some(sb) = own_superblock(session, &map)? else {
        return Ok(None);
    };
    let size = u64::from(session.geo.block_size);
    let home = BlockNr(SUPERBLOCK_OFFSET / size);
    let read = |block| read_log(session, &map, block);
    let Ok(found) = jbd2::salvage(&sb, session.geo.blocks_count, read) else {
        return Ok(None);
    };
    let image = found.plan.replay.iter().rfind(|image| image.home == home);
    let Some(image) = image else {
        return Ok(None);
    };
    let mut bytes = read_log(session, &map, image.log_block)?;
    if image.escaped {
        jbd2::unescape(&mut bytes);
    }
    let within = bytes.get((SUPERBLOCK_OFFSET % size) as usize..);
    Ok(within.and_then(<[u8]>::first_chunk).copied())
}

/// Returns whether an inode holds a journal of this volume.
pub(crate) fn is_journal(session: &Session<'_, '_>, ino: InodeNr) -> Result<bool, Error> {
    let Some(raw) = session.read_record(ino)? else {
        return Ok(false);
    };
    let Some(map) = sound_map(session, &raw, ino)? else {
        return Ok(false);
    };
    Ok(own_superblock(session, &map)?.is_some())
}

/// Reads a block of the journal.
pub(crate) fn read_log(
    session: &Session<'_, '_>,
    map: &MapRead,
    block: u32,
) -> Result<Vec<u8>, Error> {
    let hole = || FormatError::corrupt("hole in the journal", Where::Journal(block));
    let home = map.at(block).ok_or_else(|| Error::Format(hole()))?;
    Ok(session.read(home)?)
}

/// Returns the superblock at the beginning of a mapping, if it is that of a journal of this volume.
fn own_superblock(
    session: &Session<'_, '_>,
    map: &MapRead,
) -> Result<Option<jbd2::Superblock>, Error> {
    match map.at(0) {
        Some(first) => Ok(superblock(session, &session.read(first)?, map.log_len())),
        None => Ok(None),
    }
}

/// Returns the journal's superblock, if it is one of this volume.
pub(crate) fn superblock(
    session: &Session<'_, '_>,
    bytes: &[u8],
    len: u32,
) -> Option<jbd2::Superblock> {
    let sb = jbd2::Superblock::parse(bytes).ok()?;
    (sb.block_size == session.geo.block_size && sb.max_len <= len).then_some(sb)
}

/// Returns the mapping of an inode that can be the journal's.
pub(crate) fn sound_map(
    session: &Session<'_, '_>,
    raw: &[u8],
    ino: InodeNr,
) -> Result<Option<MapRead>, Error> {
    let Ok(core) = inode::decode_verified(raw, &session.geo, ino) else {
        return Ok(None);
    };
    let root = inode::i_block(raw).map_err(Error::Format)?;
    let seed = session.seed(ino, core.generation);
    let map = mapping::read(session, core.flags, root, seed)?;
    Ok(fits(session, &core, &map).then_some(map))
}

/// Returns whether an inode and its mapping can be those of a journal.
fn fits(session: &Session<'_, '_>, core: &InodeCore, map: &MapRead) -> bool {
    let blocks = core.size / u64::from(session.geo.block_size);
    let in_volume = |run: &Extent| {
        let len = run.len.into();
        session.geo.is_valid_data_range(run.physical, len)
    };
    core.links > 0
        && core.flags & flags::ENCRYPT == 0
        && (u64::from(jbd2::MIN_BLOCKS)..=map.end()).contains(&blocks)
        && core.file_type() == Some(FileType::Regular)
        && map.problem.is_none()
        && map.unsealed.is_empty()
        && map.extents.iter().all(in_volume)
        && map.blocks() == map.end()
        && map.end() >= u64::from(jbd2::MIN_BLOCKS)
}

/// Returns the journal's inode and the root of its mapping as the superblock's copy has them. Fields that the copy lacks are those of
/// `core`.
pub(crate) fn copied(
    session: &Session<'_, '_>,
    core: InodeCore,
) -> Option<(InodeCore, [u8; inode::I_BLOCK_SIZE])> {
    let (root, size) = session.sb.journal_copy()?;
    let tree = ext4_format::extent::ExtentHeader::parse(&root).is_ok();
    let core = InodeCore {
        mode: FileType::Regular.mode_bits() | 0o600,
        links: 1,
        dtime: 0,
        size,
        flags: if tree { flags::EXTENTS } else { 0 },
        ..core
    };
    Some((core, root))
}

/// Returns the mapping of a copy, if a journal of this volume is there. `seed` is that of the checksums of its nodes.
pub(crate) fn copied_map(
    session: &Session<'_, '_>,
    core: &InodeCore,
    root: &[u8],
    seed: Option<u32>,
) -> Result<Option<MapRead>, Error> {
    let map = mapping::read(session, core.flags, root, seed)?;
    if !fits(session, core, &map) {
        return Ok(None);
    }
    let sb = own_superblock(session, &map)?;
    Ok(sb.is_some().then_some(map))
}
