//! Growing a volume while it is open. Reads and changes continue.
//!
//! Everything past the old end is written first: bitmaps, and backups of superblock and descriptors. A flush follows.
//! The change inside the old size is part of one context: the superblock's counts, the new descriptors in blocks that
//! were reserved for them, and the bitmap of the last group if it becomes longer. So a cut leaves the old size or the
//! new one, and either is clean. The allocators take the new groups on when that context is formatted
//! ([`crate::commit`]). The backups in old groups are written last.

use crate::base::error::{Error, Result};
use crate::space::block::GroupSource;
use crate::volume::engine::Engine;
use blockdev::BlockDevice;
use ext4_format::growth::{Growth, GrowthError};
use ext4_format::superblock::RawSuperblock;
use ext4_format::{BlockNr, GroupNr};
use std::ops::Range;

/// Bytes that are written at once.
const PIECE: usize = 1 << 20;

impl Engine {
    /// Grows the volume to the size of `bytes`, and lengthens its device if that is needed. `None` takes all of the
    /// device. Returns the count of blocks.
    pub(crate) fn grow(&self, bytes: Option<u64>) -> Result<u64> {
        let store = &self.store;
        if !store.geometry.features.has_journal() {
            return Err(Error::Unsupported(
                "growing an open volume without a journal",
            ));
        }
        let _growing = store.growing.lock();
        // Nothing is written while the volume is frozen, or after it was cut off.
        let _pass = store.gate.enter();
        store.check_writable()?;
        let old_len = store.device.len();
        store
            .device
            .extend(bytes.unwrap_or(0))
            .map_err(io("extend"))?;
        let bytes = bytes.unwrap_or_else(|| store.device.len());
        // Sync first, so that the context that changes the size is small.
        self.data.sync_formatted()?;
        let growth = self.plan(bytes, old_len)?;
        self.write_beyond(&growth)?;
        let blocks = growth.new.blocks_count;
        let sb = store.raw_superblock()?;
        let mut future = sb;
        growth.set_superblock(&mut future);
        self.write_backups(&future, growth.old.groups..growth.new.groups, &growth)?;
        store.flush()?;
        self.commit.formatter.lock().grow(growth.clone());
        self.log_something()?;
        self.data.sync_formatted()?;
        self.write_backups(&store.raw_superblock()?, 1..growth.new.groups, &growth)?;
        store.flush()?;
        Ok(blocks)
    }

    fn plan(&self, bytes: u64, old_len: u64) -> Result<Growth> {
        let store = &self.store;
        let old = store.geometry.newest();
        let block_size = u64::from(old.block_size);
        let zeroed = old_len <= old.blocks_count * block_size;
        let growth = Growth::new(&store.raw_superblock()?, old, bytes / block_size, zeroed);
        let growth = growth.map_err(|e| match e {
            GrowthError::Format(e) => Error::Format(e),
            GrowthError::Refused(why) => Error::Unsupported(why),
            _ => Error::Unsupported("growing"),
        })?;
        if growth.new.groups > self.space.blocks.room() {
            return Err(Error::Unsupported(
                "growing by this much at once: mount it again and continue, or resize it unmounted",
            ));
        }
        if growth.changed_blocks() > self.log.most() as u64 / 2 {
            return Err(Error::Unsupported(
                "growing by more blocks than the journal holds: resize it unmounted",
            ));
        }
        // A bitmap that breaks a rule is found before anything is changed.
        let last = GroupNr(old.groups.saturating_sub(1));
        GroupSource::block_bitmap(&*self.space, last)?;
        Ok(growth)
    }

    fn write(&self, block: BlockNr, bytes: &[u8]) -> Result<()> {
        let at = block.offset(self.store.geometry.block_size);
        let written = self.store.device.write_at(at, bytes);
        written.map_err(|e| Error::block_io("write", block, e))
    }

    /// Writes the blocks that must be past the old end before the volume reaches there.
    fn write_beyond(&self, growth: &Growth) -> Result<()> {
        let blocks = growth.beyond()?;
        let size = growth.new.block_size as usize;
        let neighbours = |a: &(BlockNr, Vec<u8>), b: &(BlockNr, Vec<u8>)| a.0.0 + 1 == b.0.0;
        for run in blocks.chunk_by(neighbours) {
            for piece in run.chunks((PIECE / size).max(1)) {
                let bytes: Vec<u8> = piece.iter().flat_map(|(_, bytes)| bytes).copied().collect();
                let first = piece.first().map_or(BlockNr(0), |(block, _)| *block);
                self.write(first, &bytes)?;
            }
        }
        Ok(())
    }

    /// Writes the backups of superblock and descriptors of some groups: the descriptors are those of now, and those to
    /// come.
    fn write_backups(&self, sb: &RawSuperblock, groups: Range<u32>, growth: &Growth) -> Result<()> {
        let geo = &growth.new;
        let size = geo.block_size as usize;
        for group in groups.map(GroupNr) {
            let first = geo.group_first_block(group).0;
            if geo.has_super(group) {
                let mut copy = *sb;
                copy.block_group_nr.set(group.0 as u16);
                copy.set_checksum();
                let mut bytes = vec![0; size];
                if let Some(start) = bytes.first_chunk_mut() {
                    *start = *copy.bytes();
                }
                self.write(BlockNr(first), &bytes)?;
            }
            let first = first + u64::from(geo.has_super(group));
            let meta = group.0 / geo.descs_per_block();
            let in_meta_group = geo.features.has_meta_bg() && meta >= geo.first_meta_bg;
            let from = if in_meta_group { meta } else { 0 };
            for i in 0..geo.gdt_blocks_in_group(group) {
                let bytes = self.descriptors(from + i, growth)?;
                let backup = BlockNr(first + u64::from(i));
                if backup != geo.gdt_block(from + i) {
                    self.write(backup, &bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Returns a block of descriptors: the newest image with the new groups' added.
    fn descriptors(&self, index: u32, growth: &Growth) -> Result<Vec<u8>> {
        let geo = &growth.new;
        let block = geo.gdt_block(index);
        let has_grown = self.store.geometry.groups >= geo.groups;
        let mut bytes = if has_grown || index < growth.old.gdt_block_count() {
            self.store.buffers.read(block)?.to_vec()
        } else {
            vec![0; geo.block_size as usize]
        };
        if has_grown {
            return Ok(bytes);
        }
        for (group, desc) in growth.new_groups() {
            let (place, offset) = geo.desc_location(group);
            if place == block {
                let here = bytes.get_mut(offset as usize..);
                desc.encode(here.unwrap_or_default(), geo, group)?;
            }
        }
        Ok(bytes)
    }

    /// Logs the root's core as it is, so that something is formatted.
    pub(super) fn log_something(&self) -> Result<()> {
        let root = self.names.root()?;
        let tx = self.commit.begin_core()?;
        let mut state = root.state.lock();
        let seen = state
            .stamp
            .max(root.directory().map_or(0, |n| n.last_stamp()));
        tx.commit(seen, |c| self.inodes.log_core(&root, &mut state, c));
        Ok(())
    }
}

fn io(context: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::Io {
        context: context.into(),
        source,
    }
}
