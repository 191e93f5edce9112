//! The image to change: on its overlay, with its new geometry.

use crate::change::Change;
use crate::clean::{as_it_stands, fault};
use crate::error::{Error, refused};
use blockdev::BlockDevice;
use ext4_format::features::{Features, RoCompat};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::superblock::{RawSuperblock, STATE_VALID, SUPERBLOCK_SIZE};
use ext4_format::{GroupNr, InodeNr, bitmap, checksum};
use ext4_image::MemOverlay;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::{Deref, DerefMut};

/// The image with its new geometry.
pub(crate) struct Image<'a, 'd> {
    pub(crate) image: ext4_image::Image<&'a MemOverlay<'d>>,
    /// The old geometry.
    pub(crate) old: Geometry,
    /// Bitmaps that were read, by group; with those of blocks the groups in which a block was taken or freed.
    pub(crate) block_maps: BTreeMap<u32, Vec<u8>>,
    pub(crate) inode_maps: BTreeMap<u32, Vec<u8>>,
    pub(crate) changes: Vec<Change>,
}

impl<'a, 'd> Deref for Image<'a, 'd> {
    type Target = ext4_image::Image<&'a MemOverlay<'d>>;

    fn deref(&self) -> &Self::Target {
        &self.image
    }
}

impl DerefMut for Image<'_, '_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.image
    }
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
        let image = ext4_image::Image::open(dev)?;
        Ok(Self {
            old: image.geo.clone(),
            image,
            block_maps: BTreeMap::new(),
            inode_maps: BTreeMap::new(),
            changes: Vec::new(),
        })
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

    pub(crate) fn desc(&self, group: GroupNr) -> Result<GroupDesc, Error> {
        let desc = self.descs.get(group.0 as usize).copied();
        desc.ok_or_else(|| Error::Refused(format!("there is no group {group}")))
    }

    /// Returns the new seed of the checksums of an inode's blocks.
    pub(crate) fn seed(&self, ino: InodeNr, generation: u32) -> u32 {
        checksum::inode_seed(self.geo.csum_seed, ino, generation)
    }

    pub(crate) fn read_record(&self, ino: InodeNr) -> Result<Vec<u8>, Error> {
        let raw = self.image.read_record(ino)?;
        raw.ok_or_else(|| Error::Refused(format!("there is no inode {ino}")))
    }

    /// Returns the number of records of a group's table that may have been used, by the old geometry.
    pub(crate) fn records_in(&self, group: GroupNr) -> Result<u32, Error> {
        Ok(self.desc(group)?.used_records(&self.old))
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
        self.write_superblock()?;
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

/// Returns the fields of a superblock that place backups and descriptors.
fn placing(sb: &RawSuperblock) -> impl PartialEq + use<> {
    let features = Features::of(sb);
    (
        [features.has_sparse_super2(), features.has_meta_bg()],
        [features.has_64bit(), features.has_bigalloc()],
        features.ro_compat.contains(RoCompat::SPARSE_SUPER),
        sb.backup_bgs.map(|group| group.get()),
        [sb.first_meta_bg.get(), sb.desc_size.get().into()],
    )
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
    let mut is_alike = false;
    for backup in backups.filter_map(|group| backup(dev, geo, group)) {
        if shape(&backup) == shape(sb) {
            is_alike = true;
            if placing(&backup) == placing(sb) {
                return Ok(());
            }
        }
    }
    if !is_alike {
        return refused("no backup agrees with its superblock; extant repair checks it");
    }
    // The features place backups and descriptors. The check finds damaged ones, because the structures are elsewhere.
    if fault(&extant_check::check(dev, &as_it_stands())?).is_none() {
        return Ok(());
    }
    refused("no backup has the features of its superblock; extant repair checks it")
}

fn backup(dev: &MemOverlay<'_>, geo: &Geometry, group: GroupNr) -> Option<RawSuperblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let at = geo.group_first_block(group).offset(geo.block_size);
    dev.read_at(at, &mut bytes).ok()?;
    RawSuperblock::parse(&bytes).ok()
}
