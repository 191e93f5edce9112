//! The group descriptors as they were when they were first read, and the bitmaps they describe.
//!
//! The positions never change. The flags and counts are as of the moment when the descriptor's block was loaded. That
//! is enough for the allocators, because a group's in-core bitmap is loaded before the first item that changes the
//! group is logged, and from then on the in-core bitmap is the truth. A bitmap that left memory is read again by the
//! descriptor's newest image ([`Groups::block_bitmap`]).
//!
//! Descriptors are loaded a block at a time. On a volume of up to [`ALL`] groups all are read and checked at open. On a
//! larger volume they are read when needed, because a million of them take 64 MiB.

use crate::error::{Error, Result};
use crate::image::BlockImages;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use ext4_format::{BlockNr, FormatError, GroupNr, InodeNr, Where, bitmap};
use std::sync::OnceLock;

/// Groups up to which all descriptors are read at open: 2 TiB in blocks of 4 KiB.
pub const ALL: u32 = 1 << 14;

/// Free blocks and inodes of a volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Free blocks.
    pub blocks: u64,
    /// Free inodes.
    pub inodes: u64,
}

/// The descriptors of one block; `None` for a damaged one.
type DescBlock = Box<[Option<GroupDesc>]>;

/// The descriptors that have been read.
pub struct DescTable {
    blocks: Box<[OnceLock<DescBlock>]>,
    per_block: u32,
}

impl DescTable {
    /// Makes a table without descriptors.
    pub fn new(geometry: &Geometry) -> Self {
        let per_block = geometry.descs_per_block().max(1);
        let blocks = geometry.groups.div_ceil(per_block);
        Self {
            blocks: (0..blocks).map(|_| OnceLock::new()).collect(),
            per_block,
        }
    }

    /// Reads the descriptors of one block.
    fn read(&self, n: u32, geometry: &Geometry, images: &dyn BlockImages) -> Result<DescBlock> {
        let first = n * self.per_block;
        let last = first.saturating_add(self.per_block).min(geometry.groups);
        let (block, _) = geometry.desc_location(GroupNr(first));
        let image = images.image(block)?;
        (first..last)
            .map(|group| match decode(&image, geometry, GroupNr(group)) {
                Ok(desc) => Ok(Some(desc)),
                Err(Error::Format(_)) => Ok(None),
                Err(e) => Err(e),
            })
            .collect()
    }

    /// Returns the error of a descriptor that is damaged.
    #[cold]
    fn damage(geometry: &Geometry, images: &dyn BlockImages, group: GroupNr) -> Error {
        let image = images.image(geometry.desc_location(group).0);
        let decoded = image.and_then(|image| decode(&image, geometry, group));
        let changed = || FormatError::corrupt("group descriptor", Where::Group(group)).into();
        decoded.err().unwrap_or_else(changed)
    }

    /// Returns the descriptor of a group.
    #[inline]
    pub fn get(
        &self,
        geometry: &Geometry,
        images: &dyn BlockImages,
        group: GroupNr,
    ) -> Result<&GroupDesc> {
        let (n, at) = (
            group.0 / self.per_block,
            (group.0 % self.per_block) as usize,
        );
        let bad = || FormatError::corrupt("group number", Where::Group(group));
        let block = self.blocks.get(n as usize).ok_or_else(bad)?;
        let descs = match block.get() {
            Some(descs) => descs,
            None => {
                let descs = self.read(n, geometry, images)?;
                // Two callers may read the same block at the same time.
                block.get_or_init(|| descs)
            }
        };
        match descs.get(at).ok_or_else(bad)? {
            Some(desc) => Ok(desc),
            None => Err(Self::damage(geometry, images, group)),
        }
    }

    /// Returns the descriptor of a group, writable.
    pub fn get_mut(
        &mut self,
        geometry: &Geometry,
        images: &dyn BlockImages,
        group: GroupNr,
    ) -> Result<&mut GroupDesc> {
        self.get(geometry, images, group)?;
        let (n, at) = (
            group.0 / self.per_block,
            (group.0 % self.per_block) as usize,
        );
        let descs = self.blocks.get_mut(n as usize).and_then(OnceLock::get_mut);
        let desc = descs.and_then(|descs| descs.get_mut(at)?.as_mut());
        Ok(desc.ok_or(FormatError::corrupt("group number", Where::Group(group)))?)
    }

    /// Returns the block and byte offset of an inode's record.
    #[inline]
    pub fn inode_location(
        &self,
        geometry: &Geometry,
        images: &dyn BlockImages,
        ino: InodeNr,
    ) -> Result<(BlockNr, usize)> {
        let (group, index) = group_of(geometry, ino)?;
        let table = self.get(geometry, images, group)?.inode_table;
        Ok(geometry.inode_place(table, index))
    }
}

/// Returns the group of an inode, and its place there.
#[inline]
fn group_of(geometry: &Geometry, ino: InodeNr) -> Result<(GroupNr, u32)> {
    let found = geometry.group_of_inode(ino);
    Ok(found.ok_or_else(|| FormatError::corrupt("inode number", Where::Inode(ino)))?)
}

fn decode(image: &[u8], geometry: &Geometry, group: GroupNr) -> Result<GroupDesc> {
    let (_, offset) = geometry.desc_location(group);
    let bytes = image
        .get(offset as usize..offset as usize + usize::from(geometry.desc_size))
        .ok_or_else(|| FormatError::corrupt("descriptor position", Where::Group(group)))?;
    Ok(GroupDesc::decode(bytes, geometry, group)?)
}

/// Returns the block and byte offset of an inode's record, by its group's descriptor alone. Before a journal is
/// replayed, other descriptors may be half written, or belong to a larger volume than the one in the superblock.
pub fn inode_location_alone(
    geometry: &Geometry,
    images: &dyn BlockImages,
    ino: InodeNr,
) -> Result<(BlockNr, usize)> {
    let (group, index) = group_of(geometry, ino)?;
    let image = images.image(geometry.desc_location(group).0)?;
    let desc = decode(&image, geometry, group)?;
    Ok(geometry.inode_place(desc.inode_table, index))
}

/// Adds up the counts of all descriptors, one after the other, and keeps none in memory. The sum is in blocks, although
/// descriptors count clusters.
pub fn count(geometry: &Geometry, images: &dyn BlockImages) -> Result<Totals> {
    let mut totals = Totals::default();
    let per_block = geometry.descs_per_block().max(1);
    for first in (0..geometry.groups).step_by(per_block as usize) {
        let image = images.image(geometry.desc_location(GroupNr(first)).0)?;
        for group in first..first.saturating_add(per_block).min(geometry.groups) {
            let desc = decode(&image, geometry, GroupNr(group))?;
            totals.blocks += u64::from(desc.free_blocks) * u64::from(geometry.cluster_ratio);
            totals.inodes += u64::from(desc.free_inodes);
        }
    }
    Ok(totals)
}

/// All group descriptors of a volume.
pub struct Groups {
    table: DescTable,
}

impl Groups {
    /// Reads and checks every descriptor, if they are not too many.
    pub fn load(geometry: &Geometry, images: &dyn BlockImages) -> Result<Self> {
        let groups = Self::lazy(geometry);
        if geometry.groups <= ALL {
            groups
                .iter(geometry, images)
                .try_for_each(|d| d.map(drop))?;
        }
        Ok(groups)
    }

    /// Like [`Groups::load`], but keeps damaged descriptors out of the table, and returns their errors.
    pub fn load_sound(
        geometry: &Geometry,
        images: &dyn BlockImages,
    ) -> Result<(Self, Vec<FormatError>)> {
        let groups = Self::lazy(geometry);
        let mut damage = Vec::new();
        if geometry.groups <= ALL {
            for desc in groups.iter(geometry, images) {
                match desc {
                    Ok(_) => {}
                    Err(Error::Format(e)) => damage.push(e),
                    Err(e) => return Err(e),
                }
            }
        }
        Ok((groups, damage))
    }

    /// Reads none.
    pub fn lazy(geometry: &Geometry) -> Self {
        Self {
            table: DescTable::new(geometry),
        }
    }

    /// Returns the descriptor of a group.
    #[inline]
    pub fn get(
        &self,
        geometry: &Geometry,
        images: &dyn BlockImages,
        group: GroupNr,
    ) -> Result<&GroupDesc> {
        self.table.get(geometry, images, group)
    }

    /// Returns all descriptors.
    pub fn iter<'g>(
        &'g self,
        geometry: &'g Geometry,
        images: &'g dyn BlockImages,
    ) -> impl Iterator<Item = Result<&'g GroupDesc>> {
        (0..geometry.groups).map(move |g| self.get(geometry, images, GroupNr(g)))
    }

    /// Returns the block and byte offset of an inode's record.
    #[inline]
    pub fn inode_location(
        &self,
        geometry: &Geometry,
        images: &dyn BlockImages,
        ino: InodeNr,
    ) -> Result<(BlockNr, usize)> {
        self.table.inode_location(geometry, images, ino)
    }

    /// Returns the descriptor of a group in its newest image.
    pub fn now(
        &self,
        geometry: &Geometry,
        images: &dyn BlockImages,
        group: GroupNr,
    ) -> Result<GroupDesc> {
        // The number must be that of a group.
        self.get(geometry, images, group)?;
        let descs = images.image(geometry.desc_location(group).0)?;
        decode(&descs, geometry, group)
    }

    /// Returns the image of a group's block bitmap, with its descriptor. The image is computed if the group is
    /// uninitialised, else read and its checksum verified. The descriptor's newest image is used, because a bitmap may
    /// leave memory and be read again.
    pub fn block_bitmap(
        &self,
        geometry: &Geometry,
        images: &dyn BlockImages,
        group: GroupNr,
    ) -> Result<(Vec<u8>, GroupDesc)> {
        let desc = self.now(geometry, images, group)?;
        if geometry.features.has_group_csum() && desc.flags & BLOCK_UNINIT != 0 {
            let mut map = vec![0; geometry.block_size as usize];
            bitmap::init_block_bitmap(&mut map, geometry, group, &desc);
            return Ok((map, desc));
        }
        let image = images.image(desc.block_bitmap)?;
        bitmap::verify_block_bitmap(&image, &desc, geometry, group)?;
        Ok((image.to_vec(), desc))
    }

    /// Returns the image of a group's inode bitmap, likewise. Unless `again` is set, the descriptor is used as it was
    /// first read, so that the first reading of many bitmaps at once writes no shared line.
    pub fn inode_bitmap(
        &self,
        geometry: &Geometry,
        images: &dyn BlockImages,
        group: GroupNr,
        again: bool,
    ) -> Result<Vec<u8>> {
        let desc = &if again {
            self.now(geometry, images, group)?
        } else {
            *self.get(geometry, images, group)?
        };
        if geometry.features.has_group_csum() && desc.flags & INODE_UNINIT != 0 {
            let mut map = vec![0; geometry.block_size as usize];
            bitmap::init_inode_bitmap(&mut map, geometry, reserved_inodes(geometry, group));
            return Ok(map);
        }
        let image = images.image(desc.inode_bitmap)?;
        bitmap::verify_inode_bitmap(&image, desc, geometry, group)?;
        Ok(image.to_vec())
    }

    /// Converts a bitmap image to the allocators' form: words, with every bit from `bits` on set.
    pub fn words(map: &[u8], bits: u32) -> Vec<u64> {
        let mut words: Vec<u64> = map
            .chunks(8)
            .take((bits as usize).div_ceil(64))
            .map(|c| c.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b)))
            .collect();
        words.resize((bits as usize).div_ceil(64), u64::MAX);
        if !bits.is_multiple_of(64)
            && let Some(last) = words.last_mut()
        {
            *last |= u64::MAX << (bits % 64);
        }
        words
    }
}

/// Returns the number of inodes at the beginning of a group's table that no file may have.
pub fn reserved_inodes(geometry: &Geometry, group: GroupNr) -> u32 {
    geometry.reserved_inodes(group)
}

/// Returns the first index of a group's inode table that was never used.
#[inline]
pub fn first_unused(geometry: &Geometry, desc: &GroupDesc, group: GroupNr) -> u32 {
    let used = desc.used_records(geometry);
    used.max(reserved_inodes(geometry, group))
        .min(geometry.inodes_per_group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_little_endian_and_padded() {
        assert_eq!(
            Groups::words(&[1, 0, 0, 0, 0, 0, 0, 0x80, 2], 66),
            vec![1 | 1 << 63, u64::MAX << 2 | 2]
        );
    }
}
