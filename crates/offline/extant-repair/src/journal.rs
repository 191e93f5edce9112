//! The journal: replayed if it holds transactions, as far as they are sound; emptied if it cannot be read, removed if
//! its inode is lost.

use crate::error::Error;
use crate::fast_commits;
use crate::mapping::{self, MapRead};
use crate::session::Session;
use ext4_format::extent::Extent;
use ext4_format::features::{Compat, Incompat};
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::jbd2::{self, LogEnd, Salvage};
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_format::{BlockNr, FileType, FormatError, InodeNr, Where};
use ext4_image::planted::{self, Fault};

/// Mends the journal. Returns whether the volume was changed under the session, so that the round must restart.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<bool, Error> {
    let Some(ino) = named(session)? else {
        return Ok(false);
    };
    let Some(map) = readable(session, ino)? else {
        return give_up(session, ino);
    };
    let at = |block: u32| {
        let extent = map.extents.iter().find(|e| e.map(block).is_some());
        extent.and_then(|e| e.map(block))
    };
    let Some(first) = at(0) else {
        return give_up(session, ino);
    };
    let mut bytes = session.read(first)?;
    let len = map.blocks().min(u32::MAX.into()) as u32;
    let mut found = superblock(session, &bytes, len);
    if found.is_none()
        && let Some((sb, mended)) = with_usual_log(session, &bytes, len)
        && session.ask("journal", "the bounds of its log are set", None)
    {
        session.write(first, &mended)?;
        (found, bytes) = (Some(sb), mended);
    }
    let Some(mut sb) = found else {
        return empty(session, ino, first, len);
    };
    fields(session, first, &mut bytes, &mut sb)?;
    if sb.is_clean() {
        let text = "needs_recovery is cleared, as the journal is empty";
        if session.geo.features.has_needs_recovery() && session.ask("superblock", text, None) {
            clear_recover(session)?;
        }
        return Ok(false);
    }
    let hole = |block| FormatError::corrupt("hole in the journal", Where::Journal(block));
    let read = |block| {
        let home = at(block).ok_or_else(|| Error::Format(hole(block)))?;
        Ok(session.read(home)?)
    };
    if planted::is(Fault::JournalThrownAway) {
        return empty(session, ino, first, len);
    }
    let found = match jbd2::salvage(&sb, session.geo.blocks_count, read) {
        Ok(found) => found,
        Err(Error::Format(_)) => return empty(session, ino, first, len),
        Err(error) => return Err(error),
    };
    let changes = match found.plan.fast_commits {
        Some(tid) => jbd2::fast_changes(&sb, tid, read)?,
        None => Vec::new(),
    };
    if !ask_to_replay(session, &found, changes.len()) {
        return Ok(false);
    }
    for image in &found.plan.replay {
        let home = at(image.log_block).ok_or_else(|| Error::Format(hole(image.log_block)))?;
        let mut block = session.read(home)?;
        if image.escaped {
            jbd2::unescape(&mut block);
        }
        session.write(image.home, &block)?;
    }
    // The superblock may have been in the journal.
    reread(session)?;
    if !changes.is_empty() {
        fast_commits::replay(session, changes)?;
    }
    sb.start = 0;
    sb.sequence = found.plan.next;
    sb.errno = 0;
    sb.write(&mut bytes).map_err(Error::Format)?;
    session.write(first, &bytes)?;
    clear_recover(session)?;
    Ok(true)
}

/// Asks for the replay of the log. It loses only damaged parts.
fn ask_to_replay(session: &mut Session<'_, '_>, found: &Salvage, changes: usize) -> bool {
    let mut text = format!("it is replayed: {} blocks", found.plan.replay.len());
    if changes > 0 {
        text += &format!(", and {changes} changes of fast commits");
    }
    let loses = found.damage.first().map(|error| match found.plan.end {
        LogEnd::Damaged(_) => format!("transactions from a damaged block on ({error})"),
        _ => format!("{} damaged blocks of it ({error})", found.damage.len()),
    });
    session.ask("journal", text, loses.as_deref())
}

fn reread(session: &mut Session<'_, '_>) -> Result<(), Error> {
    session.sb = crate::superblock::read(session.dev, session.decisions)?;
    Ok(())
}

fn clear_recover(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let has = session.sb.feature_incompat.get() & !Incompat::NEEDS_RECOVERY.bits();
    session.sb.feature_incompat.set(has);
    Ok(session.write_superblock()?)
}

/// Returns the journal's superblock, if it is one of this volume.
fn superblock(session: &Session<'_, '_>, bytes: &[u8], len: u32) -> Option<jbd2::Superblock> {
    let sb = jbd2::Superblock::parse(bytes).ok()?;
    (sb.block_size == session.geo.block_size && sb.max_len <= len).then_some(sb)
}

/// Offsets of the journal's length and of the first block of its log.
const MAX_LEN: usize = 0x10;
const FIRST: usize = 0x14;

/// Returns the superblock whose log is all blocks behind it, as mke2fs and tune2fs make it, and its block. `None` if it
/// is no superblock of this volume even so.
fn with_usual_log(
    session: &Session<'_, '_>,
    bytes: &[u8],
    len: u32,
) -> Option<(jbd2::Superblock, Vec<u8>)> {
    let mut mended = bytes.to_vec();
    [(FIRST, 1), (MAX_LEN, len)]
        .iter()
        .find_map(|(at, value): &(usize, u32)| {
            let field = mended.get_mut(*at..)?.first_chunk_mut::<4>()?;
            *field = value.to_be_bytes();
            superblock(session, &mended, len)
        })
        .map(|sb| (sb, mended))
}

/// Returns the superblock of the volume that a replay of the log would write, before the descriptors are read.
pub(crate) fn logged_superblock(
    session: &Session<'_, '_>,
) -> Result<Option<[u8; SUPERBLOCK_SIZE]>, Error> {
    let extents = known_extents(session)?;
    let at = |block: u32| extents.iter().find_map(|extent| extent.map(block));
    let Some(first) = at(0) else {
        return Ok(None);
    };
    let len = extents.iter().map(|extent| extent.len).sum();
    let Some(sb) = superblock(session, &session.read(first)?, len) else {
        return Ok(None);
    };
    let size = u64::from(session.geo.block_size);
    let home = BlockNr(SUPERBLOCK_OFFSET / size);
    let hole = |block| FormatError::corrupt("hole in the journal", Where::Journal(block));
    let read = |block| -> Result<_, Error> {
        let home = at(block).ok_or_else(|| Error::Format(hole(block)))?;
        Ok(session.read(home)?)
    };
    let Ok(found) = jbd2::salvage(&sb, session.geo.blocks_count, read) else {
        return Ok(None);
    };
    let image = found.plan.replay.iter().rfind(|image| image.home == home);
    let Some((image, block)) = image.and_then(|image| Some((image, at(image.log_block)?))) else {
        return Ok(None);
    };
    let mut bytes = session.read(block)?;
    if image.escaped {
        jbd2::unescape(&mut bytes);
    }
    let within = bytes.get((SUPERBLOCK_OFFSET % size) as usize..);
    Ok(within.and_then(<[u8]>::first_chunk).copied())
}

/// Clears fields that do not belong in the superblock of a sound journal.
fn fields(
    session: &mut Session<'_, '_>,
    first: BlockNr,
    bytes: &mut [u8],
    sb: &mut jbd2::Superblock,
) -> Result<(), Error> {
    let text = "fields that only a journal on another device has are cleared";
    let foreign = jbd2::Superblock::has_foreign_fields(bytes) && session.ask("journal", text, None);
    let text = "its record of an error is cleared";
    let error = sb.errno != 0 && sb.is_clean() && session.ask("journal", text, None);
    if foreign {
        jbd2::Superblock::clear_foreign_fields(bytes);
        sb.nr_users = 1;
    }
    if error {
        sb.errno = 0;
    }
    if foreign || error {
        sb.write(bytes).map_err(Error::Format)?;
        session.write(first, bytes)?;
    }
    Ok(())
}

/// Returns the inode of an internal journal. The superblock's fields are corrected if another inode is the journal,
/// or if the volume does not have one.
fn named(session: &mut Session<'_, '_>) -> Result<Option<InodeNr>, Error> {
    let has = session.geo.features.has_journal();
    let ino = InodeNr(session.geo.journal_ino);
    let text = "it names no journal on another device beside that of an inode";
    if has
        && ino.0 != 0
        && session.sb.journal_uuid != [0; 16]
        && session.ask("superblock", text, None)
    {
        session.sb.journal_uuid = [0; 16];
        session.sb.journal_dev.set(0);
        session.write_superblock()?;
    }
    let outside = session.sb.journal_uuid != [0; 16];
    if has && !outside && (ino == InodeNr::JOURNAL || is_journal(session, ino)?) {
        return Ok(Some(ino));
    }
    if !has && !outside && ino.0 == 0 {
        return Ok(None);
    }
    let loses = outside.then_some("transactions in a journal on another device");
    let text = "it names inode 8 as the journal, which it is";
    if is_journal(session, InodeNr::JOURNAL)? && session.ask("superblock", text, loses) {
        name(session, true)?;
        return Ok(Some(InodeNr::JOURNAL));
    }
    if has {
        return Ok((!outside).then_some(ino));
    }
    let text = "it names no journal, without has_journal";
    if session.ask("superblock", text, None) {
        name(session, false)?;
    }
    Ok(None)
}

/// Sets the superblock's journal inode to the usual one, or to none.
fn name(session: &mut Session<'_, '_>, usual: bool) -> Result<(), Error> {
    let mut has = session.sb.feature_compat.get() & !Compat::HAS_JOURNAL.bits();
    if usual {
        has |= Compat::HAS_JOURNAL.bits();
    }
    let sb = &mut session.sb;
    sb.feature_compat.set(has);
    sb.journal_inum
        .set(if usual { InodeNr::JOURNAL.0 } else { 0 });
    sb.journal_dev.set(0);
    sb.journal_uuid = [0; 16];
    Ok(session.write_superblock()?)
}

/// Returns whether an inode holds a journal of this volume.
fn is_journal(session: &Session<'_, '_>, ino: InodeNr) -> Result<bool, Error> {
    let Some(raw) = session.read_record(ino)? else {
        return Ok(false);
    };
    let Some(map) = sound_map(session, &raw, ino)? else {
        return Ok(false);
    };
    let Some(first) = map.extents.first().and_then(|e| e.map(0)) else {
        return Ok(false);
    };
    let len = map.blocks().min(u32::MAX.into()) as u32;
    Ok(superblock(session, &session.read(first)?, len).is_some())
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

/// Returns the mapping of an inode that can be the journal's.
fn sound_map(
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

/// Returns the journal's inode and the root of its mapping as the superblock's copy has them: the mapping, then the high
/// and the low half of the size. Fields that the copy lacks are those of `core`.
fn copied(
    session: &Session<'_, '_>,
    core: InodeCore,
) -> Option<(InodeCore, [u8; inode::I_BLOCK_SIZE])> {
    if session.sb.jnl_backup_type != 1 {
        return None;
    }
    let copy = session.sb.jnl_blocks;
    let half = |at| copy.get::<usize>(at).map_or(0, |n| u64::from(n.get()));
    let mut root = [0; inode::I_BLOCK_SIZE];
    for (to, from) in root.chunks_exact_mut(4).zip(copy) {
        to.copy_from_slice(&from.get().to_le_bytes());
    }
    let tree = ext4_format::extent::ExtentHeader::parse(&root).is_ok();
    let core = InodeCore {
        mode: FileType::Regular.mode_bits() | 0o600,
        links: 1,
        dtime: 0,
        size: half(15) << 32 | half(16),
        flags: if tree { flags::EXTENTS } else { 0 },
        ..core
    };
    Some((core, root))
}

/// Returns the mapping of a copy, if a journal of this volume is there. `seed` is that of the checksums of its nodes.
fn copied_map(
    session: &Session<'_, '_>,
    core: &InodeCore,
    root: &[u8],
    seed: Option<u32>,
) -> Result<Option<MapRead>, Error> {
    let map = mapping::read(session, core.flags, root, seed)?;
    let first = map.extents.first().and_then(|extent| extent.map(0));
    let Some(first) = first.filter(|_| fits(session, core, &map)) else {
        return Ok(None);
    };
    let len = map.blocks().min(u32::MAX.into()) as u32;
    let sb = superblock(session, &session.read(first)?, len);
    Ok(sb.is_some().then_some(map))
}

/// Returns the runs of the journal for a search for tables of inodes, of which the log may hold copies: from the
/// superblock's copy, because the journal's inode may be in the table that is searched for, or else from that inode.
pub(crate) fn known_extents(session: &Session<'_, '_>) -> Result<Vec<Extent>, Error> {
    if let Some((core, root)) = copied(session, InodeCore::default()) {
        // The volume's checksums may all be wrong.
        if let Some(map) = copied_map(session, &core, &root, None)? {
            return Ok(map.extents);
        }
    }
    let raw = session.read_record(InodeNr::JOURNAL)?;
    let map = match raw {
        Some(raw) => sound_map(session, &raw, InodeNr::JOURNAL)?,
        None => None,
    };
    Ok(map.map_or_else(Vec::new, |map| map.extents))
}

/// Returns the mapping of the journal's inode, which may be restored from the superblock's copy of it.
fn readable(session: &mut Session<'_, '_>, ino: InodeNr) -> Result<Option<MapRead>, Error> {
    let Some(mut raw) = session.read_record(ino)? else {
        return Ok(None);
    };
    if let Some(map) = sound_map(session, &raw, ino)? {
        // The first block of another file cannot hold a journal.
        let known = ino == InodeNr::JOURNAL || is_journal(session, ino)?;
        return Ok(known.then_some(map));
    }
    let core = inode::decode_verified(&raw, &session.geo, ino);
    // A record in use may be that of a user's file.
    let unused = core.as_ref().is_ok_and(|core| core.links == 0);
    if ino != InodeNr::JOURNAL && !unused {
        return Ok(None);
    }
    let Some((core, root)) = copied(session, core.unwrap_or_default()) else {
        return Ok(None);
    };
    let seed = session.seed(ino, core.generation);
    let Some(map) = copied_map(session, &core, &root, seed)? else {
        return Ok(None);
    };
    let text = "its inode is restored from the superblock's copy";
    if !session.ask("journal", text, None) {
        return Ok(None);
    }
    inode::init(&mut raw, &session.geo);
    inode::encode_core(&core, &mut raw, &session.geo);
    *inode::i_block_mut(&mut raw).map_err(Error::Format)? = root;
    let blocks = map.blocks() + map.nodes.len() as u64;
    let sectors = blocks * u64::from(session.geo.sectors_per_block());
    inode::set_sectors(&mut raw, &session.geo, sectors).map_err(Error::Format)?;
    session.write_record(ino, &mut raw)?;
    Ok(Some(map))
}

/// Makes an empty journal where the old one was.
fn empty(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    first: BlockNr,
    len: u32,
) -> Result<bool, Error> {
    if len < jbd2::MIN_BLOCKS {
        return give_up(session, ino);
    }
    let loses = Some("transactions that were in it");
    if !session.ask("journal", "it is made anew, empty", loses) {
        return Ok(false);
    }
    let mut features = jbd2::Features::default();
    if session.has_csum() {
        features.incompat |= jbd2::features::Incompat::CSUM_V3;
    }
    if session.geo.features.has_64bit() {
        features.incompat |= jbd2::features::Incompat::BIT64;
    }
    let sb = jbd2::Superblock::new(session.geo.block_size, len, features, session.sb.uuid);
    let mut bytes = vec![0; session.block_size()];
    sb.write(&mut bytes).map_err(Error::Format)?;
    session.write(first, &bytes)?;
    clear_recover(session)?;
    Ok(false)
}

/// Does without a journal.
fn give_up(session: &mut Session<'_, '_>, ino: InodeNr) -> Result<bool, Error> {
    let loses = Some("the journal, with transactions that were in it");
    if !session.ask(
        "journal",
        "its inode is cleared, and the volume has no journal",
        loses,
    ) {
        return Ok(false);
    }
    // Another inode is a file of a user.
    if ino == InodeNr::JOURNAL
        && let Some(mut raw) = session.read_record(ino)?
    {
        raw.fill(0);
        session.write_record(ino, &mut raw)?;
    }
    let has = session.sb.feature_compat.get() & !Compat::HAS_JOURNAL.bits();
    session.sb.feature_compat.set(has);
    session.sb.journal_inum.set(0);
    session.sb.jnl_backup_type = 0;
    session.sb.jnl_blocks = [0.into(); 17];
    clear_recover(session)?;
    Ok(true)
}
