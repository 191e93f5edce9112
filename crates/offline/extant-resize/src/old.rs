//! The old volume: the contents of its groups, and the owners of blocks.

use crate::error::Error;
use crate::target::Shape;
use blockdev::BlockDevice;
use ext4_format::features::Features;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use ext4_format::superblock::STATE_ERROR;
use ext4_format::{GroupNr, bitmap};
use ext4_image::{ClusterSet, Image};

/// A sound volume.
pub(crate) struct Old {
    pub(crate) shape: Shape,
    pub(crate) descs: Vec<GroupDesc>,
    /// Clusters in use.
    pub(crate) used: ClusterSet,
    /// Clusters of the groups' own structures.
    pub(crate) fixed: ClusterSet,
    /// Bitmaps of inodes; `None` for groups in which no inode was ever in use.
    pub(crate) inodes: Vec<Option<Vec<u8>>>,
}

/// Reads the superblock, and refuses volumes that cannot be resized.
pub(crate) fn shape(device: &dyn BlockDevice) -> Result<Shape, Error> {
    let Image { sb, geo, .. } = Image::open(device)?;
    let features = Features::of(&sb);
    if features.has_needs_recovery() {
        return Err(Error::Journal);
    }
    if sb.has_external_journal() {
        return Err(Error::Refused("a volume with an external journal".into()));
    }
    if sb.state.get() & STATE_ERROR != 0 {
        return Err(Error::Damaged(
            "errors are recorded in the superblock".into(),
        ));
    }
    if geo.blocks_per_group / geo.cluster_ratio % 8 != 0 {
        return Err(Error::Refused(
            "groups that do not fill bytes of a bitmap".into(),
        ));
    }
    Ok(Shape { sb, geo })
}

impl Old {
    pub(crate) fn read(device: &dyn BlockDevice, shape: Shape) -> Result<Self, Error> {
        let geo = &shape.geo;
        let mut image = Image::new(device, shape.sb)?;
        image.read_descriptors()?;
        let descs = image.descs;
        let mut block = vec![0; geo.block_size as usize];
        let fixed = ClusterSet::of_structures(geo, &descs);
        let used = fixed.clone();
        let mut inodes = Vec::new();
        let summed = geo.features.has_group_csum();
        for (nr, desc) in (0..).map(GroupNr).zip(&descs) {
            if !summed || desc.flags & BLOCK_UNINIT == 0 {
                device.read_at(desc.block_bitmap.offset(geo.block_size), &mut block)?;
                // The bitmap behind a group's end is padding.
                bitmap::clear_range(&mut block, geo.bits_in_group(nr), u32::MAX);
                used.insert_map(nr.0, &block);
            }
            if summed && desc.flags & INODE_UNINIT != 0 {
                inodes.push(None);
            } else {
                device.read_at(desc.inode_bitmap.offset(geo.block_size), &mut block)?;
                inodes.push(Some(block.clone()));
            }
        }
        Ok(Self {
            descs,
            used,
            fixed,
            inodes,
            shape,
        })
    }

    /// Returns the set of clusters of files.
    pub(crate) fn files(&self) -> ClusterSet {
        let files = self.used.clone();
        files.subtract(&self.fixed);
        files
    }

    /// Returns the number of records of a group's table that may be in use.
    pub(crate) fn records(&self, group: usize) -> u32 {
        let desc = self.descs.get(group);
        desc.map_or(0, |desc| desc.used_records(&self.shape.geo))
    }

    /// Returns the number of inodes in use, including reserved ones.
    pub(crate) fn inodes_in_use(&self) -> u32 {
        let geo = &self.shape.geo;
        let used = self.inodes.iter().flatten();
        used.map(|map| geo.inodes_per_group - bitmap::count_zeros(map, geo.inodes_per_group))
            .sum()
    }
}
