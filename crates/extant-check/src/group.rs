//! A group, as its descriptor and the check of it say.

use crate::volume::Volume;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;

/// A group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    pub(crate) desc: GroupDesc,
    /// Its bitmaps and its inode table are inside the volume and do not overlap those of other groups.
    pub(crate) usable: bool,
}

impl Group {
    /// Returns whether this flag marks a bitmap as not yet written.
    pub(crate) fn is_uninit(&self, geo: &Geometry, flag: u16) -> bool {
        geo.features.has_group_csum() && self.desc.flags & flag != 0
    }

    /// Returns the number of inodes of the table that may be in use.
    pub(crate) fn inodes(&self, volume: &Volume<'_>) -> u32 {
        if self.usable {
            self.desc.used_records(&volume.geo)
        } else {
            0
        }
    }
}
