//! The group descriptors as they were at open, and the bitmaps they describe.
//!
//! The positions never change. The flags and counts here are those of the moment of opening; that is
//! enough for the allocators, because a group's in-core bitmap is loaded before the first item that
//! changes the group is logged, and from then on the in-core bitmap is the truth.

use crate::buffers::Buffers;
use crate::error::Result;
use crate::formatter::BlockImages;
use ext4_format::bitmap;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use ext4_format::{BlockNr, FormatError, GroupNr, InodeNr, Where};

/// All group descriptors of a volume.
pub struct Groups {
    descs: Box<[GroupDesc]>,
}

impl Groups {
    /// Reads and checks every descriptor.
    pub fn load(geometry: &Geometry, images: &dyn BlockImages) -> Result<Self> {
        let mut descs = Vec::with_capacity(geometry.groups as usize);
        for group in (0..geometry.groups).map(GroupNr) {
            let (block, offset) = geometry.desc_location(group);
            let image = images.image(block)?;
            let bytes = image
                .get(offset as usize..offset as usize + usize::from(geometry.desc_size))
                .ok_or_else(|| FormatError::corrupt("descriptor position", Where::Group(group)))?;
            descs.push(GroupDesc::decode(bytes, geometry, group)?);
        }
        Ok(Self {
            descs: descs.into(),
        })
    }

    /// The descriptor of a group.
    pub fn get(&self, group: GroupNr) -> &GroupDesc {
        &self.descs[group.0 as usize]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &GroupDesc> {
        self.descs.iter()
    }

    /// Block and byte offset of an inode's record.
    pub fn inode_location(&self, geometry: &Geometry, ino: InodeNr) -> Result<(BlockNr, usize)> {
        let (group, index) = geometry
            .group_of_inode(ino)
            .ok_or_else(|| FormatError::corrupt("inode number", Where::Inode(ino)))?;
        let table = self.get(group).inode_table;
        let per_block = geometry.inodes_per_block();
        let offset = (index % per_block) as usize * usize::from(geometry.inode_size);
        Ok((BlockNr(table.0 + u64::from(index / per_block)), offset))
    }

    /// The image of a group's block bitmap: computed if the group is uninitialised, else read and
    /// its checksum verified.
    pub fn block_bitmap(
        &self,
        geometry: &Geometry,
        buffers: &Buffers,
        group: GroupNr,
    ) -> Result<Vec<u8>> {
        let desc = self.get(group);
        if geometry.features.has_group_csum() && desc.flags & BLOCK_UNINIT != 0 {
            let mut map = vec![0; geometry.block_size as usize];
            bitmap::init_block_bitmap(&mut map, geometry, group, desc);
            return Ok(map);
        }
        let image = buffers.read(desc.block_bitmap)?;
        bitmap::verify_block_bitmap(&image, desc, geometry, group)?;
        Ok(image.to_vec())
    }

    /// The image of a group's inode bitmap, likewise.
    pub fn inode_bitmap(
        &self,
        geometry: &Geometry,
        buffers: &Buffers,
        group: GroupNr,
    ) -> Result<Vec<u8>> {
        let desc = self.get(group);
        if geometry.features.has_group_csum() && desc.flags & INODE_UNINIT != 0 {
            let mut map = vec![0; geometry.block_size as usize];
            let used = if group.0 == 0 {
                geometry.first_ino - 1
            } else {
                0
            };
            bitmap::init_inode_bitmap(&mut map, geometry, used);
            return Ok(map);
        }
        let image = buffers.read(desc.inode_bitmap)?;
        bitmap::verify_inode_bitmap(&image, desc, geometry, group)?;
        Ok(image.to_vec())
    }

    /// A bitmap image as the allocators keep it: words, with every bit from `bits` on set.
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
