//! Source of the counts and bitmaps of groups for the allocator of inode numbers.

use crate::base::error::Result;
use ext4_format::{GroupNr, InodeNr};

/// The source of groups' counts and bitmaps.
pub trait InodeSource {
    /// Returns the number of free inodes of a group, by its descriptor.
    fn free_inodes(&self, group: GroupNr) -> Result<u32>;
    /// Reads a group's bitmap: one bit per inode, with the bits past the group's end set. If `again` is set, the bitmap
    /// may have been read before, and its image may have changed since.
    fn inode_bitmap(&self, group: GroupNr, again: bool) -> Result<Vec<u64>>;
    /// Returns the number of directories in a group, by its descriptor.
    fn directories(&self, _: GroupNr) -> Result<u32> {
        Ok(0)
    }
    /// Returns the number of free blocks of a group at present.
    fn room_for_data(&self, _: GroupNr) -> Result<u32> {
        Ok(u32::MAX)
    }
    /// Checks that a number is in use by its group's bitmap, which breaks another rule, and that its group keeps all
    /// inodes in use where e2fsck looks for them. Only then is the number freed.
    fn check_in_use(&self, _: InodeNr) -> Result<()> {
        Ok(())
    }
}
