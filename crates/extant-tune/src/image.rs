//! The image to change: on its overlay, with its new geometry.

use crate::{Change, Error, refused};
use blockdev::BlockDevice;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{GroupDesc, INODE_UNINIT};
use ext4_format::inode;
use ext4_format::superblock::{RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_format::{BlockNr, GroupNr, InodeNr, bitmap, checksum};
use ext4_image::{Mapping, MemOverlay};
use std::collections::BTreeMap;
use std::fmt::Display;

pub(crate) struct Image<'a, 'd> {
    pub(crate) dev: &'a MemOverlay<'d>,
    pub(crate) sb: RawSuperblock,
    /// The old geometry.
    pub(crate) old: Geometry,
    /// The new geometry.
    pub(crate) geo: Geometry,
    pub(crate) descs: Vec<GroupDesc>,
    /// Bitmaps that were read, by group; with those of blocks the groups in which a block was taken or freed.
    pub(crate) block_maps: BTreeMap<u32, Vec<u8>>,
    pub(crate) inode_maps: BTreeMap<u32, Vec<u8>>,
    pub(crate) changes: Vec<Change>,
}

impl<'a, 'd> Image<'a, 'd> {
    /// Reads the superblock, and the descriptors if they are needed.
    pub(crate) fn open(dev: &'a MemOverlay<'d>, structural: bool) -> Result<Self, Error> {
        let mut image = Self::read_superblock(dev)?;
        if image.geo.features.has_needs_recovery() {
            return refused("its journal must be replayed first: extant repair -p does it");
        }
        compare_with_backups(dev, &image.sb, &image.geo)?;
        if structural {
            if image.sb.state.get() & STATE_VALID == 0 {
                return refused("it was not unmounted; extant repair checks it");
            }
            if image.geo.last_orphan != 0 {
                return refused("files without a name wait for their end; extant repair ends them");
            }
            image.read_descriptors()?;
        }
        Ok(image)
    }

    /// Reads the superblock alone, whatever else is there.
    pub(crate) fn read_superblock(dev: &'a MemOverlay<'d>) -> Result<Self, Error> {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        dev.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        let sb = RawSuperblock::parse(&bytes).map_err(Error::Superblock)?;
        let geo = Geometry::new(&sb).map_err(Error::Superblock)?;
        Ok(Self {
            dev,
            sb,
            old: geo.clone(),
            geo,
            descs: Vec::new(),
            block_maps: BTreeMap::new(),
            inode_maps: BTreeMap::new(),
            changes: Vec::new(),
        })
    }

    fn read_descriptors(&mut self) -> Result<(), Error> {
        for group in (0..self.geo.groups).map(GroupNr) {
            let (block, offset) = self.geo.desc_location(group);
            let mut raw = vec![0; self.geo.desc_size.into()];
            let at = block.offset(self.geo.block_size) + u64::from(offset);
            self.dev.read_at(at, &mut raw)?;
            self.descs.push(GroupDesc::decode(&raw, &self.geo, group)?);
        }
        Ok(())
    }

    pub(crate) fn tell(&mut self, place: impl Display, text: impl Into<String>) {
        self.changes.push(Change {
            place: place.to_string(),
            text: text.into(),
        });
    }

    /// Updates the geometry from the superblock.
    pub(crate) fn renew(&mut self) -> Result<(), Error> {
        self.geo = Geometry::new(&self.sb)?;
        Ok(())
    }

    pub(crate) const fn block_size(&self) -> usize {
        self.geo.block_size as usize
    }

    pub(crate) fn desc(&self, group: GroupNr) -> Result<GroupDesc, Error> {
        let desc = self.descs.get(group.0 as usize).copied();
        desc.ok_or_else(|| Error::Refused(format!("there is no group {group}")))
    }

    pub(crate) fn read(&self, block: BlockNr) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.block_size()];
        self.dev
            .read_at(block.offset(self.geo.block_size), &mut bytes)?;
        Ok(bytes)
    }

    /// Reads the mapping of an inode from its flags and its record.
    pub(crate) fn mapping(&self, inode_flags: u32, raw: &[u8]) -> Result<Mapping, Error> {
        let root = inode::i_block(raw)?;
        Mapping::read(&self.geo, inode_flags, root, |block| self.read(block))
    }

    pub(crate) fn write(&self, block: BlockNr, bytes: &[u8]) -> Result<(), Error> {
        let at = block.offset(self.geo.block_size);
        Ok(self.dev.write_at(at, bytes)?)
    }

    /// Returns the new seed of the checksums of an inode's blocks.
    pub(crate) fn seed(&self, ino: InodeNr, generation: u32) -> u32 {
        checksum::inode_seed(self.geo.csum_seed, ino, generation)
    }

    fn record_place(&self, ino: InodeNr) -> Result<u64, Error> {
        let Some((group, index)) = self.geo.group_of_inode(ino) else {
            return refused(format!("there is no inode {ino}"));
        };
        let (block, at) = self.geo.inode_place(self.desc(group)?.inode_table, index);
        Ok(block.offset(self.geo.block_size) + at as u64)
    }

    pub(crate) fn read_record(&self, ino: InodeNr) -> Result<Vec<u8>, Error> {
        let mut raw = vec![0; self.geo.inode_size.into()];
        self.dev.read_at(self.record_place(ino)?, &mut raw)?;
        Ok(raw)
    }

    /// Writes a record, with its checksum unless it is all zeros.
    pub(crate) fn write_record(&self, ino: InodeNr, raw: &mut [u8]) -> Result<(), Error> {
        if raw.iter().any(|&b| b != 0) {
            inode::set_checksum(raw, &self.geo, ino);
        }
        Ok(self.dev.write_at(self.record_place(ino)?, raw)?)
    }

    /// Returns the number of records of a group's table that may have been used, by the old geometry.
    pub(crate) fn records_in(&self, group: GroupNr) -> Result<u32, Error> {
        let (desc, all) = (self.desc(group)?, self.geo.inodes_per_group);
        Ok(if !self.old.features.has_group_csum() {
            all
        } else if desc.flags & INODE_UNINIT != 0 {
            0
        } else {
            all.saturating_sub(desc.itable_unused)
        })
    }

    /// Returns the inodes in use.
    pub(crate) fn used_inodes(&mut self) -> Result<Vec<InodeNr>, Error> {
        let mut used = Vec::new();
        for group in (0..self.geo.groups).map(GroupNr) {
            let count = self.records_in(group)?;
            let (geo, map) = (self.geo.clone(), self.inode_map(group)?);
            let bits = (0..count).filter(|&bit| bitmap::test(map, bit));
            used.extend(bits.map(|bit| geo.inode_nr(group, bit)));
        }
        Ok(used)
    }

    /// Writes the superblock and its backups.
    pub(crate) fn write_superblocks(&mut self) -> Result<(), Error> {
        self.sb.set_checksum();
        self.dev.write_at(SUPERBLOCK_OFFSET, self.sb.bytes())?;
        for group in (1..self.geo.groups).map(GroupNr) {
            if self.geo.has_super(group) {
                let mut copy = self.sb;
                copy.block_group_nr.set(group.0 as u16); // as it is stored, the low half
                copy.set_checksum();
                let at = self.geo.group_first_block(group);
                self.dev
                    .write_at(at.offset(self.geo.block_size), copy.bytes())?;
            }
        }
        Ok(())
    }
}

/// Returns the fields of a superblock that fix the volume's shape.
fn shape(sb: &RawSuperblock) -> [u64; 6] {
    [
        sb.blocks_count(),
        sb.inodes_count.get().into(),
        sb.log_block_size.get().into(),
        sb.inode_size.get().into(),
        sb.blocks_per_group.get().into(),
        sb.inodes_per_group.get().into(),
    ]
}

/// Refuses a superblock that no backup agrees with: it may be damaged, and would be written over them.
fn compare_with_backups(
    dev: &MemOverlay<'_>,
    sb: &RawSuperblock,
    geo: &Geometry,
) -> Result<(), Error> {
    let mut backups = (1..geo.groups)
        .map(GroupNr)
        .filter(|&group| geo.has_super(group))
        .peekable();
    if backups.peek().is_none() {
        return Ok(());
    }
    let agrees = |group| {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let at = geo.group_first_block(group).offset(geo.block_size);
        dev.read_at(at, &mut bytes).is_ok()
            && RawSuperblock::parse(&bytes).is_ok_and(|backup| shape(&backup) == shape(sb))
    };
    if backups.any(agrees) {
        Ok(())
    } else {
        refused("no backup agrees with its superblock; extant repair checks it")
    }
}
