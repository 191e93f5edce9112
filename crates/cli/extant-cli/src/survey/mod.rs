//! The use of an image's blocks, without memory per block: counts by group and by the cells of a picture.
//!
//! The image is hostile input. A group or inode that breaks a rule is counted as damaged and skipped. No node of a
//! mapping is visited twice, and files never count more blocks than the volume has. So the time grows with the real
//! size of the image and with the number of its groups and inodes.

mod cells;
mod mapping;

pub use cells::{Cells, Counts, Layout, Owned};

use anyhow::Result;
use ext4_format::bitmap;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use ext4_format::inode::{self, flags};
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr};
use extant::Volume;
use mapping::{Mapping, Walker};
use serde::Serialize;

/// The use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Use {
    /// Free.
    Free,
    /// Superblocks, descriptors, and blocks reserved for growth of the descriptors.
    Super,
    /// Bitmaps of blocks and inodes.
    Bitmaps,
    /// Inode tables.
    Inodes,
    /// The journal's log.
    Journal,
    /// Directories.
    Directories,
    /// Data of files and links.
    Files,
    /// In use for something else: mappings, attributes, the orphan file.
    Other,
    /// A block of a group whose bitmap cannot be read.
    Unknown,
}

impl Use {
    /// Number of uses.
    pub const COUNT: usize = 9;

    /// All uses, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Free,
        Self::Super,
        Self::Bitmaps,
        Self::Inodes,
        Self::Journal,
        Self::Directories,
        Self::Files,
        Self::Other,
        Self::Unknown,
    ];
}

/// Fragmentation of files.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Fragmentation {
    /// Regular files with at least one block.
    pub files: u64,
    /// Files with more than one extent.
    pub fragmented: u64,
    /// Extents of all files.
    pub extents: u64,
    /// Inode of the file with the most extents.
    pub worst_inode: u32,
    /// Number of its extents.
    pub worst_extents: u64,
}

/// Lengths of free runs by powers of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FreeRuns {
    /// Shortest length of these runs; runs of twice the length are in the next class.
    pub at_least: u64,
    /// Number of runs.
    pub runs: u64,
    /// Blocks in them.
    pub blocks: u64,
}

/// The result of a survey.
pub struct Survey {
    /// Counts by group.
    pub groups: Cells,
    /// Counts by cell of the picture.
    pub picture: Cells,
    pub fragmentation: Fragmentation,
    free_runs: [FreeRuns; 64],
    /// The regular files with the most blocks: blocks and inode number.
    largest: Vec<(u64, u32)>,
    /// Groups and inodes that break a rule.
    pub damaged: u64,
    /// The first damage.
    pub first_damage: Option<String>,
}

impl Survey {
    /// Surveys a whole image; calls `each` after every group.
    pub fn of(volume: &Volume, picture: Layout, each: impl FnMut() -> Result<()>) -> Result<Self> {
        let mut surveyor = Surveyor::new(volume, picture, &[]);
        surveyor.all(each)?;
        surveyor.end_run();
        let mut found = surveyor.found;
        found.groups.finish();
        found.picture.finish();
        Ok(found)
    }

    fn new(geometry: &Geometry, picture: Layout) -> Self {
        let mut free_runs = [FreeRuns::default(); 64];
        for (log, runs) in free_runs.iter_mut().enumerate() {
            runs.at_least = 1 << log;
        }
        Self {
            groups: Cells::new(Layout::groups(geometry)),
            picture: Cells::new(picture),
            fragmentation: Fragmentation::default(),
            free_runs,
            largest: Vec::new(),
            damaged: 0,
            first_damage: None,
        }
    }

    /// Returns the inodes of the regular files with the most blocks, the largest first.
    pub fn largest(&self) -> Vec<u32> {
        self.largest.iter().map(|(_, ino)| *ino).collect()
    }

    /// Counts the blocks of these files by cell of the picture.
    pub fn owned(&self, volume: &Volume, inodes: &[u32]) -> Owned {
        let mut surveyor = Surveyor::new(volume, self.picture.layout, inodes);
        for ino in inodes {
            // The survey has already reported the damage.
            let _ = surveyor.one(InodeNr(*ino));
        }
        surveyor.owned
    }

    /// Records a file if it is one of the largest; of equal files the first stays.
    fn note_size(&mut self, ino: u32, blocks: u64) {
        let after = self.largest.partition_point(|(more, _)| *more >= blocks);
        if blocks > 0 && after < Owned::MOST {
            self.largest.insert(after, (blocks, ino));
            self.largest.truncate(Owned::MOST);
        }
    }

    /// Returns the free runs by length, up to the longest.
    pub fn free_runs(&self) -> &[FreeRuns] {
        let last = self.free_runs.iter().rposition(|r| r.runs > 0);
        self.free_runs
            .get(..last.map_or(0, |l| l + 1))
            .unwrap_or_default()
    }
}

struct Surveyor<'a> {
    volume: &'a Volume,
    geometry: &'a Geometry,
    found: Survey,
    walker: Walker<'a>,
    /// Blocks claimed by inodes.
    claimed: u64,
    /// Length of the current free run.
    run: u64,
    owned: Owned,
}

impl<'a> Surveyor<'a> {
    fn new(volume: &'a Volume, picture: Layout, inodes: &[u32]) -> Self {
        let geometry = volume.geometry();
        Self {
            volume,
            geometry,
            found: Survey::new(geometry, picture),
            walker: Walker::new(volume),
            claimed: 0,
            run: 0,
            owned: Owned::new(picture, inodes),
        }
    }

    /// Counts the blocks of one inode.
    fn one(&mut self, ino: InodeNr) -> extant::Result<()> {
        let geometry = self.geometry;
        let (group, index) = geometry
            .group_of_inode(ino)
            .ok_or(extant::Error::NotFound)?;
        let desc = self.volume.groups().nth(group.0 as usize);
        let table = desc.ok_or(extant::Error::NotFound)??.inode_table.0;
        let per_block = geometry.inodes_per_block();
        let records = self
            .volume
            .metadata_block(BlockNr(table.saturating_add((index / per_block).into())))?;
        let mut records = records.chunks_exact(geometry.inode_size.into());
        let record = records.nth((index % per_block) as usize);
        self.inode(ino, record.ok_or(extant::Error::NotFound)?)
    }

    fn all(&mut self, mut each: impl FnMut() -> Result<()>) -> Result<()> {
        for (nr, desc) in (0..).map(GroupNr).zip(self.volume.groups()) {
            each()?;
            let (first, blocks) = (
                self.geometry.group_first_block(nr).0,
                u64::from(self.geometry.blocks_in_group(nr)),
            );
            let base = u64::from(self.geometry.group_base_meta_blocks(nr));
            self.add(Use::Super, first, base.min(blocks));
            let desc = match desc {
                Ok(desc) => *desc,
                Err(e) => {
                    self.unknown(first, blocks, &e);
                    continue;
                }
            };
            self.add(Use::Bitmaps, desc.block_bitmap.0, 1);
            self.add(Use::Bitmaps, desc.inode_bitmap.0, 1);
            let table = u64::from(self.geometry.itable_blocks());
            self.add(Use::Inodes, desc.inode_table.0, table);
            if let Err(e) = self.blocks(nr, &desc) {
                self.unknown(first, blocks, &e);
            }
            if let Err(e) = self.inodes(nr, &desc) {
                self.damage(&e);
            }
        }
        Ok(())
    }

    fn add(&mut self, what: Use, start: u64, len: u64) {
        self.found.groups.add(what, start, len);
        self.found.picture.add(what, start, len);
    }

    fn damage(&mut self, why: &impl ToString) {
        self.found.damaged += 1;
        if self.found.first_damage.is_none() {
            self.found.first_damage = Some(why.to_string());
        }
    }

    /// Counts a group whose bitmap is unreadable: only other metadata shows the use of its blocks.
    fn unknown(&mut self, first: u64, blocks: u64, why: &impl ToString) {
        self.end_run();
        self.add(Use::Unknown, first, blocks);
        self.damage(why);
    }

    /// Ends a free run.
    fn end_run(&mut self) {
        if let Some(log) = self.run.checked_ilog2()
            && let Some(runs) = self.found.free_runs.get_mut(log as usize)
        {
            runs.runs += 1;
            runs.blocks += self.run;
        }
        self.run = 0;
    }

    /// Counts free blocks and blocks in use by a group's bitmap.
    fn blocks(&mut self, nr: GroupNr, desc: &GroupDesc) -> extant::Result<()> {
        let geometry = self.geometry;
        let map = if geometry.features.has_group_csum() && desc.flags & BLOCK_UNINIT != 0 {
            let mut map = vec![0; geometry.block_size as usize];
            bitmap::init_block_bitmap(&mut map, geometry, nr, desc);
            map
        } else {
            let map = self.volume.metadata_block(desc.block_bitmap)?;
            bitmap::verify_block_bitmap(&map, desc, geometry, nr)?;
            map
        };
        let (first, bits) = (geometry.group_first_block(nr).0, geometry.bits_in_group(nr));
        let ratio = u64::from(geometry.cluster_ratio);
        let block = |bit: u32| first + u64::from(bit) * ratio;
        let mut at = 0;
        while at < bits {
            let free = bitmap::find_zero(&map, at, bits).unwrap_or(bits);
            if free > at {
                self.end_run();
                self.add(Use::Other, block(at), block(free) - block(at));
            }
            let used = bitmap::find_one(&map, free, bits).unwrap_or(bits);
            let len = block(used) - block(free);
            self.add(Use::Free, block(free), len);
            self.run += len;
            at = used;
        }
        Ok(())
    }

    /// Counts the blocks of a group's inodes.
    fn inodes(&mut self, nr: GroupNr, desc: &GroupDesc) -> extant::Result<()> {
        let geometry = self.geometry;
        if geometry.features.has_group_csum() && desc.flags & INODE_UNINIT != 0 {
            return Ok(());
        }
        // Each group has its own bitmap. Visiting a shared bitmap again would only waste time.
        self.walker.first_visit(desc.inode_bitmap, "inode bitmap")?;
        let map = self.volume.metadata_block(desc.inode_bitmap)?;
        bitmap::verify_inode_bitmap(&map, desc, geometry, nr)?;
        let (per_block, size) = (
            geometry.inodes_per_block(),
            usize::from(geometry.inode_size),
        );
        let mut at = 0;
        while let Some(index) = bitmap::find_one(&map, at, geometry.inodes_per_group) {
            let block = index / per_block;
            let table = BlockNr(desc.inode_table.0 + u64::from(block));
            let records = self.volume.metadata_block(table)?;
            let end = (block + 1)
                .saturating_mul(per_block)
                .min(geometry.inodes_per_group);
            let mut next = Some(index);
            while let Some(index) = next {
                let ino = geometry.inode_nr(nr, index);
                let record = records.chunks_exact(size).nth((index % per_block) as usize);
                if let Some(record) = record
                    && let Err(e) = self.inode(ino, record)
                {
                    self.damage(&e);
                }
                next = bitmap::find_one(&map, index + 1, end);
            }
            at = end;
        }
        Ok(())
    }

    fn inode(&mut self, ino: InodeNr, record: &[u8]) -> extant::Result<()> {
        let geometry = self.geometry;
        let journal = geometry.features.has_journal() && ino.0 == geometry.journal_ino;
        let special = ino.0 < geometry.first_ino && ino != InodeNr::ROOT;
        let orphans = ino.0 == geometry.orphan_file_ino;
        if !journal && (special || orphans) {
            return Ok(());
        }
        let core = inode::decode_core(record, geometry, ino)?;
        let Some(kind) = core.file_type() else {
            return Ok(());
        };
        // Short links store their target instead of a mapping; devices and inline data have no mapping either.
        let short = kind == FileType::Symlink && inode::sectors(record, geometry) == 0;
        let mapped = matches!(
            kind,
            FileType::Regular | FileType::Directory | FileType::Symlink
        );
        if !mapped || short || core.flags & flags::INLINE_DATA != 0 {
            return Ok(());
        }
        let what = match kind {
            _ if journal => Use::Journal,
            FileType::Directory => Use::Directories,
            _ => Use::Files,
        };
        let mapping = Mapping {
            ino,
            generation: core.generation,
            flags: core.flags,
        };
        let (found, owned) = (&mut self.found, &mut self.owned);
        let mut left = geometry.blocks_count.saturating_sub(self.claimed);
        let before = left;
        let mut pieces = Pieces::default();
        let walked = self
            .walker
            .walk(&mapping, inode::i_block(record)?, |logical, start, len| {
                let Some(rest) = left.checked_sub(len) else {
                    return false;
                };
                left = rest;
                found.groups.add(what, start.0, len);
                found.picture.add(what, start.0, len);
                owned.add(ino.0, start.0, len);
                pieces.add(logical, start.0, len);
                true
            });
        self.claimed += before - left;
        if what == Use::Files && kind == FileType::Regular {
            self.found.fragmentation.add(ino.0, pieces.count);
            self.found.note_size(ino.0, before - left);
        }
        walked
    }
}

/// Extents of a file.
#[derive(Default)]
struct Pieces {
    count: u64,
    /// Expected start of the next extent if the file is contiguous: logical and physical block.
    next: Option<(u64, u64)>,
}

impl Pieces {
    fn add(&mut self, logical: u64, start: u64, len: u64) {
        // A hole whose blocks the device skips equally is not a gap.
        let follows = self
            .next
            .is_some_and(|(l, p)| logical >= l && start == p + (logical - l));
        self.count += u64::from(!follows);
        self.next = Some((logical.saturating_add(len), start.saturating_add(len)));
    }
}

impl Fragmentation {
    fn add(&mut self, ino: u32, pieces: u64) {
        self.files += u64::from(pieces > 0);
        self.fragmented += u64::from(pieces > 1);
        self.extents += pieces;
        if pieces > self.worst_extents {
            (self.worst_inode, self.worst_extents) = (ino, pieces);
        }
    }
}
