//! Finding a name on disk: down the index to the leaf of its hash, and further while the hash continues.

use super::pages::Page;
use super::shape::{Role, Shape, at};
use crate::error::{Error, Result};
use crate::image::BlockImages;
use ext4_format::geometry::Geometry;
use ext4_format::hash::{DirHasher, HashVersion};
use ext4_format::htree::{self, Index};
use ext4_format::{BlockNr, FileType, FormatError, InodeNr, Where, dir_entry};

/// Whether a walk continues.
pub(super) enum Visit {
    Continue,
    Stop,
}

/// Reads a logical block in its role.
type Read<'r> = dyn FnMut(u32, Role) -> Result<(BlockNr, Page)> + 'r;
/// Receives the logical number of each leaf.
type OnLeaf<'r> = dyn FnMut(u32) -> Result<Visit> + 'r;

/// A walk over the leaves that may hold names of one hash, in order.
pub(super) struct Descent<'s> {
    shape: &'s Shape,
    blocks: u32,
    hash: u32,
    /// Limit of the nodes visited: no tree has more leaves and nodes than the directory has blocks.
    budget: u32,
}

impl<'s> Descent<'s> {
    pub fn new(shape: &'s Shape, blocks: u32, hash: u32) -> Self {
        Self {
            shape,
            blocks,
            hash,
            budget: blocks,
        }
    }

    pub fn run(mut self, read: &mut Read<'_>, on_leaf: &mut OnLeaf<'_>) -> Result<()> {
        let (block, page) = read(0, Role::Root)?;
        let root = htree::parse_root(&page, self.shape.csum, self.shape.large_dir, self.blocks)
            .map_err(at(block))?;
        self.below(block, &root.index, root.levels, read, on_leaf)?;
        Ok(())
    }

    fn below(
        &mut self,
        block: BlockNr,
        index: &Index<'_>,
        levels: u8,
        read: &mut Read<'_>,
        on_leaf: &mut OnLeaf<'_>,
    ) -> Result<Visit> {
        let mut i = index.search(self.hash);
        while let Some(entry) = index.get(i) {
            self.budget = self.budget.checked_sub(1).ok_or_else(|| {
                at(block)(FormatError::corrupt(
                    "htree that visits a block twice",
                    Where::Buffer(0),
                ))
            })?;
            let visit = if levels == 0 {
                on_leaf(entry.block)?
            } else {
                let (block, page) = read(entry.block, Role::Node)?;
                let index =
                    htree::parse_node(&page, self.shape.csum, self.blocks).map_err(at(block))?;
                self.below(block, &index, levels - 1, read, on_leaf)?
            };
            if matches!(visit, Visit::Stop) || !index.continues(i, self.hash) {
                return Ok(visit);
            }
            i += 1;
        }
        Ok(Visit::Continue)
    }
}

/// A directory on disk, for looking names up in it.
#[derive(Clone, Copy)]
pub struct DirReader<'a> {
    /// The volume.
    pub geometry: &'a Geometry,
    /// The source of images.
    pub images: &'a dyn BlockImages,
    /// Physical block of a logical one; an error for a hole.
    pub locate: &'a dyn Fn(u32) -> Result<BlockNr>,
    /// The directory.
    pub ino: InodeNr,
    /// Checksum seed of the inode.
    pub seed: u32,
    /// Size in blocks.
    pub blocks: u32,
    /// Whether the inode has the INDEX flag.
    pub indexed: bool,
    /// The directory's hasher, which is the volume's but for folding.
    pub hasher: &'a DirHasher,
}

impl DirReader<'_> {
    /// Looks up the inode of a name and its type, if the volume records types. `hash` is the name's hash by the
    /// volume's hasher.
    ///
    /// # Errors
    /// `Format` when a block on the way is corrupt, `Io` when it cannot be read.
    pub fn lookup(&self, name: &[u8], hash: u32) -> Result<Option<(InodeNr, Option<FileType>)>> {
        let shape = Shape::new(self.geometry, self.seed);
        let read = |logical: u32, role: Role| self.page(&shape, logical, role);
        let mut found = None;
        let mut in_leaf = |logical| {
            let (block, page) = read(logical, Role::Leaf)?;
            let entry = dir_entry::find(&page, name).map_err(at(block))?;
            found = entry.map(|e| (e.inode, e.file_type));
            Ok(if found.is_some() {
                Visit::Stop
            } else {
                Visit::Continue
            })
        };
        if self.indexed {
            let hash = self.index_hash(name, hash, &read)?;
            Descent::new(&shape, self.blocks, hash).run(&mut |l, r| read(l, r), &mut in_leaf)?;
        } else {
            for logical in 0..self.blocks {
                if let Visit::Stop = in_leaf(logical)? {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Returns the leaf to which Linux adds a name. Without an index, the leaf is the last block.
    pub(crate) fn leaf(&self, name: &[u8], hash: u32) -> Result<Option<u32>> {
        let shape = Shape::new(self.geometry, self.seed);
        let read = |logical: u32, role: Role| self.page(&shape, logical, role);
        let mut leaf = self.blocks.checked_sub(1);
        if self.indexed {
            let hash = self.index_hash(name, hash, &read)?;
            leaf = None;
            let mut first = |logical| {
                leaf = Some(logical);
                Ok(Visit::Stop)
            };
            Descent::new(&shape, self.blocks, hash).run(&mut |l, r| read(l, r), &mut first)?;
        }
        Ok(leaf)
    }

    /// Returns the size of the largest gap of a leaf.
    pub(crate) fn largest_gap(&self, logical: u32) -> Result<u32> {
        let shape = Shape::new(self.geometry, self.seed);
        let (block, page) = self.page(&shape, logical, Role::Leaf)?;
        let space = dir_entry::space(&page, shape.csum).map_err(at(block))?;
        Ok(space.largest)
    }

    /// Reads a logical block in its role, checked.
    pub(super) fn page(&self, shape: &Shape, logical: u32, role: Role) -> Result<(BlockNr, Page)> {
        let block = (self.locate)(logical)?;
        let image = self.images.image(block)?;
        if image.len() != shape.block_size {
            return Err(Error::corrupt_inode("directory block size", self.ino));
        }
        shape.verify(&image, role, block)?;
        Ok((block, Page::Old(image)))
    }

    /// Hashes a name by the index's own version, which may differ from the volume's present default.
    fn index_hash(
        &self,
        name: &[u8],
        hash: u32,
        read: &dyn Fn(u32, Role) -> Result<(BlockNr, Page)>,
    ) -> Result<u32> {
        let (block, page) = read(0, Role::Root)?;
        let large_dir = self.geometry.features.has_large_dir();
        let csum = self.geometry.features.has_metadata_csum();
        let root = htree::parse_root(&page, csum, large_dir, self.blocks).map_err(at(block))?;
        match HashVersion::from_raw(root.hash_version, self.geometry.unsigned_hash) {
            Some(version) if version == self.hasher.version() => Ok(hash),
            Some(version) => Ok(self.hasher.at_version(version).hash(name).0),
            None => Err(Error::corrupt_inode("htree hash version", self.ino)),
        }
    }
}
