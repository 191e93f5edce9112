//! Mapping items of one inode, netted: disjoint ranges in logical order.

use crate::item::MapItem;
use ext4_format::BlockNr;
use ext4_format::extent::LOGICAL_END;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The new target of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// First physical block.
    pub physical: BlockNr,
    /// Allocated but reads as zeros.
    pub unwritten: bool,
}

/// Logical blocks `[start, end)` lead to a target now, or are a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// First logical block.
    pub start: u64,
    /// The end: one past the last block.
    pub end: u64,
    /// The new target.
    pub target: Option<Target>,
}

impl Change {
    /// Returns the part inside `[lo, hi)`.
    pub fn clip(&self, lo: u64, hi: u64) -> Option<Self> {
        let (start, end) = (self.start.max(lo), self.end.min(hi));
        (start < end).then(|| Self {
            start,
            end,
            target: self.target_at(start),
        })
    }

    /// Returns the target of block `at` of the range.
    pub fn target_at(&self, at: u64) -> Option<Target> {
        let skip = at.saturating_sub(self.start);
        self.target.map(|t| Target {
            physical: BlockNr(t.physical.0.saturating_add(skip)),
            ..t
        })
    }
}

/// A few changes, mostly.
pub(super) type Changes = SmallVec<[Change; 4]>;

/// Returns the parts of sorted, disjoint changes inside `[lo, hi)`.
pub(super) fn clip(changes: &[Change], lo: u64, hi: u64) -> Changes {
    let first = changes.partition_point(|c| c.end <= lo);
    let touching = changes.iter().skip(first).take_while(|c| c.start < hi);
    touching.filter_map(|c| c.clip(lo, hi)).collect()
}

/// Nets items given in the order in which they happened.
pub(super) fn net<'i>(items: impl Iterator<Item = &'i MapItem>) -> Changes {
    let mut changes: Changes = items
        .map(|m| Change {
            start: u64::from(m.logical),
            end: (u64::from(m.logical) + u64::from(m.len)).min(LOGICAL_END),
            target: (m.physical.0 != 0).then_some(Target {
                physical: m.physical,
                unwritten: m.unwritten,
            }),
        })
        .filter(|c| c.start < c.end)
        .collect();
    let disjoint = |list: &[Change]| list.windows(2).all(|w| w[0].end <= w[1].start);
    if disjoint(&changes) {
        return changes;
    }
    let in_order = changes.clone();
    changes.sort_unstable_by_key(|c| c.start);
    if disjoint(&changes) {
        changes
    } else {
        overlay(&in_order)
    }
}

/// Overlays earlier changes with later ones.
fn overlay(in_order: &[Change]) -> Changes {
    let mut map: BTreeMap<u64, Change> = BTreeMap::new();
    for new in in_order {
        // First the run that begins before the new range and reaches into it, then those that begin inside.
        let before = map
            .range(..new.start)
            .next_back()
            .map(|(_, c)| *c)
            .filter(|c| c.end > new.start);
        let inside: Vec<Change> = map.range(new.start..new.end).map(|(_, c)| *c).collect();
        for old in before.into_iter().chain(inside) {
            map.remove(&old.start);
            for rest in [old.clip(0, new.start), old.clip(new.end, u64::MAX)]
                .into_iter()
                .flatten()
            {
                map.insert(rest.start, rest);
            }
        }
        map.insert(new.start, *new);
    }
    map.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ext4_format::InodeNr;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_last_word_counts(ops in prop::collection::vec((0u32..60, 1u32..20, 0u64..3), 1..20)) {
            let items: Vec<_> = ops.iter().enumerate().map(|(i, &(logical, len, kind))| MapItem {
                ino: InodeNr(12), stamp: 1, logical, len,
                physical: BlockNr(if kind == 0 { 0 } else { 1000 * (i as u64 + 1) }), unwritten: kind == 1,
            }).collect();
            let mut model = [None; 80];
            for m in &items {
                for i in 0..m.len {
                    let block = if m.physical.0 == 0 { 0 } else { m.physical.0 + u64::from(i) };
                    model[(m.logical + i) as usize] = Some((block, m.unwritten));
                }
            }
            let changes = net(items.iter());
            prop_assert!(changes.windows(2).all(|w| w[0].end <= w[1].start));
            let mut got = [None; 80];
            for c in &changes {
                for l in c.start..c.end {
                    got[l as usize] = Some(c.target_at(l).map_or((0, false), |t| (t.physical.0, t.unwritten)));
                }
            }
            prop_assert_eq!(got, model);
        }
    }
}
