//! The replay of fast commits: their changes become a batch of items, which is formatted like any other.
//!
//! Fast commits of Linux are read like those of this project. The bytes are hostile: a change that fits no state of the
//! volume is an error, here or in the formatter, and then nothing is replayed.

use super::REFUSED;
use crate::error::{Error, Result, SpaceError};
use crate::extent_map::{ExtentMap, Run};
use crate::groups::Groups;
use crate::image::BlockImages;
use crate::item::{
    BitsItem, InodeEvent, InodeItem, ItemList, MapItem, MiscEvent, MiscItem, NameEvent, NameItem,
    Stamp,
};
use crate::ledger::MetaSpace;
use crate::locks::{self, Mutex};
use crate::mapping_reader::MappingReader;
use crate::name::Name;
use crate::system_zone::SystemZone;
use ext4_format::bitmap;
use ext4_format::extent::Extent;
use ext4_format::geometry::Geometry;
use ext4_format::hash::DirHasher;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::jbd2::{FastChange, FastName};
use ext4_format::xattr::XattrSet;
use ext4_format::{BlockNr, FileType, FormatError, GroupNr, InodeNr, Where};

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// The volume that fast commits continue, after the log before them was replayed.
pub struct Volume<'a> {
    /// Geometry of the volume.
    pub geometry: &'a Geometry,
    /// Blocks of the volume.
    pub images: &'a dyn BlockImages,
    /// Group descriptors of the volume.
    pub groups: &'a Groups,
    /// The hash of its directories.
    pub hasher: &'a DirHasher,
    /// The volume's own blocks.
    pub zone: &'a SystemZone,
}

/// An inode that changes speak of.
struct File {
    core: InodeCore,
    alive: bool,
    /// The inode is new, and no name leads to it yet.
    unnamed: bool,
    map: ExtentMap,
}

/// The batch while it is built.
struct Replay<'v> {
    volume: &'v Volume<'v>,
    files: BTreeMap<InodeNr, Option<File>>,
    /// Runs of the files as they were found.
    before: Vec<Run>,
    items: ItemList,
    stamp: Stamp,
}

impl Volume<'_> {
    /// Computes the items that make these changes.
    ///
    /// # Errors
    /// `Format` for a change that cannot be made, with the inode; `Unsupported` for one that only Linux can replay.
    pub fn items(&self, changes: &[FastChange]) -> Result<ItemList> {
        if self.geometry.cluster_ratio != 1 {
            return Err(Error::Unsupported("fast commits with bigalloc"));
        }
        let mut replay = Replay {
            volume: self,
            files: BTreeMap::new(),
            before: Vec::new(),
            items: ItemList::default(),
            stamp: 0,
        };
        for change in changes {
            replay.stamp += 1;
            match change {
                FastChange::Inode(ino, record) => replay.record(*ino, record)?,
                FastChange::AddRange(ino, extent) => replay.add_range(*ino, extent)?,
                FastChange::RemoveRange(ino, first, len) => {
                    replay.remove_range(*ino, *first, *len)?;
                }
                FastChange::Create(name) | FastChange::Link(name) => replay.link(name)?,
                FastChange::Unlink(name) => replay.unlink(name)?,
            }
        }
        Ok(replay.finish())
    }

    /// Reads the inode as it is on disk. Returns `None` if its number is free.
    fn find(&self, ino: InodeNr) -> Result<Option<File>> {
        let (geometry, images) = (self.geometry, self.images);
        let bad = || Error::corrupt_inode("inode number in a fast commit", ino);
        if ino != InodeNr::ROOT && ino.0 < geometry.first_ino {
            return Err(bad());
        }
        let (group, index) = geometry.group_of_inode(ino).ok_or_else(bad)?;
        let used = self.groups.inode_bitmap(geometry, images, group, true)?;
        if !bitmap::test(&used, index) {
            return Ok(None);
        }
        let (block, offset) = self.groups.inode_location(geometry, images, ino)?;
        let image = images.image(block)?;
        let raw = image.get(offset..offset.saturating_add(geometry.inode_size.into()));
        let raw = raw.ok_or_else(bad)?;
        let core = inode::decode_core(raw, geometry, ino)?;
        let map = if is_mapped(&core) {
            MappingReader {
                geometry,
                images,
                ino,
                generation: core.generation,
                zone: Some(self.zone),
            }
            .read(core.flags, inode::i_block(raw)?)?
        } else {
            ExtentMap::default()
        };
        Ok(Some(File {
            core,
            alive: true,
            unnamed: false,
            map,
        }))
    }
}

/// Returns true if fast commits may change the mapping of such an inode. Directories get their blocks with their names.
fn is_mapped(core: &InodeCore) -> bool {
    let file_type = core.file_type();
    core.flags & flags::INLINE_DATA == 0
        && (file_type == Some(FileType::Regular)
            || file_type == Some(FileType::Symlink) && core.flags & flags::EXTENTS != 0)
}

impl Replay<'_> {
    fn file(&mut self, ino: InodeNr) -> Result<&mut Option<File>> {
        Ok(match self.files.entry(ino) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let found = self.volume.find(ino)?;
                let runs = found.iter().flat_map(|file| file.map.iter());
                self.before.extend(runs);
                new.insert(found)
            }
        })
    }

    fn living(&mut self, ino: InodeNr) -> Result<&mut File> {
        let missing = || Error::corrupt_inode("fast commit that changes a free inode", ino);
        let file = self.file(ino)?.as_mut();
        file.filter(|file| file.alive).ok_or_else(missing)
    }

    /// Returns the file whose mapping a range changes. `None` if ranges of the inode are ignored, such as those of a file that
    /// has lost its last name and is open.
    fn mapped(&mut self, ino: InodeNr) -> Result<Option<&mut File>> {
        let missing = || Error::corrupt_inode("fast commit that changes a free inode", ino);
        let file = self.file(ino)?.as_mut().ok_or_else(missing)?;
        Ok(Some(file).filter(|file| file.alive && is_mapped(&file.core)))
    }

    fn log_inode(&mut self, ino: InodeNr, event: InodeEvent, core: InodeCore) {
        self.items.inodes.push(InodeItem {
            ino,
            event,
            stamp: self.stamp,
            core,
        });
    }

    fn log_misc(&mut self, ino: InodeNr, event: MiscEvent) {
        self.items.misc.push(MiscItem {
            ino,
            stamp: self.stamp,
            event,
        });
    }

    /// Gives an inode this record, but for its mapping.
    fn record(&mut self, ino: InodeNr, record: &[u8]) -> Result<()> {
        let geometry = self.volume.geometry;
        let mut raw = vec![0; geometry.inode_size.into()];
        for (to, from) in raw.iter_mut().zip(record) {
            *to = *from;
        }
        let core = inode::decode_verified(&raw, geometry, ino)?;
        if core.flags & REFUSED != 0 {
            return Err(Error::Unsupported("fast commits of such inodes"));
        }
        let bad = |what| Err(Error::corrupt_inode(what, ino));
        if core.file_type().is_none() {
            return bad("fast commit with the record of a free inode");
        }
        if let Some(file) = self.file(ino)? {
            let is_same = file.core.generation == core.generation;
            let has_links = file.alive && file.core.links > 0;
            // Linux writes the records of open files that have lost their names. They end with the replay, or are on the list of
            // orphans. No fast commit frees such a file before its number is used again.
            match (is_same, has_links) {
                (true, false) if core.links == 0 => return Ok(()),
                (true, true) if core.links == 0 => {
                    return bad("fast commit with the record of an inode without its names");
                }
                (false, false) if file.alive => {
                    file.alive = false;
                    let ended = file.core;
                    self.log_inode(ino, InodeEvent::Free, ended);
                    self.stamp += 1;
                }
                _ => {}
            }
        }
        let csum = geometry.features.has_metadata_csum();
        // Linux records only the fixed fields.
        let xattrs = inode::xattr_area(&raw, geometry)
            .filter(|area| record.len() >= area.end)
            .and_then(|area| raw.get(area))
            .map(|area| XattrSet::parse(Some(area), None))
            .transpose()?;
        if let Some(xattrs) = xattrs {
            self.log_misc(ino, MiscEvent::Xattrs(Arc::new(xattrs)));
        }
        let file = self.file(ino)?;
        if let Some(file) = file.as_mut().filter(|file| file.alive) {
            if file.core.file_type() != core.file_type()
                || csum && file.core.generation != core.generation
            {
                return bad("fast commit with the record of another inode");
            }
            file.core = core;
            self.log_inode(ino, InodeEvent::Update, core);
            return Ok(());
        }
        *file = Some(File {
            core,
            alive: true,
            unnamed: true,
            map: ExtentMap::default(),
        });
        self.log_inode(ino, InodeEvent::Init, core);
        if core.file_type() == Some(FileType::Symlink) && core.flags & flags::EXTENTS == 0 {
            let len = usize::try_from(core.size).unwrap_or(usize::MAX);
            let target = inode::i_block(&raw)?.get(..len);
            let Some(target) = target.filter(|target| !target.is_empty()) else {
                return bad("symbolic link's target in a fast commit");
            };
            self.log_misc(ino, MiscEvent::SymlinkTarget(target.into()));
        }
        Ok(())
    }

    fn add_range(&mut self, ino: InodeNr, extent: &Extent) -> Result<()> {
        let bad = || Error::corrupt_inode("range in a fast commit", ino);
        let (zone, images) = (self.volume.zone, self.volume.images);
        let Some(file) = self.mapped(ino)? else {
            return Ok(());
        };
        if file.core.flags & flags::EXTENTS == 0 {
            return Err(Error::Unsupported("fast commits of files without extents"));
        }
        if extent.len == 0 || extent.end() > ext4_format::extent::LOGICAL_END {
            return Err(bad());
        }
        zone.check(images, extent.physical, extent.len.into())?;
        file.map.set(Run {
            logical: extent.logical,
            len: extent.len,
            physical: extent.physical,
            unwritten: extent.unwritten,
        });
        self.items.maps.push(MapItem {
            ino,
            stamp: self.stamp,
            logical: extent.logical,
            len: extent.len,
            physical: extent.physical,
            unwritten: extent.unwritten,
        });
        Ok(())
    }

    fn remove_range(&mut self, ino: InodeNr, first: u32, len: u32) -> Result<()> {
        let len = len.min(u32::MAX - first);
        let Some(file) = self.mapped(ino)?.filter(|_| len > 0) else {
            return Ok(());
        };
        file.map.remove(first, len);
        self.items.maps.push(MapItem {
            ino,
            stamp: self.stamp,
            logical: first,
            len,
            physical: BlockNr(0),
            unwritten: false,
        });
        Ok(())
    }

    fn log_name(&mut self, name: &FastName, event: NameEvent, core: &InodeCore) -> Result<()> {
        let parent = self.living(name.parent)?.core;
        if parent.file_type() != Some(FileType::Directory) {
            let what = "name in what is not a directory, in a fast commit";
            return Err(Error::corrupt_inode(what, name.parent));
        }
        if parent.flags & REFUSED != 0 {
            return Err(Error::Unsupported("fast commits in such directories"));
        }
        let ftype = core.file_type().unwrap_or(FileType::Regular);
        let links = match (ftype, event) {
            (FileType::Directory, NameEvent::Removed) => -1,
            (FileType::Directory, _) => 1,
            _ => 0,
        };
        let (hash, minor) = self.volume.hasher.hash(&name.name);
        let bad = |_| Error::corrupt_inode("name in a fast commit", name.parent);
        self.items.names.push(NameItem {
            dir: name.parent,
            ino: name.ino,
            replaced: InodeNr(0),
            event,
            hash,
            minor,
            stamp: self.stamp,
            time: core.ctime,
            ftype,
            links,
            name: Name::new(&name.name).map_err(bad)?,
        });
        Ok(())
    }

    fn link(&mut self, name: &FastName) -> Result<()> {
        let file = self.living(name.ino)?;
        let is_new = std::mem::take(&mut file.unnamed);
        let is_dir = file.core.file_type() == Some(FileType::Directory);
        match (is_dir, is_new) {
            (true, true) => {}
            (true, false) => {
                let what = "second name of a directory, in a fast commit";
                return Err(Error::corrupt_inode(what, name.ino));
            }
            (false, true) => file.core.links = 1,
            (false, false) => file.core.links = file.core.links.saturating_add(1),
        }
        let core = file.core;
        if is_dir {
            let parent = name.parent;
            self.log_misc(name.ino, MiscEvent::DirInit { parent });
        } else {
            self.log_inode(name.ino, InodeEvent::Update, core);
        }
        self.log_name(name, NameEvent::Set, &core)
    }

    fn unlink(&mut self, name: &FastName) -> Result<()> {
        let file = self.living(name.ino)?;
        let is_dir = file.core.file_type() == Some(FileType::Directory);
        file.core.links = if is_dir {
            0
        } else {
            file.core.links.saturating_sub(1)
        };
        let core = file.core;
        file.alive = core.links > 0;
        let event = if file.alive {
            InodeEvent::Update
        } else {
            InodeEvent::Free
        };
        if !file.alive {
            file.map = ExtentMap::default();
        }
        self.log_name(name, NameEvent::Removed, &core)?;
        self.log_inode(name.ino, event, core);
        Ok(())
    }

    /// Frees the new inodes without a name and without a link, which only an open file had.
    fn free_unnamed(&mut self) {
        self.stamp += 1;
        let files = self.files.iter_mut();
        let files = files.filter_map(|(ino, file)| Some((*ino, file.as_mut()?)));
        let unnamed = files.filter(|(_, file)| file.alive && file.unnamed && file.core.links == 0);
        let ended = |(ino, file): (InodeNr, &mut File)| {
            file.alive = false;
            file.map = ExtentMap::default();
            (ino, file.core)
        };
        for (ino, core) in unnamed.map(ended).collect::<Vec<_>>() {
            self.log_inode(ino, InodeEvent::Free, core);
        }
    }

    /// Adds the bits of blocks that files have now and had not, or had and have no longer.
    fn finish(mut self) -> ItemList {
        self.free_unnamed();
        let files = self.files.values().flatten();
        let after: Vec<Run> = files.flat_map(|file| file.map.iter().copied()).collect();
        let mut edges = Vec::new();
        for (runs, is_after) in [(&self.before, false), (&after, true)] {
            for run in runs {
                let end = run.physical.0.saturating_add(run.len.into());
                edges.push((run.physical.0, is_after, 1i64));
                edges.push((end, is_after, -1));
            }
        }
        edges.sort_unstable();
        let (mut counts, mut from) = ([0i64; 2], 0);
        for (at, is_after, change) in edges {
            let [old, new] = counts;
            if at > from && (old > 0) != (new > 0) {
                self.log_bits(from, at - from, new > 0);
            }
            counts[usize::from(is_after)] += change;
            from = at;
        }
        self.items.commits = 1;
        self.items
    }

    fn log_bits(&mut self, mut start: u64, mut len: u64, alloc: bool) {
        while len > 0 {
            let piece = u32::try_from(len).unwrap_or(u32::MAX);
            self.items.bits.push(BitsItem {
                stamp: self.stamp,
                start: BlockNr(start),
                len: piece,
                alloc,
            });
            start += u64::from(piece);
            len -= u64::from(piece);
        }
    }
}

/// Metadata blocks for the batch of a replay: free ones of the bitmaps that the batch does not take for data.
pub struct FreeSpace<'a> {
    volume: &'a Volume<'a>,
    /// Blocks that are not to be had although the bitmaps have them free: start, and one past the end.
    taken: Mutex<BTreeMap<u64, u64>, locks::FormatterShared>,
}

impl<'a> FreeSpace<'a> {
    /// Returns the free blocks of the volume, except those that these items take.
    pub fn new(volume: &'a Volume<'a>, items: &ItemList) -> Self {
        let taken = items.bits.iter().filter(|bits| bits.alloc);
        let taken = taken.map(|bits| (bits.start.0, bits.start.0 + u64::from(bits.len)));
        Self {
            volume,
            taken: Mutex::new(taken.collect()),
        }
    }

    fn free_in(&self, group: GroupNr, taken: &BTreeMap<u64, u64>) -> Result<Option<BlockNr>> {
        let Volume {
            geometry,
            images,
            groups,
            ..
        } = self.volume;
        let (map, _) = groups.block_bitmap(geometry, *images, group)?;
        let first = geometry.group_first_block(group).0;
        let bits = geometry.blocks_in_group(group);
        let mut at = 0;
        while let Some(bit) = bitmap::find_zero(&map, at, bits) {
            let block = first + u64::from(bit);
            match taken.range(..=block).next_back() {
                Some((_, &end)) if end > block => {
                    at = u32::try_from(end - first).unwrap_or(u32::MAX);
                }
                _ => return Ok(Some(BlockNr(block))),
            }
            if at >= bits {
                break;
            }
        }
        Ok(None)
    }
}

impl MetaSpace for FreeSpace<'_> {
    fn alloc_meta(&self, goal: BlockNr) -> Result<BlockNr, SpaceError> {
        let geometry = self.volume.geometry;
        let near = geometry
            .group_of_block(goal)
            .map_or(0, |(group, _)| group.0);
        let mut taken = self.taken.lock();
        for group in (near..geometry.groups).chain(0..near) {
            if let Some(block) = self.free_in(GroupNr(group), &taken)? {
                taken.insert(block.0, block.0 + 1);
                return Ok(block);
            }
        }
        Err(FormatError::corrupt("no block left for fast commits", Where::Block(goal, 0)).into())
    }

    /// Does nothing, because the bitmaps will contain the change, and no other code asks for blocks meanwhile.
    fn free_meta(&self, _: BlockNr, _: u32) -> Result<(), SpaceError> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
