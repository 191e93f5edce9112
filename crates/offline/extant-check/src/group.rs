//! A group, as its descriptor and the check of it say.

use crate::volume::Volume;
use ext4_format::group_desc::GroupDesc;

/// A group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    pub(crate) desc: GroupDesc,
    /// Its bitmaps and its inode table are inside the volume and do not overlap those of other groups.
    pub(crate) usable: bool,
}

impl Group {
    /// Returns the number of inodes of the table that may be in use.
    pub(crate) fn inodes(&self, volume: &Volume<'_>) -> u32 {
        if self.usable {
            self.desc.used_records(&volume.geo)
        } else {
            0
        }
    }
}
