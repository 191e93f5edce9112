//! Directories, built whole: names in hash order go straight into full leaves, and the index is
//! made over them. One block of names needs no index.

use super::error::{MkfsError, Result};
use super::tree::{Name, Tree};
use ext4_format::dir_entry::{self, LeafBuilder, rec_len_for};
use ext4_format::geometry::Geometry;
use ext4_format::htree::{self, DxEntry, IndexBlockKind, RootInit};
use ext4_format::{FileType, InodeNr};

/// Bytes of "." and "..".
const DOTS: usize = 2 * dir_entry::MIN_REC_LEN;
/// Size of `lost+found`, so that a repair finds room without allocating.
const LOST_FOUND: u32 = 16 << 10;

/// How a directory is built.
pub(super) struct Shape {
    /// First name of each leaf.
    leaves: Vec<u32>,
    /// Blocks of each level of index nodes, the one above the leaves first; `None` without index.
    levels: Option<Vec<u32>>,
    /// Blocks in all.
    pub blocks: u32,
}

impl Shape {
    /// The shape of a directory with these names and at least so many blocks.
    pub fn of(geo: &Geometry, names: &[Name], least: u32) -> Self {
        let linear = Self::split(geo, names, DOTS);
        if linear.len() > 1 && geo.features.has_dir_index() {
            let leaves = Self::split(geo, names, 0);
            if let Some(levels) = levels(geo, leaves.len()) {
                let nodes: u32 = levels.iter().sum();
                return Self {
                    blocks: (1 + nodes + leaves.len() as u32).max(least),
                    leaves,
                    levels: Some(levels),
                };
            }
            // More names than the index can hold: a plain directory is slow, but valid.
        }
        Self {
            blocks: (linear.len() as u32).max(least),
            leaves: linear,
            levels: None,
        }
    }

    /// First names of leaves filled one after the other; `used` bytes of the first are taken.
    fn split(geo: &Geometry, names: &[Name], used: usize) -> Vec<u32> {
        let room = dir_entry::usable(geo.block_size as usize, geo.features.has_metadata_csum());
        let (mut leaves, mut free) = (vec![0], room - used);
        for (i, name) in (0..).zip(names) {
            let need = rec_len_for(name.len());
            if need > free {
                leaves.push(i);
                free = room;
            }
            free -= need;
        }
        leaves
    }

    /// Whether there is an index.
    pub const fn is_indexed(&self) -> bool {
        self.levels.is_some()
    }
}

/// Blocks of index nodes below the root, by level; `None` if the format has too few levels.
fn levels(geo: &Geometry, leaves: usize) -> Option<Vec<u32>> {
    let (len, csum) = (geo.block_size as usize, geo.features.has_metadata_csum());
    let (root, node) = (
        IndexBlockKind::Root.capacity(len, csum),
        IndexBlockKind::Node.capacity(len, csum),
    );
    let mut levels = Vec::new();
    let mut below = leaves;
    while below > root {
        below = below.div_ceil(node);
        levels.push(below as u32);
    }
    (levels.len() <= usize::from(htree::max_levels(geo.features.has_large_dir()))).then_some(levels)
}

/// Blocks that a directory needs for its purpose, full or not.
pub(super) fn least_blocks(geo: &Geometry, is_lost_found: bool) -> u32 {
    // mke2fs stops at twelve blocks, the ones mapped directly.
    if is_lost_found {
        (LOST_FOUND / geo.block_size).clamp(2, 12)
    } else {
        1
    }
}

/// Everything needed to write one directory.
pub(super) struct Writer<'a> {
    pub geo: &'a Geometry,
    pub tree: &'a Tree,
    /// Inode numbers by index.
    pub numbers: &'a [u32],
    pub own: InodeNr,
    pub parent: InodeNr,
    /// Checksum seed of the directory's inode.
    pub seed: u32,
    pub hash_version: u8,
}

impl Writer<'_> {
    /// Builds all blocks in logical order.
    pub fn write(
        &self,
        names: &[Name],
        shape: &Shape,
        emit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut block = vec![0; self.geo.block_size as usize];
        let mut written = 0;
        if let Some(levels) = &shape.levels {
            written += self.write_index(names, shape, levels, &mut block, emit)?;
        }
        let ends = shape.leaves.iter().skip(1).copied();
        let ends = ends.chain([names.len() as u32]);
        for (&start, end) in shape.leaves.iter().zip(ends) {
            let part = names.get(start as usize..end as usize).unwrap_or(&[]);
            self.leaf(&mut block, part, start == 0 && !shape.is_indexed())?;
            emit(&block)?;
            written += 1;
        }
        while written < shape.blocks {
            self.leaf(&mut block, &[], false)?;
            emit(&block)?;
            written += 1;
        }
        Ok(())
    }

    fn leaf(&self, block: &mut [u8], names: &[Name], with_dots: bool) -> Result<()> {
        let (csum, typed) = (
            self.geo.features.has_metadata_csum(),
            self.geo.features.has_filetype(),
        );
        let mut leaf = LeafBuilder::new(block, csum);
        let mut push = |name: &[u8], ino, ftype: FileType| -> Result<()> {
            if leaf.push(name, ino, typed.then_some(ftype))? {
                Ok(())
            } else {
                Err(MkfsError::source("directory", "a leaf fuller than planned"))
            }
        };
        if with_dots {
            push(b".", self.own, FileType::Directory)?;
            push(b"..", self.parent, FileType::Directory)?;
        }
        for name in names {
            let i = name.inode as usize;
            let ino = InodeNr(self.numbers[i]); // one number for each inode
            push(self.tree.name(name), ino, self.tree.inodes[i].file_type())?;
        }
        leaf.finish();
        if csum {
            dir_entry::set_tail(block, self.seed);
        }
        Ok(())
    }

    /// Writes root and nodes; returns their number.
    fn write_index(
        &self,
        names: &[Name],
        shape: &Shape,
        levels: &[u32],
        block: &mut [u8],
        emit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u32> {
        let csum = self.geo.features.has_metadata_csum();
        let capacity = IndexBlockKind::Node.capacity(block.len(), csum);
        let nodes: u32 = levels.iter().sum();
        // Root, then the nodes from the top level down, then the leaves.
        let mut first_block = 1 + nodes;
        let mut entries: Vec<DxEntry> = (first_block..)
            .zip(&shape.leaves)
            .map(|(block, &start)| DxEntry {
                hash: first_hash(names, start as usize),
                block,
            })
            .collect();
        let mut below = Vec::new();
        for &count in levels {
            first_block -= count;
            let above = (first_block..)
                .zip(entries.chunks(capacity))
                .map(|(block, part)| DxEntry {
                    hash: part[0].hash, // chunks are not empty
                    block,
                })
                .collect();
            below.push(std::mem::replace(&mut entries, above));
        }
        let init = RootInit {
            own: self.own,
            parent: self.parent,
            filetype: self.geo.features.has_filetype(),
            hash_version: self.hash_version,
            levels: levels.len() as u8, // at most two
        };
        htree::write_root(block, &init, csum, entries)?;
        self.seal(block, IndexBlockKind::Root)?;
        emit(block)?;
        for level in below.iter().rev() {
            for part in level.chunks(capacity) {
                htree::write_node(block, csum, part.iter().copied())?;
                self.seal(block, IndexBlockKind::Node)?;
                emit(block)?;
            }
        }
        Ok(1 + nodes)
    }

    fn seal(&self, block: &mut [u8], kind: IndexBlockKind) -> Result<()> {
        if self.geo.features.has_metadata_csum() {
            htree::set_checksum(block, kind, self.seed)?;
        }
        Ok(())
    }
}

/// The key of a leaf that starts with name `start`. Its low bit says that names of the same hash
/// stand at the end of the leaf before.
fn first_hash(names: &[Name], start: usize) -> u32 {
    let hash_at = |i: usize| names.get(i).map(|n| n.hash);
    let hash = hash_at(start).unwrap_or(0);
    let continues = start > 0 && hash_at(start - 1) == Some(hash);
    hash | u32::from(continues)
}
