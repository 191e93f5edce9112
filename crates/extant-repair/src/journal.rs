//! The journal: replayed if it holds transactions, emptied if it cannot be read, given up if its inode is lost.

use crate::Error;
use crate::mapping::{self, MapRead};
use crate::session::Session;
use ext4_format::features::{Compat, Incompat};
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::jbd2;
use ext4_format::{BlockNr, FileType, FormatError, InodeNr, Where};

/// Whether the volume was changed under the session, so that the round begins anew.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<bool, Error> {
    let other = session.sb.journal_uuid != [0; 16];
    if !session.geo.features.has_journal() || other {
        return Ok(false);
    }
    let ino = InodeNr(session.geo.journal_ino);
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
    let parsed = jbd2::Superblock::parse(&bytes);
    let sb = parsed
        .ok()
        .filter(|sb| sb.block_size == session.geo.block_size && sb.max_len <= len);
    let Some(mut sb) = sb else {
        return empty(session, ino, first, len);
    };
    let recover = session.geo.features.has_needs_recovery();
    if sb.is_clean() {
        if recover
            && session.ask(
                "superblock",
                "needs_recovery is cleared, as the journal is empty",
                None,
            )
        {
            clear_recover(session)?;
        }
        return Ok(false);
    }
    let hole = |block| FormatError::corrupt("hole in the journal", Where::Journal(block));
    let plan = jbd2::plan(&sb, session.geo.blocks_count, |block| {
        let home = at(block).ok_or_else(|| Error::Format(hole(block)))?;
        session.read(home)
    });
    let plan = match plan {
        Ok(plan) => plan,
        Err(Error::Format(_)) => return empty(session, ino, first, len),
        Err(error) => return Err(error),
    };
    let text = format!("it is replayed: {} blocks", plan.replay.len());
    if !session.ask("journal", text, None) {
        return Ok(false);
    }
    for image in &plan.replay {
        let home = at(image.log_block).ok_or_else(|| Error::Format(hole(image.log_block)))?;
        let mut block = session.read(home)?;
        if image.escaped {
            jbd2::unescape(&mut block);
        }
        session.write(image.home, &block)?;
    }
    sb.start = 0;
    sb.sequence = plan.next;
    sb.errno = 0;
    sb.write(&mut bytes).map_err(Error::Format)?;
    session.write(first, &bytes)?;
    // The superblock may have been in the journal.
    reread(session)?;
    clear_recover(session)?;
    Ok(true)
}

fn reread(session: &mut Session<'_, '_>) -> Result<(), Error> {
    session.sb = crate::superblock::read(session.dev, session.decisions)?;
    Ok(())
}

fn clear_recover(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let has = session.sb.feature_incompat.get() & !Incompat::NEEDS_RECOVERY.bits();
    session.sb.feature_incompat.set(has);
    session.write_superblock()
}

/// The mapping of the journal's inode, which may be restored from the superblock's copy of it.
fn readable(session: &mut Session<'_, '_>, ino: InodeNr) -> Result<Option<MapRead>, Error> {
    let Some(mut raw) = session.read_record(ino)? else {
        return Ok(None);
    };
    let fits = |core: &InodeCore, map: &MapRead| {
        core.links > 0
            && core.file_type() == Some(FileType::Regular)
            && map.problem.is_none()
            && map.unsealed.is_empty()
            && map.blocks() == map.end()
            && map.end() >= u64::from(jbd2::MIN_BLOCKS)
    };
    if let Ok(core) = inode::decode_verified(&raw, &session.geo, ino) {
        let root = inode::i_block(&raw).map_err(Error::Format)?;
        let map = mapping::read(
            session,
            core.flags,
            root,
            session.seed(ino, core.generation),
        )?;
        if fits(&core, &map) {
            return Ok(Some(map));
        }
    }
    // The copy: the mapping, then the high and the low half of the size.
    if session.sb.jnl_backup_type != 1 || ino != InodeNr::JOURNAL {
        return Ok(None);
    }
    let copy = session.sb.jnl_blocks;
    let mut core = inode::decode_verified(&raw, &session.geo, ino).unwrap_or_default();
    core.mode = FileType::Regular.mode_bits() | 0o600;
    core.links = 1;
    core.dtime = 0;
    let (high, low) = (copy.get(15), copy.get(16));
    core.size =
        u64::from(high.map_or(0, |n| n.get())) << 32 | u64::from(low.map_or(0, |n| n.get()));
    let mut root = [0; inode::I_BLOCK_SIZE];
    for (to, from) in root.chunks_exact_mut(4).zip(copy) {
        to.copy_from_slice(&from.get().to_le_bytes());
    }
    let tree = ext4_format::extent::ExtentHeader::parse(&root).is_ok();
    core.flags = if tree { flags::EXTENTS } else { 0 };
    let map = mapping::read(
        session,
        core.flags,
        &root,
        session.seed(ino, core.generation),
    )?;
    if !fits(&core, &map)
        || !session.ask(
            "journal",
            "its inode is restored from the superblock's copy",
            None,
        )
    {
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
    if ino.0 != 0
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
