//! Data inside inodes (`inline_data`). A volume with this feature is read-only, so the records on the device are always
//! current.

use crate::base::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::inodes::Inodes;
use ext4_format::inode::inline::Inline;
use ext4_format::inode::{I_BLOCK_OFFSET, InodeCore, flags};
use ext4_format::{FileType, InodeNr, Where};
use std::sync::atomic::Ordering;

impl Inodes {
    /// Checks that an inode may have its data inside, if the flags mark it so.
    pub(super) fn check_inline(
        &self,
        core: &InodeCore,
        ftype: FileType,
        ino: InodeNr,
    ) -> Result<()> {
        if core.flags & flags::INLINE_DATA == 0 {
            return Ok(());
        }
        let has_data = matches!(
            ftype,
            FileType::Regular | FileType::Directory | FileType::Symlink
        );
        let wrong = if !self.store.geometry.features.has_inline_data() {
            "inline data without the feature"
        } else if !has_data {
            "inline data of what has no data"
        } else if core.flags & flags::EXTENTS != 0 {
            "inline data and extents"
        } else {
            return Ok(());
        };
        Err(Error::corrupt_inode(wrong, ino))
    }

    /// Runs `f` on the data inside an inode's record.
    pub(crate) fn at_inline<R>(
        &self,
        inode: &Inode,
        f: impl FnOnce(&Inline<'_>) -> Result<R>,
    ) -> Result<R> {
        let raw = self.raw_inode(inode.ino)?;
        let inline = Inline::parse(&raw, &self.store.geometry).map_err(Error::from);
        inline
            .and_then(|inline| f(&inline))
            .map_err(|e| match e {
                Error::Format(e) => e.at(Where::Inode(inode.ino)).into(),
                other => other,
            })
            .inspect_err(|e| self.note_damage_of(inode, e, "read_inline"))
    }

    /// Reads the data of a file inside its record: up to its size, or the hole at its end.
    pub(crate) fn inline_data(&self, inode: &Inode) -> Result<Vec<u8>> {
        let size = inode.size.load(Ordering::Acquire);
        let mut data = self.at_inline(inode, |inline| Ok(inline.bytes()))?;
        data.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(data)
    }

    /// Reads the target of a symbolic link inside its record.
    pub(super) fn inline_target(&self, inode: &Inode) -> Result<Box<[u8]>> {
        let size = inode.size.load(Ordering::Acquire);
        self.at_inline(inode, |inline| Ok(inline.target(size)?.into()))
    }

    /// Returns the byte of the device where the data inside an inode's record begin.
    pub(crate) fn inline_place(&self, ino: InodeNr) -> Result<u64> {
        let geometry = &self.store.geometry;
        let (block, offset) =
            self.store
                .groups
                .inode_location(geometry, &self.store.buffers, ino)?;
        Ok(block.offset(geometry.block_size) + (offset + I_BLOCK_OFFSET) as u64)
    }
}
