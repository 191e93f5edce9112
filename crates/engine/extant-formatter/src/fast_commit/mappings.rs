//! Mappings of the files that fast commits change, to express only the net change of each.
//!
//! The replay of e2fsck (1.47 and before) sets two limits. A range that removes the only extent of a file leaves an extent
//! of length 0, and the next range corrupts the mapping. Therefore a mapping that loses all extents gets a second extent
//! first, which the range removes as well. The replay also allocates blocks for an extent tree that later ranges may need.
//! Therefore no mapping has more extents than the inode holds.

use super::records::Records;
use crate::error::Result;
use crate::extent_map::{ExtentMap, Found, IN_INODE, Run};
use crate::item::MapItem;
use ext4_format::InodeNr;
use ext4_format::extent::{Extent, LOGICAL_END};
use ext4_format::inode::{self, flags};
use ext4_format::jbd2::FastChange;
use std::collections::BTreeMap;

/// Mappings since the last push, with the changes of earlier fast commits.
#[derive(Default)]
pub(super) struct Mappings {
    files: BTreeMap<InodeNr, ExtentMap>,
}

impl Mappings {
    fn of(&mut self, ino: InodeNr, is_new: bool, records: &Records<'_>) -> Result<&mut ExtentMap> {
        let map = if is_new || !self.files.contains_key(&ino) && records.born.contains(&ino) {
            Some(ExtentMap::default())
        } else if self.files.contains_key(&ino) {
            None
        } else {
            Some(read(ino, records)?)
        };
        let entry = self.files.entry(ino);
        Ok(match map {
            Some(map) => entry.insert_entry(map).into_mut(),
            None => entry.or_default(),
        })
    }

    /// Adds the ranges of an inode that the items change. Returns false if fast commits cannot express the mapping.
    pub(super) fn change(
        &mut self,
        ino: InodeNr,
        (items, is_new): (&[&MapItem], bool),
        records: &Records<'_>,
        out: &mut Vec<FastChange>,
    ) -> Result<bool> {
        let map = self.of(ino, is_new, records)?;
        if map.extents() > IN_INODE {
            return Ok(false);
        }
        // Most files get one run, in a hole.
        if let [item] = items
            && let run = run_of(item)
            && run.physical.0 != 0
            && matches!(map.at(run.logical), Found::Hole(len) if len >= run.len)
        {
            map.set(run);
            add(ino, run, out);
            return Ok(map.extents() <= IN_INODE);
        }
        let before = map.clone();
        let mut touched = BTreeMap::new();
        for item in items {
            let run = run_of(item);
            let longest = touched.entry(run.logical).or_insert(0);
            *longest = run.len.max(*longest);
            if run.physical.0 == 0 {
                map.remove(run.logical, run.len);
            } else {
                map.set(run);
            }
        }
        if map.is_empty() {
            return Ok(cut_all(ino, &before, out));
        }
        let mut removed = Vec::new();
        let mut from = 0;
        for (logical, len) in touched {
            let end = u64::from(logical) + u64::from(len);
            // Skip blocks that an earlier range has covered.
            let start = u64::from(logical).max(from);
            let (Ok(first), true) = (u32::try_from(start), start < end) else {
                continue;
            };
            from = end;
            let len = (end - start) as u32;
            let mut left = ExtentMap::default();
            for run in before.range(first, len) {
                left.append(run);
            }
            for run in map.range(first, len) {
                left.remove(run.logical, run.len);
                add(ino, run, out);
            }
            removed.extend(left.iter().copied());
        }
        let cut = |run: Run| FastChange::RemoveRange(ino, run.logical, run.len);
        out.extend(removed.into_iter().map(cut));
        Ok(map.extents() <= IN_INODE)
    }

    /// Removes the whole mapping of an inode that is freed. Returns its number of extents, or `None` if fast commits cannot express
    /// the removal.
    pub(super) fn end(
        &mut self,
        ino: InodeNr,
        records: &Records<'_>,
        out: &mut Vec<FastChange>,
    ) -> Result<Option<u64>> {
        let before = std::mem::take(self.of(ino, false, records)?);
        Ok(cut_all(ino, &before, out).then(|| before.extents()))
    }
}

/// Returns the run of an item, cut at the last logical block.
fn run_of(item: &MapItem) -> Run {
    Run {
        logical: item.logical,
        len: item.len.min(u32::MAX - item.logical),
        physical: item.physical,
        unwritten: item.unwritten,
    }
}

fn read(ino: InodeNr, records: &Records<'_>) -> Result<ExtentMap> {
    let raw = records.raw(ino)?;
    let core = inode::decode_core(&raw, records.geometry, ino)?;
    if core.flags & flags::EXTENTS == 0 {
        return Ok(ExtentMap::default());
    }
    let reader = records.mapping_reader(ino, &core);
    reader.read(core.flags, inode::i_block(&raw)?)
}

/// Removes all extents of a mapping. Returns false if the file has no logical block left for a second extent.
fn cut_all(ino: InodeNr, before: &ExtentMap, out: &mut Vec<FastChange>) -> bool {
    let (Some(first), Some(last)) = (before.iter().next(), before.last()) else {
        return true;
    };
    // Leave a gap, so that the second extent is not merged with the last one.
    let second = last.end() + 1;
    let (Ok(logical), true) = (u32::try_from(second), second < LOGICAL_END) else {
        return false;
    };
    let len = 1;
    add(
        ino,
        Run {
            logical,
            len,
            ..*first
        },
        out,
    );
    out.push(FastChange::RemoveRange(ino, 0, u32::MAX));
    true
}

/// Adds a run, split into extents of the largest length.
fn add(ino: InodeNr, run: Run, out: &mut Vec<FastChange>) {
    let mut extent = Extent {
        logical: run.logical,
        len: run.len,
        physical: run.physical,
        unwritten: run.unwritten,
    };
    let end = extent.end();
    while u64::from(extent.logical) < end {
        extent.len = (end - u64::from(extent.logical)).min(extent.max_len().into()) as u32;
        out.push(FastChange::AddRange(ino, extent));
        extent.logical = extent.logical.saturating_add(extent.len);
        extent.physical.0 = extent.physical.0.saturating_add(extent.len.into());
    }
}
