//! The superblock: taken from a backup where it is damaged, and values in it that cannot be.

use crate::Error;
use crate::session::{Decisions, Mend, Session};
use blockdev::BlockDevice;
use ext4_format::features::{Compat, Incompat, RoCompat};
use ext4_format::geometry::Geometry;
use ext4_format::superblock::{
    RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use ext4_format::{FormatError, GroupNr};

/// Reads the superblock, from a backup if need be, which is then written to its place.
pub(crate) fn read(
    dev: &dyn BlockDevice,
    decisions: &mut Decisions<'_>,
) -> Result<RawSuperblock, Error> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    dev.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let error = match usable(&bytes, dev.len()) {
        Ok(sb) => return Ok(sb),
        Err(error) => error,
    };
    if matches!(error, FormatError::Incompatible(_)) {
        return Err(Error::Superblock(error));
    }
    let (mut sb, text, loses) = match backup(dev) {
        Some(sb) => (sb, "it is taken from a backup", None),
        None => {
            let sb = resealed(&bytes, dev.len()).ok_or(Error::Superblock(error))?;
            (
                sb,
                "its checksum is set, as there is no backup",
                Some("certainty of what it says"),
            )
        }
    };
    let mend = Mend::new("superblock", text, loses);
    if !(decisions.decide)(&mend) {
        decisions.declined.push(mend);
        return Err(Error::Declined);
    }
    decisions.done.push(mend);
    sb.block_group_nr.set(0);
    sb.set_checksum();
    dev.write_at(SUPERBLOCK_OFFSET, sb.bytes())?;
    Ok(sb)
}

/// A superblock of a volume that fits its device.
fn usable(bytes: &[u8], len: u64) -> Result<RawSuperblock, FormatError> {
    let sb = RawSuperblock::parse(bytes)?;
    let geo = Geometry::new(&sb)?;
    let size = u128::from(geo.blocks_count) * u128::from(geo.block_size);
    if size > len.into() {
        return Err(FormatError::corrupt(
            "count of blocks",
            ext4_format::Where::Superblock,
        ));
    }
    Ok(sb)
}

/// The superblock itself, if nothing but its checksum is wrong.
fn resealed(bytes: &[u8; SUPERBLOCK_SIZE], len: u64) -> Option<RawSuperblock> {
    let mut bytes = *bytes;
    let Err(FormatError::Checksum { computed, .. }) = RawSuperblock::parse(&bytes) else {
        return None;
    };
    *bytes.last_chunk_mut::<4>()? = computed.to_le_bytes();
    usable(&bytes, len).ok()
}

/// The first good backup: where groups of the usual sizes begin, then at the beginning of a second group of any size.
fn backup(dev: &dyn BlockDevice) -> Option<RawSuperblock> {
    let at = |log: u32, block: u64| {
        let size = 1024u64 << log;
        let mut bytes = [0; SUPERBLOCK_SIZE];
        dev.read_at(block * size, &mut bytes).ok()?;
        let sb = usable(&bytes, dev.len()).ok()?;
        (sb.log_block_size.get() == log).then_some(sb)
    };
    let first = |log| u64::from(log == 0);
    let usual = (0..7).find_map(|log| {
        let per_group = 8192u64 << log;
        let groups = [1, 3, 5, 7, 9, 25, 27].into_iter();
        groups
            .map(|group| group * per_group + first(log))
            .find_map(|block| at(log, block))
    });
    // Groups have a multiple of eight blocks.
    usual.or_else(|| {
        (0..7)
            .find_map(|log| (1..1024u64 << log).find_map(|eighth| at(log, eighth * 8 + first(log))))
    })
}

/// Mends values of the superblock that exclude each other.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let features = session.geo.features;
    let before = *session.sb.bytes();
    if features.has_needs_recovery() && !features.has_journal() {
        remove_incompat(
            session,
            Incompat::NEEDS_RECOVERY,
            "needs_recovery is cleared, as there is no journal",
        );
    }
    let exclusive = features.has_meta_bg() || features.has_sparse_super2();
    let text = "resize_inode is cleared, which goes with neither meta_bg nor sparse_super2";
    if features.has_resize_inode() && exclusive && session.ask("superblock", text, None) {
        let has = session.sb.feature_compat.get() & !Compat::RESIZE_INODE.bits();
        session.sb.feature_compat.set(has);
        session.sb.reserved_gdt_blocks.set(0);
    }
    if !features.has_resize_inode()
        && session.sb.reserved_gdt_blocks.get() != 0
        && !features.has_sparse_super2()
        && session.ask(
            "superblock",
            "the count of reserved descriptors is cleared, without resize_inode",
            None,
        )
    {
        session.sb.reserved_gdt_blocks.set(0);
    }
    if features.ro_compat.contains(RoCompat::ORPHAN_PRESENT)
        && !features.has_orphan_file()
        && session.ask(
            "superblock",
            "orphan_present is cleared, without orphan_file",
            None,
        )
    {
        let has = session.sb.feature_ro_compat.get() & !RoCompat::ORPHAN_PRESENT.bits();
        session.sb.feature_ro_compat.set(has);
    }
    let half = session.geo.blocks_count / 2;
    if session.geo.reserved_blocks > half
        && session.ask(
            "superblock",
            "no block is reserved, instead of more than half",
            None,
        )
    {
        session.sb.set_reserved_blocks(0);
    }
    if !features.has_bigalloc()
        && session.sb.log_cluster_size.get() != session.sb.log_block_size.get()
        && session.ask(
            "superblock",
            "clusters are as large as blocks, without bigalloc",
            None,
        )
    {
        session.sb.log_cluster_size = session.sb.log_block_size;
    }
    if session.sb.rev_level.get() > 1 && session.ask("superblock", "its revision is 1", None) {
        session.sb.rev_level.set(1);
    }
    if session.sb.state.get() & STATE_ERROR != 0
        && session.ask("superblock", "the mark of errors is cleared", None)
    {
        let state = session.sb.state.get() & !STATE_ERROR | STATE_VALID;
        session.sb.state.set(state);
    }
    if *session.sb.bytes() != before {
        session.write_superblock()?;
    }
    Ok(())
}

fn remove_incompat(session: &mut Session<'_, '_>, flag: Incompat, text: &str) {
    if session.ask("superblock", text, None) {
        let has = session.sb.feature_incompat.get() & !flag.bits();
        session.sb.feature_incompat.set(has);
    }
}

/// Writes backups that cannot be used, or are of another volume.
pub(crate) fn mend_backups(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let shape = |sb: &RawSuperblock| {
        let sizes = (sb.log_block_size.get(), sb.inode_size.get());
        (sb.uuid, sb.blocks_count(), sb.inodes_count.get(), sizes)
    };
    for group in (1..session.geo.groups).map(GroupNr) {
        if !session.geo.has_super(group) {
            continue;
        }
        let block = session.geo.group_first_block(group);
        let mut bytes = session.read(block)?;
        let good = RawSuperblock::parse(&bytes).is_ok_and(|sb| shape(&sb) == shape(&session.sb));
        if good
            || !session.ask(
                format!("group {group}"),
                "the backup of the superblock is written",
                None,
            )
        {
            continue;
        }
        let mut copy = session.sb;
        copy.block_group_nr.set(group.0 as u16);
        copy.set_checksum();
        if let Some(start) = bytes.first_chunk_mut::<SUPERBLOCK_SIZE>() {
            *start = *copy.bytes();
        }
        session.write(block, &bytes)?;
    }
    Ok(())
}
