//! Room for the names that fast commits add to directories.
//!
//! No directory may grow when fast commits are replayed. e2fsck (1.47 and before) ends the replay at a name that finds
//! no room, and Linux leaves the directory's count of blocks as it was. e2fsck puts a name into any block with room,
//! and Linux into the leaf of its hash. So the names of a leaf must fit into the leaf's largest gap, and the names of a
//! directory into those gaps wherever they are put: a gap that holds other names has room for one more as long as it is
//! larger than these by the longest name.

use super::REFUSED;
use super::records::Records;
use crate::directory::DirReader;
use crate::error::{Error, Result};
use crate::extent_map::{ExtentMap, Found};
use crate::item::NameItem;
use crate::mapping_reader::MappingReader;
use ext4_format::inode::{self, flags};
use ext4_format::{InodeNr, dir_entry};
use std::collections::BTreeMap;

/// The directories that fast commits have added names to since the last push, which may change their blocks.
#[derive(Default)]
pub(super) struct NameRoom {
    directories: BTreeMap<InodeNr, Option<Directory>>,
}

/// A directory as it is on disk, with the names added to it.
struct Directory {
    map: ExtentMap,
    seed: u32,
    blocks: u32,
    indexed: bool,
    /// Bytes of all names, and of the longest.
    added: u64,
    longest: u32,
    leaves: BTreeMap<u32, Leaf>,
}

struct Leaf {
    largest_gap: u32,
    added: u32,
}

impl NameRoom {
    /// Returns false for a directory that fast commits cannot express, or that cannot be read: the push reports why.
    pub(super) fn speaks_of(&mut self, dir: InodeNr, records: &Records<'_>) -> bool {
        self.directory(dir, records).is_some()
    }

    /// Adds a name; false if its directory might grow, or for the reasons of [`NameRoom::speaks_of`].
    pub(super) fn take(&mut self, item: &NameItem, records: &Records<'_>) -> bool {
        self.directory(item.dir, records)
            .is_some_and(|directory| directory.take(item, records).unwrap_or(false))
    }

    fn directory(&mut self, dir: InodeNr, records: &Records<'_>) -> Option<&mut Directory> {
        let read = || Directory::read(dir, records).unwrap_or(None);
        self.directories.entry(dir).or_insert_with(read).as_mut()
    }
}

impl Directory {
    fn read(ino: InodeNr, records: &Records<'_>) -> Result<Option<Self>> {
        let (geometry, images) = (records.geometry, records.images);
        let raw = records.raw(ino)?;
        let core = inode::decode_core(&raw, geometry, ino)?;
        if core.flags & (REFUSED | flags::EXTENTS) != flags::EXTENTS {
            return Ok(None);
        }
        let reader = MappingReader {
            geometry,
            images,
            ino,
            generation: core.generation,
            zone: Some(records.zone),
        };
        let blocks = u32::try_from(core.size / u64::from(geometry.block_size));
        Ok(Some(Self {
            map: reader.read(core.flags, inode::i_block(&raw)?)?,
            seed: reader.seed(),
            blocks: blocks.map_err(|_| Error::corrupt_inode("directory size", ino))?,
            indexed: core.flags & flags::INDEX != 0,
            added: 0,
            longest: 0,
            leaves: BTreeMap::new(),
        }))
    }

    fn take(&mut self, item: &NameItem, records: &Records<'_>) -> Result<bool> {
        let locate = |logical| match self.map.at(logical) {
            Found::Mapped(run) if !run.unwritten => Ok(run.physical),
            _ => Err(Error::corrupt_inode("hole in a directory", item.dir)),
        };
        let reader = DirReader {
            geometry: records.geometry,
            images: records.images,
            locate: &locate,
            ino: item.dir,
            seed: self.seed,
            blocks: self.blocks,
            indexed: self.indexed,
            hasher: records.hasher,
        };
        let name = item.name.as_bytes();
        let Some((logical, largest_gap)) = reader.gap(name, item.hash)? else {
            return Ok(false);
        };
        let len = dir_entry::rec_len_for(name.len()) as u32;
        let leaf = self.leaves.entry(logical).or_insert(Leaf {
            largest_gap,
            added: 0,
        });
        leaf.added += len;
        self.added += u64::from(len);
        self.longest = self.longest.max(len);
        // With one leaf, both programs put every name there.
        let is_alone = self.leaves.len() == 1;
        let anywhere = |leaf: &Leaf| u64::from(leaf.largest_gap.saturating_sub(self.longest));
        let in_leaf = self
            .leaves
            .get(&logical)
            .is_some_and(|leaf| leaf.added <= leaf.largest_gap);
        Ok(in_leaf && (is_alone || self.added <= self.leaves.values().map(anywhere).sum()))
    }
}
