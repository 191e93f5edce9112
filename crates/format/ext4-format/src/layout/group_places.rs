//! Places of the bitmaps and inode tables of a new file system. Each flex group has the block bitmaps in a row, the
//! inode bitmaps in a row, then the inode tables, each at the first free place in the flex group.

use crate::error::{FormatError, Result};
use crate::geometry::Geometry;
use crate::group_desc::GroupDesc;
use crate::types::{BlockNr, GroupNr};

/// Used parts of a stretch of blocks: sorted, disjoint, half-open, neighbours merged.
#[derive(Default)]
pub(super) struct Used(pub Vec<(u64, u64)>);

impl Used {
    /// Appends a range that starts at or after the last one's end.
    fn push(&mut self, start: u64, end: u64) {
        match self.0.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ if start < end => self.0.push((start, end)),
            _ => {}
        }
    }

    /// Takes the first `len` free blocks in a row inside `from..to`.
    fn take(&mut self, from: u64, to: u64, len: u64) -> Option<u64> {
        let mut at = from;
        let mut i = 0;
        while let Some(&(start, end)) = self.0.get(i) {
            if start >= at.checked_add(len)? {
                break;
            }
            at = at.max(end);
            i += 1;
        }
        let end = at.checked_add(len)?;
        if end > to {
            return None;
        }
        // Ranges before `i` end at or before `at`, the range at `i` starts at or after `end`.
        let joins_left = i > 0 && self.0[i - 1].1 == at;
        let joins_right = self.0.get(i).is_some_and(|r| r.0 == end);
        match (joins_left, joins_right) {
            (true, true) => {
                self.0[i - 1].1 = self.0[i].1;
                self.0.remove(i);
            }
            (true, false) => self.0[i - 1].1 = end,
            (false, true) => self.0[i].0 = at,
            (false, false) => self.0.insert(i, (at, end)),
        }
        Some(at)
    }
}

/// Returns the places of the bitmaps and tables of all groups, and all fixed metadata of the volume.
pub(super) fn place(geo: &Geometry) -> Result<(Vec<GroupDesc>, Used)> {
    let no_room = || FormatError::Unrepresentable(super::MANY_INODES);
    let mut descs = Vec::new();
    descs
        .try_reserve_exact(geo.groups as usize)
        .map_err(|_| FormatError::Unrepresentable("so many groups in this memory"))?;
    descs.resize(geo.groups as usize, GroupDesc::default());
    let mut all = Used::default();
    let per_flex = 1u64 << geo.log_groups_per_flex;
    let mut first = 0u64;
    while first < u64::from(geo.groups) {
        let end = (first + per_flex).min(u64::from(geo.groups));
        // Both below the count of groups, which is 32 bits.
        let groups = first as u32..end as u32;
        let count = end - first;
        let from = geo.group_first_block(GroupNr(groups.start)).0;
        let to = geo
            .group_first_block(GroupNr(groups.end))
            .0
            .min(geo.blocks_count);
        let mut used = Used::default();
        for g in groups.clone().map(GroupNr) {
            let at = geo.group_first_block(g).0;
            let base = u64::from(geo.group_base_meta_blocks(g));
            if at + base > geo.blocks_count {
                return Err(no_room());
            }
            used.push(at, at + base);
        }
        // A group alone in its flex group leaves room for the bitmaps of those that may follow
        // when the volume grows, if there is room.
        let gap = if count == 1 { per_flex } else { count };
        let block_bitmaps = used.take(from, to, count).ok_or_else(no_room)?;
        let inode_bitmaps = used
            .take(block_bitmaps.saturating_add(gap), to, count)
            .or_else(|| used.take(block_bitmaps, to, count))
            .ok_or_else(no_room)?;
        let tables_from = if count == 1 {
            inode_bitmaps.saturating_add(gap)
        } else {
            from
        };
        let table_len = u64::from(geo.itable_blocks());
        for g in groups.clone() {
            let nth = u64::from(g - groups.start);
            let table = used
                .take(tables_from, to, table_len)
                .or_else(|| used.take(from, to, table_len))
                .ok_or_else(no_room)?;
            let desc = &mut descs[g as usize]; // g < geo.groups == descs.len()
            desc.block_bitmap = BlockNr(block_bitmaps + nth);
            desc.inode_bitmap = BlockNr(inode_bitmaps + nth);
            desc.inode_table = BlockNr(table);
        }
        for &(start, end) in &used.0 {
            all.push(start, end);
        }
        first = end;
    }
    Ok((descs, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_fills_gaps_first() {
        let mut u = Used(vec![(0, 2), (5, 6), (10, 11)]);
        assert_eq!(u.take(0, 100, 4), Some(6));
        assert_eq!(u.0, [(0, 2), (5, 11)]);
        assert_eq!(u.take(0, 100, 3), Some(2));
        assert_eq!(u.0, [(0, 11)]);
        assert_eq!(u.take(50, 60, 2), Some(50));
        assert_eq!(u.take(0, 12, 2), None);
        assert_eq!(u.0, [(0, 11), (50, 52)]);
    }
}
