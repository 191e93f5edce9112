//! Builds the map in an inode from runs of blocks: an extent tree from its leaves up, or the address blocks of ext2,
//! each in blocks that were reserved for it.

use crate::error::FormatError;
use crate::extent::{self, Extent, ExtentIndex, MAX_INIT_LEN};
use crate::geometry::Geometry;
use crate::indirect;
use crate::inode::{self, I_BLOCK_SIZE, InodeCore, flags};
use crate::types::{BlockNr, InodeNr};

/// Logical blocks of a file on consecutive physical ones.
///
/// ```
/// use ext4_format::mapping::{Run, extent_nodes};
/// let run = Run { logical: 0, len: 200_000, physical: 9 };
/// assert_eq!(extent_nodes(&[run], 4096), 1); // seven extents are more than an inode holds
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First logical block.
    pub logical: u32,
    /// Blocks.
    pub len: u32,
    /// First physical block.
    pub physical: u64,
}

/// Takes the blocks of a map, each with its number.
pub type Emit<'e, E> = &'e mut dyn FnMut(u64, &[u8]) -> Result<(), E>;

/// Entries of the root in an inode.
const ROOT_ENTRIES: usize = extent::capacity(extent::ROOT_LEN);

/// Extents that runs make: long ones are cut.
fn extents(runs: &[Run]) -> impl Iterator<Item = Extent> + '_ {
    runs.iter().flat_map(|run| {
        (0..run.len)
            .step_by(MAX_INIT_LEN as usize)
            .map(move |at| Extent {
                logical: run.logical + at,
                len: (run.len - at).min(MAX_INIT_LEN),
                physical: BlockNr(run.physical + u64::from(at)),
                unwritten: false,
            })
    })
}

/// Returns the number of blocks of the extent tree over these runs, its root not counted.
pub fn extent_nodes(runs: &[Run], block_size: u32) -> u32 {
    let count: u64 = runs
        .iter()
        .map(|r| u64::from(r.len.div_ceil(MAX_INIT_LEN)))
        .sum();
    nodes_for(count, block_size)
}

/// Returns the number of blocks of an extent tree with `extents` extents.
pub fn nodes_for(extents: u64, block_size: u32) -> u32 {
    let capacity = extent::capacity(block_size as usize) as u64;
    let (mut level, mut total) = (extents, 0);
    while level > ROOT_ENTRIES as u64 {
        level = level.div_ceil(capacity);
        total += level;
    }
    total as u32 // a 340th of at most 2^32
}

/// Address blocks over these runs; only the logical side of the runs counts.
pub fn address_blocks(runs: &[Run], block_size: u32) -> u32 {
    let mut count = 0;
    let mut next = || {
        count += 1;
        Some(u64::from(count))
    };
    let mut root = [0; 60];
    // Numbers are consecutive, nothing is written, and 32 bits hold them.
    let built: Result<(), FormatError> =
        build_indirect(runs, block_size, &mut root, &mut next, &mut |_, _| Ok(()));
    let _ = built;
    count
}

/// Writes the map of a file into `root`, the 60 bytes of its inode, and hands the blocks of the map
/// to `emit`. `nodes` are the blocks set aside, in order; `seed` is the inode's checksum seed.
///
/// # Errors
/// `Unrepresentable` for too few nodes or blocks out of range, and the errors of `emit`.
pub fn build<E: From<FormatError>>(
    geo: &Geometry,
    runs: &[Run],
    nodes: &[u64],
    seed: u32,
    root: &mut [u8; I_BLOCK_SIZE],
    emit: Emit<'_, E>,
) -> Result<(), E> {
    let mut nodes = nodes.iter().copied();
    if geo.features.has_extents() {
        build_extents(geo, runs, &mut nodes, seed, root, emit)
    } else {
        build_indirect(runs, geo.block_size, root, &mut || nodes.next(), emit)
    }
}

const fn too_few() -> FormatError {
    FormatError::Unrepresentable("a map of more blocks than were planned")
}

fn build_extents<E: From<FormatError>>(
    geo: &Geometry,
    runs: &[Run],
    nodes: &mut dyn Iterator<Item = u64>,
    seed: u32,
    root: &mut [u8; I_BLOCK_SIZE],
    emit: Emit<'_, E>,
) -> Result<(), E> {
    let all: Vec<Extent> = extents(runs).collect();
    if all.len() <= ROOT_ENTRIES {
        extent::write_leaf(root, 0, all)?;
        return Ok(());
    }
    let mut block = vec![0; geo.block_size as usize];
    let capacity = extent::capacity(block.len());
    let mut finish = |block: &mut [u8], logical: u32| -> Result<ExtentIndex, E> {
        if geo.features.has_metadata_csum() {
            extent::set_tail(block, seed)?;
        }
        let nr = nodes.next().ok_or(too_few())?;
        emit(nr, block)?;
        Ok(ExtentIndex {
            logical,
            child: BlockNr(nr),
        })
    };
    let mut level = Vec::with_capacity(all.len().div_ceil(capacity));
    for leaf in all.chunks(capacity) {
        extent::write_leaf(&mut block, 0, leaf.iter().copied())?;
        level.push(finish(&mut block, leaf[0].logical)?); // chunks are not empty
    }
    let mut depth = 1;
    while level.len() > ROOT_ENTRIES {
        let mut above = Vec::with_capacity(level.len().div_ceil(capacity));
        for node in level.chunks(capacity) {
            extent::write_index(&mut block, depth, 0, node.iter().copied())?;
            above.push(finish(&mut block, node[0].logical)?);
        }
        level = above;
        depth += 1;
    }
    extent::write_index(root, depth, 0, level)?;
    Ok(())
}

/// Returns the part of `runs` in `from..to`.
fn within(runs: &[Run], from: u64, to: u64) -> &[Run] {
    let start = runs.partition_point(|r| u64::from(r.logical) + u64::from(r.len) <= from);
    let end = runs.partition_point(|r| u64::from(r.logical) < to);
    runs.get(start..end).unwrap_or(&[])
}

/// Enters the blocks of `runs` that belong to `block`, whose first entry is for logical block `from`.
fn enter(runs: &[Run], from: u64, count: u64, block: &mut [u8]) -> Result<(), FormatError> {
    for run in runs {
        let first = u64::from(run.logical).max(from);
        let last = (u64::from(run.logical) + u64::from(run.len)).min(from + count);
        for logical in first..last {
            let physical = run.physical + (logical - u64::from(run.logical));
            // logical - from < count, which is a count of 32-bit entries
            indirect::set(block, (logical - from) as u32, Some(BlockNr(physical)))?;
        }
    }
    Ok(())
}

fn build_indirect<E: From<FormatError>>(
    runs: &[Run],
    block_size: u32,
    root: &mut [u8; I_BLOCK_SIZE],
    next: &mut dyn FnMut() -> Option<u64>,
    emit: Emit<'_, E>,
) -> Result<(), E> {
    root.fill(0);
    let direct = u64::from(indirect::DIRECT);
    enter(within(runs, 0, direct), 0, direct, root)?;
    let mut from = direct;
    for depth in 1..=3 {
        let slot = indirect::DIRECT + depth - 1;
        let nr = subtree(runs, block_size, depth, from, next, emit)?;
        indirect::set(root, slot, nr.map(BlockNr))?;
        from += u64::from(indirect::per_block(block_size)).pow(depth);
    }
    Ok(())
}

/// Returns the tree of address blocks of `depth` levels for logical blocks from `from` on.
fn subtree<E: From<FormatError>>(
    runs: &[Run],
    block_size: u32,
    depth: u32,
    from: u64,
    next: &mut dyn FnMut() -> Option<u64>,
    emit: Emit<'_, E>,
) -> Result<Option<u64>, E> {
    let per = u64::from(indirect::per_block(block_size));
    let child = per.pow(depth - 1);
    let runs = within(runs, from, from + child * per);
    if runs.is_empty() {
        return Ok(None);
    }
    let nr = next().ok_or(too_few())?;
    let mut block = vec![0; block_size as usize];
    if depth == 1 {
        enter(runs, from, per, &mut block)?;
    } else {
        for i in 0..per {
            let at = from + i * child;
            let sub = subtree(runs, block_size, depth - 1, at, next, emit)?;
            indirect::set(&mut block, i as u32, sub.map(BlockNr))?;
        }
    }
    emit(nr, &block)?;
    Ok(Some(nr))
}

/// Builds the record of a file from runs: like [`build`], with the counts and the checksum. The flag for extents is
/// set in the record if the volume has extents.
///
/// # Errors
/// As [`build`].
pub fn file_record<E: From<FormatError>>(
    geo: &Geometry,
    ino: InodeNr,
    runs: &[Run],
    nodes: &[u64],
    mut core: InodeCore,
    emit: Emit<'_, E>,
) -> Result<Vec<u8>, E> {
    let mut raw = vec![0; geo.inode_size.into()];
    inode::init(&mut raw, geo);
    if geo.features.has_extents() {
        core.flags |= flags::EXTENTS;
    }
    inode::encode_core(&core, &mut raw, geo);
    let seed = crate::checksum::inode_seed(geo.csum_seed, ino, core.generation);
    build(geo, runs, nodes, seed, inode::i_block_mut(&mut raw)?, emit)?;
    let data: u64 = runs.iter().map(|r| u64::from(r.len)).sum();
    let blocks = data + nodes.len() as u64;
    inode::set_sectors(&mut raw, geo, blocks * u64::from(geo.sectors_per_block()))?;
    inode::set_checksum(&mut raw, geo, ino);
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::{Node, NodeRules};
    use crate::layout::{Layout, LayoutParams};
    use std::collections::HashMap;

    fn geometry(features: &str) -> Geometry {
        let mut p = LayoutParams::for_size(64 << 20);
        p.features.apply(features).unwrap();
        Layout::new(&p).unwrap().geometry
    }

    fn build_all(geo: &Geometry, runs: &[Run], n: u32) -> ([u8; 60], HashMap<u64, Vec<u8>>) {
        let nodes: Vec<u64> = (1000..1000 + u64::from(n)).collect();
        let (mut root, mut blocks) = ([0; 60], HashMap::new());
        build(geo, runs, &nodes, 7, &mut root, &mut |nr, bytes| {
            blocks.insert(nr, bytes.to_vec());
            Ok::<(), FormatError>(())
        })
        .unwrap();
        assert_eq!(blocks.len(), n as usize, "planned and built");
        (root, blocks)
    }

    #[test]
    fn indirect_blocks_map_what_the_runs_say() {
        let geo = geometry("^extent,^64bit");
        assert_eq!(geo.block_size, 1024);
        let run = |logical, len, physical| Run {
            logical,
            len,
            physical,
        };
        let runs = [run(3, 20, 5000), run(300, 1, 6000), run(70_000, 3, 7000)];
        let n = address_blocks(&runs, 1024);
        let (root, blocks) = build_all(&geo, &runs, n);
        let find = |logical: u64| {
            let path = indirect::path(logical, 1024).unwrap();
            let mut nr = u64::MAX;
            let mut block = &root[..];
            for step in path.steps() {
                nr = indirect::get(block, *step, u64::MAX).unwrap()?.0;
                block = blocks.get(&nr).map_or(&[], |b| &b[..]);
            }
            Some(nr)
        };
        assert_eq!(
            (find(3), find(22), find(23)),
            (Some(5000), Some(5019), None)
        );
        assert_eq!((find(300), find(70_002)), (Some(6000), Some(7002)));
        assert_eq!((find(301), find(69_999)), (None, None));
    }

    #[test]
    fn extent_trees_of_two_levels() {
        let geo = geometry("");
        let runs: Vec<Run> = (0..20_000)
            .map(|i| Run {
                logical: i * 2,
                len: 1,
                physical: 20_000 + u64::from(i) * 2,
            })
            .collect();
        let n = extent_nodes(&runs, 1024);
        let (root, blocks) = build_all(&geo, &runs, n);
        // Look every block up from the root down.
        for run in runs.iter().step_by(37) {
            let mut rules = NodeRules::root(1 << 40);
            let mut bytes = &root[..];
            loop {
                match Node::parse(bytes, &rules).unwrap() {
                    Node::Leaf(leaf) => {
                        let found = leaf.find(run.logical).unwrap();
                        assert_eq!(found.physical.0, run.physical);
                        break;
                    }
                    Node::Index(index) => {
                        let i = index.search(run.logical);
                        rules = index.child_rules(i, &rules).unwrap();
                        bytes = &blocks[&index.get(i).unwrap().child.0];
                        extent::verify_tail(bytes, 7).unwrap();
                    }
                }
            }
        }
    }

    #[test]
    fn long_runs_are_cut() {
        let runs = [Run {
            logical: 0,
            len: 200_000,
            physical: 9,
        }];
        assert_eq!(extents(&runs).count(), 7);
        assert_eq!(extent_nodes(&runs, 4096), 1);
        assert_eq!(nodes_for(4, 1024), 0);
        assert_eq!(nodes_for(84 * 84, 1024), 84 + 1);
    }
}
