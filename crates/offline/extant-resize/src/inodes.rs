//! Inodes of the new volume: mappings that lead to other blocks, records with other numbers.

use crate::error::Error;
use crate::session::Session;
use crate::{mapping, quota_files};
use ext4_format::extent::Extent;
use ext4_format::features::Compat;
use ext4_format::inode::{self, InodeCore, flags, inline, value};
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr, bitmap, orphan_file, xattr};

/// A directory of the new volume.
pub(crate) struct Directory {
    pub(crate) ino: InodeNr,
    pub(crate) core: InodeCore,
    pub(crate) extents: Vec<Extent>,
    pub(crate) renumbered: bool,
}

/// Writes the inodes that change; returns all directories, if names have to change.
pub(crate) fn make(session: &mut Session<'_, '_>) -> Result<Vec<Directory>, Error> {
    let mut directories = Vec::new();
    if session.view.moves.is_empty() && session.numbers.is_empty() {
        return Ok(directories);
    }
    let geo = session.old.shape.geo.clone();
    let size = usize::from(geo.inode_size);
    for group in 0..geo.groups {
        let Some(Some(map)) = session.old.inodes.get(group as usize) else {
            continue;
        };
        let table = session
            .old
            .descs
            .get(group as usize)
            .map_or(BlockNr(0), |d| d.inode_table);
        let records = session.old.records(group as usize);
        let mut bytes = vec![0; records as usize * size];
        session
            .view
            .read_old(table.offset(geo.block_size), &mut bytes)?;
        for (index, raw) in (0..records).zip(bytes.chunks_exact(size)) {
            if bitmap::test(map, index) && raw.iter().any(|&b| b != 0) {
                one(
                    session,
                    geo.inode_nr(GroupNr(group), index),
                    raw,
                    &mut directories,
                )?;
            }
        }
    }
    Ok(directories)
}

/// Returns whether the inode has a mapping.
fn is_mapped(session: &Session<'_, '_>, core: &InodeCore, raw: &[u8], ino: InodeNr) -> bool {
    let geo = &session.old.shape.geo;
    if core.flags & flags::INLINE_DATA != 0 {
        return false;
    }
    match core.file_type() {
        Some(FileType::Regular | FileType::Directory) => true,
        Some(FileType::Symlink) => {
            let own = u64::from(inode::file_acl(raw, geo).0 != 0);
            core.flags & flags::EXTENTS != 0
                || inode::sectors(raw, geo) > own * geo.sectors_per_cluster()
        }
        _ => ino.0 == 1,
    }
}

fn one(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    old: &[u8],
    directories: &mut Vec<Directory>,
) -> Result<(), Error> {
    let geo = session.geo.clone();
    if ino == InodeNr::RESIZE && session.old.shape.geo.features.has_resize_inode() {
        return Ok(());
    }
    let core = inode::decode_verified(old, &session.old.shape.geo, ino)?;
    let new = session.number_of(ino);
    let renumbered = new != ino;
    let directory = core.file_type() == Some(FileType::Directory);
    let features = &geo.features;
    refuse(
        renumbered && features.compat.contains(Compat::STABLE_INODES),
        "stable_inodes",
    )?;
    refuse(
        !session.numbers.is_empty() && value::is_value(old) && !value::counts_references(old),
        "values of attributes that Lustre made and that have the numbers of their files",
    )?;
    let mut raw = session.widened(old);
    let mut changed = move_attributes(session, old, &mut raw)?;
    changed |=
        directory && core.flags & flags::INLINE_DATA != 0 && renumber_names(session, &mut raw)?;
    let mut extents = Vec::new();
    if is_mapped(session, &core, old, ino) {
        let root = *inode::i_block(old)?;
        let map = mapping::read(session, core.flags, &root)?;
        extents = mapping::moved(session, &map.extents);
        let moved = map
            .nodes
            .iter()
            .any(|n| session.view.moves.place(n.0) != n.0);
        let other_seed = renumbered && features.has_metadata_csum() && !map.nodes.is_empty();
        let leads_elsewhere = extents != map.extents;
        refuse(
            ino.0 == 1 && (moved || leads_elsewhere),
            "bad blocks at such places",
        )?;
        if moved || other_seed || leads_elsewhere {
            changed = true;
            let of = (new, core.generation, core.flags);
            let root = inode::i_block_mut(&mut raw)?;
            let count = mapping::write(session, of, &extents, &map.nodes, root)?;
            let each = geo.sectors_per_cluster();
            let sectors = inode::sectors(old, &geo) + count * each;
            let sectors = sectors.saturating_sub(map.nodes.len() as u64 * each);
            inode::set_sectors(&mut raw, &geo, sectors)?;
            let shape = &session.old.shape;
            session.quota.note_use(shape, (ino, &core), [old, &raw]);
        }
    }
    note_special(
        session,
        (ino, new),
        &core,
        &extents,
        changed.then_some(&raw[..]),
    )?;
    if directory && renumbered {
        let group = geo.group_of_inode(new).map_or(0, |(group, _)| group.0);
        *session.new_dirs.entry(group).or_default() += 1;
    }
    if directory && !session.numbers.is_empty() {
        directories.push(Directory {
            ino: new,
            core,
            extents,
            renumbered,
        });
    }
    if changed || renumbered {
        session.write_record(new, &mut raw)?;
    }
    Ok(())
}

/// Notes where the orphan file, the journal and the quota files are; `changed` is a record that is not as it was.
fn note_special(
    session: &mut Session<'_, '_>,
    (ino, new): (InodeNr, InodeNr),
    core: &InodeCore,
    extents: &[Extent],
    changed: Option<&[u8]>,
) -> Result<(), Error> {
    quota_files::note_file(session, (ino, new), core, extents);
    let geo = &session.old.shape.geo;
    if ino.0 == geo.orphan_file_ino && geo.features.has_orphan_file() {
        session.sb.orphan_file_inum.set(new.0);
        session.geo.orphan_file_ino = new.0;
        seal_orphans(session, new, core, extents)?;
    }
    if ino.0 == geo.journal_ino
        && session.sb.jnl_backup_type == 1
        && let Some(raw) = changed
    {
        let map = inode::i_block(raw)?;
        session.sb.set_journal_copy(map, core.size);
    }
    Ok(())
}

/// Sets the new numbers of the parent and of the names in a directory inside its inode; returns whether one changed.
fn renumber_names(session: &Session<'_, '_>, raw: &mut [u8]) -> Result<bool, Error> {
    let mut changed = inline::change_records(raw, &session.geo, |record| {
        Ok::<_, Error>((session.number_of(record.inode), record.file_type))
    })?;
    if let Some(parent) = inode::i_block_mut(raw)?.first_chunk_mut() {
        let old = InodeNr(u32::from_le_bytes(*parent));
        let new = session.number_of(old);
        *parent = new.0.to_le_bytes();
        changed |= new != old;
    }
    Ok(changed)
}

fn refuse(yes: bool, what: &str) -> Result<(), Error> {
    if yes {
        return Err(Error::Refused(format!(
            "a volume with {what}, to this size,"
        )));
    }
    Ok(())
}

/// Sets the inode's block of attributes to its new place, and the numbers of the inodes with values; returns whether the record
/// changed. The first inode that refers to the block changes the block and its checksum, which depends on the place.
fn move_attributes(
    session: &mut Session<'_, '_>,
    old: &[u8],
    raw: &mut [u8],
) -> Result<bool, Error> {
    let features = session.geo.features;
    let renumbers = features.has_ea_inode() && !session.numbers.is_empty();
    let mut changed = false;
    if renumbers
        && let Some(area) = inode::xattr_area(raw, &session.geo).and_then(|area| raw.get_mut(area))
    {
        changed = xattr::renumber_in_inode(area, |ino| session.number_of(ino));
    }
    let block = inode::file_acl(old, &session.old.shape.geo);
    if block.0 == 0 {
        return Ok(changed);
    }
    let new = BlockNr(session.view.moves.place(block.0));
    let moves = new != block;
    if (moves || renumbers) && session.attributes.insert(new.0) {
        let mut bytes = session.read(new)?;
        let renumbered =
            renumbers && xattr::renumber_in_block(&mut bytes, |ino| session.number_of(ino));
        if features.has_metadata_csum() {
            xattr::set_checksum(&mut bytes, session.geo.csum_seed, new);
        }
        if renumbered || moves && features.has_metadata_csum() {
            session.write(new, &bytes)?;
        }
    }
    if moves {
        inode::set_file_acl(raw, new);
    }
    Ok(changed || moves)
}

/// Sets the checksums of the orphan file, which depend on its number and on each block's place.
fn seal_orphans(
    session: &Session<'_, '_>,
    ino: InodeNr,
    core: &InodeCore,
    extents: &[Extent],
) -> Result<(), Error> {
    let Some(seed) = session.seed(ino, core.generation) else {
        return Ok(());
    };
    for extent in extents {
        for i in 0..u64::from(extent.len) {
            let block = BlockNr(extent.physical.0 + i);
            let mut bytes = session.read(block)?;
            orphan_file::set_checksum(&mut bytes, seed, block);
            session.write(block, &bytes)?;
        }
    }
    Ok(())
}
