//! The records of inodes, their attributes and their mappings.

use crate::error::Error;
use crate::inode_map::{Rewrite, map, sectors};
use crate::mapping::{self, MapRead};
use crate::record::{self, Record};
use crate::session::{DirState, InodeUse, Session, Used};
use crate::{attributes, directory_mode, encryption, inline_data, superblock};
use ext4_format::features::{Features, Incompat, RoCompat};
use ext4_format::inode::{self, encryption as encrypted, flags, inline, reserved};
use ext4_format::{BlockNr, FileType, FormatError, GroupNr, InodeNr, xattr};

/// Offsets of fields that only a repair sets.
const SIZE_HI: usize = 0x6c;
const EXTRA_ISIZE: usize = 0x80;

fn put(raw: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = raw.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

/// Mends all records, and records the inodes in use. Returns the mappings that need free blocks.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<Vec<Rewrite>, Error> {
    let mut rewrites = Vec::new();
    for group in 0..session.geo.groups {
        for index in 0..session.records_in(group) {
            let ino = session.geo.inode_nr(GroupNr(group), index);
            let Some(raw) = session.read_record(ino)? else {
                continue;
            };
            if raw.iter().any(|&b| b != 0) {
                record(session, ino, raw, &mut rewrites)?;
            }
        }
    }
    Ok(rewrites)
}

/// Makes the changes that need free blocks. All inodes must have been read, or their blocks would be taken.
pub(crate) fn rewrite(session: &mut Session<'_, '_>, rewrites: Vec<Rewrite>) -> Result<(), Error> {
    for rewrite in rewrites {
        crate::inode_map::rewrite(session, rewrite)?;
    }
    attributes::copy_foreign(session)?;
    attributes::counts(session)
}

fn record(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    mut raw: Vec<u8>,
    rewrites: &mut Vec<Rewrite>,
) -> Result<(), Error> {
    let geo = session.geo.clone();
    let before = raw.clone();
    let place = format!("inode {ino}");
    let sealed = inode::verify_checksum(&raw, &geo, ino).is_ok();
    if inode::decode_verified(&raw, &geo, ino).is_err() {
        if geo.inode_size > 128
            && session.ask(
                &place,
                "its extra part is rebuilt",
                Some("times finer than a second, and attributes in the inode"),
            )
        {
            if let Some(extra) = raw.get_mut(EXTRA_ISIZE..) {
                extra.fill(0);
            }
            put(
                &mut raw,
                EXTRA_ISIZE,
                &geo.want_extra_isize.max(32).to_le_bytes(),
            );
        }
        if inode::decode_verified(&raw, &geo, ino).is_err() {
            put(&mut raw, SIZE_HI, &[0; 4]);
        }
    }
    let Ok(core) = inode::decode_verified(&raw, &geo, ino) else {
        record::clear(session, ino, "its record cannot be read")?;
        return Ok(());
    };
    let mut record = Record { ino, raw, core };
    let reserved = ino.0 < geo.first_ino && ino != InodeNr::ROOT;
    deletion(session, &mut record, reserved);
    let kept = if reserved {
        self::reserved(session, &mut record, rewrites)?
    } else if record.core.links == 0 {
        true
    } else {
        in_use(session, &mut record, rewrites)?
    };
    if !kept {
        return Ok(());
    }
    // Where nothing is mended, not even the extra part of an old record is made.
    if record.core != core {
        inode::encode_core(&record.core, &mut record.raw, &geo);
    }
    if record.raw == before {
        if !sealed && session.ask(&place, "its checksum is set", None) {
            session.write_record(ino, &mut record.raw)?;
        }
    } else {
        session.write_record(ino, &mut record.raw)?;
    }
    Ok(())
}

fn deletion(session: &mut Session<'_, '_>, record: &mut Record, reserved: bool) {
    let (core, place) = (record.core, record.place());
    let small = core.dtime != 0 && core.dtime <= session.geo.inodes_count;
    let numbered = small && session.sb.links_orphans_by_dtime();
    if core.links == 0 && !reserved {
        if (numbered || core.dtime == 0 && core.mode != 0)
            && session.ask(place, "its time of deletion is set", None)
        {
            record.core.dtime = session.now;
        }
    } else if (numbered || core.dtime != 0 && !reserved)
        && session.ask(place, "its time of deletion is cleared", None)
    {
        record.core.dtime = 0;
    }
}

/// Returns whether the record stays.
fn reserved(
    session: &mut Session<'_, '_>,
    record: &mut Record,
    rewrites: &mut Vec<Rewrite>,
) -> Result<bool, Error> {
    clear_kinds(session, record);
    let core = record.core;
    if let Err(error) = reserved::check(&record.raw, &session.sb, record.ino) {
        let what = match error {
            FormatError::Corrupt { what, .. } => what,
            _ => "a reserved inode in use",
        };
        if record::clear(session, record.ino, what)? {
            return Ok(false);
        }
    } else if reserved::is_unused(&record.raw, &core, record.ino) {
        return Ok(true);
    }
    session.inodes.insert(
        record.ino.0,
        Used {
            kind: InodeUse::Reserved,
            names: 0,
        },
    );
    if record.ino == InodeNr::RESIZE && session.geo.features.has_resize_inode() {
        // Its data blocks are those of the groups' reserved descriptors; only the block of its map belongs to it.
        let root = inode::i_block(&record.raw).map_err(Error::Format)?;
        let slot = ext4_format::indirect::DIRECT + 1;
        if let Ok(Some(block)) = ext4_format::indirect::get(root, slot, session.geo.blocks_count) {
            let own = session.geo.is_valid_data_range(block, 1)
                && session.claims.insert(session.geo.clusters_of(block, 1));
            session.resize_map = own.then_some(block);
        }
        large(session, record)?;
        return Ok(true);
    }
    match core.file_type() {
        None if record.ino == reserved::BAD_BLOCKS => return bad_blocks(session, record),
        None => sectors(session, record, 0)?,
        Some(_)
            if reserved::can_be_named(record.ino)
                && !reserved::is_named(&session.sb, record.ino) => {}
        Some(file_type) => {
            mapping_features(session, record, file_type)?;
            mend_flags(session, record, file_type);
            let (attribute_blocks, inline) = attributes::mend(session, record)?;
            let mut is_inline = record.has(flags::INLINE_DATA);
            if is_inline {
                (_, is_inline) = inline_data::mend(session, record, inline, file_type)?;
            }
            if is_inline {
                sectors(session, record, attribute_blocks)?;
            } else if file_type == FileType::Regular {
                map(session, record, attribute_blocks, rewrites)?;
                large(session, record)?;
            } else {
                sectors(session, record, attribute_blocks)?;
            }
        }
    }
    Ok(true)
}

/// Clears the flags of a directory that folds case and of the value of an attribute, at which e2fsck looks in any reserved inode.
fn clear_kinds(session: &mut Session<'_, '_>, record: &mut Record) {
    let regular = record.core.file_type() == Some(FileType::Regular);
    for (flag, possible, text) in [
        (flags::CASEFOLD, false, "the flag of folded case is cleared"),
        (
            flags::EA_INODE,
            regular,
            "the flag of an attribute's value is cleared",
        ),
    ] {
        if record.has(flag) && !possible && session.ask(record.place(), text, None) {
            record.core.flags &= !flag;
        }
    }
}

/// Sets the feature that a file of 2 GiB needs.
fn large(session: &mut Session<'_, '_>, record: &Record) -> Result<(), Error> {
    let needed = Features {
        ro_compat: RoCompat::LARGE_FILE,
        ..Features::default()
    };
    if record.core.size > i32::MAX as u64 {
        superblock::need(
            session,
            needed,
            "large_file is set, as there are large files",
        )
    } else {
        Ok(())
    }
}

/// Sets the features for extents and inline data, if an inode really has them and not only the flag.
fn mapping_features(
    session: &mut Session<'_, '_>,
    record: &Record,
    file_type: FileType,
) -> Result<(), Error> {
    let geo = session.geo.clone();
    let mapped = matches!(
        file_type,
        FileType::Regular | FileType::Directory | FileType::Symlink
    );
    let inline = record.has(flags::INLINE_DATA);
    if mapped && record.has(flags::EXTENTS) && !inline && record::has_tree(session, &record.raw) {
        let text = "extents is set, as there are extent trees";
        superblock::need_to_read(session, Incompat::EXTENT, text)?;
    }
    let mut held = false;
    let area = inode::xattr_area(&record.raw, &geo).and_then(|range| record.raw.get(range));
    let walked = xattr::walk_inode_area(area.unwrap_or(&[]), |index, rest, _| {
        held |= (index, rest) == inline::ATTRIBUTE;
        Ok(())
    });
    if mapped && inline && !record.has(flags::EXTENTS) && held && walked.is_ok() {
        let text = "inline_data is set, as there are inodes with their data";
        superblock::need_to_read(session, Incompat::INLINE_DATA, text)?;
    }
    Ok(())
}

/// Claims the bad blocks. A list with blocks that cannot be is cleared.
fn bad_blocks(session: &mut Session<'_, '_>, record: &Record) -> Result<bool, Error> {
    let root = inode::i_block(&record.raw).map_err(Error::Format)?;
    let map = mapping::read(session, record.core.flags, root, None)?;
    let blocks = map
        .extents
        .iter()
        .flat_map(|e| (0..e.len).filter_map(|i| e.map(e.logical + i)));
    let all: Vec<BlockNr> = blocks.chain(map.nodes.iter().copied()).collect();
    let taken = |block: &BlockNr| session.claims.contains(session.geo.cluster_of(*block));
    if (map.problem.is_some() || all.iter().any(taken))
        && record::clear(
            session,
            record.ino,
            "a list of bad blocks that cannot be bad",
        )?
    {
        session.inodes.remove(&record.ino.0);
        return Ok(false);
    }
    for block in all {
        session.claims.insert(session.geo.clusters_of(block, 1));
    }
    Ok(true)
}

/// Clears the fields of a record that nothing uses.
fn clear_unused(session: &mut Session<'_, '_>, record: &mut Record) {
    let geo = session.geo.clone();
    if inode::unused_size_half(&record.raw, &geo) != 0
        && session.ask(record.place(), "the high half of its size is cleared", None)
    {
        inode::clear_unused_size_half(&mut record.raw, &geo);
    }
    if (inode::fragment(&record.raw) != 0 || inode::unused_halves(&record.raw, &geo) != 0)
        && session.ask(record.place(), "fields that nothing uses are cleared", None)
    {
        inode::clear_unused(&mut record.raw, &geo);
    }
}

/// Returns whether the record stays.
fn in_use(
    session: &mut Session<'_, '_>,
    record: &mut Record,
    rewrites: &mut Vec<Rewrite>,
) -> Result<bool, Error> {
    let ino = record.ino;
    directory_mode::mend(session, record)?;
    let Some(file_type) = record.core.file_type() else {
        return Ok(!record::clear(session, ino, "its mode is not valid")?);
    };
    if ino == InodeNr::ROOT
        && file_type != FileType::Directory
        && record::clear(session, ino, "the root is not a directory")?
    {
        return Ok(false);
    }
    let geo = session.geo.clone();
    let value = record.has(flags::EA_INODE)
        && file_type == FileType::Regular
        && geo.features.has_ea_inode();
    let hidden = geo.features.has_orphan_file() && ino.0 == geo.orphan_file_ino
        || session.sb.prj_quota_inum.get() == ino.0
            && geo.features.has_project()
            && file_type == FileType::Regular;
    mapping_features(session, record, file_type)?;
    self::mend_flags(session, record, file_type);
    clear_unused(session, record);
    let (attribute_blocks, inline) = attributes::mend(session, record)?;
    encryption::mend(session, record, file_type)?;
    if record.has(flags::INLINE_DATA) {
        let (kept, _) = inline_data::mend(session, record, inline, file_type)?;
        if !kept {
            attributes::forget(session, record.ino, &record.raw);
            return Ok(false);
        }
    }
    let mapped = match file_type {
        _ if record.has(flags::INLINE_DATA) => MapRead::default(),
        FileType::Directory | FileType::Regular => {
            let map = map(session, record, attribute_blocks, rewrites)?;
            if file_type == FileType::Regular {
                large(session, record)?;
            }
            map
        }
        FileType::Symlink => match symlink(session, record, attribute_blocks, rewrites)? {
            Some(map) => map,
            None => return Ok(false),
        },
        _ => {
            if record.core.size != 0 && session.ask(record.place(), "its size is set to 0", None) {
                record.core.size = 0;
            }
            MapRead::default()
        }
    };
    let without_map = record.has(flags::INLINE_DATA)
        || !matches!(file_type, FileType::Directory | FileType::Regular)
            && mapped.extents.is_empty();
    if without_map {
        sectors(session, record, attribute_blocks)?;
    }
    let kind = match (hidden, value) {
        (true, _) => InodeUse::Reserved,
        (_, true) => InodeUse::Value,
        _ => InodeUse::File(file_type),
    };
    session.inodes.insert(ino.0, Used { kind, names: 0 });
    if file_type == FileType::Directory {
        session.dirs.insert(ino.0, DirState::default());
    }
    Ok(true)
}

fn mend_flags(session: &mut Session<'_, '_>, record: &mut Record, file_type: FileType) {
    let features = session.geo.features;
    let core = record.core;
    let has = |flag| core.flags & flag != 0;
    let mapped = matches!(
        file_type,
        FileType::Regular | FileType::Directory | FileType::Symlink
    );
    let directory = file_type == FileType::Directory;
    let mut wrong = 0;
    for (flag, fits) in [
        (
            flags::EXTENTS,
            features.has_extents()
                && mapped
                && !(has(flags::INLINE_DATA) && features.has_inline_data()),
        ),
        (flags::INLINE_DATA, features.has_inline_data() && mapped),
        (flags::INDEX, directory && features.has_dir_index()),
        (
            flags::EA_INODE,
            features.has_ea_inode() && file_type == FileType::Regular,
        ),
        (flags::ENCRYPT, features.has_encrypt()),
        (flags::CASEFOLD, features.has_casefold() && directory),
        (flags::IMAGIC, false),
        (flags::IMMUTABLE, mapped),
        (flags::APPEND, mapped),
    ] {
        if has(flag) && !fits {
            wrong |= flag;
        }
    }
    if wrong != 0
        && session.ask(
            record.place(),
            format!("flags {wrong:#x} are cleared, which do not fit it"),
            None,
        )
    {
        record.core.flags &= !wrong;
    }
    // A tree without the flag still counts as a tree.
    if mapped
        && record::has_tree(session, &record.raw)
        && features.has_extents()
        && !record.has(flags::EXTENTS | flags::INLINE_DATA)
        && session.ask(record.place(), "the flag of its extents is set", None)
    {
        record.core.flags |= flags::EXTENTS;
    }
}

/// Returns the mapping of a symbolic link; `None` if it was cleared.
fn symlink(
    session: &mut Session<'_, '_>,
    record: &mut Record,
    attribute_blocks: u64,
    rewrites: &mut Vec<Rewrite>,
) -> Result<Option<MapRead>, Error> {
    let own = attribute_blocks
        * u64::from(session.geo.sectors_per_block())
        * u64::from(session.geo.cluster_ratio);
    let root = *inode::i_block(&record.raw).map_err(Error::Format)?;
    let end = |bytes: &[u8]| bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    let text = end(&root) as u64 == record.core.size && record.core.size > 0;
    let (slow, map, target) = if !text
        && (inode::sectors(&record.raw, &session.geo) > own || record.has(flags::EXTENTS))
    {
        let map = map(session, record, attribute_blocks, rewrites)?;
        let first = map
            .extents
            .first()
            .filter(|e| e.logical == 0 && map.blocks() == 1)
            .map(|e| e.physical);
        let bytes = first.map(|block| session.read(block)).transpose()?;
        (true, map, bytes.unwrap_or_default())
    } else {
        (false, MapRead::default(), root.to_vec())
    };
    if !slow
        && record.has(flags::EXTENTS)
        && session.ask(
            record.place(),
            "the flag of extents is cleared, as the target is in the inode",
            None,
        )
    {
        record.core.flags &= !flags::EXTENTS;
    }
    let size = if record.has(flags::ENCRYPT) {
        // Of an encrypted target whose length cannot be, nothing is left.
        encrypted::target_size(&target, target.len()).unwrap_or(0) as usize
    } else {
        end(&target)
    };
    // A short target is in the inode.
    let misplaced = slow && size < inode::I_BLOCK_SIZE;
    if size == 0 || size == target.len() || misplaced {
        let cleared = record::clear(session, record.ino, "a symbolic link without a target")?;
        if cleared {
            for extent in &map.extents {
                for i in 0..extent.len {
                    session.free(BlockNr(extent.physical.0 + u64::from(i)));
                }
            }
            rewrites.retain(|r| r.ino != record.ino);
            attributes::forget(session, record.ino, &record.raw);
            return Ok(None);
        }
    } else if size as u64 != record.core.size
        && session.ask(record.place(), format!("its size is set to {size}"), None)
    {
        record.core.size = size as u64;
    }
    Ok(Some(map))
}
