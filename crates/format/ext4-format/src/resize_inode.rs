//! The inode of reserved descriptor blocks: a map in two levels. It leads to the reserved blocks of the first group,
//! and each of these holds the numbers of its backups.

use crate::error::Result;
use crate::geometry::Geometry;
use crate::indirect;
use crate::inode::{self, InodeCore};
use crate::types::{BlockNr, FileType, GroupNr};

/// The slot of the map in two levels, the only one that is used.
pub const DOUBLE: u32 = indirect::DIRECT + 1;

/// Content of the blocks of the inode.
///
/// ```
/// use ext4_format::{layout::{Layout, LayoutParams}, resize_inode::ReservedMap};
/// let geo = Layout::new(&LayoutParams::for_size(1 << 30)).unwrap().geometry;
/// let reserved = ReservedMap::new(&geo)?;
/// assert_eq!(reserved.below.len(), usize::from(geo.reserved_gdt_blocks));
/// # Ok::<(), ext4_format::FormatError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReservedMap {
    /// The block that the inode maps in two levels.
    pub map: Vec<u8>,
    /// The reserved blocks of the first group.
    pub below: Vec<(BlockNr, Vec<u8>)>,
    /// The inode's count of sectors.
    pub sectors: u64,
}

impl ReservedMap {
    /// Makes them for a geometry.
    ///
    /// # Errors
    /// `Unrepresentable` for blocks above 32 bits.
    pub fn new(geo: &Geometry) -> Result<Self> {
        let backups: Vec<GroupNr> = (1..geo.groups)
            .map(GroupNr)
            .filter(|&g| geo.has_super(g))
            .collect();
        let per = indirect::per_block(geo.block_size);
        let descriptors = geo.gdt_block_count();
        let mut map = vec![0; geo.block_size as usize];
        let mut below = Vec::new();
        for i in 0..u32::from(geo.reserved_gdt_blocks) {
            let place = geo.superblock_place().0 + 1 + u64::from(descriptors) + u64::from(i);
            let (block, within) = (BlockNr(place), place - geo.first_data_block);
            indirect::set(&mut map, (descriptors + i) % per, Some(block))?;
            let mut bytes = vec![0; geo.block_size as usize];
            for (slot, &group) in (0..per).zip(&backups) {
                let backup = BlockNr(geo.group_first_block(group).0 + within);
                indirect::set(&mut bytes, slot, Some(backup))?;
            }
            below.push((block, bytes));
        }
        let blocks = 1 + u64::from(geo.reserved_gdt_blocks) * (1 + backups.len() as u64);
        Ok(Self {
            map,
            below,
            sectors: blocks * geo.sectors_per_cluster(),
        })
    }
}

/// Makes `raw` the inode's record, without its checksum; times and the like are those of `old`.
///
/// # Errors
/// `Unrepresentable` for a block above 32 bits.
pub fn write_record(
    raw: &mut [u8],
    geo: &Geometry,
    old: InodeCore,
    map: BlockNr,
    sectors: u64,
) -> Result<()> {
    inode::init(raw, geo);
    let per = u64::from(indirect::per_block(geo.block_size));
    let core = InodeCore {
        mode: FileType::Regular.mode_bits() | 0o600,
        links: 1,
        size: (u64::from(indirect::DIRECT) + per + per * per) * u64::from(geo.block_size),
        flags: 0,
        dtime: 0,
        ..old
    };
    inode::encode_core(&core, raw, geo);
    indirect::set(inode::i_block_mut(raw)?, DOUBLE, Some(map))?;
    inode::set_sectors(raw, geo, sectors)
}
