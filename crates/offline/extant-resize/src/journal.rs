//! The journal's log, which is empty when a volume is resized: where its blocks move, there is nothing to copy.

use crate::old::Old;
use crate::target::Shape;
use blockdev::BlockDevice;
use ext4_format::extent::{Extent, Node, NodeRules};
use ext4_format::inode::{self, flags};
use ext4_format::{BlockNr, InodeNr, jbd2};

/// Returns the runs of clusters of the journal's log whose content is unused, by their start; none if the log is not
/// empty, or if the journal's mapping does not fit its inode.
pub(crate) fn empty_log(device: &dyn BlockDevice, old: &Old) -> Vec<(u64, u64)> {
    runs(device, old).unwrap_or_default()
}

fn runs(device: &dyn BlockDevice, old: &Old) -> Option<Vec<(u64, u64)>> {
    let Shape { sb, geo } = &old.shape;
    let ino = InodeNr(sb.journal_inum.get());
    let (group, index) = geo.group_of_inode(ino)?;
    let table = old.descs.get(group.0 as usize)?.inode_table;
    let (block, at) = geo.inode_place(table, index);
    let mut raw = vec![0; geo.inode_size.into()];
    let offset = block.offset(geo.block_size) + at as u64;
    device.read_at(offset, &mut raw).ok()?;
    let core = inode::decode_verified(&raw, geo, ino).ok()?;
    if core.flags & flags::EXTENTS == 0 {
        return None;
    }
    let root = inode::i_block(&raw).ok()?;
    let Ok(Node::Leaf(leaf)) = Node::parse(root, &NodeRules::root(geo.blocks_count)) else {
        return None;
    };
    // The first block is the journal's superblock.
    let first = leaf.find(0)?.map(0)?;
    let mut head = vec![0; geo.block_size as usize];
    device
        .read_at(first.offset(geo.block_size), &mut head)
        .ok()?;
    if jbd2::Superblock::parse(&head).ok()?.start != 0 {
        return None;
    }
    let whole = |extent: Extent| {
        let begin = extent.physical.0 + u64::from(extent.physical == first);
        // Clusters that are only partly in the run are left out.
        let start = geo.cluster_of(BlockNr(begin + u64::from(geo.cluster_ratio) - 1));
        let end = geo.cluster_of(BlockNr(extent.physical.0 + u64::from(extent.len)));
        (start, end.saturating_sub(start))
    };
    let mut runs: Vec<_> = leaf.iter().map(whole).collect();
    runs.sort_unstable();
    Some(runs)
}

/// Returns the number of clusters from `at` on, at most `len`, that are all inside or all outside of such runs, and
/// whether they are inside.
pub(crate) fn alike(runs: &[(u64, u64)], at: u64, len: u64) -> (u64, bool) {
    match runs.iter().find(|(start, n)| start + n > at && *n > 0) {
        Some(&(start, n)) if start <= at => (len.min(start + n - at), true),
        Some(&(start, _)) => (len.min(start - at), false),
        None => (len, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_where_the_log_begins_and_ends() {
        let runs = [(10, 5), (20, 0), (30, 2)];
        assert_eq!(alike(&runs, 5, 100), (5, false));
        assert_eq!(alike(&runs, 10, 100), (5, true));
        assert_eq!(alike(&runs, 12, 2), (2, true));
        assert_eq!(alike(&runs, 15, 100), (15, false));
        assert_eq!(alike(&runs, 31, 9), (1, true));
        assert_eq!(alike(&runs, 32, 9), (9, false));
    }
}
