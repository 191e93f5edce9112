//! Inodes without a name that are still open, and files being truncated. They are in the slots of the orphan file, if
//! the volume has one. Otherwise, or when the orphan file is full, they are on the list that begins in the superblock
//! and continues through the inodes' deletion times.

use super::superblock;
use super::workspace::Workspace;
use crate::error::{Error, Result};
use crate::groups::DescTable;
use crate::image::BlockImages;
use crate::image::NumberMap;
use crate::mapping_reader::MappingReader;
use crate::system_zone::SystemZone;
use ext4_format::geometry::Geometry;
use ext4_format::inode::{self, InodeCore};
use ext4_format::{BlockNr, FormatError, InodeNr, Where, checksum, orphan_file};

/// Byte offset of `i_dtime`, which links the list, in a record.
const DTIME_AT: usize = 20;

/// An inode's change as an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrphanChange {
    /// The inode becomes an orphan.
    Add,
    /// The inode is removed from the orphans.
    Remove,
    /// The inode is freed. Its record holds the time of its deletion.
    Freed,
}

#[derive(Clone, Copy, Debug)]
enum OrphanPlace {
    Slot {
        block: usize,
        slot: usize,
    },
    /// Neighbours on the list, or 0 at an end.
    List {
        prev: u32,
        next: u32,
    },
}

struct FileBlock {
    nr: BlockNr,
    free: usize,
}

/// The orphans of a volume, as they are on disk.
pub(super) struct Orphans {
    file: Vec<FileBlock>,
    seed: u32,
    places: NumberMap<u32, OrphanPlace>,
    head: u32,
}

/// Reads the orphans on disk.
struct Reader<'r> {
    geometry: &'r Geometry,
    descs: &'r DescTable,
    images: &'r dyn BlockImages,
    zone: &'r SystemZone,
}

impl Reader<'_> {
    fn inode(&self, ino: InodeNr) -> Result<(InodeCore, [u8; inode::I_BLOCK_SIZE])> {
        let (block, offset) = self.descs.inode_location(self.geometry, self.images, ino)?;
        let image = self.images.image(block)?;
        let raw = image.get(offset..offset + usize::from(self.geometry.inode_size));
        let raw = raw.ok_or_else(|| Error::corrupt_inode("inode position", ino))?;
        Ok((
            inode::decode_core(raw, self.geometry, ino)?,
            *inode::i_block(raw)?,
        ))
    }

    fn check(&self, ino: u32) -> Result<()> {
        let ok = ino >= self.geometry.first_ino && ino <= self.geometry.inodes_count;
        if ok {
            Ok(())
        } else {
            Err(Error::corrupt_inode("number of an orphan", InodeNr(ino)))
        }
    }

    fn file(&self, orphans: &mut Orphans) -> Result<()> {
        let ino = InodeNr(self.geometry.orphan_file_ino);
        let (core, root) = self.inode(ino)?;
        orphans.seed = checksum::inode_seed(self.geometry.csum_seed, ino, core.generation);
        let seed = self
            .geometry
            .features
            .has_metadata_csum()
            .then_some(orphans.seed);
        let reader = MappingReader {
            geometry: self.geometry,
            images: self.images,
            ino,
            generation: core.generation,
            zone: Some(self.zone),
        };
        let map = reader.read(core.flags, &root)?;
        let end = core.size / u64::from(self.geometry.block_size);
        for run in map.iter() {
            for i in (0..run.len).take_while(|i| u64::from(run.logical) + u64::from(*i) < end) {
                let nr = BlockNr(run.physical.0 + u64::from(i));
                let image = self.images.image(nr)?;
                orphan_file::verify(&image, seed, nr)?;
                let block = orphans.file.len();
                let mut free = orphan_file::slots(image.len());
                for (slot, ino) in orphan_file::orphans(&image) {
                    self.check(ino.0)?;
                    free = free.saturating_sub(1);
                    if orphans
                        .places
                        .insert(ino.0, OrphanPlace::Slot { block, slot })
                        .is_some()
                    {
                        return Err(Error::corrupt_inode("orphan in two slots", ino));
                    }
                }
                orphans.file.push(FileBlock { nr, free });
            }
        }
        Ok(())
    }

    fn list(&self, orphans: &mut Orphans) -> Result<()> {
        let (mut prev, mut at) = (0, orphans.head);
        while at != 0 {
            self.check(at)?;
            let next = self.inode(InodeNr(at))?.0.dtime;
            if orphans
                .places
                .insert(at, OrphanPlace::List { prev, next })
                .is_some()
            {
                return Err(Error::corrupt_inode("orphan list in a circle", InodeNr(at)));
            }
            (prev, at) = (at, next);
        }
        Ok(())
    }
}

impl Orphans {
    /// Reads the orphans off the disk.
    pub fn load(
        geometry: &Geometry,
        descs: &DescTable,
        images: &dyn BlockImages,
        zone: &SystemZone,
    ) -> Result<Self> {
        let head = superblock::read(geometry, images)?.last_orphan.get();
        let mut orphans = Self {
            file: Vec::new(),
            seed: 0,
            places: NumberMap::default(),
            head,
        };
        let reader = Reader {
            geometry,
            descs,
            images,
            zone,
        };
        if geometry.features.has_orphan_file() {
            reader.file(&mut orphans)?;
        }
        reader.list(&mut orphans)?;
        Ok(orphans)
    }

    /// Makes a state without orphans.
    pub fn none() -> Self {
        Self {
            file: Vec::new(),
            seed: 0,
            places: NumberMap::default(),
            head: 0,
        }
    }

    /// Returns all orphans.
    pub fn all(&self) -> Vec<InodeNr> {
        let mut all: Vec<_> = self.places.keys().copied().map(InodeNr).collect();
        all.sort_unstable();
        all
    }

    /// Returns true if a slot of the orphan file is in use.
    pub fn file_in_use(&self) -> bool {
        self.places
            .values()
            .any(|p| matches!(p, OrphanPlace::Slot { .. }))
    }

    /// Writes down what changed. The inodes' records have been formatted before.
    pub fn apply(
        &mut self,
        ws: &mut Workspace<'_>,
        descs: &DescTable,
        changes: &[(InodeNr, OrphanChange)],
    ) -> Result<()> {
        let old_head = self.head;
        let mut work = Work::default();
        for &(ino, change) in changes {
            if change == OrphanChange::Add {
                self.add(ws, ino, &mut work)?;
            } else {
                self.remove(ws, ino, change, &mut work)?;
            }
        }
        work.blocks.sort_unstable();
        work.blocks.dedup();
        for block in work.blocks {
            if let Some(block) = self
                .file
                .get(block)
                .filter(|_| ws.geometry.features.has_metadata_csum())
            {
                orphan_file::set_checksum(ws.get_mut(block.nr)?, self.seed, block.nr);
            }
        }
        work.links.sort_unstable();
        work.links.dedup();
        for ino in work.links {
            if let Some(OrphanPlace::List { next, .. }) = self.places.get(&ino) {
                set_dtime(ws, descs, InodeNr(ino), *next)?;
            }
        }
        for ino in work.cleared {
            if !matches!(self.places.get(&ino), Some(OrphanPlace::List { .. })) {
                set_dtime(ws, descs, InodeNr(ino), 0)?;
            }
        }
        if self.head != old_head {
            let head = self.head;
            superblock::change(ws, |sb| sb.last_orphan.set(head))?;
        }
        Ok(())
    }

    fn add(&mut self, ws: &mut Workspace<'_>, ino: InodeNr, work: &mut Work) -> Result<()> {
        if self.places.contains_key(&ino.0) {
            return Ok(());
        }
        if let Some((block, file)) = self.file.iter_mut().enumerate().find(|(_, b)| b.free > 0) {
            let slot = orphan_file::insert(ws.get_mut(file.nr)?, ino);
            let slot = slot.ok_or(FormatError::corrupt(
                "free slot of the orphan file",
                Where::Block(file.nr, 0),
            ))?;
            file.free -= 1;
            self.places.insert(ino.0, OrphanPlace::Slot { block, slot });
            work.blocks.push(block);
            return Ok(());
        }
        let next = self.head;
        if let Some(OrphanPlace::List { prev, .. }) = self.places.get_mut(&next) {
            *prev = ino.0;
        }
        self.head = ino.0;
        self.places
            .insert(ino.0, OrphanPlace::List { prev: 0, next });
        work.links.push(ino.0);
        Ok(())
    }

    fn remove(
        &mut self,
        ws: &mut Workspace<'_>,
        ino: InodeNr,
        change: OrphanChange,
        work: &mut Work,
    ) -> Result<()> {
        match self.places.remove(&ino.0) {
            None => {}
            Some(OrphanPlace::Slot { block, slot }) => {
                if let Some(file) = self.file.get_mut(block) {
                    orphan_file::clear(ws.get_mut(file.nr)?, slot);
                    file.free += 1;
                    work.blocks.push(block);
                }
            }
            Some(OrphanPlace::List { prev, next }) => {
                match self.places.get_mut(&prev) {
                    Some(OrphanPlace::List { next: link, .. }) if prev != 0 => {
                        *link = next;
                        work.links.push(prev);
                    }
                    _ => self.head = next,
                }
                if let Some(OrphanPlace::List { prev: link, .. }) = self.places.get_mut(&next) {
                    *link = prev;
                }
                if change == OrphanChange::Remove {
                    work.cleared.push(ino.0);
                }
            }
        }
        Ok(())
    }
}

/// The blocks to write once all changes are made in memory.
#[derive(Default)]
struct Work {
    /// Blocks of the orphan file changed.
    blocks: Vec<usize>,
    /// Inodes whose successor on the list changed.
    links: Vec<u32>,
    /// Inodes that left the list alive.
    cleared: Vec<u32>,
}

fn set_dtime(ws: &mut Workspace<'_>, descs: &DescTable, ino: InodeNr, value: u32) -> Result<()> {
    let geometry = ws.geometry;
    let (block, offset) = descs.inode_location(geometry, ws.images(), ino)?;
    let raw = ws
        .get_mut(block)?
        .get_mut(offset..offset + usize::from(geometry.inode_size));
    let raw = raw.ok_or_else(|| Error::corrupt_inode("inode position", ino))?;
    // Neighbours on the list may be records that were not checked yet.
    inode::decode_core(raw, geometry, ino)?;
    if let Some(field) = raw.get_mut(DTIME_AT..DTIME_AT + 4) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    inode::set_checksum(raw, geometry, ino);
    Ok(())
}
