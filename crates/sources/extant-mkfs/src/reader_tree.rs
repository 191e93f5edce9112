//! Enters the trees of other readers into layers, and reads their data.

use super::data::ContentReader;
use super::error::{MkfsError, Result};
use super::layers::Layers;
use super::tree::{Body, Tree};
use crate::source_attributes::AttributeRules;
use extant_sources::{ArchiveKind, ArchiveMember, ReadTree, SourceError};

/// Enters the members of a tree. `origin` returns the origin of a file from its number.
pub(super) fn scan(
    tree: &dyn ReadTree,
    layers: &mut Layers,
    attribute_rules: &AttributeRules<'_>,
    origin: impl Fn(u32) -> u64,
) -> Result<()> {
    let mut enter = |member: ArchiveMember, file| {
        check_stretches(&member)?;
        attribute_rules.monitor.check()?;
        attribute_rules.monitor.advance(1);
        layers.enter(member.into_member(origin(file)), attribute_rules)
    };
    // Keep an error of `enter`, because the reader can only pass on a `SourceError`.
    let mut failed = None;
    let read = tree.members(&mut |member, file| {
        enter(member, file).map_err(|e| {
            failed = Some(e);
            SourceError::Interrupted
        })
    });
    match failed {
        Some(e) => return Err(e),
        None => read?,
    }
    for change in tree.changes() {
        layers.change_attributes(&change, attribute_rules)?;
    }
    Ok(())
}

/// Refuses stretches of data that are out of order, or reach beyond a file.
fn check_stretches(member: &ArchiveMember) -> Result<()> {
    let ArchiveKind::File { size, stretches } = &member.kind else {
        return Ok(());
    };
    let mut at = 0;
    for &(start, len) in stretches {
        match start
            .checked_add(len)
            .filter(|end| start >= at && end <= size)
        {
            Some(end) => at = end,
            None => {
                let path = extant_sources::parts::show(&member.path);
                return Err(MkfsError::source(
                    path,
                    "data out of order or beyond the file",
                ));
            }
        }
    }
    Ok(())
}

/// Reads the files of one such tree.
pub(super) struct OtherReader<'a> {
    pub source: &'a dyn ReadTree,
    pub tree: &'a Tree,
    /// The number of a file, by its origin.
    pub number: fn(u64) -> u32,
}

impl ContentReader for OtherReader<'_> {
    fn read(&mut self, inode: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(0);
        let node = &self.tree.inodes[inode as usize]; // an inode of the tree
        let Body::File { origin, map } = &node.body else {
            return Ok(());
        };
        let file = (self.number)(*origin);
        let end = node.size.min(offset.saturating_add(buf.len() as u64));
        let mut part = |from: u64, to: u64| {
            let (from, to) = (from.max(offset), to.min(end));
            if from >= to {
                return Ok(());
            }
            let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
            Ok(self.source.read_at(file, from, part)?)
        };
        let Some(map) = map else {
            return part(0, end);
        };
        let first = map.partition_point(|s| s.start + s.len <= offset);
        let mut met = map[first..].iter().take_while(|s| s.start < end);
        met.try_for_each(|s| part(s.start, s.start + s.len))
    }
}
