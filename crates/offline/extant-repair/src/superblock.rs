//! The superblock: taken from a backup where it is damaged, and values in it that cannot be.

use crate::error::Error;
use crate::journal_map;
use crate::session::{Decisions, Mend, Session};
use blockdev::BlockDevice;
use ext4_format::features::{Compat, Features, Incompat, RoCompat};
use ext4_format::geometry::Geometry;
use ext4_format::inode::{self, reserved};
use ext4_format::superblock::{
    RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use ext4_format::{BlockNr, FileType, FormatError, GroupNr, InodeNr};
use ext4_image::MemOverlay;
use std::collections::BTreeSet;
use std::io;

/// First inode that is not reserved, as mke2fs and Linux have it.
const FIRST_INO: u32 = 11;
/// Length of all known fields behind the first 128 bytes of inodes.
const EXTRA_ISIZE: u16 = 32;

/// Reads the superblock, from a backup if need be, which is then written to its place.
pub(crate) fn read<'d>(
    dev: &MemOverlay<'d>,
    decisions: &mut Decisions<'d>,
) -> Result<RawSuperblock, Error> {
    let bytes = ext4_image::superblock_bytes(dev)?;
    let error = match usable(&bytes, dev.len()) {
        Ok(sb) => return revised(dev, decisions, sb),
        Err(error) => error,
    };
    if matches!(
        error,
        FormatError::Incompatible(_) | FormatError::Interrupted(_)
    ) {
        return Err(Error::Superblock(error));
    }
    let guesses = guesses(&bytes, dev.len());
    let (mut sb, text, loses) = if let Some(sb) = logged(dev, decisions, &guesses)? {
        (sb, "it is taken from the journal", None)
    } else if let Some(sb) = backup(dev) {
        (sb, "it is taken from a backup", None)
    } else {
        let fits = |(sb, _): &(RawSuperblock, _)| usable(sb.bytes(), dev.len()).is_ok();
        let guess = guesses.into_iter().find(fits);
        let (sb, text) = guess.ok_or(Error::Superblock(error))?;
        (sb, text, Some("certainty of what it says"))
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

/// Sets the revision of a volume with features on the device.
fn revised(
    dev: &MemOverlay<'_>,
    decisions: &mut Decisions<'_>,
    sb: RawSuperblock,
) -> Result<RawSuperblock, Error> {
    let revised = with_revision(sb).map(|mut sb| {
        sb.set_checksum();
        sb
    });
    let Some(revised) = revised.filter(|sb| usable(sb.bytes(), dev.len()).is_ok()) else {
        return Ok(sb);
    };
    let text = "its revision is 1, as it has features";
    if !decisions.ask("superblock", text, None) {
        return Err(Error::Declined);
    }
    dev.write_at(SUPERBLOCK_OFFSET, revised.bytes())?;
    Ok(revised)
}

/// Returns the superblock with revision 1 if it has features, which exist from revision 1 on. The revision determines the size of
/// inodes.
fn with_revision(mut sb: RawSuperblock) -> Option<RawSuperblock> {
    if sb.rev_level.get() != 0 || Features::of(&sb) == Features::default() {
        return None;
    }
    sb.rev_level.set(1);
    if sb.inode_size.get() == 0 {
        sb.inode_size.set(128);
    }
    Some(with_first_inode(sb))
}

/// Sets the number of the first inode that is not reserved, if files cannot begin there.
fn with_first_inode(mut sb: RawSuperblock) -> RawSuperblock {
    if !(FIRST_INO..=sb.inodes_count.get()).contains(&sb.first_ino.get()) {
        sb.first_ino.set(FIRST_INO);
    }
    sb
}

/// Returns a superblock of a volume that fits its device.
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

/// Returns guesses of the superblock before the damage, each with the change that leads to it: the present one with its checksum
/// set, then with the numbers set that break a rule.
fn guesses(bytes: &[u8; SUPERBLOCK_SIZE], len: u64) -> Vec<(RawSuperblock, &'static str)> {
    let parsed = RawSuperblock::parse(bytes).ok();
    // A volume that is longer than its device, and has no other fault, was cut off.
    let damaged = parsed.is_none_or(|sb| Geometry::new(&sb).is_err());
    let Some(sb) = parsed.or_else(|| RawSuperblock::resealed(bytes)) else {
        return Vec::new();
    };
    let sealed = match with_revision(sb) {
        Some(sb) => (
            sb,
            "its revision and checksum are set, as there is no backup",
        ),
        None => (sb, "its checksum is set, as there is no backup"),
    };
    let (sb, _) = sealed;
    let sb = bounded(sb);
    let text = "numbers that it cannot have are set, as there is no backup";
    let mut all = vec![sealed, (sb, text)];
    let text = "its counts of inodes and meta groups are set, as there is no backup";
    all.extend(recounted(sb).map(|sb| (sb, text)));
    let text = "its first block and its clusters are set, as there is no backup";
    all.extend(begun(sb).map(|sb| (sb, text)));
    let text = "its count of blocks is that of the device, as there is no backup";
    all.extend(sized(sb, len).filter(|_| damaged).map(|sb| (sb, text)));
    for (sb, _) in &mut all {
        sb.set_checksum();
    }
    all
}

/// Returns the superblock that a replay of the journal would write, if a guess of the present one leads to the journal.
fn logged<'d>(
    dev: &MemOverlay<'d>,
    decisions: &mut Decisions<'d>,
    guesses: &[(RawSuperblock, &str)],
) -> Result<Option<RawSuperblock>, Error> {
    for (sb, _) in guesses {
        let Ok(session) = Session::new(dev, decisions, *sb, BTreeSet::new(), 0) else {
            continue;
        };
        let logged = match journal_map::logged_superblock(&session) {
            // A wrong guess may place the journal beyond the device.
            Err(Error::Io(e)) if e.kind() == io::ErrorKind::UnexpectedEof => None,
            other => other?,
        };
        if let Some(sb) = logged.and_then(|bytes| usable(&bytes, dev.len()).ok()) {
            return Ok(Some(sb));
        }
    }
    Ok(None)
}

/// Sets numbers that place no structure and break a rule.
fn bounded(mut sb: RawSuperblock) -> RawSuperblock {
    if sb.reserved_blocks() > sb.blocks_count() {
        sb.set_reserved_blocks(0);
    }
    if sb.log_groups_per_flex > 31 {
        sb.log_groups_per_flex = 0;
    }
    let size = sb.desc_size.get();
    if Features::of(&sb).has_64bit() && !(size.is_power_of_two() && (64..=1024).contains(&size)) {
        sb.desc_size.set(64);
    }
    with_first_inode(sb)
}

/// Returns the superblock with the count of inodes of its groups and no surplus meta groups, if only the counts are
/// wrong. Groups have a multiple of eight inodes, and at most as many as a block has bits; if only one of the two counts fits these rules, that
/// one is right.
fn recounted(mut sb: RawSuperblock) -> Option<RawSuperblock> {
    let blocks = sb
        .blocks_count()
        .checked_sub(sb.first_data_block.get().into())?;
    let per_group = u64::from(sb.blocks_per_group.get());
    let groups = (per_group > 0).then(|| blocks.div_ceil(per_group))?;
    let counted = u64::from(sb.inodes_count.get());
    let most = u64::from(sb.block_size()?) * 8;
    let fits = |inodes: u64| inodes.is_multiple_of(8) && (8..=most).contains(&inodes);
    let each = counted / groups.max(1);
    let agrees = counted.is_multiple_of(groups.max(1)) && fits(each);
    if !fits(sb.inodes_per_group.get().into()) && agrees {
        sb.inodes_per_group.set(u32::try_from(each).ok()?);
    }
    if Features::of(&sb).has_meta_bg() {
        let bytes = groups.checked_mul(sb.desc_size.get().max(32).into())?;
        let block = sb.block_size()?;
        let all = u32::try_from(bytes.div_ceil(block.into())).ok()?;
        sb.first_meta_bg.set(sb.first_meta_bg.get().min(all));
    }
    let inodes = groups.checked_mul(sb.inodes_per_group.get().into())?;
    sb.inodes_count.set(u32::try_from(inodes).ok()?);
    Some(sb)
}

/// Returns the superblock with the number of blocks of the device, if its count is larger.
fn sized(mut sb: RawSuperblock, len: u64) -> Option<RawSuperblock> {
    let blocks = len / u64::from(sb.block_size()?);
    let longer = sb.blocks_count() > blocks;
    sb.set_blocks_count(blocks);
    longer.then_some(sb)
}

/// Returns the superblock without the feature by which its first block is wrong, or with the first block that the size of blocks
/// asks for, if nothing else is wrong.
fn begun(sb: RawSuperblock) -> Option<RawSuperblock> {
    let mut without = sb;
    let has = sb.feature_ro_compat.get() & !RoCompat::BIGALLOC.bits();
    without.feature_ro_compat.set(has);
    without.log_cluster_size = sb.log_block_size;
    without.clusters_per_group = sb.blocks_per_group;
    let mut begun = sb;
    begun
        .first_data_block
        .set(u32::from(sb.log_block_size.get() == 0));
    [without, begun]
        .into_iter()
        .find(|sb| Geometry::new(sb).is_ok())
}

/// Returns the first good backup: at the start of groups of the usual sizes, then at the start of a second group of
/// any size.
fn backup(dev: &dyn BlockDevice) -> Option<RawSuperblock> {
    let fits = |sb: &RawSuperblock| usable(sb.bytes(), dev.len()).is_ok();
    let mut usual = ext4_image::usual_backups(dev).map(|(_, sb)| sb);
    // Groups have a multiple of eight blocks.
    usual.find(fits).or_else(|| {
        (0..7).find_map(|log| {
            let (size, first) = (1024u64 << log, u64::from(log == 0));
            let blocks = (1..size).map(|eighth| eighth * 8 + first);
            let mut backups =
                blocks.filter_map(|block| ext4_image::backup_at(dev, block * size, log));
            backups.find(fits)
        })
    })
}

/// Sets `s_first_ino` to 11 if inode 11 is a directory: mke2fs makes lost+found there. Returns whether it was set.
pub(crate) fn free_first_inodes(session: &mut Session<'_, '_>) -> Result<bool, Error> {
    let first = InodeNr(FIRST_INO);
    if session.sb.rev_level.get() == 0 || session.sb.first_ino.get() <= FIRST_INO {
        return Ok(false);
    }
    let Some(raw) = session.read_record(first)? else {
        return Ok(false);
    };
    let core = inode::decode_verified(&raw, &session.geo, first);
    let directory =
        core.is_ok_and(|core| core.links > 0 && core.file_type() == Some(FileType::Directory));
    let text = "its first inode for files is 11, as inode 11 is a directory";
    if !directory || !session.ask("superblock", text, None) {
        return Ok(false);
    }
    session.sb.first_ino.set(FIRST_INO);
    session.write_superblock()?;
    Ok(true)
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
    let text = "resize_inode is cleared, which does not go with meta_bg";
    let exclusive = features.has_resize_inode() && features.has_meta_bg();
    if exclusive && session.ask("superblock", text, None) {
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
    checksums(session, features);
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
    numbers(session)?;
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

/// Clears features of checksums that conflict with others.
fn checksums(session: &mut Session<'_, '_>, features: Features) {
    let text = "metadata_csum_seed is cleared, without metadata_csum";
    if features.has_csum_seed() && !features.has_metadata_csum() {
        remove_incompat(session, Incompat::CSUM_SEED, text);
    }
    let text = "uninit_bg is cleared, which metadata_csum takes the place of";
    let both = features.has_gdt_csum() && features.has_metadata_csum();
    if both && session.ask("superblock", text, None) {
        let has = session.sb.feature_ro_compat.get() & !RoCompat::GDT_CSUM.bits();
        session.sb.feature_ro_compat.set(has);
    }
}

/// Sets a feature that something on the volume needs and that is most likely to have been there.
pub(crate) fn need(
    session: &mut Session<'_, '_>,
    needed: Features,
    text: &str,
) -> Result<(), Error> {
    let has = session.geo.features;
    let there = has.compat.contains(needed.compat)
        && has.incompat.contains(needed.incompat)
        && has.ro_compat.contains(needed.ro_compat);
    if there || !session.ask("superblock", text, None) {
        return Ok(());
    }
    let sb = &mut session.sb;
    sb.feature_compat.set((has.compat | needed.compat).bits());
    sb.feature_incompat
        .set((has.incompat | needed.incompat).bits());
    sb.feature_ro_compat
        .set((has.ro_compat | needed.ro_compat).bits());
    Ok(session.write_superblock()?)
}

/// Like [`need`], for an incompatible feature.
pub(crate) fn need_to_read(
    session: &mut Session<'_, '_>,
    incompat: Incompat,
    text: &str,
) -> Result<(), Error> {
    let needed = Features {
        incompat,
        ..Features::default()
    };
    need(session, needed, text)
}

/// Clears numbers that only go with features that the volume does not have.
fn numbers(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let features = session.geo.features;
    let size = session.sb.desc_size.get();
    let possible = size == 0 || size.is_power_of_two() && size <= 1024;
    let text = "the size of descriptors is cleared, without 64bit";
    if !features.has_64bit() && !possible && session.ask("superblock", text, None) {
        session.sb.desc_size.set(0);
    }
    let text = "the groups of a flex group are cleared, without flex_bg";
    let flex = session.sb.log_groups_per_flex > 31;
    if !features.has_flex_bg() && flex && session.ask("superblock", text, None) {
        session.sb.log_groups_per_flex = 0;
    }
    extra_fields(session);
    let mmp = BlockNr(session.sb.mmp_block.get());
    let text = "mmp is cleared, as its block cannot be";
    if features.has_mmp() && !session.geo.is_valid_data_range(mmp, 1) {
        remove_incompat(session, Incompat::MMP, text);
        session.sb.mmp_block.set(0);
    }
    if reserved::named_in_vain(&session.sb).next().is_some() {
        let text = "it names no files of features that are not there";
        if session.ask("superblock", text, None) {
            if !features.has_orphan_file() {
                session.sb.orphan_file_inum.set(0);
            }
            if !(features.has_project() && features.has_quota()) {
                session.sb.prj_quota_inum.set(0);
            }
            if !features.has_quota() {
                session.sb.usr_quota_inum.set(0);
                session.sb.grp_quota_inum.set(0);
            }
        }
    }
    Ok(())
}

/// Sets impossible lengths of the fields behind the first 128 bytes of inodes to that of all known fields.
fn extra_fields(session: &mut Session<'_, '_>) {
    let text = "the length of the extra fields of inodes is set";
    let [has_least, has_wanted] = [session.sb.min_extra_isize, session.sb.want_extra_isize]
        .map(|len| session.geo.is_extra_isize(len.get()));
    if (has_least && has_wanted) || !session.ask("superblock", text, None) {
        return;
    }
    if !has_least {
        session.sb.min_extra_isize.set(EXTRA_ISIZE);
    }
    if !has_wanted {
        session.sb.want_extra_isize.set(EXTRA_ISIZE);
    }
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
