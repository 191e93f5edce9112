//! The inode of reserved descriptors: its map follows from the geometry alone, so it is rewritten if it differs.

use crate::error::Error;
use crate::session::{InodeUse, Session, Used};
use ext4_format::group_desc::GroupDesc;
use ext4_format::inode::{self, InodeCore};
use ext4_format::resize_inode::{DOUBLE, ReservedMap};
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr, indirect};

/// Compares the map with the reserved blocks, and writes it where it differs.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let geo = session.geo.clone();
    if !geo.features.has_resize_inode() {
        return Ok(());
    }
    let Some(old) = session.read_record(InodeNr::RESIZE)? else {
        return Ok(());
    };
    let ReservedMap {
        map,
        below,
        sectors,
    } = ReservedMap::new(&geo)?;
    let core = inode::decode_verified(&old, &geo, InodeNr::RESIZE).unwrap_or_default();
    let place = map_place(session, &old);
    let sound = core.links > 0
        && core.file_type() == Some(FileType::Regular)
        && core.flags & (inode::flags::EXTENTS | inode::flags::INDEX) == 0
        && inode::sectors(&old, &geo) == sectors
        && core.size <= geo.max_addressed_size(false)
        && inode::file_acl(&old, &geo) == BlockNr(0)
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
            "the map of reserved descriptors is rebuilt",
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

/// Shortens the reserved descriptors so that they end before the first structure of the groups. This applies only
/// without a backup of their count. The places of many structures are more credible than the one count.
pub(crate) fn shorten_reserved(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let geo = session.geo.clone();
    let has_backup = (1..geo.groups)
        .map(GroupNr)
        .any(|group| geo.has_super(group));
    if !geo.features.has_resize_inode() || has_backup {
        return Ok(());
    }
    let first = geo.first_data_block + 1 + u64::from(geo.gdt_block_count());
    let end = first + u64::from(geo.reserved_gdt_blocks);
    let mut without = geo.clone();
    without.reserved_gdt_blocks = 0;
    let mut least = end;
    for index in 0..geo.gdt_block_count() {
        let bytes = session.read(geo.gdt_block(index))?;
        let groups = (index * geo.descs_per_block()..geo.groups).map(GroupNr);
        for (raw, group) in bytes.chunks_exact(geo.desc_size.into()).zip(groups) {
            // A wrong count is inferred from sound descriptors only.
            let Ok(desc) = GroupDesc::decode(raw, &without, group) else {
                continue;
            };
            let places = [desc.block_bitmap.0, desc.inode_bitmap.0, desc.inode_table.0];
            let among = places
                .into_iter()
                .filter(|place| (first..end).contains(place));
            least = among.fold(least, u64::min);
        }
    }
    if least == end {
        return Ok(());
    }
    let count = (least - first) as u16; // less than before
    let text = format!("{count} blocks are reserved for descriptors, as others are behind them");
    if session.ask("superblock", text, None) {
        session.sb.reserved_gdt_blocks.set(count);
        session.write_superblock()?;
    }
    Ok(())
}

fn write_record(
    session: &mut Session<'_, '_>,
    old: InodeCore,
    map: BlockNr,
    sectors: u64,
) -> Result<(), Error> {
    let geo = session.geo.clone();
    let mut raw = vec![0; geo.inode_size.into()];
    ext4_format::resize_inode::write_record(&mut raw, &geo, old, map, sectors)?;
    let kind = InodeUse::Reserved;
    session
        .inodes
        .insert(InodeNr::RESIZE.0, Used { kind, names: 0 });
    Ok(session.write_record(InodeNr::RESIZE, &mut raw)?)
}

/// Returns the place of the map, if it is the only mapped block and no other structure has the block.
fn map_place(session: &Session<'_, '_>, raw: &[u8]) -> Option<BlockNr> {
    let root = inode::i_block(raw).ok()?;
    let alone = (0..indirect::SLOTS as u32)
        .filter(|&slot| slot != DOUBLE)
        .all(|slot| indirect::get(root, slot, session.geo.blocks_count) == Ok(None));
    let place = indirect::get(root, DOUBLE, session.geo.blocks_count).ok()??;
    (alone && session.resize_map == Some(place)).then_some(place)
}
