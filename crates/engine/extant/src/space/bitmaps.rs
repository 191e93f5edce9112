//! Loading and checking of the bitmaps of groups.

use crate::base::error::{Error, Result};
use crate::space::Space;
use crate::space::block::GroupSource;
use crate::space::inode_source::InodeSource;
use crate::space::search::Request;
use ext4_format::group_desc::GroupDesc;
use ext4_format::{BlockNr, FormatError, GroupNr, InodeNr, Where};
use extant_formatter::groups::{Groups, first_unused, reserved_inodes};

impl Space {
    /// Allocates one block. The caller has taken its number from the count of free blocks.
    pub(crate) fn allocate_block(&self, goal: BlockNr) -> Result<BlockNr> {
        match self
            .store
            .heed(self.blocks.allocate(&Request::near(goal, 1), self))
        {
            Ok((block, _)) => Ok(block),
            Err(e) => Err(self.store.explain_space(e)),
        }
    }

    pub(crate) fn load_bitmaps(&self, start: BlockNr, len: u32) -> Result<()> {
        self.blocks.ensure_loaded(start, len, self)
    }

    /// Reads a group's block bitmap as words. It must agree with the count in the group's descriptor, and the volume's
    /// own blocks must be in use in it, because without checksums an overwritten bitmap shows in no other way.
    pub(super) fn checked_block_bitmap(&self, group: GroupNr) -> Result<Vec<u64>> {
        let (geometry, buffers) = (&self.store.geometry, &self.store.buffers);
        let (map, desc) = self.store.groups.block_bitmap(geometry, buffers, group)?;
        let words = Groups::words(&map, geometry.blocks_in_group(group));
        self.store.zone.check_bitmap(buffers, group, &words)?;
        let free: u32 = words.iter().map(|w| w.count_zeros()).sum();
        if free != desc.free_blocks {
            let what = "count of free blocks that the bitmap agrees with";
            return Err(FormatError::corrupt(what, Where::Group(group)).into());
        }
        Ok(words)
    }

    /// Reads a group's inode bitmap as words. Reserved inodes must be in use in it, and on its first reading it must
    /// agree with the counts in the group's descriptor.
    pub(super) fn checked_inode_bitmap(&self, group: GroupNr, again: bool) -> Result<Vec<u64>> {
        let (geometry, buffers) = (&self.store.geometry, &self.store.buffers);
        let map = self
            .store
            .groups
            .inode_bitmap(geometry, buffers, group, again)?;
        let words = Groups::words(&map, geometry.inodes_per_group);
        let mut reserved = 0..reserved_inodes(geometry, group);
        if let Some(free) = reserved.find(|&i| !ext4_format::bitmap::test(&map, i)) {
            let ino = geometry.inode_nr(group, free);
            return Err(Error::corrupt_inode("reserved inode marked free", ino));
        }
        if !again {
            let desc = self.store.desc(group)?;
            let free: u32 = words.iter().map(|w| w.count_zeros()).sum();
            if free != desc.free_inodes {
                let what = "count of free inodes that the bitmap agrees with";
                return Err(FormatError::corrupt(what, Where::Group(group)).into());
            }
            self.check_unused(group, desc, &map)?;
        }
        Ok(words)
    }

    /// Checks that no inode is in use in the part of the table that the group's descriptor marks as never used. e2fsck
    /// and the kernel do not look there, and changes of the group would hide such inodes from them.
    pub(super) fn check_unused(&self, group: GroupNr, desc: &GroupDesc, map: &[u8]) -> Result<()> {
        let unused = first_unused(&self.store.geometry, desc, group);
        match ext4_format::bitmap::find_one(map, unused, self.store.geometry.inodes_per_group) {
            None => Ok(()),
            Some(index) => {
                let ino = self.store.geometry.inode_nr(group, index);
                let what = "inode in use in the part of its table that is marked as unused";
                Err(Error::corrupt_inode(what, ino))
            }
        }
    }

    /// Notes damage of a group, in which nothing is allocated from now on.
    #[cold]
    pub(super) fn refuse_group(&self, group: GroupNr, error: &Error, function: &'static str) {
        if matches!(error, Error::Format(_)) {
            self.store.health.damage.refuse(group);
            self.store.note_damage(error, function, None);
        }
    }
}

impl GroupSource for Space {
    fn free_blocks(&self, group: GroupNr) -> Result<u32> {
        let desc = self.store.desc(group);
        desc.map(|desc| desc.free_blocks)
            .inspect_err(|e| self.refuse_group(group, e, "descriptor"))
    }

    fn block_bitmap(&self, group: GroupNr) -> Result<Vec<u64>> {
        self.checked_block_bitmap(group)
            .inspect_err(|e| self.refuse_group(group, e, "block_bitmap"))
    }

    #[cold]
    fn check_in_use(&self, group: GroupNr, from: u32, to: u32) -> Result<()> {
        let (map, _) =
            self.store
                .groups
                .block_bitmap(&self.store.geometry, &self.store.buffers, group)?;
        match ext4_format::bitmap::find_zero(&map, from, to) {
            None => Ok(()),
            Some(bit) => {
                let first = self.store.geometry.group_first_block(group).0;
                let block = BlockNr(first + u64::from(bit));
                let what = "block to be freed that is free by its bitmap";
                let e = FormatError::corrupt(what, Where::Block(block, 0)).into();
                self.store.note_damage(&e, "free_blocks", None);
                Err(e)
            }
        }
    }

    fn lost(&self, blocks: u32) {
        self.counts.account(0, u64::from(blocks));
    }
}

impl InodeSource for Space {
    fn directories(&self, group: GroupNr) -> Result<u32> {
        let store = &self.store;
        let desc = store.groups.get(&store.geometry, &store.buffers, group)?;
        Ok(desc.used_dirs)
    }

    fn room_for_data(&self, group: GroupNr) -> Result<u32> {
        self.blocks.free_of(group.0, self)
    }

    fn free_inodes(&self, group: GroupNr) -> Result<u32> {
        GroupSource::free_blocks(self, group)?;
        Ok(self.store.desc(group)?.free_inodes)
    }

    fn inode_bitmap(&self, group: GroupNr, again: bool) -> Result<Vec<u64>> {
        self.checked_inode_bitmap(group, again)
            .inspect_err(|e| self.refuse_group(group, e, "inode_bitmap"))
    }

    #[cold]
    fn check_in_use(&self, ino: InodeNr) -> Result<()> {
        let bad = || Error::corrupt_inode("inode to be freed that is free by its bitmap", ino);
        let (group, index) = self.store.geometry.group_of_inode(ino).ok_or_else(bad)?;
        let map = self.store.groups.inode_bitmap(
            &self.store.geometry,
            &self.store.buffers,
            group,
            true,
        )?;
        let checked = if ext4_format::bitmap::test(&map, index) {
            let desc = self
                .store
                .groups
                .now(&self.store.geometry, &self.store.buffers, group)?;
            self.check_unused(group, &desc, &map)
        } else {
            Err(bad())
        };
        checked.inspect_err(|e| self.store.note_damage(e, "free_inode", Some(ino)))
    }
}

impl Space {
    /// Marks blocks as free in memory: the context that frees them is durable, or they were never logged.
    pub(crate) fn mark_free(&self, start: BlockNr, len: u32) -> Result<()> {
        let given = self.blocks.mark_free(start, len);
        given.inspect_err(|e| self.store.stop(e))
    }

    /// Marks blocks as free that no logged change refers to, where no error can be returned. False if the volume has
    /// stopped instead: their number stays taken.
    pub(crate) fn unplace(&self, start: BlockNr, len: u32) -> bool {
        let freed = self.mark_free(start, len);
        if let Err(e) = &freed {
            tracing::error!(block = start.0, error = %e, "freeing blocks");
        }
        freed.is_ok()
    }
}

impl Space {
    /// Returns the goal for an inode's first block.
    pub(crate) fn goal_of(&self, ino: InodeNr) -> BlockNr {
        match self.store.geometry.group_of_inode(ino) {
            Some((group, _)) => self.blocks.goal_for(group, ino.0),
            None => BlockNr(self.store.geometry.first_data_block),
        }
    }
}
