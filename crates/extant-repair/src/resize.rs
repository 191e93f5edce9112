//! The inode of reserved descriptors: its map follows from the geometry alone, so it is made anew where it differs.

use crate::Error;
use crate::session::{InodeUse, Session, Used};
use ext4_format::geometry::Geometry;
use ext4_format::inode::{self, InodeCore};
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr, indirect};

/// The slot of the map in two levels, the only one that is used.
const DOUBLE: u32 = indirect::DIRECT + 1;

/// Compares the map with the reserved blocks, and writes it where it differs.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let geo = session.geo.clone();
    if !geo.features.has_resize_inode() || geo.reserved_gdt_blocks == 0 || geo.cluster_ratio > 1 {
        return Ok(());
    }
    let Some(old) = session.read_record(InodeNr::RESIZE)? else {
        return Ok(());
    };
    let (map, below, backups) = wanted(&geo)?;
    let reserved = u64::from(geo.reserved_gdt_blocks);
    let blocks = 1 + reserved * (1 + backups);
    let sectors = blocks * u64::from(geo.sectors_per_block());
    let core = inode::decode_verified(&old, &geo, InodeNr::RESIZE).unwrap_or_default();
    let place = map_place(session, &old);
    let sound = core.links > 0
        && core.file_type() == Some(FileType::Regular)
        && core.flags & inode::flags::EXTENTS == 0
        && inode::sectors(&old, &geo) == sectors
        && place.is_some();
    let mut same = sound;
    if let Some(place) = place.filter(|_| sound) {
        same = session.read(place)? == map;
        for (block, bytes) in &below {
            same &= session.read(*block)? == *bytes;
        }
    }
    if same
        || !session.ask(
            "inode 7",
            "the map of reserved descriptors is made anew",
            None,
        )
    {
        return Ok(());
    }
    let Some(place) = place.or_else(|| session.allocate()) else {
        return Ok(());
    };
    session.write(place, &map)?;
    for (block, bytes) in below {
        session.write(block, &bytes)?;
    }
    write_record(session, core, place, sectors)
}

fn write_record(
    session: &mut Session<'_, '_>,
    old: InodeCore,
    map: BlockNr,
    sectors: u64,
) -> Result<(), Error> {
    let geo = session.geo.clone();
    let mut raw = vec![0; geo.inode_size.into()];
    inode::init(&mut raw, &geo);
    let per = u64::from(indirect::per_block(geo.block_size));
    let core = InodeCore {
        mode: FileType::Regular.mode_bits() | 0o600,
        links: 1,
        size: (u64::from(indirect::DIRECT) + per + per * per) * u64::from(geo.block_size),
        flags: 0,
        dtime: 0,
        ..old
    };
    inode::encode_core(&core, &mut raw, &geo);
    indirect::set(inode::i_block_mut(&mut raw)?, DOUBLE, Some(map))?;
    inode::set_sectors(&mut raw, &geo, sectors)?;
    let kind = InodeUse::Reserved;
    session
        .inodes
        .insert(InodeNr::RESIZE.0, Used { kind, names: 0 });
    session.write_record(InodeNr::RESIZE, &mut raw)
}

/// A block, and what it is to hold.
type Written = (BlockNr, Vec<u8>);

/// The map, the blocks below it, and how many backups each of those leads to.
fn wanted(geo: &Geometry) -> Result<(Vec<u8>, Vec<Written>, u64), Error> {
    let backups: Vec<GroupNr> = (1..geo.groups)
        .map(GroupNr)
        .filter(|&g| geo.has_super(g))
        .collect();
    let per = indirect::per_block(geo.block_size);
    let descriptors = geo.gdt_block_count();
    let mut map = vec![0; geo.block_size as usize];
    let mut below = Vec::new();
    for i in 0..u32::from(geo.reserved_gdt_blocks) {
        let within = 1 + u64::from(descriptors) + u64::from(i);
        let block = BlockNr(geo.first_data_block + within);
        indirect::set(&mut map, (descriptors + i) % per, Some(block))?;
        let mut bytes = vec![0; geo.block_size as usize];
        for (slot, &group) in (0..per).zip(&backups) {
            let backup = BlockNr(geo.group_first_block(group).0 + within);
            indirect::set(&mut bytes, slot, Some(backup))?;
        }
        below.push((block, bytes));
    }
    Ok((map, below, backups.len() as u64))
}

/// Where the map is, if it is the only thing that the inode maps and no other structure has the block.
fn map_place(session: &Session<'_, '_>, raw: &[u8]) -> Option<BlockNr> {
    let root = inode::i_block(raw).ok()?;
    let alone = (0..indirect::SLOTS as u32)
        .filter(|&slot| slot != DOUBLE)
        .all(|slot| indirect::get(root, slot, session.geo.blocks_count) == Ok(None));
    let place = indirect::get(root, DOUBLE, session.geo.blocks_count).ok()??;
    (alone && session.resize_map == Some(place)).then_some(place)
}
