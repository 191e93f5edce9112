//! Long pieces of data from a cache above this one. They stay in that cache, so they are written to the device at once
//! and not kept a second time. Whole blocks are written from the caller's memory, others through their pages.

use crate::base::error::{Error, Result};
use crate::data::Data;
use crate::incore::file::{FileData, FileMap};
use crate::incore::inode::Inode;
use crate::types::credentials::Credentials;
use ext4_format::inode::flags;
use extant_formatter::extent_map::Found;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Pieces of at least this length are passed on.
const WRITE_THROUGH: usize = 128 * 1024;

impl Data {
    /// Writes what a cache above has kept back; returns how much of it.
    pub(crate) fn write_cached(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        if data.len() >= WRITE_THROUGH && self.write_whole(inode, offset, data)? {
            return Ok(data.len());
        }
        if let Some(file) = inode
            .file()
            .filter(|f| !f.cached_above.load(Ordering::Relaxed))
        {
            file.cached_above.store(true, Ordering::Relaxed);
        }
        let who = Credentials::writing_back();
        let written = self.write(&who, inode, Some(offset), data)?;
        if data.len() >= WRITE_THROUGH {
            self.write_through(inode, &written);
        }
        Ok((written.end - written.start) as usize)
    }

    /// Drops the clean pages of a file whose pages the kernel's cache keeps. Without this, each append allocates a new page, which the
    /// system must clear: a fifth of the time of an append and its fsync.
    pub(super) fn drop_pages_kept_above(&self, file: &FileData) {
        if file.cached_above.load(Ordering::Relaxed) {
            let dropped = i64::from(file.pages.sweep(true));
            let bytes = dropped * i64::from(self.store.geometry.first().block_size);
            self.cached_bytes.add(-bytes);
        }
    }

    /// Writes whole blocks from the caller's memory to the device. Returns false, with nothing written, if the write is
    /// not suited to that.
    fn write_whole(&self, inode: &Arc<Inode>, offset: u64, data: &[u8]) -> Result<bool> {
        let block_size = u64::from(self.store.geometry.block_size);
        let len = data.len() as u64;
        let inode_flags = inode.flags.load(Ordering::Relaxed);
        let whole = offset.is_multiple_of(block_size) && len.is_multiple_of(block_size);
        let fits = || self.max_size(inode_flags).checked_sub(offset) >= Some(len);
        if !whole || inode_flags & flags::EXTENTS == 0 || !fits() {
            return Ok(false);
        }
        let Some(file) = inode.file() else {
            return Ok(false);
        };
        let _span = lockmeter::span!("write");
        let _pass = self.store.gate.enter();
        self.store.check_writable()?;
        let mut map = file.map.write();
        self.load_map(inode, &mut map)?;
        {
            let state = inode.state.lock();
            let size = state.core.size;
            if state.freed || offset > size && !size.is_multiple_of(block_size) {
                return Ok(false);
            }
        }
        // Write dirty pages back first, so that their reservations are not used here.
        if file.pages.may_be_dirty() && self.write_back_locked(inode, &mut map).is_err() {
            return Ok(false);
        }
        // A file's blocks have numbers of 32 bits.
        let first = (offset / block_size) as u32;
        let blocks = (first, (len / block_size) as u32);
        let who = Credentials::writing_back();
        let (in_holes, for_map) = self.needed(inode, file, &map, blocks);
        if !self.commit.take_for_data(&who, in_holes, for_map)? {
            return Ok(false);
        }
        file.promised.fetch_add(for_map, Ordering::Relaxed);
        let mut reserved = self.space.reserved(in_holes);
        self.drop_pages(inode, first, first + (blocks.1 - 1));
        let mut placing = self.space.placing_reserved();
        let runs = &mut placing.runs;
        let written = self.write_blocks(inode, file, &map, blocks, runs, |piece, done| {
            let (from, len) = (done as u64 * block_size, u64::from(piece.len) * block_size);
            self.store
                .device
                .write_at(
                    piece.physical.offset(self.store.geometry.block_size),
                    &data[from as usize..(from + len) as usize],
                )
                .map_err(|e| Error::block_io("write", piece.physical, e))?;
            self.note_data(file);
            Ok(())
        });
        if let Err(e) = written {
            drop(placing);
            self.return_promise(file);
            if matches!(e, Error::Io { .. }) {
                self.store.stop(&e);
                return Err(e);
            }
            return Ok(false);
        }
        crate::base::jitter::point();
        self.note_written(&who, inode, offset + len);
        if placing.runs.is_empty() && !inode.state.lock().core_dirty {
            self.return_promise(file);
        } else if let Err(e) = self.commit_written(inode, file, &mut map, placing, &[]) {
            // Blocks that were logged before the failure are in use.
            let left = self.needed(inode, file, &map, blocks).0;
            reserved.spend(in_holes.saturating_sub(left));
            self.return_promise(file);
            return Err(e);
        }
        reserved.hand_over();
        self.watch.tell_written(inode);
        Ok(true)
    }

    /// Returns how many of these blocks are in holes, and how many blocks the mapping needs in the worst case when all
    /// are written.
    fn needed(
        &self,
        inode: &Inode,
        file: &FileData,
        map: &FileMap,
        (first, len): (u32, u32),
    ) -> (u64, u32) {
        let (mut in_holes, mut for_map, mut done) = (0, 0, 0);
        while done < len {
            let (logical, left) = (first + done, len - done);
            let (run, in_hole, written) = match map.extents.at(logical) {
                Found::Mapped(run) => (run.len.min(left), false, !run.unwritten),
                Found::Hole(n) => (n.min(left), true, false),
            };
            if !written {
                // The reserve is as for dirty pages: one block for the first, one for every 32 that follow it.
                for_map += self.mapping_cost(inode, file, map, logical) + run.div_ceil(32);
                in_holes += if in_hole { u64::from(run) } else { 0 };
            }
            done += run;
        }
        (in_holes, for_map)
    }

    /// Writes the pages of a finished piece back at once, and drops them, so that the next piece gets the same memory,
    /// still warm. If that fails, the pages stay dirty, and fsync reports the error.
    fn write_through(&self, inode: &Arc<Inode>, written: &Range<u64>) {
        let Some(file) = inode.touched_file() else {
            return;
        };
        let _pass = self.store.gate.enter();
        let mut map = file.map.write();
        if self.write_back_locked(inode, &mut map).is_err() {
            return;
        }
        let bs = u64::from(self.store.geometry.block_size);
        // A file's blocks have numbers of 32 bits.
        let (from, end) = (written.start.div_ceil(bs) as u32, written.end / bs);
        if u64::from(from) < end {
            self.drop_pages(inode, from, (end - 1) as u32);
        }
    }
}
