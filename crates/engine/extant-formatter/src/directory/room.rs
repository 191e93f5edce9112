//! Room in a directory's index. An index of the greatest depth is full when a leaf that must be split has a full node
//! above it and the root is full, too, as in Linux: nodes are not balanced against each other.

use super::apply::apply;
use super::lookup::DirReader;
use super::shape::{Role, Shape, at};
use super::update::{DirBlocks, DirUpdate, NetChange, NetName};
use crate::error::{Error, Result};
use crate::threads::Crew;
use crate::workspace::Workspace;
use ext4_format::dir_entry::rec_len_for;
use ext4_format::geometry::Geometry;
use ext4_format::htree::{self, IndexBlockKind};
use ext4_format::{BlockNr, FileType, InodeNr};

/// Bytes of the largest record of a name.
const LARGEST: u64 = 264;
/// The size that the record of a short name counts for.
const SHORT: u64 = 64;
/// No limit: half of the largest number, so that sums do not overflow.
const UNLIMITED: u64 = u64::MAX / 2;

/// Number of bytes of names that may be added to a directory, whatever their hashes, before a name can find the index
/// full.
///
/// A leaf is split when it is full: with three quarters of its bytes where fast commits add names, else with all. A leaf that is split
/// into *n* leaves has *n* − 1 times half of that more than the half that a leaf may have without a split, except for a record
/// each. So existing leaves are cut without new names at most once, and each further cut takes half a full leaf of new names. That
/// is the bound for many names. Where few leaves are to come, one cut for each name is the bound.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Leaves that any directory may have, in whatever order they came.
    always: u64,
    /// Bytes of a leaf.
    usable: u64,
    /// Half of the bytes with which a leaf is full.
    half: u64,
    /// Least allowance of a directory with at most a quarter of those leaves.
    plenty: u64,
}

impl Allowance {
    /// Computes the limits of a volume's directories.
    pub fn new(geometry: &Geometry) -> Self {
        let mut shape = Shape::new(geometry, 0);
        shape.keeps_room = geometry.features.has_fast_commit();
        let always = shape.most_leaves();
        let mut of = Self {
            always: if geometry.features.has_dir_index() {
                always
            } else {
                UNLIMITED
            },
            usable: shape.usable() as u64,
            half: shape.full() as u64 / 2,
            plenty: 0,
        };
        // More leaves leave room for fewer names.
        of.plenty = of.for_leaves(of.always / 4);
        of
    }

    /// Returns the size that a name counts for.
    #[inline]
    pub fn of(name: &[u8]) -> u64 {
        (rec_len_for(name.len()) as u64).max(SHORT)
    }

    /// Returns true if a directory of this many leaves has room for twice `bytes`, however its index grew. Every new
    /// name asks.
    #[inline]
    pub fn is_twice(&self, bytes: u64, leaves: u64) -> bool {
        leaves <= self.always / 4 && bytes < self.plenty / 2 || bytes < self.for_leaves(leaves) / 2
    }

    /// Returns the allowance of a directory of this many leaves, however its index grew.
    pub fn for_leaves(&self, leaves: u64) -> u64 {
        self.bytes(self.always.saturating_sub(leaves), leaves)
    }

    /// Returns the allowance of a directory of this many leaves whose index can take `more` leaves.
    fn bytes(&self, more: u64, leaves: u64) -> u64 {
        let cuts = more.saturating_mul(self.half.saturating_sub(LARGEST));
        let free = leaves.saturating_mul(self.usable - self.half);
        cuts.saturating_sub(free)
            .max(more.saturating_mul(SHORT))
            .min(UNLIMITED)
    }
}

impl DirReader<'_> {
    /// Returns how many bytes of names may be added, as [`Allowance`] counts them.
    ///
    /// # Errors
    /// `Format` when the index is corrupt, `Io` when it cannot be read.
    pub fn allowance(&self) -> Result<u64> {
        let of = Allowance::new(self.geometry);
        Ok(of.bytes(self.leaves_to_come(&of)?, u64::from(self.blocks)))
    }

    /// Returns how many leaves the index can take, whatever their hashes. A leaf adds one entry to a node, and a node
    /// that overflows adds one entry to the root. So the result is the room left in the fullest nodes: in one node for
    /// each entry that the root has room for, and in one more.
    fn leaves_to_come(&self, of: &Allowance) -> Result<u64> {
        if !self.indexed {
            return Ok(match self.blocks {
                0 | 1 => of.always,
                _ => UNLIMITED, // it stays without an index
            });
        }
        let shape = Shape::new(self.geometry, self.seed);
        let (block, page) = self.page(&shape, 0, Role::Root)?;
        let root = htree::parse_root(&page, shape.csum, shape.large_dir, self.blocks)
            .map_err(at(block))?;
        if root.levels < htree::max_levels(shape.large_dir) {
            return Ok(of.always);
        }
        let again = shape.until_split();
        let mut room = Vec::with_capacity(root.index.len());
        for entry in root.index.iter() {
            let (block, page) = self.page(&shape, entry.block, Role::Node)?;
            let node = htree::parse_node(&page, shape.csum, self.blocks).map_err(at(block))?;
            let left = shape
                .capacity(IndexBlockKind::Node)
                .saturating_sub(node.len()) as u64;
            room.push((left + 1).min(again));
        }
        room.sort_unstable();
        let splits = shape
            .capacity(IndexBlockKind::Root)
            .saturating_sub(root.index.len())
            + 1;
        let nodes: u64 = room.iter().take(splits).sum();
        let new = splits.saturating_sub(room.len()) as u64 * again;
        Ok((nodes + new).saturating_sub(1))
    }

    /// Returns true if one more name has a place, by trying it.
    ///
    /// # Errors
    /// As [`DirReader::allowance`].
    pub fn has_place(&self, name: &[u8], hash: (u32, u32)) -> Result<bool> {
        self.try_name(name, hash, u32::MAX)
    }

    /// Returns true if one more name has a place in the existing blocks, by trying it.
    ///
    /// # Errors
    /// As [`DirReader::allowance`].
    pub fn has_place_as_it_is(&self, name: &[u8], hash: (u32, u32)) -> Result<bool> {
        self.try_name(name, hash, 0)
    }

    /// Tries a name with at most `most` new blocks.
    fn try_name(&self, name: &[u8], hash: (u32, u32), most: u32) -> Result<bool> {
        let mut ws = Workspace::new(self.geometry, self.images);
        let mut blocks = Trial {
            reader: self,
            appended: 0,
            most,
        };
        let names = [NetName {
            is_new: false,
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
            keeps_room: false,
            names: &names,
            hasher: self.hasher,
            crew: &Crew::of(1),
        };
        match apply(&mut ws, &mut blocks, &update) {
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
    most: u32,
}

impl Trial<'_, '_> {
    /// Returns a block number behind the volume, where no block is.
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
        if self.appended >= self.most {
            return Err(Error::NoSpace("no block left for names"));
        }
        let logical = self.blocks();
        self.appended += 1;
        Ok((logical, self.place(logical)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ext4_format::layout::{Layout, LayoutParams};

    /// An account costs a push, so that ordinary directories must be known to have room without one.
    #[test]
    fn a_few_hundred_thousand_names_need_no_account() {
        let layout = Layout::new(&LayoutParams::for_size(1 << 30)).unwrap();
        let allowance = Allowance::new(&layout.geometry);
        let names = 24 << 14; // what a table of 200,000 names may hold
        let short = Allowance::of(b"file.mdtest.1.100000");
        assert_eq!(short, SHORT);
        assert!(names * short < allowance.for_leaves(0) / 2);
        assert!(names * short < allowance.for_leaves(1500) / 2);
        // A million names of an account need no push to continue.
        assert!(1_000_000 * short < allowance.for_leaves(5000));
        assert_eq!(Allowance::of(&[b'n'; 255]), LARGEST);
    }
}
