//! Extended attributes: in inode records, in blocks that inodes share, and in value inodes (`ea_inode`).

use crate::error::Error;
use crate::record::{self, Record};
use crate::session::{InodeUse, Session, Used};
use crate::superblock;
use ext4_format::features::{Compat, Features};
use ext4_format::inode::{self, flags, inline, value};
use ext4_format::xattr::{self, Removable, Stored, ValueInode};
use ext4_format::{BlockNr, FileType, FormatError, InodeNr, Where};
use std::collections::BTreeSet;

/// Values in inodes that some attributes have.
#[derive(Default)]
struct Values {
    /// Attributes whose values are sound, one for each.
    sound: Vec<ValueInode>,
    /// Clusters that an inode with these attributes accounts for.
    accounted: u64,
    /// Inodes that do not hold the value that an attribute has.
    broken: BTreeSet<InodeNr>,
}

impl Values {
    fn has_broken(&self, attribute: &Removable<'_>) -> bool {
        let broken = |ino| self.broken.contains(&ino);
        attribute.value.is_some_and(broken)
    }
}

/// Mends the attributes of an inode. Returns the clusters in its count of blocks for them, and the bytes of the
/// attribute with the rest of inline data.
pub(crate) fn mend(
    session: &mut Session<'_, '_>,
    record: &mut Record,
) -> Result<(u64, Option<usize>), Error> {
    let (accounted, inline) = inside(session, record)?;
    let geo = session.geo.clone();
    let block = inode::file_acl(&record.raw, &geo);
    if block.0 == 0 {
        return Ok((accounted, inline));
    }
    if let Some(in_block) = usable(session, record, block)? {
        let needed = Features {
            compat: Compat::EXT_ATTR,
            ..Features::default()
        };
        superblock::need(session, needed, "ext_attr is set, as there are attributes")?;
        if is_foreign(session, block) {
            let owners = session.attribute_copies.entry(block).or_default();
            owners.push(record.ino);
        } else {
            session.claims.insert(geo.clusters_of(block, 1));
            *session.attribute_blocks.entry(block).or_default() += 1;
        }
        return Ok((accounted + in_block + 1, inline));
    }
    let text = "its block of attributes is removed";
    if session.ask(record.place(), text, Some("attributes")) {
        inode::set_file_acl(&mut record.raw, BlockNr(0));
        return Ok((accounted, inline));
    }
    Ok((accounted + 1, inline))
}

/// Mends the attributes behind the fixed part of a record. Returns the clusters accounted for values in inodes, and the bytes of
/// the attribute with the rest of inline data.
fn inside(
    session: &mut Session<'_, '_>,
    record: &mut Record,
) -> Result<(u64, Option<usize>), Error> {
    let Some(range) = inode::xattr_area(&record.raw, &session.geo) else {
        return Ok((0, None));
    };
    let (mut inline, mut named) = (None, Vec::new());
    let area = record.raw.get(range.clone()).unwrap_or(&[]);
    let walked = xattr::walk_inode_area(area, |index, rest, value| {
        match (index, rest, value) {
            (index, rest, Stored::Here(value)) if (index, rest) == inline::ATTRIBUTE => {
                inline = Some(value.len());
            }
            (_, rest, Stored::Inode(value)) => named.push((rest.to_vec(), value)),
            _ => {}
        }
        Ok(())
    });
    let wanted = named.is_empty() || session.geo.features.has_ea_inode();
    if (walked.is_err() || !wanted)
        && session.ask(
            record.place(),
            "the attributes in it are removed",
            Some("attributes"),
        )
    {
        if let Some(area) = record.raw.get_mut(range) {
            area.fill(0);
        }
        return Ok((0, None));
    }
    let values = values(session, record, named)?;
    note(session, &values);
    if !values.broken.is_empty()
        && ask_to_remove(session, record.place(), &values)
        && let Some(area) = record.raw.get_mut(range)
    {
        xattr::remove_in_inode(area, |a| values.has_broken(a));
    }
    Ok((values.accounted, inline))
}

fn ask_to_remove(session: &mut Session<'_, '_>, place: String, values: &Values) -> bool {
    let broken: Vec<String> = values.broken.iter().map(ToString::to_string).collect();
    let text = format!(
        "attributes are removed whose values are not in inode {}",
        broken.join(", ")
    );
    session.ask(place, text, Some("attributes"))
}

/// Counts references to values.
fn note(session: &mut Session<'_, '_>, values: &Values) {
    for value in &values.sound {
        *session.value_inodes.entry(value.ino.0).or_default() += 1;
    }
}

/// Looks at the inodes that attributes name. An inode that lacks only the flag gets it.
fn values(
    session: &mut Session<'_, '_>,
    record: &Record,
    named: Vec<(Vec<u8>, ValueInode)>,
) -> Result<Values, Error> {
    let mut values = Values::default();
    for (rest, stored) in named {
        let possible = stored.ino.0 >= session.geo.first_ino && stored.ino != record.ino;
        let raw = if possible {
            session.read_record(stored.ino)?
        } else {
            None
        };
        let fits = raw.is_some_and(|raw| value::could_hold(&raw, &rest, &stored));
        if fits && has_flag(session, stored.ino)? {
            values.accounted += value::value_clusters(&session.geo, stored.size);
            values.sound.push(stored);
        } else if is_of_owner(session, record, &stored)? {
            values.sound.push(stored);
        } else {
            values.broken.insert(stored.ino);
        }
    }
    Ok(values)
}

/// Returns whether an inode has the flag of a value, and sets a missing flag.
fn has_flag(session: &mut Session<'_, '_>, ino: InodeNr) -> Result<bool, Error> {
    let Some(mut raw) = session.read_record(ino)? else {
        return Ok(false);
    };
    if value::is_value(&raw) {
        return Ok(true);
    }
    let text = "the flag of an attribute's value is set";
    if !session.ask(format!("inode {ino}"), text, None) {
        return Ok(false);
    }
    let mut core = inode::decode_verified(&raw, &session.geo, ino).map_err(Error::Format)?;
    core.flags |= flags::EA_INODE;
    inode::encode_core(&core, &mut raw, &session.geo);
    session.write_record(ino, &mut raw)?;
    Ok(true)
}

fn is_of_owner(
    session: &Session<'_, '_>,
    record: &Record,
    stored: &ValueInode,
) -> Result<bool, Error> {
    let raw = session.read_record(stored.ino)?;
    Ok(raw.is_some_and(|raw| value::is_of_owner(&raw, stored, record.ino.0, &record.raw)))
}

/// Subtracts the attributes of a cleared inode from the counts. The next round counts the values of its block.
pub(crate) fn forget(session: &mut Session<'_, '_>, ino: InodeNr, raw: &[u8]) {
    let block = inode::file_acl(raw, &session.geo);
    if let Some(owners) = session.attribute_copies.get_mut(&block) {
        owners.retain(|&owner| owner != ino);
    }
    if let Some(found) = session.attribute_blocks.get_mut(&block) {
        *found -= 1; // it was counted
        if *found == 0 {
            session.attribute_blocks.remove(&block);
            session.free(block);
        }
    }
    let area = inode::xattr_area(raw, &session.geo).and_then(|range| raw.get(range));
    let values = &mut session.value_inodes;
    let _ = xattr::walk_inode_area(area.unwrap_or(&[]), |_, _, value| {
        if let Stored::Inode(value) = value
            && let Some(found) = values.get_mut(&value.ino.0)
        {
            *found = found.saturating_sub(1);
        }
        Ok(())
    });
}

/// Clusters that the count of blocks of a sound record includes for its attributes.
pub(crate) fn clusters(session: &Session<'_, '_>, raw: &[u8]) -> Result<u64, Error> {
    let geo = &session.geo;
    let values = values_in_inodes(session, raw)?;
    let clusters = values.iter().map(|&size| value::value_clusters(geo, size));
    let block = u64::from(inode::file_acl(raw, geo).0 != 0);
    Ok(clusters.sum::<u64>() + block)
}

/// Sizes of the values in inodes that the attributes of a sound record have.
pub(crate) fn values_in_inodes(session: &Session<'_, '_>, raw: &[u8]) -> Result<Vec<u32>, Error> {
    let geo = &session.geo;
    let mut sizes = Vec::new();
    let mut add = |_: u8, _: &[u8], value: Stored<'_>| {
        if let Stored::Inode(stored) = value {
            sizes.push(stored.size);
        }
        Ok(())
    };
    // The walk ends at damage, and so did the kernel's count.
    let area = inode::xattr_area(raw, geo).and_then(|range| raw.get(range));
    let _ = xattr::walk_inode_area(area.unwrap_or(&[]), &mut add);
    let block = inode::file_acl(raw, geo);
    if block.0 != 0 && geo.features.has_ea_inode() {
        let _ = xattr::walk_block(&session.read(block)?, &mut add);
    }
    Ok(sizes)
}

/// Values of attributes are in inodes only with the feature.
fn check_place(session: &Session<'_, '_>, value: Stored<'_>) -> ext4_format::Result<()> {
    match value {
        Stored::Inode(value) if !session.geo.features.has_ea_inode() => Err(FormatError::corrupt(
            "value of an attribute",
            Where::Inode(value.ino),
        )),
        _ => Ok(()),
    }
}

/// Returns the clusters accounted for values of this block, or `None` if the block is not a block of attributes.
fn usable(
    session: &mut Session<'_, '_>,
    record: &Record,
    block: BlockNr,
) -> Result<Option<u64>, Error> {
    let known = session.attribute_blocks.contains_key(&block)
        || session.attribute_copies.contains_key(&block);
    if !session.geo.is_valid_data_range(block, 1) {
        return Ok(None);
    }
    let mut bytes = session.read(block)?;
    let mut named = Vec::new();
    let walked = xattr::walk_block(&bytes, |_, rest, value| {
        check_place(session, value)?;
        if let Stored::Inode(value) = value {
            named.push((rest.to_vec(), value));
        }
        Ok(())
    });
    if walked.is_err() {
        return Ok(None);
    }
    let values = values(session, record, named)?;
    if !known {
        note(session, &values);
    }
    let place = format!("block {block}");
    // The next round looks at the copy of a block that is not the inode's own.
    if !values.broken.is_empty()
        && !is_foreign(session, block)
        && ask_to_remove(session, place, &values)
    {
        xattr::remove_in_block(&mut bytes, |a| values.has_broken(a));
        if session.has_csum() {
            xattr::set_checksum(&mut bytes, session.geo.csum_seed, block);
        }
        session.write(block, &bytes)?;
    }
    Ok(Some(values.accounted))
}

/// Returns whether another structure than attributes has a block.
fn is_foreign(session: &Session<'_, '_>, block: BlockNr) -> bool {
    session.claims.contains(session.geo.cluster_of(block))
        && !session.attribute_blocks.contains_key(&block)
}

/// Gives inodes copies of blocks of attributes that other structures have. Free blocks are known by now.
pub(crate) fn copy_foreign(session: &mut Session<'_, '_>) -> Result<(), Error> {
    for (block, owners) in std::mem::take(&mut session.attribute_copies) {
        let place = owners
            .first()
            .map_or(String::new(), |ino| format!("inode {ino}"));
        let text = "its block of attributes is claimed twice: it gets a copy";
        if owners.is_empty() || !session.ask(&place, text, None) {
            continue;
        }
        let Some(copy) = session.allocate() else {
            drop_blocks(session, &owners)?;
            continue;
        };
        let mut bytes = session.read(block)?;
        let count = owners.len() as u32;
        xattr::set_refcount(&mut bytes, count).map_err(Error::Format)?;
        if session.has_csum() {
            xattr::set_checksum(&mut bytes, session.geo.csum_seed, copy);
        }
        session.write(copy, &bytes)?;
        session.attribute_blocks.insert(copy, count);
        for ino in owners {
            if let Some(mut raw) = session.read_record(ino)? {
                inode::set_file_acl(&mut raw, copy);
                session.write_record(ino, &mut raw)?;
            }
        }
    }
    Ok(())
}

/// Removes the blocks of attributes of inodes if no block is free for copies.
fn drop_blocks(session: &mut Session<'_, '_>, owners: &[InodeNr]) -> Result<(), Error> {
    let each = session.geo.sectors_per_cluster();
    for &ino in owners {
        let text = "its block of attributes is removed, as no block is free for a copy";
        if let Some(mut raw) = session.read_record(ino)?
            && session.ask(format!("inode {ino}"), text, Some("attributes"))
        {
            inode::set_file_acl(&mut raw, BlockNr(0));
            let left = inode::sectors(&raw, &session.geo).saturating_sub(each);
            inode::set_sectors(&mut raw, &session.geo, left).map_err(Error::Format)?;
            session.write_record(ino, &mut raw)?;
        }
    }
    Ok(())
}

/// Sets counts of inodes and checksums of blocks of attributes, and the counts of references to values in inodes.
pub(crate) fn counts(session: &mut Session<'_, '_>) -> Result<(), Error> {
    for (block, found) in session.attribute_blocks.clone() {
        let mut bytes = session.read(block)?;
        let place = format!("block {block}");
        let counted = xattr::refcount(&bytes).ok() == Some(found);
        let sealed = !session.has_csum()
            || xattr::verify_checksum(&bytes, session.geo.csum_seed, block).is_ok();
        if (counted && sealed)
            || !session.ask(
                place,
                "the count and checksum of a block of attributes are set",
                None,
            )
        {
            continue;
        }
        xattr::set_refcount(&mut bytes, found).map_err(Error::Format)?;
        if session.has_csum() {
            xattr::set_checksum(&mut bytes, session.geo.csum_seed, block);
        }
        session.write(block, &bytes)?;
    }
    references(session)
}

fn references(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let values = session.inodes.iter();
    let values = values.filter(|(_, used)| used.kind == InodeUse::Value);
    let values: Vec<InodeNr> = values.map(|(ino, _)| InodeNr(*ino)).collect();
    for ino in values {
        let found = session.value_inodes.get(&ino.0).copied().unwrap_or(0);
        let Some(mut raw) = session.read_record(ino)? else {
            continue;
        };
        if found == 0 {
            let text = "it is a file, as no attribute has it as its value";
            if session.ask(format!("inode {ino}"), text, None) {
                record::edit(session, ino, |core| core.flags &= !flags::EA_INODE)?;
                let kind = InodeUse::File(FileType::Regular);
                session.inodes.insert(ino.0, Used { kind, names: 0 });
            }
            continue;
        }
        let stored = value::references(&raw);
        let text = "its count of references is set";
        if stored != found
            && value::counts_references(&raw)
            && session.ask(format!("inode {ino}"), text, None)
        {
            value::set_references(&mut raw, found);
            session.write_record(ino, &mut raw)?;
        }
    }
    Ok(())
}
