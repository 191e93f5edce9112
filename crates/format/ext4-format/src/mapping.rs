//! Builds the map of a new file from runs of blocks, in blocks that were reserved for it.

use crate::error::FormatError;
use crate::extent::{self, Extent, MAX_INIT_LEN};
use crate::geometry::Geometry;
use crate::inode::{self, I_BLOCK_SIZE, InodeCore, flags};
use crate::remapping::{self, MapSink};
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

/// Returns the number of indirect blocks that the runs need. It depends only on the logical blocks of the runs.
pub fn address_blocks(runs: &[Run], block_size: u32) -> u32 {
    let mut count = 0;
    let nodes = std::iter::from_fn(|| {
        count += 1;
        Some(u64::from(count))
    });
    let mut sink = Reserved {
        nodes,
        emit: &mut |_, _| Ok::<(), FormatError>(()),
    };
    let all: Vec<Extent> = extents(runs).collect();
    // The build cannot fail: the block numbers are consecutive and fit into 32 bits, and nothing is written.
    let _ = remapping::build(&mut sink, block_size, None, &all, &mut [0; I_BLOCK_SIZE]);
    count
}

/// Sink of a build that takes reserved blocks in order, and passes their contents to `emit`.
struct Reserved<'e, I, E> {
    nodes: I,
    emit: Emit<'e, E>,
}

impl<I: Iterator<Item = u64>, E: From<FormatError>> MapSink for Reserved<'_, I, E> {
    type Error = E;

    fn take(&mut self) -> Option<BlockNr> {
        self.nodes.next().map(BlockNr)
    }

    fn write(&mut self, block: BlockNr, bytes: &[u8]) -> Result<(), E> {
        (self.emit)(block.0, bytes)
    }
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
    let features = &geo.features;
    let seed = features.has_metadata_csum().then_some(seed);
    let tree = features.has_extents().then_some(seed);
    let mut sink = Reserved {
        nodes: nodes.iter().copied(),
        emit,
    };
    let all: Vec<Extent> = extents(runs).collect();
    if remapping::build(&mut sink, geo.block_size, tree, &all, root)? {
        return Ok(());
    }
    Err(FormatError::Unrepresentable("the mapping needs more blocks than were reserved").into())
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
    let clusters = |run: &Run| geo.clusters_of(BlockNr(run.physical), run.len.into());
    let data: u64 = runs.iter().map(clusters).map(|c| c.end - c.start).sum();
    let blocks = (data + nodes.len() as u64) * u64::from(geo.cluster_ratio);
    inode::set_sectors(&mut raw, geo, blocks * u64::from(geo.sectors_per_block()))?;
    inode::set_checksum(&mut raw, geo, ino);
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::{Node, NodeRules};
    use crate::indirect;
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
