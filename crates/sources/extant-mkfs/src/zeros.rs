//! Blocks of zeros in files, which become holes as mke2fs -d makes them. They are found while the data are copied, so
//! that no file is read twice; the blocks that were planned for them are free then.

use super::error::{MkfsError, Result};
use super::plan::Plan;
use super::tree::Tree;
use ext4_format::geometry::Geometry;
use ext4_format::mapping::{Run, address_blocks, extent_nodes};

/// Logical blocks of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zeros {
    pub inode: u32,
    pub logical: u32,
    pub len: u32,
}

/// Returns the stretches of whole blocks of zeros: first block and count.
pub(super) fn stretches(bytes: &[u8], block_size: u32) -> Vec<(u32, u32)> {
    let mut found: Vec<(u32, u32)> = Vec::new();
    for (at, block) in (0..).zip(bytes.chunks_exact(block_size as usize)) {
        if !blockdev::is_zero(block) {
            continue;
        }
        match found.last_mut() {
            Some((start, len)) if *start + *len == at => *len += 1,
            _ => found.push((at, 1)),
        }
    }
    found
}

/// Takes blocks of zeros out of the mappings of their files.
pub(super) fn punch(plan: &mut Plan, tree: &Tree, mut zeros: Vec<Zeros>) -> Result<()> {
    zeros.sort_unstable_by_key(|z| (z.inode, z.logical));
    let geo = plan.layout.geometry.clone();
    for zeros in zeros.chunk_by(|a, b| a.inode == b.inode) {
        let [first, ..] = zeros else { continue };
        let inode = first.inode;
        let old = plan.runs[inode as usize].as_slice(); // an inode of the plan
        let (runs, mut freed) = cut(old, zeros);
        let nodes = plan.nodes.remove(&inode).unwrap_or_default().into_vec();
        // Each cut makes one run more at most, and frees a block at least: there are enough for a larger map.
        let nodes = map_blocks(&geo, &runs, nodes, &mut freed).ok_or_else(|| {
            MkfsError::source(tree.show(inode), "no block is left for its mapping")
        })?;
        plan.runs[inode as usize] = runs[..].into();
        if !nodes.is_empty() {
            plan.nodes.insert(inode, nodes.into());
        }
        plan.free.append(&mut freed);
    }
    join(&mut plan.free);
    Ok(())
}

/// Returns the runs without the blocks of zeros, and the blocks that are free then: half-open ranges.
fn cut(runs: &[Run], zeros: &[Zeros]) -> (Vec<Run>, Vec<(u64, u64)>) {
    let (mut kept, mut freed) = (Vec::new(), Vec::new());
    for run in runs {
        let end = run.logical + run.len;
        let mut at = run.logical;
        let part = |from: u32, to: u32| Run {
            logical: from,
            len: to - from,
            physical: run.physical + u64::from(from - run.logical),
        };
        for hole in zeros {
            let (from, to) = (hole.logical.max(at), (hole.logical + hole.len).min(end));
            if from >= to {
                continue;
            }
            if at < from {
                kept.push(part(at, from));
            }
            let hole = part(from, to);
            freed.push((hole.physical, hole.physical + u64::from(hole.len)));
            at = to;
        }
        if at < end {
            kept.push(part(at, end));
        }
    }
    (kept, freed)
}

/// Returns the blocks of a smaller or larger map; takes missing ones from `freed`, and returns surplus ones to it.
fn map_blocks(
    geo: &Geometry,
    runs: &[Run],
    mut nodes: Vec<u64>,
    freed: &mut Vec<(u64, u64)>,
) -> Option<Vec<u64>> {
    let count = if geo.features.has_extents() {
        extent_nodes(runs, geo.block_size)
    } else {
        address_blocks(runs, geo.block_size)
    } as usize;
    for node in nodes.drain(count.min(nodes.len())..) {
        freed.push((node, node + 1));
    }
    while nodes.len() < count {
        let (start, end) = freed.pop()?;
        nodes.push(end - 1);
        if start < end - 1 {
            freed.push((start, end - 1));
        }
    }
    Some(nodes)
}

/// Sorts ranges, and joins those that meet.
fn join(ranges: &mut Vec<(u64, u64)>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joins = last.1 == next.0;
        if joins {
            last.1 = next.1;
        }
        joins
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_found_and_cut_out() {
        let mut bytes = vec![0; 5 * 1024];
        bytes[1024] = 1;
        bytes[4 * 1024 - 1] = 1;
        assert_eq!(stretches(&bytes, 1024), [(0, 1), (2, 1), (4, 1)]);
        let run = |logical, len, physical| Run {
            logical,
            len,
            physical,
        };
        let hole = |logical, len| Zeros {
            inode: 1,
            logical,
            len,
        };
        let runs = [run(0, 4, 100), run(4, 4, 200)];
        let (kept, freed) = cut(&runs, &[hole(0, 1), hole(3, 2)]);
        assert_eq!(kept, [run(1, 2, 101), run(5, 3, 201)]);
        assert_eq!(freed, [(100, 101), (103, 104), (200, 201)]);
    }
}
