//! Room for the names that fast commits add to directories.
//!
//! No directory may grow when fast commits are replayed. e2fsck (1.47 and before) ends the replay at a name without room,
//! and Linux does not update the directory's block count.
//!
//! Linux puts a name into the leaf of its hash. Therefore the names of a leaf must fit into the largest gap of the leaf.
//! e2fsck puts a name into any block with room. A gap has room for any further name while its free bytes are at least the
//! length of the longest name. Therefore each gap is counted without the longest name, and all names must fit into the sum.

use super::REFUSED;
use super::records::Records;
use crate::directory::DirReader;
use crate::error::{Error, Result};
use crate::extent_map::{ExtentMap, Found};
use crate::item::NameItem;
use ext4_format::inode::{self, flags};
use ext4_format::{InodeNr, dir_entry};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Directories to which fast commits have added names since the last push. A push may change their blocks.
#[derive(Default)]
pub(super) struct NameRoom {
    directories: BTreeMap<InodeNr, Option<Directory>>,
    leaves: u64,
}

/// Directory on disk, and the names that fast commits add.
struct Directory {
    map: ExtentMap,
    seed: u32,
    blocks: u32,
    indexed: bool,
    /// Bytes of all added entries, and of the longest one.
    added: u64,
    longest: u32,
    leaves: BTreeMap<u32, Leaf>,
}

struct Leaf {
    largest_gap: u32,
    added: u32,
}

impl NameRoom {
    /// Returns false if fast commits cannot express the directory, or if the directory cannot be read. The push reports the error.
    pub(super) fn can_express(&mut self, dir: InodeNr, records: &Records<'_>) -> bool {
        self.directory(dir, records).is_some()
    }

    /// Adds a name. Returns false if the directory might grow, or if [`NameRoom::can_express`] returns false.
    pub(super) fn take(&mut self, item: &NameItem, records: &Records<'_>) -> bool {
        let Some(directory) = self.directory(item.dir, records) else {
            return false;
        };
        let before = directory.leaves.len();
        let takes = directory.take(item, records).unwrap_or(false);
        let new = if directory.indexed || directory.blocks < 2 {
            directory.leaves.len() - before
        } else {
            // The formatter puts a name into any block with room.
            1
        };
        self.leaves += new as u64;
        takes
    }

    /// Returns the number of directories with changes.
    pub(super) fn directories(&self) -> u64 {
        self.directories.len() as u64
    }

    /// Returns the number of leaves that take names, at most.
    pub(super) fn leaves(&self) -> u64 {
        self.leaves
    }

    fn directory(&mut self, dir: InodeNr, records: &Records<'_>) -> Option<&mut Directory> {
        let read = || Directory::read(dir, records).unwrap_or(None);
        self.directories.entry(dir).or_insert_with(read).as_mut()
    }
}

impl Directory {
    fn read(ino: InodeNr, records: &Records<'_>) -> Result<Option<Self>> {
        let raw = records.raw(ino)?;
        let core = inode::decode_core(&raw, records.geometry, ino)?;
        if core.flags & (REFUSED | flags::EXTENTS) != flags::EXTENTS {
            return Ok(None);
        }
        let reader = records.mapping_reader(ino, &core);
        let blocks = u32::try_from(core.size / u64::from(records.geometry.block_size));
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
        let Some(logical) = reader.leaf(name, item.hash)? else {
            return Ok(false);
        };
        let len = dir_entry::rec_len_for(name.len()) as u32;
        let leaf = match self.leaves.entry(logical) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Leaf {
                largest_gap: reader.largest_gap(logical)?,
                added: 0,
            }),
        };
        leaf.added += len;
        self.added += u64::from(len);
        self.longest = self.longest.max(len);
        // If only one leaf has names, e2fsck and Linux both put all names there.
        let is_alone = self.leaves.len() == 1;
        let anywhere = |leaf: &Leaf| u64::from(leaf.largest_gap.saturating_sub(self.longest));
        let in_leaf = self
            .leaves
            .get(&logical)
            .is_some_and(|leaf| leaf.added <= leaf.largest_gap);
        Ok(in_leaf && (is_alone || self.added <= self.leaves.values().map(anywhere).sum()))
    }
}
