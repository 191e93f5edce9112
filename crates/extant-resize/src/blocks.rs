//! Sets of blocks, a bitmap for each group that has any.

use ext4_format::bitmap;
use ext4_format::geometry::Geometry;

/// Blocks, by group; a group takes memory when its first block is put in.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockSet {
    first: u64,
    per: u32,
    groups: Vec<Option<Box<[u8]>>>,
}

impl BlockSet {
    pub(crate) fn new(geo: &Geometry) -> Self {
        Self {
            first: geo.first_data_block,
            per: geo.blocks_per_group,
            groups: Vec::new(),
        }
    }

    /// Calls `f` with group, first bit and length of each part of a range.
    fn parts(&self, start: u64, len: u64, mut f: impl FnMut(usize, u32, u32)) {
        let per = u64::from(self.per).max(1);
        let mut at = start.saturating_sub(self.first);
        let end = at.saturating_add(len);
        while at < end {
            let n = (per - at % per).min(end - at);
            f((at / per) as usize, (at % per) as u32, n as u32);
            at += n;
        }
    }

    fn bytes(&self) -> usize {
        self.per.div_ceil(8) as usize
    }

    pub(crate) fn insert(&mut self, start: u64, len: u64) {
        let mut parts = Vec::new();
        self.parts(start, len, |group, bit, n| parts.push((group, bit, n)));
        for (group, bit, n) in parts {
            bitmap::set_range(self.map_mut(group), bit, n);
        }
    }

    pub(crate) fn remove(&mut self, start: u64, len: u64) {
        let mut parts = Vec::new();
        self.parts(start, len, |group, bit, n| parts.push((group, bit, n)));
        for (group, bit, n) in parts {
            if let Some(Some(map)) = self.groups.get_mut(group) {
                bitmap::clear_range(map, bit, n);
            }
        }
    }

    /// Returns whether any block of a range is in the set.
    pub(crate) fn touches(&self, start: u64, len: u64) -> bool {
        let mut hit = false;
        self.parts(start, len, |group, bit, n| {
            hit |= self
                .map(group)
                .is_some_and(|map| bitmap::find_one(map, bit, bit + n).is_some());
        });
        hit
    }

    pub(crate) fn map(&self, group: usize) -> Option<&[u8]> {
        self.groups.get(group)?.as_deref()
    }

    /// Returns the bitmap of a group for writing.
    pub(crate) fn map_mut(&mut self, group: usize) -> &mut [u8] {
        if self.groups.len() <= group {
            self.groups.resize(group + 1, None);
        }
        let bytes = self.bytes();
        match self.groups.get_mut(group) {
            Some(slot) => slot.get_or_insert_with(|| vec![0; bytes].into()),
            None => &mut [],
        }
    }

    /// Adds a group's blocks to a bitmap.
    pub(crate) fn or_into(&self, group: usize, map: &mut [u8]) {
        for (to, from) in map.iter_mut().zip(self.map(group).unwrap_or(&[])) {
            *to |= from;
        }
    }

    /// Takes the blocks of another set out.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for (group, slot) in self.groups.iter_mut().enumerate() {
            if let (Some(map), Some(out)) = (slot, other.map(group)) {
                map.iter_mut().zip(out).for_each(|(to, from)| *to &= !from);
            }
        }
    }

    pub(crate) fn count(&self) -> u64 {
        let maps = self.groups.iter().flatten();
        maps.map(|map| map.iter().map(|b| u64::from(b.count_ones())).sum::<u64>())
            .sum()
    }

    /// Returns the runs of blocks that are in this set, and in `other` or beyond `end`.
    pub(crate) fn runs_in(&self, other: &Self, end: u64) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (group, map) in self.groups.iter().enumerate() {
            let Some(map) = map else { continue };
            let base = self.first + group as u64 * u64::from(self.per);
            let inside = end.saturating_sub(base).min(u64::from(self.per)) as u32;
            let mut hit = map.to_vec();
            let mut mask = vec![0; hit.len()];
            other.or_into(group, &mut mask);
            bitmap::set_range(&mut mask, inside, u32::MAX);
            hit.iter_mut().zip(&mask).for_each(|(to, from)| *to &= from);
            let mut at = 0;
            while let Some(start) = bitmap::find_one(&hit, at, self.per) {
                at = bitmap::find_zero(&hit, start, self.per).unwrap_or(self.per);
                let (start, len) = (base + u64::from(start), u64::from(at - start));
                match runs.last_mut() {
                    Some(last) if last.0 + last.1 == start => last.1 += len,
                    _ => runs.push((start, len)),
                }
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ext4_format::layout::{Layout, LayoutParams};

    #[test]
    fn ranges_go_over_the_ends_of_groups() {
        let geo = Layout::new(&LayoutParams::for_size(64 << 20))
            .unwrap()
            .geometry;
        assert_eq!((geo.first_data_block, geo.blocks_per_group), (1, 8192));
        let (mut set, mut other) = (BlockSet::new(&geo), BlockSet::new(&geo));
        set.insert(8190, 10);
        assert_eq!(set.count(), 10);
        assert!(set.touches(8199, 5) && !set.touches(8200, 5));
        assert_eq!(set.runs_in(&other, 8195), [(8195, 5)]);
        other.insert(8192, 2);
        assert_eq!(set.runs_in(&other, 8195), [(8192, 2), (8195, 5)]);
        set.remove(8190, 3);
        assert_eq!(set.count(), 7);
        set.subtract(&other);
        assert_eq!(set.count(), 6);
    }
}
