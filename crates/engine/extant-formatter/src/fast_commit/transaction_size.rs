//! Bound of the size of a transaction that formats what fast commits have made durable: all of it must fit, because fast commits are
//! ignored from that transaction on.

use super::room::NameRoom;
use crate::item::{InodeEvent, ItemList, NameEvent};
use ext4_format::geometry::Geometry;
use ext4_format::{BlockNr, InodeNr, htree};
use std::collections::BTreeSet;

/// Blocks that change with the mapping of an existing file, which has few extents afterwards: the nodes of a deep tree with few
/// extents, and the bitmaps and descriptors of their groups.
const OF_MAPPING: u64 = 16;
/// Blocks that change with the mapping of a directory that grows, without those of the number of its new blocks.
const OF_GROWTH: u64 = 8;
/// Most levels of nodes in a mapping.
const LEVELS: u64 = 5;
/// Fewest extents of a node of a mapping after a split.
const SPLIT: u64 = 16;

/// Distinct blocks that change, as far as they are known, and numbers of the others.
#[derive(Default)]
pub(super) struct TransactionSize {
    /// Blocks of inode tables: the group, and the number in the group's table.
    tables: BTreeSet<(u32, u32)>,
    /// The inode whose record was added last: most items follow on one of the same inode.
    last: InodeNr,
    /// Groups whose inode bitmaps change. The first inode of a group makes its block bitmap as well.
    inode_groups: BTreeSet<u32>,
    block_groups: BTreeSet<u32>,
    /// Existing inodes whose mappings change.
    mapped: BTreeSet<InodeNr>,
    /// Extents of files that are freed.
    freed_extents: u64,
    /// Names that are replaced or removed, each in a leaf that is not known.
    lost_names: u64,
}

impl TransactionSize {
    /// Adds the changes of a batch. `born` are the inodes that earlier batches make.
    pub fn add(&mut self, items: &ItemList, born: &BTreeSet<InodeNr>, geometry: &Geometry) {
        let mut new = BTreeSet::new();
        for item in items.inodes.iter() {
            self.add_record(item.ino, geometry);
            if item.event == InodeEvent::Init {
                new.insert(item.ino);
            }
            if item.event == InodeEvent::Free && !born.contains(&item.ino) {
                self.mapped.insert(item.ino);
            }
            if item.event != InodeEvent::Update
                && let Some((group, _)) = geometry.group_of_inode(item.ino)
            {
                self.inode_groups.insert(group.0);
            }
        }
        for item in items.names.iter() {
            self.add_record(item.dir, geometry);
            self.lost_names += u64::from(item.event != NameEvent::Added);
        }
        for item in items.maps.iter() {
            self.add_record(item.ino, geometry);
            if !born.contains(&item.ino) && !new.contains(&item.ino) {
                self.mapped.insert(item.ino);
            }
        }
        for item in items.misc.iter() {
            self.add_record(item.ino, geometry);
        }
        for bits in items.bits.iter() {
            let last = bits
                .start
                .0
                .saturating_add(bits.len.saturating_sub(1).into());
            let group = |block| {
                geometry
                    .group_of_block(BlockNr(block))
                    .map(|(group, _)| group.0)
            };
            if let (Some(first), Some(last)) = (group(bits.start.0), group(last)) {
                self.block_groups.extend(first..=last);
            }
        }
    }

    fn add_record(&mut self, ino: InodeNr, geometry: &Geometry) {
        if ino == std::mem::replace(&mut self.last, ino) {
            return;
        }
        if let Some((group, index)) = geometry.group_of_inode(ino) {
            let block = geometry.inode_place(BlockNr(0), index).0.0;
            self.tables
                .insert((group.0, u32::try_from(block).unwrap_or(u32::MAX)));
        }
    }

    /// Notes that a file of this number of extents is freed.
    pub fn add_freed(&mut self, extents: u64) {
        self.freed_extents += extents;
    }

    /// Returns the number of blocks that the transaction has at most, without the superblock.
    pub fn blocks(&self, room: &NameRoom, geometry: &Geometry) -> u64 {
        // A leaf with room for its new names is split once at most, and each node above it as well.
        let levels = 1 + u64::from(htree::max_levels(geometry.features.has_large_dir()));
        let (directories, leaves) = (room.directories(), room.leaves());
        let new = leaves * levels;
        let groups = u64::from(geometry.groups);
        // A block that the formatter takes or frees changes a bitmap and a descriptor.
        let growth = directories * OF_GROWTH + new / SPLIT + 2 * new.min(groups);
        // Each extent of a freed file may have separate nodes above it.
        let freed = 2 * self.freed_extents.saturating_mul(LEVELS).min(groups);
        [
            self.tables.len() as u64,
            3 * self.inode_groups.len() as u64,
            2 * self.block_groups.len() as u64,
            OF_MAPPING * self.mapped.len() as u64,
            freed,
            self.lost_names,
            2 * new + directories + growth,
        ]
        .iter()
        .sum()
    }
}
