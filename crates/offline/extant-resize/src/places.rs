//! Where the groups of the new shape have their bitmaps and inode tables.

use crate::error::Error;
use crate::old::Old;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::{BlockNr, GroupNr, bitmap};
use ext4_image::ClusterSet;
use std::collections::BTreeMap;

/// The groups' own structures in the new shape.
pub(crate) struct Places {
    /// Descriptors; those of new groups have places only.
    pub(crate) descs: Vec<GroupDesc>,
    /// Clusters of the structures.
    pub(crate) fixed: ClusterSet,
    /// Groups whose inode table moves, or has records of another size.
    pub(crate) moved_tables: Vec<u32>,
    /// Blocks of the structures: start and end of each. With `bigalloc`, structures share clusters.
    blocks: BTreeMap<u64, u64>,
}

impl Places {
    pub(crate) fn new(old: &Old, geo: &Geometry, files: &ClusterSet) -> Result<Self, Error> {
        let mut places = Self {
            descs: Vec::new(),
            fixed: ClusterSet::new(geo),
            moved_tables: Vec::new(),
            blocks: BTreeMap::new(),
        };
        for nr in (0..geo.groups).map(GroupNr) {
            let base = geo.group_base_meta_blocks(nr);
            places.insert(geo, geo.group_first_block(nr), base.into());
        }
        let table = u64::from(geo.itable_blocks());
        // Structures that stay are placed before those that need a new place.
        for nr in (0..geo.groups).map(GroupNr) {
            let mut desc = old.descs.get(nr.0 as usize).copied().unwrap_or_default();
            let known = nr.0 < old.shape.geo.groups;
            if geo.inode_size != old.shape.geo.inode_size {
                // The table is rewritten where its new length fits.
                desc.inode_table = BlockNr(0);
            }
            let parts = [
                (&mut desc.block_bitmap, 1),
                (&mut desc.inode_bitmap, 1),
                (&mut desc.inode_table, table),
            ];
            for (start, len) in parts {
                let fits = start.0 + len <= geo.blocks_count
                    && places.overlap(start.0, start.0 + len).is_none();
                if known && start.0 != 0 && fits {
                    places.insert(geo, *start, len);
                } else {
                    *start = BlockNr(0);
                }
            }
            places.descs.push(desc);
        }
        for nr in 0..geo.groups {
            let Some(mut desc) = places.descs.get(nr as usize).copied() else {
                continue;
            };
            if desc.inode_table.0 == 0 && nr < old.shape.geo.groups {
                places.moved_tables.push(nr);
            }
            for (start, len) in [
                (&mut desc.block_bitmap, 1),
                (&mut desc.inode_bitmap, 1),
                (&mut desc.inode_table, geo.itable_blocks()),
            ] {
                if start.0 == 0 {
                    *start = BlockNr(places.find(geo, files, nr, len)?);
                    places.insert(geo, *start, len.into());
                }
            }
            if let Some(kept) = places.descs.get_mut(nr as usize) {
                *kept = desc;
            }
        }
        Ok(places)
    }

    fn insert(&mut self, geo: &Geometry, start: BlockNr, len: u64) {
        if len > 0 {
            self.blocks.insert(start.0, start.0 + len);
            self.fixed.insert(geo.clusters_of(start, len));
        }
    }

    /// Returns the end of the last structure that has a block of `start..end`.
    fn overlap(&self, start: u64, end: u64) -> Option<u64> {
        let (_, &stop) = self.blocks.range(..end).next_back()?;
        (stop > start).then_some(stop)
    }

    /// Finds a place for `len` blocks of a group: in its flex group, else in itself, else anywhere. If nothing is
    /// free, blocks of files are displaced.
    fn find(&self, geo: &Geometry, files: &ClusterSet, group: u32, len: u32) -> Result<u64, Error> {
        let per_flex = 1u64 << geo.log_groups_per_flex.min(31);
        let first = (u64::from(group) / per_flex * per_flex) as u32;
        let flex = geo.features.has_flex_bg();
        let near = if flex { first..group } else { group..group };
        let far = if flex { 0..geo.groups } else { group..group };
        let free = near.chain([group]).chain(far);
        free.into_iter()
            .find_map(|g| self.room(geo, Some(files), g, len))
            .or_else(|| self.room(geo, None, group, len))
            .ok_or(Error::NoRoom)
    }

    /// Finds the first place in a group that has no block of a structure, and no cluster of `files`.
    fn room(
        &self,
        geo: &Geometry,
        files: Option<&ClusterSet>,
        group: u32,
        len: u32,
    ) -> Option<u64> {
        let first = geo.group_first_block(GroupNr(group));
        let bits = geo.bits_in_group(GroupNr(group));
        let mut busy = vec![0; bits.div_ceil(8) as usize];
        if let Some(files) = files {
            files.add_to(group, &mut busy);
        }
        let (base, stop) = (
            geo.cluster_of(first),
            first.0 + u64::from(geo.blocks_in_group(GroupNr(group))),
        );
        let mut at = first.0;
        loop {
            let end = at + u64::from(len);
            if end > stop {
                return None;
            }
            if let Some(after) = self.overlap(at, end) {
                at = after;
                continue;
            }
            let clusters = geo.clusters_of(BlockNr(at), len.into());
            // Clusters of one group, counted in 32 bits.
            let (from, to) = ((clusters.start - base) as u32, (clusters.end - base) as u32);
            let Some(bit) = bitmap::find_one(&busy, from, to) else {
                return Some(at);
            };
            let free = bitmap::find_zero(&busy, bit, bits)?;
            at = geo.cluster_start(base + u64::from(free)).0;
        }
    }
}
