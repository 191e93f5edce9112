//! The place of a file on the device.

use crate::base::error::{Error, Result};
use crate::data::Data;
use crate::incore::inode::Inode;
use ext4_format::inode::flags;

/// A contiguous part of a file on the device. All values are in bytes.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// let file = volume.create_new_file("/f")?;
/// file.write_all_at(&[1; 10_000], 0)?;
/// volume.sync()?;
/// let extents: Vec<extant::Extent> = file.extents()?;
/// assert_eq!(extents[0].offset, 0);
/// assert!(!extents[0].unwritten);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extent {
    /// Start in the file.
    pub offset: u64,
    /// Length. The last extent may reach past the end of the file.
    pub len: u64,
    /// Start on the device.
    pub physical: u64,
    /// The blocks are allocated, but read as zeros.
    pub unwritten: bool,
    /// The data are not in a block but inside the inode's record (`inline_data`). The first 60 bytes are at `physical`,
    /// the rest is elsewhere in the record.
    pub inline: bool,
}

impl Data {
    /// Returns the extents of a file, in the file's order.
    pub(crate) fn extents(&self, inode: &Inode) -> Result<Vec<Extent>> {
        let file = inode.file().ok_or(Error::Invalid("not a regular file"))?;
        let map = self.loaded_map(inode, file)?;
        if inode.has_flag(flags::INLINE_DATA) {
            let len = self.inodes.inline_data(inode)?.len() as u64;
            let physical = self.inodes.inline_place(inode.ino)?;
            let extent = Extent {
                offset: 0,
                len,
                physical,
                unwritten: false,
                inline: true,
            };
            return Ok((len > 0).then_some(extent).into_iter().collect());
        }
        let bytes = |blocks: u64| blocks * u64::from(self.store.geometry.block_size);
        let extents = map.extents.iter().map(|run| Extent {
            offset: bytes(run.logical.into()),
            len: bytes(run.len.into()),
            physical: run.physical.offset(self.store.geometry.block_size),
            unwritten: run.unwritten,
            inline: false,
        });
        Ok(extents.collect())
    }
}
