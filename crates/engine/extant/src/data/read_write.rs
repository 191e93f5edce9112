//! Reading and writing file data through the page cache, with delayed allocation.

use crate::base::error::{Error, Result};
use crate::base::planted::{self, Fault};
use crate::data::Data;
use crate::incore::file::{FileData, FileMap, MapReader};
use crate::incore::inode::Inode;
use crate::incore::pages::{CHUNK_PAGES, Chunk, Page, place};
use crate::types::credentials::Credentials;
use blockdev::copy_bytes;
use ext4_format::inode::flags;
use extant_formatter::extent_map::Found;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Requests at least this long that miss the cache go from the device straight to the caller.
const DIRECT_READ: usize = 64 * 1024;

/// Whether data read from the device stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The page and its neighbours, unless the request is long.
    Pages,
    /// No page: the caller keeps the data. Only the requested bytes are read.
    Nothing,
}

impl Data {
    /// Returns the largest size of a file with this inode's kind of mapping.
    pub(super) fn max_size(&self, inode_flags: u32) -> u64 {
        self.store
            .geometry
            .max_file_size(inode_flags & flags::EXTENTS != 0)
    }

    /// Writes back the files that no other thread holds: their worst-case reservations become real needs, and a push
    /// returns the rest. The caller has passed the gate. A file that cannot be written back stays dirty and is skipped,
    /// because the caller only wants space.
    pub(super) fn write_back_promised(&self) -> Result<()> {
        for inode in self.inodes.in_core.iter() {
            let Some(file) = inode.touched_file() else {
                continue;
            };
            if file.promised.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // Never waits: the caller holds the map of another file.
            if let Some(mut map) = file.map.try_write()
                && let Err(e) = self.write_back_locked(&inode, &mut map)
            {
                self.store.check_running().map_err(|_| e)?;
            }
        }
        Ok(())
    }

    /// Loads the mapping into core.
    pub(crate) fn load_map(&self, inode: &Inode, map: &mut FileMap) -> Result<()> {
        if !map.loaded {
            map.extents = self.inodes.read_mapping(inode)?;
            map.loaded = true;
            if let Some(file) = inode.touched_file() {
                file.tree.note_read(map.extents.nodes());
            }
        }
        Ok(())
    }

    /// Loads the mapping if needed, and locks it for reading.
    pub(super) fn loaded_map<'a>(
        &self,
        inode: &Inode,
        file: &'a FileData,
    ) -> Result<MapReader<'a>> {
        let map = file.map.read();
        if map.loaded {
            return Ok(map);
        }
        drop(map);
        self.load_map(inode, &mut file.map.write())?;
        Ok(file.map.read())
    }

    /// Reads up to `buf.len()` bytes; fewer at the end of the file.
    pub(crate) fn read(
        &self,
        inode: &Inode,
        offset: u64,
        buf: &mut [u8],
        keep: Keep,
    ) -> Result<usize> {
        let _span = lockmeter::span!("read");
        let file = inode.file().ok_or(Error::Invalid("not a regular file"))?;
        let map = self.loaded_map(inode, file)?;
        if inode.has_flag(flags::ENCRYPT) {
            return Err(Error::NoKey);
        }
        if inode.has_flag(flags::INLINE_DATA) {
            return self.read_inline(inode, offset, buf);
        }
        crate::base::jitter::point();
        let size = inode.size.load(Ordering::Acquire);
        let wanted = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..wanted];
        let bs = self.store.geometry.first().block_size as usize;
        let (mut done, mut filled) = (0, false);
        while done < buf.len() {
            let at = offset + done as u64;
            let block = u32::try_from(at / bs as u64).map_err(|_| Error::FileTooLarge)?;
            let within = (at % bs as u64) as usize;
            let part = (bs - within).min(buf.len() - done);
            let copy = |buf: &mut [u8]| {
                let copied = file.pages.at(block, |chunk| {
                    chunk.note_used();
                    match &*chunk.pages[place(block).1].read() {
                        Some(page) => {
                            copy_bytes(buf, &page[within..within + part]);
                            true
                        }
                        None => false,
                    }
                });
                copied.unwrap_or(false)
            };
            if copy(&mut buf[done..done + part]) {
                done += part;
                continue;
            }
            match map.extents.at(block) {
                Found::Mapped(run) if !run.unwritten => {
                    let left = buf.len() - done;
                    if keep == Keep::Nothing || left >= DIRECT_READ && within == 0 {
                        // Up to the next page in memory, which may be newer than the device.
                        let blocks = (within + left).div_ceil(bs).min(run.len as usize) as u32;
                        let clear = file.pages.clear(block, blocks) as usize * bs - within;
                        let bytes = clear.min(left);
                        self.store
                            .read_data(run.physical, within, &mut buf[done..done + bytes])?;
                        done += bytes;
                    } else {
                        self.fill_chunk(inode, &map, block)?;
                        filled = true;
                        // Retry if the page was evicted in between.
                        if copy(&mut buf[done..done + part]) {
                            done += part;
                        }
                    }
                }
                _ => {
                    buf[done..done + part].fill(0);
                    done += part;
                }
            }
        }
        drop(map);
        if filled {
            self.bound_pages();
        }
        Ok(wanted)
    }

    /// Reads from a file whose data are inside its inode's record.
    fn read_inline(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let data = self.inodes.inline_data(inode)?;
        let left = inode.size.load(Ordering::Acquire).saturating_sub(offset);
        let wanted = left.min(buf.len() as u64) as usize;
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let data = data.get(from..).unwrap_or(&[]);
        let (stored, hole) = buf[..wanted].split_at_mut(wanted.min(data.len()));
        stored.copy_from_slice(&data[..stored.len()]);
        hole.fill(0);
        Ok(wanted)
    }

    /// Reads the mapped blocks of the chunk around `block` that are not in memory.
    fn fill_chunk(&self, inode: &Inode, map: &FileMap, block: u32) -> Result<()> {
        let file = inode.file().ok_or(Error::Invalid("not a regular file"))?;
        let bs = self.store.geometry.first().block_size as usize;
        let first = block / CHUNK_PAGES * CHUNK_PAGES;
        let chunk = file.pages.get_or_make(block);
        chunk.note_used();
        let _one_at_a_time = chunk.coming_in.lock();
        let mut brought = 0;
        for run in map
            .extents
            .range(first, CHUNK_PAGES)
            .into_iter()
            .filter(|r| !r.unwritten)
        {
            let at = (run.logical - first) as usize;
            let slots = &chunk.pages[at..at + run.len as usize];
            if slots.iter().all(|slot| slot.read().is_some()) {
                // Another thread has loaded the pages.
                continue;
            }
            let mut bytes = vec![0; run.len as usize * bs];
            self.store.read_data(run.physical, 0, &mut bytes)?;
            for (slot, page) in slots.iter().zip(bytes.chunks_exact(bs)) {
                brought += i64::from(slot.fill(|| Page::of(page)));
            }
        }
        self.cached_bytes.add(brought * bs as i64);
        Ok(())
    }

    /// Writes `data` at `offset`, or appends it if that is `None`. Returns the range written, which is shorter than the
    /// data if the space ran out, or the file cannot be larger, after a part.
    pub(crate) fn write(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<Range<u64>> {
        let _span = lockmeter::span!("write");
        let _pass = self.store.gate.enter();
        self.store.check_writable()?;
        let file = inode.file().ok_or(Error::Invalid("not a regular file"))?;
        let bs = self.store.geometry.first().block_size as usize;
        let counts = self.page_counts();
        self.inodes.drop_capability(who, inode)?;
        if let Some(offset) = offset
            && self.overwrite(who, inode, offset, data)
        {
            self.watch.tell_written(inode);
            return Ok(offset..offset + data.len() as u64);
        }
        crate::base::jitter::point();
        let mut map = file.map.write();
        self.load_map(inode, &mut map)?;
        let (old_size, inode_flags) = {
            let state = inode.state.lock();
            if state.freed {
                return Err(Error::BadHandle("the file was removed"));
            }
            (state.core.size, state.core.flags)
        };
        let offset = offset.unwrap_or(old_size);
        let room = self.max_size(inode_flags).saturating_sub(offset);
        if room == 0 {
            return Err(Error::FileTooLarge);
        }
        let data = &data[..usize::try_from(room).map_or(data.len(), |room| data.len().min(room))];
        if offset > old_size {
            self.zero_tail(who, inode, &map, old_size)?;
        }
        let mut done = 0;
        let mut failed = None;
        let mut written_back = None;
        while done < data.len() {
            let at = offset + done as u64;
            let part = (bs - (at % bs as u64) as usize).min(data.len() - done);
            let bytes = &data[done..done + part];
            match self.write_page(who, inode, &map, at, bytes, old_size) {
                Ok(()) => done += part,
                Err(Error::NoSpace(_)) if written_back != Some(done) => {
                    // This file may have reserved more than it needs, also since the last time.
                    written_back = Some(done);
                    if done > 0 {
                        self.note_written(who, inode, at);
                    }
                    self.write_back_locked(inode, &mut map)?;
                    self.commit.push_and_release()?;
                }
                Err(e) => {
                    failed = Some(self.store.explain_space(e));
                    break;
                }
            }
        }
        if done > 0 {
            self.note_written(who, inode, offset + done as u64);
            self.watch.tell_written(inode);
            drop(map);
            self.inodes.note_dirty(inode);
            self.balance_dirty(counts)?;
        }
        match failed {
            // If a part was stored, the next call reports the error.
            Some(e) if done == 0 => Err(e),
            _ => Ok(offset..offset + done as u64),
        }
    }

    /// Writes bytes into the page where they begin, after loading the rest of the page. The map is held exclusively.
    pub(super) fn write_page(
        &self,
        who: &Credentials,
        inode: &Inode,
        map: &FileMap,
        at: u64,
        bytes: &[u8],
        size: u64,
    ) -> Result<()> {
        let file = inode.file().ok_or(Error::Invalid("not a regular file"))?;
        let bs = self.store.geometry.first().block_size as usize;
        // max_size bounds the block number to 32 bits.
        let (block, within) = ((at / bs as u64) as u32, (at % bs as u64) as usize);
        let chunk = file.pages.get_or_make(block);
        let found = map.extents.at(block);
        let page = place(block).1;
        let in_hole = matches!(found, Found::Hole(_)) && !chunk.promised.has(page);
        let converts =
            matches!(found, Found::Mapped(run) if run.unwritten) && !chunk.dirty.has(page);
        if in_hole || converts {
            // Reserved with no page locked, because it may have to wait for a push.
            let for_map = self.mapping_cost(inode, file, map, block);
            if !self
                .commit
                .take_for_data(who, u64::from(in_hole), for_map)?
            {
                return Err(Error::NoSpace("no block left for file data"));
            }
            file.promised.fetch_add(for_map, Ordering::Relaxed);
        }
        if in_hole {
            chunk.promised.set(page);
            file.promised_pages.fetch_add(1, Ordering::Relaxed);
        }
        if !chunk.pages[page].overwrite(within, bytes) {
            let fresh = if bytes.len() == bs {
                Page::of(bytes)
            } else if within == 0 && at.saturating_add(bytes.len() as u64) >= size {
                // All bytes of the file in this block are new.
                let mut fresh = Page::zeroed(bs);
                copy_bytes(&mut fresh[..bytes.len()], bytes);
                fresh
            } else {
                let mut fresh = self.page_of_block(found, block, size)?;
                copy_bytes(&mut fresh[within..within + bytes.len()], bytes);
                fresh
            };
            if chunk.pages[page].fill(|| fresh) {
                self.cached_bytes.add(bs as i64);
            }
        }
        self.note_changed(file, &chunk, block);
        Ok(())
    }

    /// Notes that the page of a block in this chunk was changed and must be written back. The file's map is held,
    /// shared or not.
    fn note_changed(&self, file: &FileData, chunk: &Chunk, block: u32) {
        chunk.note_used();
        let page = place(block).1;
        if chunk.dirty.has(page) {
            return;
        }
        file.pages.will_change(block);
        // Counted once, by the first of two writers.
        if chunk.dirty.set(page) {
            let bytes = self.store.geometry.first().block_size;
            self.dirty_bytes.add(i64::from(bytes));
        }
    }

    /// Builds the page of a block that is not in memory.
    fn page_of_block(&self, found: Found, block: u32, size: u64) -> Result<Page> {
        let bs = self.store.geometry.first().block_size as usize;
        let mut page = Page::zeroed(bs);
        let begin = u64::from(block) * bs as u64;
        if let Found::Mapped(run) = found
            && !run.unwritten
            && begin < size
        {
            self.store.read_data(run.physical, 0, &mut page)?;
            // Bytes past the end of the file are not data, even if the block holds some.
            page[(size - begin).min(bs as u64) as usize..].fill(0);
        }
        Ok(page)
    }

    /// Returns the number of blocks that the mapping may need when this page, dirty for the first time, is written
    /// back: the worst case, but counting on neighbours to share a leaf.
    pub(super) fn mapping_cost(
        &self,
        inode: &Inode,
        file: &FileData,
        map: &FileMap,
        block: u32,
    ) -> u32 {
        let follows = block.checked_sub(1).is_some_and(|before| {
            let (_, i) = place(before);
            let mapped = matches!(map.extents.at(before), Found::Mapped(run) if !run.unwritten);
            let dirty = || file.pages.at(before, |c| c.dirty.has(i));
            !mapped && dirty().unwrap_or(false)
        });
        if inode.flags.load(Ordering::Relaxed) & flags::EXTENTS != 0 {
            return match follows || block == 0 {
                // The inode itself holds four extents.
                true if block < 4 && map.extents.is_empty() => 0,
                // A leaf holds at least 84, half of them after a split.
                true if block > 0 => u32::from(block % 32 == 4),
                // A leaf splits, and the index above it.
                _ => 2,
            };
        }
        let per_block = u64::from(self.store.geometry.first().block_size / 4);
        let Some(block) = u64::from(block).checked_sub(12) else {
            return 0;
        };
        if follows && !block.is_multiple_of(per_block) {
            return 0;
        }
        match block {
            b if b < per_block => 1,
            b if b < per_block * (per_block + 1) => 2,
            _ => 3,
        }
    }

    /// Overwrites pages that are in memory and have a block or a reservation. The map is only shared [L8], so writers
    /// of different blocks of one file do not wait for each other.
    fn overwrite(&self, who: &Credentials, inode: &Arc<Inode>, offset: u64, data: &[u8]) -> bool {
        let Some(file) = inode.file() else {
            return false;
        };
        let bs = self.store.geometry.first().block_size as usize;
        // At most one block, because a write is atomic towards readers of its page.
        let within = (offset % bs as u64) as usize;
        if data.is_empty() || within + data.len() > bs {
            return false;
        }
        let Ok(block) = u32::try_from(offset / bs as u64) else {
            return false;
        };
        let map = file.map.read();
        if !map.loaded || offset + data.len() as u64 > inode.size.load(Ordering::Acquire) {
            return false;
        }
        let done = file.pages.at(block, |chunk| {
            let page = place(block).1;
            // A page that is dirty already has all reservations it needs.
            let has_block = || !matches!(map.extents.at(block), Found::Hole(_));
            let ready = chunk.dirty.has(page) || chunk.promised.has(page) || has_block();
            if !ready || !chunk.pages[page].overwrite(within, data) {
                return false;
            }
            self.note_changed(file, chunk, block);
            true
        });
        if done != Some(true) {
            return false;
        }
        crate::base::jitter::point();
        // Note the time with the map held, so that a later write-back of the file finds it.
        let noted = self.note_overwritten(who, inode, file);
        drop(map);
        if !noted {
            self.note_written(who, inode, 0);
        }
        self.inodes.note_dirty(inode);
        true
    }

    /// Notes that the file was overwritten now. If several slots overwrite it, each notes the time separately. Returns
    /// false if the time belongs into the core.
    fn note_overwritten(&self, who: &Credentials, inode: &Inode, file: &FileData) -> bool {
        let (_, gid, mode) = inode.owner_and_mode();
        who.mode_after_write(mode, gid) == mode
            && !who.keeps_times()
            && file.overwrites.note(crate::base::now())
    }

    /// Zeroes what a block holds past the end of the file, before the file grows over it.
    pub(super) fn zero_tail(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        map: &FileMap,
        size: u64,
    ) -> Result<()> {
        let bs = u64::from(self.store.geometry.first().block_size);
        let within = (size % bs) as usize;
        if within == 0 {
            return Ok(());
        }
        let block = u32::try_from(size / bs).map_err(|_| Error::FileTooLarge)?;
        let file = inode.file().ok_or(Error::Invalid("not a regular file"))?;
        let in_memory = file.pages.has_page(block);
        if !in_memory && matches!(map.extents.at(block), Found::Hole(_)) {
            return Ok(());
        }
        let zeros = vec![0; bs as usize - within];
        self.write_page(who, inode, map, size, &zeros, size)?;
        self.inodes.note_dirty(inode);
        Ok(())
    }

    /// Returns the size that may be logged for a file that grows to `size`. While the block that holds the logged size
    /// waits to be written, the device has old bytes past that size, which a cut would expose. Then the logged size
    /// stays, and write-back logs the new one.
    pub(super) fn size_to_log(&self, file: &FileData, logged: u64, size: u64) -> u64 {
        let bs = u64::from(self.store.geometry.first().block_size);
        // max_size bounds the number to 32 bits.
        let tail = (logged / bs) as u32;
        let waits = !logged.is_multiple_of(bs) && file.pages.next_dirty(tail, tail + 1).is_some();
        if waits && !planted::is(Fault::SizeBeforeTail) {
            logged.min(size)
        } else {
            logged.max(size)
        }
    }

    /// Notes that the file was changed now and reaches at least to `end`.
    pub(super) fn note_written(&self, who: &Credentials, inode: &Inode, end: u64) {
        let mut state = inode.state.lock();
        self.inodes.fold_overwrites(inode, &mut state);
        let mode = who.mode_after_write(state.core.mode, state.core.gid);
        let (mtime, ctime) = who.times_of_change(&state.core);
        if state.core.mtime != mtime || state.core.mode != mode || state.core.size < end {
            state.core.mode = mode;
            state.core.size = state.core.size.max(end);
            state.core.mtime = mtime;
            state.core.ctime = ctime;
            state.core_dirty = true;
            inode.mirror(&state.core);
        }
    }
}
