//! The records of inodes, their attributes and their mappings.

use crate::Error;
use crate::inode_map::{Rewrite, map, sectors};
use crate::mapping::MapRead;
use crate::session::{DirState, InodeUse, Session, Used};
use ext4_format::extent::{Node, NodeRules};
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::xattr::{self, Stored};
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr};

/// A record that is being mended.
pub(crate) struct Record {
    pub(crate) ino: InodeNr,
    pub(crate) raw: Vec<u8>,
    pub(crate) core: InodeCore,
}

impl Record {
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.core.flags & flag != 0
    }

    pub(crate) fn place(&self) -> String {
        format!("inode {}", self.ino)
    }
}

/// Offsets of fields that only a repair sets.
const FRAGMENT: usize = 0x70;
const SIZE_HI: usize = 0x6c;
const EXTRA_ISIZE: usize = 0x80;

fn put(raw: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = raw.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

/// Mends all records, and notes what is in use.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<(), Error> {
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
    for rewrite in rewrites {
        crate::inode_map::rewrite(session, rewrite)?;
    }
    attribute_counts(session)
}

fn clear(session: &mut Session<'_, '_>, ino: InodeNr, why: &str) -> Result<bool, Error> {
    let cleared = session.ask(
        format!("inode {ino}"),
        format!("it is cleared: {why}"),
        Some("the inode, and its data"),
    );
    if cleared {
        let mut raw = vec![0; session.geo.inode_size.into()];
        session.write_record(ino, &mut raw)?;
    }
    Ok(cleared)
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
                "its extra part is made anew",
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
        clear(session, ino, "its record cannot be read")?;
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
    let numbered = core.dtime != 0 && core.dtime <= session.geo.inodes_count;
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

/// Whether the record stays.
fn reserved(
    session: &mut Session<'_, '_>,
    record: &mut Record,
    rewrites: &mut Vec<Rewrite>,
) -> Result<bool, Error> {
    let core = record.core;
    if core.links == 0 && core.mode == 0 && core.size == 0 {
        return Ok(true);
    }
    let fits = core.file_type() == Some(FileType::Regular) || (core.mode == 0 && record.ino.0 == 1);
    if !fits
        && clear(
            session,
            record.ino,
            "a reserved inode that is no regular file",
        )?
    {
        return Ok(false);
    }
    session.inodes.insert(
        record.ino.0,
        Used {
            kind: InodeUse::Reserved,
            names: 0,
        },
    );
    if record.ino == InodeNr::RESIZE && session.geo.features.has_resize_inode() {
        // Its blocks are those of the groups' reserved descriptors; the block of its map is its own.
        let root = inode::i_block(&record.raw).map_err(Error::Format)?;
        let slot = ext4_format::indirect::DIRECT + 1;
        if let Ok(Some(block)) = ext4_format::indirect::get(root, slot, session.geo.blocks_count) {
            let own = session.geo.is_valid_data_range(block, 1)
                && session.claims.insert(session.geo.cluster_of(block));
            session.resize_map = own.then_some(block);
        }
        return Ok(true);
    }
    map(session, record, 0, rewrites)?;
    Ok(true)
}

/// Whether the record stays.
fn in_use(
    session: &mut Session<'_, '_>,
    record: &mut Record,
    rewrites: &mut Vec<Rewrite>,
) -> Result<bool, Error> {
    let ino = record.ino;
    let Some(file_type) = record.core.file_type() else {
        return Ok(!clear(session, ino, "its mode is none that exists")?);
    };
    if ino == InodeNr::ROOT
        && file_type != FileType::Directory
        && clear(session, ino, "the root is no directory")?
    {
        return Ok(false);
    }
    let geo = session.geo.clone();
    let value = record.has(flags::EA_INODE)
        && file_type == FileType::Regular
        && geo.features.has_ea_inode();
    let hidden = geo.features.has_orphan_file() && ino.0 == geo.orphan_file_ino
        || session.sb.prj_quota_inum.get() == ino.0 && geo.features.has_project();
    self::flags_of(session, record, file_type);
    let high = record
        .raw
        .get(SIZE_HI..SIZE_HI + 4)
        .is_some_and(|high| high != [0; 4]);
    if high
        && file_type != FileType::Regular
        && !geo.features.has_large_dir()
        && session.ask(record.place(), "the high half of its size is cleared", None)
    {
        put(&mut record.raw, SIZE_HI, &[0; 4]);
    }
    if inode::fragment(&record.raw) != 0
        && session.ask(record.place(), "its address of a fragment is cleared", None)
    {
        put(&mut record.raw, FRAGMENT, &[0; 4]);
    }
    let (attribute_blocks, inline) = attributes(session, record)?;
    let mapped = match file_type {
        _ if record.has(flags::INLINE_DATA) => {
            inline_size(session, record, inline, file_type);
            MapRead::default()
        }
        FileType::Directory | FileType::Regular => {
            map(session, record, attribute_blocks, rewrites)?
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

fn flags_of(session: &mut Session<'_, '_>, record: &mut Record, file_type: FileType) {
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
        (flags::EA_INODE, features.has_ea_inode()),
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
    // A tree without the flag is a tree all the same.
    let root = inode::i_block(&record.raw).ok();
    let tree =
        root.and_then(|root| Node::parse(root, &NodeRules::root(session.geo.blocks_count)).ok());
    if mapped
        && tree.is_some()
        && features.has_extents()
        && !record.has(flags::EXTENTS | flags::INLINE_DATA)
        && session.ask(record.place(), "the flag of its extents is set", None)
    {
        record.core.flags |= flags::EXTENTS;
    }
}

/// Blocks of attributes, and bytes of the attribute with the rest of inline data.
fn attributes(
    session: &mut Session<'_, '_>,
    record: &mut Record,
) -> Result<(u64, Option<usize>), Error> {
    let geo = session.geo.clone();
    let mut inline = None;
    if let Some(range) = inode::xattr_area(&record.raw, &geo) {
        let area = record.raw.get(range.clone()).unwrap_or(&[]);
        let walked = xattr::walk_inode_area(area, |index, rest, value| {
            match (index, rest, value) {
                (7, b"data", Stored::Here(value)) => inline = Some(value.len()),
                // Values are in inodes only with the feature.
                (.., Stored::Inode(ino)) if !geo.features.has_ea_inode() => {
                    let place = ext4_format::Where::Inode(ino);
                    return Err(ext4_format::FormatError::corrupt(
                        "value of an attribute",
                        place,
                    ));
                }
                _ => {}
            }
            Ok(())
        });
        if walked.is_err()
            && session.ask(
                record.place(),
                "the attributes in it are removed",
                Some("attributes"),
            )
        {
            inline = None;
            if let Some(area) = record.raw.get_mut(range) {
                area.fill(0);
            }
        }
    }
    let block = inode::file_acl(&record.raw, &geo);
    if block.0 == 0 {
        return Ok((0, inline));
    }
    let known = session.attribute_blocks.contains_key(&block);
    let usable = known
        || geo.is_valid_data_range(block, 1) && {
            let bytes = session.read(block)?;
            let readable = xattr::walk_block(&bytes, |_, _, _| Ok(())).is_ok();
            let claimed = session.claims.has(geo.cluster_of(block));
            readable && !claimed
        };
    if usable {
        session.claims.insert(geo.cluster_of(block));
        *session.attribute_blocks.entry(block).or_default() += 1;
        return Ok((1, inline));
    }
    if session.ask(
        record.place(),
        "its block of attributes is removed",
        Some("attributes"),
    ) {
        inode::set_file_acl(&mut record.raw, BlockNr(0));
        return Ok((0, inline));
    }
    Ok((1, inline))
}

/// Sets counts of inodes and checksums of blocks of attributes.
fn attribute_counts(session: &mut Session<'_, '_>) -> Result<(), Error> {
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
    Ok(())
}

fn inline_size(
    session: &mut Session<'_, '_>,
    record: &mut Record,
    inline: Option<usize>,
    file_type: FileType,
) {
    let room = (inode::I_BLOCK_SIZE + inline.unwrap_or(0)) as u64;
    let fits = if file_type == FileType::Directory {
        record.core.size == room
    } else {
        record.core.size <= room
    };
    if !fits && session.ask(record.place(), format!("its size is set to {room}"), None) {
        record.core.size = room;
    }
}

/// The mapping of a symbolic link; `None` if it was cleared.
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
    let size = end(&target);
    // A short target is in the inode.
    let misplaced = slow && size < inode::I_BLOCK_SIZE;
    if size == 0 || size == target.len() || misplaced {
        let cleared = (target.is_empty() || !record.has(flags::ENCRYPT))
            && clear(session, record.ino, "a symbolic link without a target")?;
        if cleared {
            for extent in &map.extents {
                for i in 0..extent.len {
                    session.free(BlockNr(extent.physical.0 + u64::from(i)));
                }
            }
            rewrites.retain(|r| r.ino != record.ino);
            return Ok(None);
        }
    } else if size as u64 != record.core.size
        && !record.has(flags::ENCRYPT)
        && session.ask(record.place(), format!("its size is set to {size}"), None)
    {
        record.core.size = size as u64;
    }
    Ok(Some(map))
}
