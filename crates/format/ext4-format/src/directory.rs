//! Directories, built whole: names in hash order go straight into full leaves, and the index is
//! made over them. One block of names needs no index.

use crate::dir_entry::{self, LeafBuilder, rec_len_for};
use crate::error::FormatError;
use crate::geometry::Geometry;
use crate::htree::{self, DxEntry, IndexBlockKind, RootInit};
use crate::types::{FileType, InodeNr};

/// Bytes of "." and "..".
const DOTS: usize = 2 * dir_entry::MIN_REC_LEN;

/// A name of a directory that is built.
///
/// ```
/// use ext4_format::{FileType, InodeNr, directory::Named};
/// let named = Named { name: b"motd", hash: 0, ino: InodeNr(12), file_type: Some(FileType::Regular) };
/// assert_eq!(named.name.len(), 4);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Named<'n> {
    /// The name.
    pub name: &'n [u8],
    /// Its hash; means nothing without an index.
    pub hash: u32,
    /// Its inode.
    pub ino: InodeNr,
    /// The type of that, if it is known.
    pub file_type: Option<FileType>,
}

/// How a directory is built.
///
/// ```
/// use ext4_format::directory::Shape;
/// use ext4_format::layout::{Layout, LayoutParams};
/// let geo = Layout::new(&LayoutParams::for_size(64 << 20)).unwrap().geometry;
/// let shape = Shape::of(&geo, std::iter::repeat_n(8, 1000), 1);
/// assert!(shape.is_indexed() && shape.blocks == 17);
/// ```
#[derive(Clone, Debug)]
pub struct Shape {
    /// First name of each leaf.
    leaves: Vec<u32>,
    /// Blocks of each level of index nodes, the one above the leaves first; `None` without index.
    levels: Option<Vec<u32>>,
    /// Number of all blocks.
    pub blocks: u32,
}

impl Shape {
    /// Computes the shape of a directory with names of these lengths and at least `least` blocks.
    pub fn of(geo: &Geometry, names: impl Iterator<Item = usize> + Clone, least: u32) -> Self {
        let linear = Self::split(geo, names.clone(), DOTS);
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

    /// Returns the first names of leaves filled one after the other; `used` bytes of the first are taken.
    fn split(geo: &Geometry, names: impl Iterator<Item = usize>, used: usize) -> Vec<u32> {
        let room = dir_entry::usable(geo.block_size as usize, geo.features.has_metadata_csum());
        let (mut leaves, mut free) = (vec![0], room - used);
        for (i, len) in (0..).zip(names) {
            let need = rec_len_for(len);
            if need > free {
                leaves.push(i);
                free = room;
            }
            free = free.saturating_sub(need);
        }
        leaves
    }

    /// Returns whether the directory has an index.
    pub const fn is_indexed(&self) -> bool {
        self.levels.is_some()
    }
}

/// Returns the number of index nodes below the root, by level; `None` if the format has too few levels.
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

/// Everything needed to build one directory.
///
/// ```
/// use ext4_format::directory::{Builder, Named, Shape};
/// use ext4_format::layout::{Layout, LayoutParams};
/// use ext4_format::{FileType, FormatError, InodeNr, dir_entry};
/// let geo = Layout::new(&LayoutParams::for_size(64 << 20)).unwrap().geometry;
/// let named = Named { name: b"motd", hash: 0, ino: InodeNr(12), file_type: Some(FileType::Regular) };
/// let builder = Builder { geo: &geo, own: InodeNr::ROOT, parent: InodeNr::ROOT, seed: 7, hash_version: 1, encrypted: false, count: 1, named: |_| named };
/// let mut blocks = Vec::new();
/// let shape = Shape::of(&geo, [4].into_iter(), 1);
/// builder.build(&shape, &mut |block: &[u8]| { blocks.push(block.to_vec()); Ok::<(), FormatError>(()) }).unwrap();
/// assert!(dir_entry::find(&blocks[0], b"motd").unwrap().is_some());
/// ```
pub struct Builder<'a, F> {
    /// The volume.
    pub geo: &'a Geometry,
    /// The directory.
    pub own: InodeNr,
    /// The directory above it.
    pub parent: InodeNr,
    /// Checksum seed of the directory's inode.
    pub seed: u32,
    /// Version of the hash, as a root of an index stores it.
    pub hash_version: u8,
    /// Whether the directory is encrypted, so that its names may hold any byte.
    pub encrypted: bool,
    /// Number of names without "." and "..".
    pub count: usize,
    /// Returns a name by its index in hash order.
    pub named: F,
}

impl<'n, F: Fn(usize) -> Named<'n>> Builder<'_, F> {
    /// Builds all blocks in logical order and passes them to `emit`.
    ///
    /// # Errors
    /// `Unrepresentable` if the names do not fit the shape or are invalid; the errors of `emit`.
    pub fn build<E: From<FormatError>>(
        &self,
        shape: &Shape,
        emit: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut block = vec![0; self.geo.block_size as usize];
        let mut written = 0;
        if let Some(levels) = &shape.levels {
            written += self.index(shape, levels, &mut block, emit)?;
        }
        let ends = shape.leaves.iter().skip(1).map(|&end| end as usize);
        let ends = ends.chain([self.count]);
        for (&start, end) in shape.leaves.iter().zip(ends) {
            let with_dots = start == 0 && !shape.is_indexed();
            self.leaf(&mut block, start as usize..end, with_dots)?;
            emit(&block)?;
            written += 1;
        }
        while written < shape.blocks {
            self.leaf(&mut block, 0..0, false)?;
            emit(&block)?;
            written += 1;
        }
        Ok(())
    }

    fn leaf(
        &self,
        block: &mut [u8],
        names: core::ops::Range<usize>,
        with_dots: bool,
    ) -> Result<(), FormatError> {
        let (csum, typed) = (
            self.geo.features.has_metadata_csum(),
            self.geo.features.has_filetype(),
        );
        let mut leaf = LeafBuilder::new(block, csum);
        let mut push = |name: &[u8], ino, file_type: Option<FileType>| {
            if !self.encrypted {
                dir_entry::check_name(name)?;
            }
            let pushed = leaf.push_any(name, ino, file_type.filter(|_| typed))?;
            let fuller = FormatError::Unrepresentable("a leaf fuller than planned");
            pushed.then_some(()).ok_or(fuller)
        };
        if with_dots {
            push(b".", self.own, Some(FileType::Directory))?;
            push(b"..", self.parent, Some(FileType::Directory))?;
        }
        for i in names {
            let named = (self.named)(i);
            push(named.name, named.ino, named.file_type)?;
        }
        leaf.finish();
        if csum {
            dir_entry::set_tail(block, self.seed);
        }
        Ok(())
    }

    /// Builds root and nodes; returns their number.
    fn index<E: From<FormatError>>(
        &self,
        shape: &Shape,
        levels: &[u32],
        block: &mut [u8],
        emit: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<u32, E> {
        let csum = self.geo.features.has_metadata_csum();
        let capacity = IndexBlockKind::Node.capacity(block.len(), csum);
        let nodes: u32 = levels.iter().sum();
        // Root, then the nodes from the top level down, then the leaves.
        let mut first_block = 1 + nodes;
        let mut entries: Vec<DxEntry> = (first_block..)
            .zip(&shape.leaves)
            .map(|(block, &start)| DxEntry {
                hash: self.first_hash(start as usize),
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

    fn seal(&self, block: &mut [u8], kind: IndexBlockKind) -> Result<(), FormatError> {
        if self.geo.features.has_metadata_csum() {
            htree::set_checksum(block, kind, self.seed)?;
        }
        Ok(())
    }

    /// Returns the key of a leaf that starts with name `start`. Its low bit is set if the previous leaf ends with
    /// names of the same hash.
    fn first_hash(&self, start: usize) -> u32 {
        let hash_at = |i: usize| (i < self.count).then(|| (self.named)(i).hash);
        let hash = hash_at(start).unwrap_or(0);
        let continues = start > 0 && hash_at(start - 1) == Some(hash);
        hash | u32::from(continues)
    }
}
