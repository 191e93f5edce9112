//! The journal: replayed if it holds transactions, as far as they are sound; emptied if it cannot be read, removed if
//! its inode is lost.

use crate::error::Error;
use crate::fast_commits;
use crate::journal_map::{copied, copied_map, is_journal, read_log, sound_map, superblock};
use crate::mapping::MapRead;
use crate::session::Session;
use ext4_format::features::{Compat, Incompat};
use ext4_format::inode;
use ext4_format::jbd2::{self, LogEnd, Salvage};
use ext4_format::{BlockNr, InodeNr};
use ext4_image::planted::{self, Fault};

/// Mends the journal. Returns whether the volume was changed under the session, so that the round must restart.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<bool, Error> {
    let Some(ino) = named(session)? else {
        return Ok(false);
    };
    let Some(map) = readable(session, ino)? else {
        return give_up(session, ino);
    };
    let Some(first) = map.at(0) else {
        return give_up(session, ino);
    };
    let mut bytes = session.read(first)?;
    let len = map.log_len();
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
    let read = |block| read_log(session, &map, block);
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
        let mut block = read_log(session, &map, image.log_block)?;
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

/// Offsets of the journal's length and of the first block of its log.
const MAX_LEN: usize = 0x10;
const FIRST: usize = 0x14;

/// Returns the superblock whose log is all blocks behind it, as mke2fs and tune2fs make it, and its block. `None` if the
/// result is not a superblock of this volume, either.
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
    if !session.ask("journal", "it is replaced by an empty one", loses) {
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
