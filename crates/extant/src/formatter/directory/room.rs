//! How much room a directory's index has. An index that is as deep as it may be is full when a leaf that
//! must be split has a full node above it and the root is full, too, as in Linux: nodes are not
//! balanced against each other.

use super::lookup::DirReader;
use super::pages::{Role, Shape, at};
use super::{DirBlocks, DirUpdate, NetChange, NetName};
use crate::error::{Error, Result};
use crate::formatter::workspace::Workspace;
use ext4_format::geometry::Geometry;
use ext4_format::htree::{self, Kind};
use ext4_format::{BlockNr, FileType, InodeNr};

/// Entries that a node takes at least before it is split again: new nodes are three quarters full at most.
fn again(shape: &Shape) -> u64 {
    shape.capacity(Kind::Node) as u64 / 4
}

/// Leaves that any directory may have, in whatever order they came, before its index can be full.
pub fn always(geometry: &Geometry) -> u64 {
    let shape = Shape::new(geometry, 0);
    // A root that gets its last level has two entries.
    (shape.capacity(Kind::Root) as u64 - 2) * again(&shape) - 1
}

impl DirReader<'_> {
    /// How many names may be added, whatever their hashes, before one can find the index full. A name adds
    /// one leaf at most, a leaf one entry to a node, and a node that overflows one entry to the root: so it
    /// is the sum of what the nodes with the least room can still take, for as many nodes as the root has
    /// room for, and for the one that is too many.
    ///
    /// # Errors
    /// `Format` when the index is corrupt, `Io` when it cannot be read.
    pub fn allowance(&self) -> Result<u64> {
        if !self.indexed {
            return Ok(match self.blocks {
                0 | 1 => always(self.geometry),
                _ => u64::MAX / 2, // it stays without an index
            });
        }
        let shape = Shape::new(self.geometry, self.seed);
        let (block, page) = self.page(&shape, 0, Role::Root)?;
        let root = htree::parse_root(&page, shape.csum, shape.large_dir, self.blocks)
            .map_err(at(block))?;
        if root.levels < htree::max_levels(shape.large_dir) {
            return Ok(always(self.geometry));
        }
        let again = again(&shape);
        let mut room = Vec::with_capacity(root.index.len());
        for entry in root.index.iter() {
            let (block, page) = self.page(&shape, entry.block, Role::Node)?;
            let node = htree::parse_node(&page, shape.csum, self.blocks).map_err(at(block))?;
            let left = shape.capacity(Kind::Node).saturating_sub(node.len()) as u64;
            room.push((left + 1).min(again));
        }
        room.sort_unstable();
        let splits = shape.capacity(Kind::Root).saturating_sub(root.index.len()) + 1;
        let nodes: u64 = room.iter().take(splits).sum();
        let new = splits.saturating_sub(room.len()) as u64 * again;
        Ok((nodes + new).saturating_sub(1))
    }

    /// Whether there is a place for one more name, by trying it.
    ///
    /// # Errors
    /// As [`DirReader::allowance`].
    pub fn has_place(&self, name: &[u8], hash: (u32, u32)) -> Result<bool> {
        let mut ws = Workspace::new(self.geometry, self.images);
        let mut blocks = Trial {
            reader: self,
            appended: 0,
        };
        let names = [NetName {
            hash: hash.0,
            minor: hash.1,
            name,
            ftype: FileType::Regular,
            change: NetChange::Add(InodeNr(self.geometry.first_ino)),
        }];
        let update = DirUpdate {
            ino: self.ino,
            seed: self.seed,
            indexed: self.indexed,
            init: None,
            new_parent: None,
            names: &names,
            hasher: self.hasher,
        };
        match super::apply(&mut ws, &mut blocks, &update) {
            Ok(_) => Ok(true),
            Err(Error::NoSpace(_)) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// The directory's blocks, and new ones that are nowhere.
struct Trial<'t, 'r> {
    reader: &'t DirReader<'r>,
    appended: u32,
}

impl Trial<'_, '_> {
    /// Behind the volume, where no block is.
    fn place(&self, logical: u32) -> BlockNr {
        BlockNr(self.reader.geometry.blocks_count + u64::from(logical))
    }
}

impl DirBlocks for Trial<'_, '_> {
    fn blocks(&self) -> u32 {
        self.reader.blocks + self.appended
    }

    fn get(&mut self, _: &mut Workspace<'_>, logical: u32) -> Result<BlockNr> {
        if logical < self.reader.blocks {
            (self.reader.locate)(logical)
        } else {
            Ok(self.place(logical))
        }
    }

    fn append(&mut self, _: &mut Workspace<'_>) -> Result<(u32, BlockNr)> {
        let logical = self.blocks();
        self.appended += 1;
        Ok((logical, self.place(logical)))
    }
}
