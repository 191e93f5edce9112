//! Sets of clusters, as bitmaps of the groups: threads insert without locks, and a group's bits are allocated when it gets the first.

use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::{GroupNr, bitmap};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

type Words = Box<[AtomicU64]>;

/// A set of clusters; without `bigalloc` a cluster is a block. Clusters have the numbers of [`Geometry::cluster_of`].
///
/// ```
/// use ext4_format::layout::{Layout, LayoutParams};
/// use ext4_image::ClusterSet;
/// let geo = Layout::new(&LayoutParams::for_size(64 << 20))?.geometry;
/// let set = ClusterSet::new(&geo);
/// assert!(set.insert(8190..8200) && !set.insert(8199..8201));
/// set.remove(8190..8193);
/// assert_eq!((set.contains(8193), set.intersects(8100..8193), set.count()), (true, false, 8));
/// # Ok::<(), ext4_format::FormatError>(())
/// ```
#[derive(Debug)]
pub struct ClusterSet {
    per_group: u32,
    groups: Vec<OnceLock<Words>>,
}

/// A part of a range of clusters that is in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPart {
    /// The group.
    pub group: u32,
    /// Its first bit of the part.
    pub bit: u32,
    /// Number of bits.
    pub len: u32,
}

impl ClusterSet {
    /// Creates an empty set for the groups of a volume.
    pub fn new(geo: &Geometry) -> Self {
        let mut set = Self {
            per_group: (geo.blocks_per_group / geo.cluster_ratio).max(1),
            groups: Vec::new(),
        };
        set.grow(geo.groups);
        set
    }

    /// Returns the clusters of the groups' own structures: superblocks, descriptors with those reserved, bitmaps, and
    /// inode tables.
    pub fn of_structures(geo: &Geometry, descs: &[GroupDesc]) -> Self {
        let set = Self::new(geo);
        for (nr, desc) in (0..geo.groups).map(GroupNr).zip(descs) {
            for (start, len) in [
                (geo.group_first_block(nr), geo.group_base_meta_blocks(nr)),
                (desc.block_bitmap, 1),
                (desc.inode_bitmap, 1),
                (desc.inode_table, geo.itable_blocks()),
            ] {
                if start.0 < geo.blocks_count {
                    set.insert(geo.clusters_of(start, len.into()));
                }
            }
        }
        set
    }

    /// Makes room for more groups. Clusters beyond the last group are never in the set.
    pub fn grow(&mut self, groups: u32) {
        let groups = self.groups.len().max(groups as usize);
        self.groups.resize_with(groups, OnceLock::new);
    }

    /// Splits a range of clusters at the ends of groups.
    #[inline]
    pub fn parts(&self, clusters: Range<u64>) -> impl Iterator<Item = GroupPart> + use<> {
        let (per, mut at) = (u64::from(self.per_group), clusters.start);
        std::iter::from_fn(move || {
            if at >= clusters.end {
                return None;
            }
            let bit = at % per;
            let len = (per - bit).min(clusters.end - at);
            // Numbers of groups, and of clusters in a group, fit 32 bits.
            let part = GroupPart {
                group: (at / per) as u32,
                bit: bit as u32,
                len: len as u32,
            };
            at += len;
            Some(part)
        })
    }

    fn words(&self, group: u32) -> &[AtomicU64] {
        let words = self.groups.get(group as usize).and_then(OnceLock::get);
        words.map_or(&[], |words| words)
    }

    /// Inserts the clusters of a part; returns the first bit that was already set, and the number of such bits.
    #[inline]
    pub fn insert_part(&self, part: GroupPart) -> (Option<u32>, u32) {
        let Some(words) = self.groups.get(part.group as usize) else {
            return (None, 0);
        };
        let len = self.per_group.div_ceil(64);
        let words = words.get_or_init(|| (0..len).map(|_| AtomicU64::new(0)).collect());
        let (mut first, mut twice) = (None, 0);
        each_word(words, part, |word, at, mask| {
            let before = word.fetch_or(mask, Ordering::Relaxed) & mask;
            if before != 0 {
                first.get_or_insert(at + before.trailing_zeros());
                twice += before.count_ones();
            }
        });
        (first, twice)
    }

    /// Inserts clusters; returns whether all of them were absent.
    pub fn insert(&self, clusters: Range<u64>) -> bool {
        let parts = self.parts(clusters);
        parts.filter(|&part| self.insert_part(part).1 > 0).count() == 0
    }

    /// Removes clusters.
    pub fn remove(&self, clusters: Range<u64>) {
        for part in self.parts(clusters) {
            each_word(self.words(part.group), part, |word, _, mask| {
                word.fetch_and(!mask, Ordering::Relaxed);
            });
        }
    }

    /// Returns whether any of these clusters is in the set.
    pub fn intersects(&self, clusters: Range<u64>) -> bool {
        self.parts(clusters).any(|part| {
            let mut found = 0;
            each_word(self.words(part.group), part, |word, _, mask| {
                found |= word.load(Ordering::Relaxed) & mask;
            });
            found != 0
        })
    }

    /// Returns whether a cluster is in the set.
    pub fn contains(&self, cluster: u64) -> bool {
        self.intersects(cluster..cluster.saturating_add(1))
    }

    /// Returns the number of clusters in the set.
    pub fn count(&self) -> u64 {
        let words = self.groups.iter().filter_map(OnceLock::get).flatten();
        words
            .map(|word| u64::from(word.load(Ordering::Relaxed).count_ones()))
            .sum()
    }

    /// Sets the bits of a group in a bitmap in stored form.
    pub fn add_to(&self, group: u32, map: &mut [u8]) {
        for (bytes, word) in map.chunks_mut(8).zip(self.words(group)) {
            let word = word.load(Ordering::Relaxed).to_le_bytes();
            bytes
                .iter_mut()
                .zip(word)
                .for_each(|(to, from)| *to |= from);
        }
    }

    /// Writes the bits of a group into a bitmap in stored form, whose other bits are cleared.
    pub fn write(&self, group: u32, map: &mut [u8]) {
        map.fill(0);
        self.add_to(group, map);
    }

    /// Inserts the clusters of a group's bitmap in stored form.
    pub fn insert_map(&self, group: u32, map: &[u8]) {
        let mut end = 0;
        while let Some(bit) = bitmap::find_one(map, end, self.per_group) {
            end = bitmap::find_zero(map, bit, self.per_group).unwrap_or(self.per_group);
            let len = end - bit;
            self.insert_part(GroupPart { group, bit, len });
        }
    }

    /// Removes the clusters of another set.
    pub fn subtract(&self, other: &Self) {
        for (words, group) in self.groups.iter().zip(0..) {
            let words = words.get().into_iter().flatten();
            for (word, gone) in words.zip(other.words(group)) {
                word.fetch_and(!gone.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Returns the start and length of the runs of clusters that are in this set, and in `other` or at `end` or beyond.
    pub fn runs_in(&self, other: &Self, end: u64) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let bytes = self.per_group.div_ceil(64) as usize * 8;
        let (mut hit, mut mask) = (vec![0; bytes], vec![0; bytes]);
        for group in (0..self.groups.len() as u32).filter(|&group| !self.words(group).is_empty()) {
            let base = u64::from(group) * u64::from(self.per_group);
            let inside = end.saturating_sub(base).min(self.per_group.into()) as u32;
            self.write(group, &mut hit);
            other.write(group, &mut mask);
            bitmap::set_range(&mut mask, inside, u32::MAX);
            hit.iter_mut().zip(&mask).for_each(|(to, from)| *to &= from);
            let mut at = 0;
            while let Some(start) = bitmap::find_one(&hit, at, self.per_group) {
                at = bitmap::find_zero(&hit, start, self.per_group).unwrap_or(self.per_group);
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

impl Clone for ClusterSet {
    fn clone(&self) -> Self {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed).into();
        let copy = |words: &OnceLock<Words>| match words.get() {
            Some(words) => words.iter().map(load).collect::<Words>().into(),
            None => OnceLock::new(),
        };
        Self {
            per_group: self.per_group,
            groups: self.groups.iter().map(copy).collect(),
        }
    }
}

/// Calls `f` with each word of a part, the number of its first bit, and the mask of its bits in the part.
#[inline]
fn each_word(words: &[AtomicU64], part: GroupPart, mut f: impl FnMut(&AtomicU64, u32, u64)) {
    let (mut at, end) = (part.bit, part.bit.saturating_add(part.len));
    while at < end {
        let bit = at % 64;
        let len = (64 - bit).min(end - at); // 1..=64
        let Some(word) = words.get((at / 64) as usize) else {
            break;
        };
        f(word, at - bit, (u64::MAX >> (64 - len)) << bit);
        at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ext4_format::layout::{Layout, LayoutParams};

    fn set() -> ClusterSet {
        let layout = Layout::new(&LayoutParams::for_size(64 << 20)).unwrap();
        assert_eq!(
            (layout.geometry.blocks_per_group, layout.geometry.groups),
            (8192, 8)
        );
        ClusterSet::new(&layout.geometry)
    }

    #[test]
    fn ranges_go_over_the_ends_of_groups() {
        let (set, other) = (set(), set());
        set.insert(8189..8199);
        assert_eq!(set.count(), 10);
        assert!(set.intersects(8198..8203) && !set.intersects(8199..8204));
        assert_eq!(set.runs_in(&other, 8194), [(8194, 5)]);
        other.insert(8191..8193);
        assert_eq!(set.runs_in(&other, 8194), [(8191, 2), (8194, 5)]);
        set.remove(8189..8192);
        assert_eq!(set.count(), 7);
        set.clone().subtract(&other);
        assert_eq!(set.count(), 7, "a clone is apart");
        set.subtract(&other);
        assert_eq!(set.count(), 6);
    }

    #[test]
    fn bits_set_twice_are_reported() {
        let set = set();
        let part = |group, bit, len| GroupPart { group, bit, len };
        assert_eq!(set.insert_part(part(1, 60, 10)), (None, 0));
        assert_eq!(set.insert_part(part(1, 0, 200)), (Some(60), 10));
        assert_eq!(set.insert_part(part(9, 0, 5)), (None, 0), "no such group");
        let mut map = [0; 32];
        set.write(1, &mut map);
        assert_eq!((map[24], map[25]), (0xff, 0));
        set.insert_map(2, &map);
        assert_eq!(set.count(), 400);
    }

    #[test]
    fn clusters_beyond_the_groups_need_room() {
        let mut set = set();
        assert!(set.insert(70_000..70_001) && !set.contains(70_000));
        set.grow(9);
        assert!(set.insert(70_000..70_001) && set.contains(70_000));
    }
}
