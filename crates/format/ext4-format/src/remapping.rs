//! Builds the whole mapping of an inode from extents, written or unwritten, and allocates the blocks of the mapping.
//! The result is an extent tree from its leaves up, or the address blocks of a block map. [`mapping`](crate::mapping)
//! calls this module for a new file, whose blocks are reserved in advance.

use crate::error::FormatError;
use crate::extent::{self, Extent, ExtentIndex};
use crate::indirect;
use crate::types::BlockNr;

/// Gives a mapping its blocks, and writes them.
///
/// ```
/// use ext4_format::{BlockNr, FormatError, extent::Extent, remapping::{MapSink, build}};
/// struct Nodes(u64);
/// impl MapSink for Nodes {
///     type Error = FormatError;
///     fn take(&mut self) -> Option<BlockNr> {
///         self.0 += 1;
///         Some(BlockNr(self.0))
///     }
///     fn write(&mut self, _: BlockNr, _: &[u8]) -> Result<(), FormatError> {
///         Ok(())
///     }
/// }
/// let all = (0..5).map(|i| Extent { logical: i * 2, len: 1, physical: BlockNr(90 + u64::from(i) * 2), unwritten: false });
/// let all: Vec<_> = all.collect();
/// let (mut nodes, mut root) = (Nodes(0), [0; 60]);
/// assert!(build(&mut nodes, 1024, Some(None), &all, &mut root)?);
/// assert_eq!(nodes.0, 1, "five extents need a leaf");
/// # Ok::<(), FormatError>(())
/// ```
pub trait MapSink {
    /// Why a block could not be written.
    type Error: From<FormatError>;

    /// Allocates a block for the mapping; `None` if the volume is full.
    fn take(&mut self) -> Option<BlockNr>;

    /// Writes a block of the mapping.
    ///
    /// # Errors
    /// The errors of the place that it is written to.
    fn write(&mut self, block: BlockNr, bytes: &[u8]) -> Result<(), Self::Error>;
}

/// Writes a mapping of these extents, which are in logical order, into `root`; returns whether it found room. `tree`
/// is the seed of checksums of an extent tree, if it has any; without a tree it is a block map.
///
/// # Errors
/// The errors of the sink; `Unrepresentable` for extents that the mapping cannot represent.
pub fn build<S: MapSink>(
    sink: &mut S,
    block_size: u32,
    tree: Option<Option<u32>>,
    extents: &[Extent],
    root: &mut [u8],
) -> Result<bool, S::Error> {
    root.fill(0);
    let built = match tree {
        Some(seed) => build_tree(sink, block_size, seed, extents, root)?,
        None => build_block_map(sink, block_size, extents, root)?,
    };
    Ok(built.is_some())
}

fn build_tree<S: MapSink>(
    sink: &mut S,
    block_size: u32,
    seed: Option<u32>,
    extents: &[Extent],
    root: &mut [u8],
) -> Result<Option<()>, S::Error> {
    let in_root = extent::capacity(extent::ROOT_LEN);
    if extents.len() <= in_root {
        extent::write_leaf(root, 0, extents.iter().copied())?;
        return Ok(Some(()));
    }
    let in_block = extent::capacity(block_size as usize);
    let mut level = Vec::new();
    for part in extents.chunks(in_block) {
        let Some(child) = sink.take() else {
            return Ok(None);
        };
        let mut bytes = vec![0; block_size as usize];
        extent::write_leaf(&mut bytes, 0, part.iter().copied())?;
        seal_and_write(sink, seed, child, &mut bytes)?;
        level.push(ExtentIndex {
            logical: part.first().map_or(0, |e| e.logical),
            child,
        });
    }
    let mut depth = 1;
    while level.len() > in_root {
        let mut above = Vec::new();
        for part in level.chunks(in_block) {
            let Some(child) = sink.take() else {
                return Ok(None);
            };
            let mut bytes = vec![0; block_size as usize];
            extent::write_index(&mut bytes, depth, 0, part.iter().copied())?;
            seal_and_write(sink, seed, child, &mut bytes)?;
            above.push(ExtentIndex {
                logical: part.first().map_or(0, |e| e.logical),
                child,
            });
        }
        level = above;
        depth += 1;
    }
    extent::write_index(root, depth, 0, level)?;
    Ok(Some(()))
}

fn seal_and_write<S: MapSink>(
    sink: &mut S,
    seed: Option<u32>,
    block: BlockNr,
    bytes: &mut [u8],
) -> Result<(), S::Error> {
    if let Some(seed) = seed {
        extent::set_tail(bytes, seed)?;
    }
    sink.write(block, bytes)
}

fn build_block_map<S: MapSink>(
    sink: &mut S,
    block_size: u32,
    extents: &[Extent],
    root: &mut [u8],
) -> Result<Option<()>, S::Error> {
    // The address blocks on the way to the block before, each with its slot above it.
    let mut open: Vec<(u32, BlockNr, Vec<u8>)> = Vec::new();
    for extent in extents {
        let mut done = 0;
        while done < extent.len {
            let logical = u64::from(extent.logical) + u64::from(done);
            let Some(path) = indirect::path(logical, block_size) else {
                return Ok(None);
            };
            let steps = path.steps();
            let (Some(&last), above) = (steps.last(), steps.get(..steps.len() - 1).unwrap_or(&[]))
            else {
                return Ok(None);
            };
            let same = open
                .iter()
                .zip(above)
                .take_while(|(o, s)| o.0 == **s)
                .count();
            for (_, block, bytes) in open.drain(same..) {
                sink.write(block, &bytes)?;
            }
            for &step in above.get(same..).unwrap_or(&[]) {
                let Some(block) = sink.take() else {
                    return Ok(None);
                };
                let parent = open.last_mut().map_or(&mut *root, |o| &mut o.2);
                indirect::set(parent, step, Some(block))?;
                open.push((step, block, vec![0; block_size as usize]));
            }
            let parent = open.last_mut().map_or(&mut *root, |o| &mut o.2);
            let count = path.run(block_size).min(extent.len - done);
            for i in 0..count {
                let physical = BlockNr(extent.physical.0 + u64::from(done + i));
                indirect::set(parent, last + i, Some(physical))?;
            }
            done += count;
        }
    }
    for (_, block, bytes) in open {
        sink.write(block, &bytes)?;
    }
    Ok(Some(()))
}
