//! fallocate, and seeking data and holes.

use crate::base::error::{Error, Result};
use crate::base::invariants::Rule;
use crate::base::planted::{self, Fault};
use crate::data::Data;
use crate::data::shift::Shift;
use crate::incore::file::{FileData, FileMap};
use crate::incore::inode::Inode;
use crate::incore::pages::place;
use crate::log::Cost;
use crate::space::guards::{PlacedRuns, Reservation};
use crate::types::credentials::Credentials;
use ext4_format::BlockNr;
use ext4_format::inode::flags;
use extant_formatter::extent_map::{Found, Run};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The effect of fallocate on the range.
///
/// ```
/// assert_eq!(extant::Fallocate::default(), extant::Fallocate::Allocate { keep_size: false });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Allocates every block of the range. Holes become unwritten extents.
    Allocate {
        /// The file's size stays.
        keep_size: bool,
    },
    /// Makes the range a hole; the size stays.
    PunchHole,
    /// Makes the range read as zero, with blocks in place.
    ZeroRange {
        /// The file's size stays.
        keep_size: bool,
    },
    /// Removes the range: the data behind it move down to its start, and the file becomes shorter. The range consists
    /// of whole blocks and ends before the file does.
    CollapseRange,
    /// Inserts a hole: the data at and behind the start of the range move up, and the file becomes longer. The range
    /// consists of whole blocks and begins inside the file.
    InsertRange,
}

impl Fallocate {
    /// Returns what a mode of fallocate(2), the `FALLOC_FL_*` of Linux, asks for; `None` if that is not supported.
    ///
    /// ```
    /// use extant::Fallocate;
    /// const KEEP_SIZE: u32 = 1;
    /// const PUNCH_HOLE: u32 = 2;
    /// assert_eq!(Fallocate::from_mode(KEEP_SIZE | PUNCH_HOLE), Some(Fallocate::PunchHole));
    /// assert_eq!(Fallocate::from_mode(PUNCH_HOLE), None); // Linux asks for both flags
    /// ```
    pub fn from_mode(mode: u32) -> Option<Self> {
        let keep_size = mode & 1 != 0;
        match mode & !1 {
            0 => Some(Self::Allocate { keep_size }),
            0x02 if keep_size => Some(Self::PunchHole),
            0x08 if !keep_size => Some(Self::CollapseRange),
            0x10 => Some(Self::ZeroRange { keep_size }),
            0x20 if !keep_size => Some(Self::InsertRange),
            _ => None,
        }
    }
}

impl Default for Fallocate {
    fn default() -> Self {
        Self::Allocate { keep_size: false }
    }
}

/// The target of a seek.
///
/// ```
/// assert_ne!(extant::unstable::Seek::Data, extant::unstable::Seek::Hole);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is stored.
    Data,
    /// The next byte that is not; the end of the file is one.
    Hole,
}

/// Runs allocated by one transaction at most.
const BATCH: usize = 32;
/// Blocks allocated at once.
const MAX_TAKEN: u32 = 1 << 15;

impl Data {
    /// Preallocates, punches or zeroes `[offset, offset + len)`.
    pub(crate) fn fallocate(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        how: Fallocate,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let _span = lockmeter::span!("fallocate");
        self.store.gate.look();
        self.store.check_writable()?;
        let file = inode.file().ok_or(Error::Invalid("not a regular file"))?;
        let end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
        if len == 0 {
            return Err(Error::Invalid("fallocate of no bytes"));
        }
        if let Fallocate::Allocate { keep_size } = how
            && self.extend(who, inode, file, offset..end, keep_size)?
        {
            return Ok(());
        }
        let _pass = self.store.gate.enter();
        let mut map = file.map.write();
        self.load_map(inode, &mut map)?;
        let (size, inode_flags) = {
            let state = inode.state.lock();
            if state.freed {
                return Err(Error::BadHandle("the file was removed"));
            }
            (state.core.size, state.core.flags)
        };
        if end > self.max_size(inode_flags) {
            return Err(Error::FileTooLarge);
        }
        if inode_flags & flags::EXTENTS == 0 && how != Fallocate::PunchHole {
            return Err(Error::Unsupported(
                "preallocation in a file without extents",
            ));
        }
        let shift = match how {
            Fallocate::CollapseRange | Fallocate::InsertRange => {
                let out = how == Fallocate::CollapseRange;
                let (most, bs) = (
                    self.max_size(inode_flags),
                    self.store.geometry.first().block_size,
                );
                Some(Shift::new(out, offset, len, size, most, bs.into())?)
            }
            _ => None,
        };
        self.inodes.drop_capability(who, inode)?;
        self.note_modified(who, inode);
        self.watch.tell_written(inode);
        match how {
            Fallocate::Allocate { keep_size } => {
                if end > size && !keep_size {
                    self.zero_tail(who, inode, &map, size)?;
                }
                self.allocate_bytes(who, inode, &mut map, offset..end, (size, keep_size))
            }
            Fallocate::PunchHole => {
                let within = end.min(size.max(offset));
                self.punch(who, inode, &mut map, offset, within, size)
            }
            Fallocate::ZeroRange { keep_size } => {
                if end > size && !keep_size {
                    // After a cut the block of the old size may still hold old bytes behind that size.
                    self.zero_tail(who, inode, &map, size)?;
                }
                let within = end.min(size.max(offset));
                self.punch(who, inode, &mut map, offset, within, size)?;
                self.allocate_bytes(who, inode, &mut map, offset..end, (size, keep_size))
            }
            Fallocate::CollapseRange | Fallocate::InsertRange => match shift {
                Some(shift) => self.shift(who, inode, file, &mut map, &shift),
                None => Ok(()),
            },
        }
    }

    /// Clears the mode bits that a write clears, and sets the times of a change. As in Linux, every mode changes both times, even if
    /// nothing is left to allocate or to punch.
    fn note_modified(&self, who: &Credentials, inode: &Arc<Inode>) {
        let mut state = inode.state.lock();
        self.inodes.fold_overwrites(inode, &mut state);
        let mode = who.mode_after_write(state.core.mode, state.core.gid);
        let (mtime, ctime) = who.times_of_change(&state.core);
        let core = &mut state.core;
        if (core.mode, core.mtime, core.ctime) != (mode, mtime, ctime) {
            (core.mode, core.mtime, core.ctime) = (mode, mtime, ctime);
            state.core_dirty = true;
            inode.mirror(&state.core);
            drop(state);
            self.inodes.note_dirty(inode);
        }
    }

    /// Allocates the blocks of a range of bytes, which ends below the largest size of a file.
    fn allocate_bytes(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        map: &mut FileMap,
        range: Range<u64>,
        (size, keep_size): (u64, bool),
    ) -> Result<()> {
        let bs = u64::from(self.store.geometry.first().block_size);
        // The numbers of a file's blocks have 32 bits.
        let (first, last) = ((range.start / bs) as u32, range.end.div_ceil(bs) as u32);
        let new_size = (!keep_size).then_some(range.end.max(size));
        self.allocate_range(who, inode, map, first, last, new_size)
    }

    /// Extends a file that grows from its preallocation: the way of nearly every call that appends. It touches only
    /// the inode and the slot's log. True if that was possible.
    fn extend(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        file: &FileData,
        range: Range<u64>,
        keep_size: bool,
    ) -> Result<bool> {
        let map = &mut *file.map.write();
        let Range { start: offset, end } = range;
        let inode_flags = inode.flags.load(Ordering::Relaxed);
        let bs = u64::from(self.store.geometry.first().block_size);
        let usual = map.loaded
            && map.relog.is_some_and(|r| r.is_of(self.log.context()))
            && inode_flags & flags::EXTENTS != 0
            && end <= self.store.geometry.max_file_size(true)
            && !inode.has_capability.load(Ordering::Relaxed)
            && file.pages.is_empty();
        if !usual {
            return Ok(false);
        }
        // The size is below 2^32 blocks.
        let shift = self.store.geometry.first().block_size.trailing_zeros();
        let (first, last) = ((offset >> shift) as u32, ((end + bs - 1) >> shift) as u32);
        if map.extents.last().map_or(0, Run::end) != u64::from(first) {
            return Ok(false);
        }
        let Some(tx) = self.commit.begin_at_once(0)? else {
            return Ok(false);
        };
        let mut state = inode.state.lock();
        if state.freed || !keep_size && end > state.core.size && state.core.size & (bs - 1) != 0 {
            return Ok(false);
        }
        let Some((physical, len)) = self.take_preallocated(file, map, first, last - first) else {
            return Ok(false);
        };
        let run = Run {
            logical: first,
            len,
            physical,
            unwritten: true,
        };
        let done = len == last - first;
        self.inodes.fold_overwrites(inode, &mut state);
        let (mtime, ctime) = who.times_of_change(&state.core);
        let seen = state.stamp;
        let state = &mut *state;
        tx.commit(seen, |c| {
            if done && !keep_size {
                state.core.size = state.core.size.max(end);
                state.disk_size = state.disk_size.max(end);
            }
            (state.core.mtime, state.core.ctime) = (mtime, ctime);
            state.core.mode = who.mode_after_write(state.core.mode, state.core.gid);
            inode.mirror(&state.core);
            self.inodes.note_core(inode, state, c);
            if !c.extend(inode.ino, run, state.disk_core(), &mut map.relog, seen) {
                c.reserve_late(Cost::MAP);
            }
        });
        self.count_added(inode, &[run]);
        if map.extents.append(run) {
            self.note_tree(inode, map);
        }
        // Blocks that the preallocation lacked are found the long way.
        Ok(done)
    }

    fn allocate_range(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        map: &mut FileMap,
        first: u32,
        last: u32,
        new_size: Option<u64>,
    ) -> Result<()> {
        let Some(file) = inode.file() else {
            return Ok(());
        };
        // Write pages that wait for a block back first, so that they use their own reservation.
        if file.pages.next_dirty(first, last).is_some() {
            self.write_back_locked(inode, map)?;
        }
        let mut at = first;
        loop {
            let mut placing = self.space.placing();
            let mut failed = None;
            let placed = &mut placing.runs;
            while at < last && placed.len() < BATCH && self.in_one_step(inode, placed) {
                match map.extents.at(at) {
                    Found::Mapped(run) => at = at.saturating_add(run.len).min(last),
                    Found::Hole(n) => {
                        let want = n.min(last - at).min(MAX_TAKEN);
                        let set_aside = self.take_preallocated(file, map, at, want);
                        let found = match set_aside {
                            Some(found) => Ok(found),
                            None => self.allocate_some(who, inode, file, map, (at, want), placed),
                        };
                        let (physical, len) = match found {
                            Ok(found) => found,
                            Err(e) => {
                                failed = Some(e);
                                break;
                            }
                        };
                        placed.push(Run {
                            logical: at,
                            len,
                            physical,
                            unwritten: true,
                        });
                        at += len;
                    }
                }
            }
            let done = at >= last && failed.is_none();
            if !placed.is_empty() || done {
                self.commit_placed(who, inode, map, placing, new_size.filter(|_| done))?;
            }
            match failed {
                Some(e) => return Err(e),
                None if done => return Ok(()),
                None => {}
            }
        }
    }

    /// Takes up to `want` blocks for a file's hole at `at`, at least one, as one run.
    fn allocate_some(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        file: &FileData,
        map: &mut FileMap,
        (at, want): (u32, u32),
        placed: &[Run],
    ) -> Result<(BlockNr, u32)> {
        let mut taken = self.take_some(who, want)?;
        // The number is at most `want`.
        let most = taken.blocks() as u32;
        let (block, len) = self.allocate_data(inode, file, map, at, most, placed)?;
        taken.spend(u64::from(len));
        Ok((block, len))
    }

    /// Takes up to `want` blocks of free space, at least one.
    fn take_some(&self, who: &Credentials, want: u32) -> Result<Reservation<'_>> {
        match self.space.counts.take_up_to(who, u64::from(want)) {
            0 if self.commit.take_space(who, 1)? => Ok(self.space.reserved(1)),
            0 => Err(self.store.no_space("no block left to preallocate")),
            n => Ok(self.space.reserved(n)),
        }
    }

    fn commit_placed(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        map: &mut FileMap,
        placing: PlacedRuns<'_>,
        new_size: Option<u64>,
    ) -> Result<()> {
        // The runs are adjacent: a leaf or two are split, and sometimes the index above.
        let cost = Cost::MAP.and(Cost::MAP.times(placing.runs.len() as u32 / 16));
        let tx = if placing.runs.is_empty() {
            self.commit.begin_core()?
        } else {
            self.commit.begin(who, cost)?
        };
        let placed = placing.keep();
        let mut state = inode.state.lock();
        self.inodes.fold_overwrites(inode, &mut state);
        let (mtime, ctime) = who.times_of_change(&state.core);
        let seen = state.stamp;
        tx.commit(seen, |c| {
            if let (Some(size), Some(file)) = (new_size, inode.file()) {
                state.core.size = size;
                state.disk_size = self.size_to_log(file, state.disk_size, size);
            }
            (state.core.mtime, state.core.ctime) = (mtime, ctime);
            inode.mirror(&state.core);
            if let [run] = placed[..] {
                self.inodes.note_core(inode, &mut state, c);
                c.extend(inode.ino, run, state.disk_core(), &mut map.relog, seen);
            } else {
                for run in &placed {
                    c.map_run(inode.ino, *run, true);
                }
                self.inodes.log_core(inode, &mut state, c);
            }
        });
        drop(state);
        self.count_added(inode, &placed);
        for run in placed {
            let replaced = map.extents.set(run);
            self.store
                .insist(replaced.is_empty(), Rule::HoleWasEmpty, || {
                    format!("{run:?} of inode {} replaces {replaced:?}", inode.ino)
                });
        }
        self.note_tree(inode, map);
        Ok(())
    }

    fn punch(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        map: &mut FileMap,
        offset: u64,
        end: u64,
        size: u64,
    ) -> Result<()> {
        if end <= offset {
            return Ok(());
        }
        let bs = u64::from(self.store.geometry.first().block_size);
        // The punched part of the first and last block is zeroed in its page.
        let (inner_first, mut inner_last) = (offset.div_ceil(bs), end / bs);
        if end >= size {
            inner_last = end.div_ceil(bs);
        }
        if inner_first > inner_last
            || offset / bs == (end - 1) / bs
                && (!offset.is_multiple_of(bs) || inner_last <= offset / bs)
        {
            return self.zero_part(who, inode, map, offset, end, size);
        }
        if !offset.is_multiple_of(bs) {
            self.zero_part(who, inode, map, offset, inner_first * bs, size)?;
            self.write_edge(inode, map, offset / bs)?;
        }
        if end > inner_last * bs {
            self.zero_part(who, inode, map, inner_last * bs, end, size)?;
            self.write_edge(inode, map, inner_last)?;
        }
        let (first, last) = (inner_first as u32, inner_last as u32);
        if first >= last {
            return Ok(());
        }
        self.punch_blocks(who, inode, map, first, last)
    }

    /// Writes the page of a block at the edge of a hole to the device before the hole is logged. Once the hole is
    /// durable, no old data of the range may reappear. The page stays dirty.
    fn write_edge(&self, inode: &Inode, map: &FileMap, block: u64) -> Result<()> {
        // max_size bounds the number to 32 bits.
        let block = block as u32;
        let (Some(file), Found::Mapped(run)) = (inode.file(), map.extents.at(block)) else {
            return Ok(());
        };
        if run.unwritten || planted::is(Fault::SizeBeforeTail) {
            return Ok(());
        }
        // No page changes while the map is held exclusively.
        let page = file.pages.at(block, |chunk| {
            let page = chunk.pages[place(block).1].read();
            page.as_deref().map(<[u8]>::to_vec)
        });
        let Some(bytes) = page.flatten() else {
            return Ok(());
        };
        self.store
            .device
            .write_at(
                run.physical.offset(self.store.geometry.first().block_size),
                &bytes,
            )
            .map_err(|e| Error::block_io("write", run.physical, e))
            .inspect_err(|e| self.store.stop(e))?;
        self.note_data(file);
        Ok(())
    }

    /// Makes blocks `[first, last)` a hole.
    pub(super) fn punch_blocks(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        map: &mut FileMap,
        first: u32,
        last: u32,
    ) -> Result<()> {
        let mut at = first;
        while at < last {
            let runs = map.extents.range(at, last - at);
            let upto = match self.first_step(inode, runs.iter()) {
                (n, _) if n == runs.len() => last,
                (0, piece) => {
                    // At least one run exists, because without runs the first arm matches.
                    let first = runs.first().map_or(at, |r| r.logical);
                    first.saturating_add(piece).min(last)
                }
                (n, _) => runs.get(n).map_or(last, |next| next.logical),
            };
            self.load_bitmaps_of(&map.extents.range(at, upto - at))?;
            let tx = self.commit.begin_freeing(Cost::MAP)?;
            // Nothing fails from here on. Before, the pages hold the only copy of data newer than the device.
            self.drop_pages(inode, at, upto - 1);
            let mut state = inode.state.lock();
            self.inodes.fold_overwrites(inode, &mut state);
            let seen = state.stamp;
            let mut gone = Vec::new();
            tx.commit(seen, |c| {
                gone = self.log_removal(inode, map, at, upto - at, c);
                (state.core.mtime, state.core.ctime) = who.times_of_change(&state.core);
                self.inodes.log_core(inode, &mut state, c);
            });
            drop(state);
            self.count_removed(inode, &gone);
            at = upto;
        }
        Ok(())
    }

    /// Zeroes a part of one block, if it has data.
    fn zero_part(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        map: &FileMap,
        from: u64,
        to: u64,
        size: u64,
    ) -> Result<()> {
        let Some(file) = inode.file() else {
            return Ok(());
        };
        let bs = u64::from(self.store.geometry.first().block_size);
        let block = (from / bs) as u32;
        let in_memory = file.pages.has_page(block);
        let hole = match map.extents.at(block) {
            Found::Hole(_) => true,
            Found::Mapped(run) => run.unwritten,
        };
        if hole && !in_memory {
            return Ok(());
        }
        let zeros = vec![0; (to - from) as usize];
        self.write_page(who, inode, map, from, &zeros, size)?;
        self.inodes.note_dirty(inode);
        Ok(())
    }

    /// Returns the offset of the next data or hole from `offset` on.
    pub(crate) fn seek(&self, inode: &Inode, offset: u64, what: Seek) -> Result<u64> {
        let file = inode.file().ok_or(Error::Invalid("not a regular file"))?;
        let map = self.loaded_map(inode, file)?;
        let size = inode.size.load(Ordering::Acquire);
        if offset >= size {
            return Err(Error::NoSuchOffset);
        }
        if inode.has_flag(flags::INLINE_DATA) {
            let end = self.inodes.inline_data(inode)?.len() as u64;
            return match what {
                Seek::Data if offset >= end => Err(Error::NoSuchOffset),
                Seek::Data => Ok(offset),
                Seek::Hole => Ok(offset.max(end)),
            };
        }
        let bs = u64::from(self.store.geometry.first().block_size);
        let end = u32::try_from(size.div_ceil(bs)).map_err(|_| Error::FileTooLarge)?;
        let mut block = (offset / bs) as u32;
        while block < end {
            let (is_data, next) = match map.extents.at(block) {
                Found::Mapped(run) if !run.unwritten => (true, block.saturating_add(run.len)),
                found => {
                    let len = match found {
                        Found::Mapped(run) => run.len,
                        Found::Hole(n) => n,
                    };
                    let upto = block.saturating_add(len).min(end);
                    match file.pages.next_dirty(block, upto) {
                        Some(dirty) if dirty == block => (true, block + 1),
                        Some(dirty) => (false, dirty),
                        None => (false, upto),
                    }
                }
            };
            if is_data == (what == Seek::Data) {
                return Ok(offset.max(u64::from(block) * bs));
            }
            block = next;
        }
        if what == Seek::Hole {
            Ok(size)
        } else {
            Err(Error::NoSuchOffset)
        }
    }
}
