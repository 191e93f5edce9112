//! Where the inode tables are: by descriptors, their backups, neighbours, the layout of new volumes, or the inodes themselves.

use crate::state::{Rescue, Table};
use blockdev::BlockDevice;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc};
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr, inode};
use ext4_image::Image;

impl Rescue<'_> {
    /// Finds the tables of the groups that the device has, and the journal.
    pub(crate) fn find_tables(&mut self) {
        let geo = &self.image.geo;
        let blocks = self.image.dev.len() / u64::from(geo.block_size);
        let there = blocks.div_ceil(geo.blocks_per_group.into());
        let groups = u64::from(geo.groups).min(there) as u32;
        let (mut backups, mut missing) = (0, 0);
        for group in (0..groups).map(GroupNr) {
            let (mut table, primary) = by_descriptor(&self.image, group);
            backups += u32::from(!primary && table.first.is_some());
            missing += u32::from(table.first.is_none());
            if table.first.is_none() {
                table.records = self.image.geo.inodes_per_group;
            }
            self.tables.push(table);
        }
        if backups > 0 {
            self.notes.add(format!(
                "the descriptors of {backups} groups are lost; their backups stand in for them"
            ));
        }
        self.journal = self.find_journal();
        if missing > 0 {
            let searched = self.search_tables();
            self.notes.add(format!(
                "{missing} group descriptors are lost with their backups; the inode tables of {searched} of the groups were found"
            ));
        }
    }

    /// Finds tables that no descriptor names; returns how many.
    fn search_tables(&mut self) -> u32 {
        let mut found = 0;
        for group in 0..self.tables.len() as u32 {
            let table = self.tables.get(group as usize);
            if table.is_none_or(|table| table.first.is_some()) {
                continue;
            }
            let there = self.search_table(group);
            if let (Some(table), Some(there)) = (self.tables.get_mut(group as usize), there) {
                table.first = Some(there);
                found += 1;
                if self.journal.runs.is_empty() {
                    // The journal's inode may be in this table.
                    self.journal = self.find_journal();
                }
            }
        }
        found
    }

    /// Finds the table of a group outside the journal, whose log may have a copy of a part of the table.
    fn search_table(&self, group: u32) -> Option<BlockNr> {
        let geo = &self.image.geo;
        let len = u64::from(geo.itable_blocks());
        let flex = 1_u32.checked_shl(geo.log_groups_per_flex.into());
        let flex = flex.unwrap_or(u32::MAX);
        let leader = group / flex * flex;
        let near = neighbour(geo, &self.tables, leader, group);
        let guesses = near.into_iter().chain(layout(geo, leader, group, flex));
        let guesses: Vec<_> = guesses.filter(|&t| !self.journal.meets(t, len)).collect();
        let plausible = |table: &BlockNr| plausible(&self.image, group, *table);
        if let Some(table) = guesses.iter().copied().find(plausible) {
            return Some(table);
        }
        // A table whose beginning is damaged is known by the checksums of its other records.
        let sound = |table: &BlockNr| sound_records(&self.image, group, *table);
        let best = |tables: &mut dyn Iterator<Item = BlockNr>| {
            let counted = tables.map(|table| (sound(&table), table));
            let best = counted.reduce(|a, b| if b.0 > a.0 { b } else { a });
            best.filter(|(count, _)| *count > 0).map(|(_, table)| table)
        };
        let sealed = geo.features.has_metadata_csum();
        if let Some(table) = best(&mut guesses.into_iter().filter(|_| sealed)) {
            return Some(table);
        }
        // Where one table of a flex group was searched for in vain, the others are not searched for block by block.
        if group != leader || near.is_some() {
            return None;
        }
        let start = geo.group_first_block(GroupNr(group)).0;
        let end = start + u64::from(geo.blocks_in_group(GroupNr(group)));
        let blocks = (start..end).map(BlockNr);
        let mut blocks = blocks.filter(|&t| !self.journal.meets(t, len) && plausible(&t));
        // Without checksums, a table seems to begin at each of its blocks.
        if sealed {
            best(&mut blocks)
        } else {
            blocks.next()
        }
    }
}

/// Returns the table named by a descriptor or its backup, and whether it is the primary descriptor.
fn by_descriptor(image: &Image<&dyn BlockDevice>, group: GroupNr) -> (Table, bool) {
    let geo = &image.geo;
    let (block, offset) = geo.desc_location(group);
    let whole = geo.inodes_per_group;
    if let Some(desc) = descriptor(image, group, block, offset) {
        let records = desc.used_records(geo);
        let first = Some(desc.inode_table);
        let block_bitmap = (desc.flags & BLOCK_UNINIT == 0).then_some(desc.block_bitmap);
        let table = Table {
            first,
            block_bitmap,
            records,
        };
        return (table, true);
    }
    // A backup may be as old as the volume, so its number of used records cannot be trusted.
    let index = group.0 / geo.descs_per_block();
    let found = copies(geo, index)
        .into_iter()
        .find_map(|block| descriptor(image, group, block, offset));
    let first = found.map(|desc| desc.inode_table);
    let records = whole;
    let block_bitmap = found.map(|desc| desc.block_bitmap);
    let table = Table {
        first,
        block_bitmap,
        records,
    };
    (table, false)
}

fn descriptor(
    image: &Image<&dyn BlockDevice>,
    group: GroupNr,
    block: BlockNr,
    offset: u32,
) -> Option<GroupDesc> {
    let geo = &image.geo;
    let bytes = image.read(block).ok()?;
    let at = offset as usize;
    let raw = bytes.get(at..at + usize::from(geo.desc_size))?;
    let desc = GroupDesc::decode(raw, geo, group).ok()?;
    desc.check_places(geo, group).ok()?;
    Some(desc)
}

/// Returns the places of the backups of a block of descriptors.
fn copies(geo: &Geometry, index: u32) -> Vec<BlockNr> {
    let begin = |group: u32| geo.group_first_block(GroupNr(group)).0;
    if geo.features.has_meta_bg() && index >= geo.first_meta_bg {
        let per = geo.descs_per_block();
        let first = index.saturating_mul(per);
        return [
            first.saturating_add(1),
            first.saturating_add(per.saturating_sub(1)),
        ]
        .into_iter()
        .filter(|&group| group < geo.groups)
        .map(|group| BlockNr(begin(group) + u64::from(geo.has_super(GroupNr(group)))))
        .collect();
    }
    let powers = [1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343, 625, 729];
    let groups = powers.into_iter().chain(geo.backup_bgs);
    groups
        .filter(|&group| group > 0 && group < geo.groups && geo.has_super(GroupNr(group)))
        .map(|group| BlockNr(begin(group) + 1 + u64::from(index)))
        .collect()
}

/// Returns the place of the table if the tables of the flex group are consecutive.
fn neighbour(geo: &Geometry, tables: &[Table], leader: u32, group: u32) -> Option<BlockNr> {
    let known = (leader..group)
        .rev()
        .find_map(|near| Some((near, tables.get(near as usize)?.first?)));
    let (near, table) = known?;
    let between = u64::from(group - near).checked_mul(geo.itable_blocks().into())?;
    table.0.checked_add(between).map(BlockNr)
}

/// Returns the places of the table in new volumes.
fn layout(geo: &Geometry, leader: u32, group: u32, flex: u32) -> Vec<BlockNr> {
    let behind = |group: u32| {
        let group = GroupNr(group);
        geo.group_first_block(group).0 + u64::from(geo.group_base_meta_blocks(group))
    };
    let mut guesses = vec![BlockNr(behind(group) + 2)];
    let there = flex.min(geo.groups.saturating_sub(leader));
    for bitmaps in [flex, there] {
        let before = u64::from(group - leader).saturating_mul(geo.itable_blocks().into());
        let at = behind(leader) + 2 * u64::from(bitmaps);
        guesses.push(BlockNr(at.saturating_add(before)));
    }
    guesses
}

/// Returns the number of records with a right checksum of a table that would begin at a block.
fn sound_records(image: &Image<&dyn BlockDevice>, group: u32, table: BlockNr) -> u32 {
    let all = image.geo.itable_blocks();
    count_records(image, group, table, all).map_or(0, |count| count.good)
}

/// Numbers of records of a table.
#[derive(Default)]
struct Count {
    good: u32,
    bad: u32,
    root: bool,
}

/// Counts the records in the first blocks of a table that would begin at a block; `None` if it would reach out of the volume.
fn count_records(
    image: &Image<&dyn BlockDevice>,
    group: u32,
    table: BlockNr,
    blocks: u32,
) -> Option<Count> {
    let geo = &image.geo;
    if !geo.is_valid_data_range(table, geo.itable_blocks().into()) {
        return None;
    }
    let mut count = Count::default();
    for i in 0..blocks {
        let Ok(bytes) = image.read(BlockNr(table.0 + u64::from(i))) else {
            count.bad += geo.inodes_per_block();
            continue;
        };
        let first = i * geo.inodes_per_block();
        for (n, raw) in (first..).zip(bytes.chunks_exact(geo.inode_size.into())) {
            if blockdev::is_zero(raw) {
                continue;
            }
            let ino = geo.inode_nr(GroupNr(group), n);
            match inode::decode_core(raw, geo, ino) {
                Ok(core) if core.mode == 0 || core.file_type().is_some() => {
                    let is_directory = core.file_type() == Some(FileType::Directory);
                    count.root |= ino == InodeNr::ROOT && is_directory;
                    count.good += 1;
                }
                _ => count.bad += 1,
            }
        }
    }
    Some(count)
}

/// Returns whether the inodes of a group are at a block.
fn plausible(image: &Image<&dyn BlockDevice>, group: u32, table: BlockNr) -> bool {
    let blocks = image.geo.itable_blocks().min(4);
    let Some(Count { good, bad, root }) = count_records(image, group, table, blocks) else {
        return false;
    };
    let sealed = image.geo.features.has_metadata_csum();
    let enough = if sealed { bad <= good / 4 } else { bad == 0 };
    good > 0 && enough && (root || group > 0 || sealed)
}
