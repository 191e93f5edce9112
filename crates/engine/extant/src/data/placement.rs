//! The choice of blocks for file data: behind the neighbouring block, in the preallocation of the file or the slot, or
//! where the search finds free blocks (mechanism B4). Preallocated blocks are counted as taken, so a caller that has
//! taken a number from the count finds that many in the bitmaps. When the count runs short, preallocations are returned
//! first.

use crate::base::error::Result;
use crate::data::Data;
use crate::incore::file::{FileData, FileMap};
use crate::incore::inode::Inode;
use crate::space::search::Request;
use ext4_format::BlockNr;
use extant_formatter::extent_map::{Found, Run};
use std::sync::atomic::Ordering;

/// Largest file in blocks that gets blocks of the slot's preallocation when it is written back for the first time.
const SMALL: u32 = 16;
/// Blocks of a slot's preallocation.
const SLOT_PREALLOCATION: u32 = 512;
/// Fewest and most blocks asked for when a file grows.
const LEAST_PREALLOCATION: u32 = 16;
const MOST_PREALLOCATION: u32 = 2048;

impl Data {
    /// Takes blocks set aside for this very place of a file. They are counted as taken already.
    pub(super) fn take_preallocated(
        &self,
        file: &FileData,
        map: &FileMap,
        logical: u32,
        want: u32,
    ) -> Option<(BlockNr, u32)> {
        let anywhere = map.extents.is_empty();
        let taken = file.preallocation.lock().take(logical, want, anywhere)?;
        self.space.counts.use_aside(u64::from(taken.1));
        Some(taken)
    }

    /// Finds up to `want` blocks, whose number was taken from the count, for a hole of a file; the rest of the number
    /// stays with the caller.
    pub(super) fn allocate_data(
        &self,
        inode: &Inode,
        file: &FileData,
        map: &FileMap,
        logical: u32,
        want: u32,
        placed: &[Run],
    ) -> Result<(BlockNr, u32)> {
        let newborn = map.extents.is_empty() && placed.is_empty();
        self.discard_preallocation(file);
        let open = self.inodes.is_open(inode);
        let goal = self.goal_at(inode, map, logical, placed);
        let small = !newborn && logical < SMALL;
        if small && let Some((start, len)) = self.take_behind(goal, want, open) {
            // All of them are counted as set aside already.
            let used = len.min(want);
            self.space.counts.use_aside(u64::from(used));
            self.space.counts.give(u64::from(used));
            self.keep_rest(file, (start, len), logical, used);
            return Ok((start, used));
        }
        let extra = if open {
            self.extra(file, map, logical, want)
        } else {
            0
        };
        let large = logical >= SMALL || want >= SMALL;
        let request = Request {
            goal,
            want: want + extra,
            need: want,
            follows: !newborn,
            stream: large.then_some(inode.ino.0),
        };
        let (start, len) = self
            .space
            .blocks
            .allocate(&request, &*self.space)
            .inspect_err(|_| self.space.counts.bring_back(u64::from(extra)))
            .map_err(|e| self.store.explain_space(e))?;
        let used = len.min(want);
        let rest = len - used;
        self.space.counts.bring_back(u64::from(extra - rest));
        self.keep_rest(file, (start, len), logical, used);
        Ok((start, used))
    }

    /// Takes blocks out of the slot's preallocation if they begin at the goal, right behind the file's last block: a
    /// small file that grows stays in one piece. An open file gets more than it wants.
    fn take_behind(&self, goal: BlockNr, want: u32, open: bool) -> Option<(BlockNr, u32)> {
        let extra = if open { LEAST_PREALLOCATION } else { 0 };
        let mut set_aside = self.slot_preallocations.local().lock();
        set_aside.take_at(goal, want.saturating_add(extra))
    }

    /// Preallocates the blocks of a run behind its first `used` for the file.
    fn keep_rest(&self, file: &FileData, (start, len): (BlockNr, u32), logical: u32, used: u32) {
        if len > used {
            let next = BlockNr(start.0 + u64::from(used));
            let mut preallocation = file.preallocation.lock();
            preallocation.fill(next, len - used, logical.saturating_add(used));
        }
    }

    /// Returns how many blocks to take in advance for a file that grows. With the wanted blocks they are twice the last
    /// number, or the number of blocks that the file has, rounded up to a power of two. They are set aside in the
    /// count.
    fn extra(&self, file: &FileData, map: &FileMap, logical: u32, want: u32) -> u32 {
        let behind = match map.extents.at(logical) {
            Found::Hole(n) => n == u32::MAX,
            Found::Mapped(_) => false,
        };
        let most = (self.store.geometry.blocks_count >> 9)
            .clamp(LEAST_PREALLOCATION.into(), MOST_PREALLOCATION.into());
        let most = most as u32;
        if !behind || want >= most || self.is_short() {
            return 0;
        }
        // When very many files grow, each gets fewer blocks.
        let many = self.store.geometry.blocks_count / 8;
        let most = if self.space.counts.is_much_aside(many) {
            LEAST_PREALLOCATION
        } else {
            most
        };
        let mut preallocation = file.preallocation.lock();
        let mut size = preallocation
            .size
            .max(logical / 2)
            .clamp(LEAST_PREALLOCATION / 2, most)
            * 2;
        if self.space.blocks.is_busy() {
            // The groups are contended, so visit them less often.
            size *= 2;
        }
        let size = size.max(want).next_power_of_two().min(most);
        preallocation.size = size;
        let extra = size.saturating_sub(want);
        if self.space.counts.set_aside(u64::from(extra)) {
            extra
        } else {
            0
        }
    }

    /// Takes the first blocks of a small file out of the slot's preallocation, so that small files written together lie
    /// together. This holds for open files as well: a preallocation of each file that is synced would be discarded when
    /// the file is closed, and leave a hole behind it. The blocks are counted as taken already.
    pub(super) fn take_for_small_file(&self, inode: &Inode, want: u32) -> Option<(BlockNr, u32)> {
        if want > SMALL {
            return None;
        }
        let mut set_aside = self.slot_preallocations.local().lock();
        loop {
            // A preallocation with too few blocks left is returned, and a new one is made.
            let left = set_aside.take(0, want, true);
            match left {
                Some((start, len)) if len == want => {
                    self.space.counts.use_aside(u64::from(want));
                    return Some((start, want));
                }
                Some((start, len)) => self.return_aside(start, len),
                None => {}
            }
            if self.is_short() || !self.space.counts.set_aside(u64::from(SLOT_PREALLOCATION)) {
                return None;
            }
            let request = Request::near(self.space.goal_of(inode.ino), SLOT_PREALLOCATION);
            let (start, len) = match self
                .store
                .heed(self.space.blocks.allocate(&request, &*self.space))
            {
                Ok(found) => found,
                Err(_) => {
                    self.space.counts.bring_back(u64::from(SLOT_PREALLOCATION));
                    return None;
                }
            };
            self.space
                .counts
                .bring_back(u64::from(SLOT_PREALLOCATION - len));
            set_aside.fill(start, len, 0);
            if len < want {
                return None;
            }
        }
    }

    /// Returns blocks set aside to the group or slot that they came from.
    fn return_aside(&self, start: BlockNr, len: u32) {
        if self.space.unplace(start, len) {
            self.space.counts.bring_back(u64::from(len));
        }
    }

    /// Returns a file's preallocation, to the slot's if it lies right before that.
    pub(super) fn discard_preallocation(&self, file: &FileData) {
        let mut preallocation = file.preallocation.lock();
        // With the lock held: a thread that finds no preallocation finds its blocks in the bitmaps.
        if let Some((start, len)) = preallocation.drain() {
            let mut of_slot = self.slot_preallocations.local().lock();
            if self.is_short() || !of_slot.put_before(start, len) {
                drop(of_slot);
                self.return_aside(start, len);
            }
        }
    }

    /// Discards the blocks set aside for a file whose last handle is closed, or that is being freed.
    #[inline]
    pub(crate) fn discard_preallocation_of(&self, inode: &Inode) {
        if let Some(file) = inode.touched_file() {
            self.discard_preallocation(file);
        }
    }

    /// Returns all preallocations, because space is short, and makes none for a while. True if there were any.
    pub(crate) fn discard_aside(&self) -> bool {
        self.short_at.store(self.log.context(), Ordering::Relaxed);
        if self.space.counts.aside() == 0 {
            return false;
        }
        for set_aside in self.slot_preallocations.iter() {
            let mut set_aside = set_aside.lock();
            if let Some((start, len)) = set_aside.drain() {
                self.return_aside(start, len);
            }
        }
        for inode in self.inodes.in_core.iter() {
            self.discard_preallocation_of(&inode);
        }
        true
    }

    /// Returns true if space was short in this context or the previous one.
    fn is_short(&self) -> bool {
        // Contexts begin at 1.
        match self.short_at.load(Ordering::Relaxed) {
            0 => false,
            then => self.log.context() <= then + 1,
        }
    }

    /// Frees a run that was logged as taken in the open context and is struck out of it: it was never in use. It is
    /// free at once [C5], for the same file first.
    pub(super) fn reclaim(&self, inode: &Inode, file: &FileData, run: Run) {
        let mut preallocation = file.preallocation.lock();
        let open = self.inodes.is_open(inode);
        if open && !self.is_short() && preallocation.take_back(run.physical, run.len, run.logical) {
            self.space.counts.note_aside(u64::from(run.len));
            return;
        }
        drop(preallocation);
        self.space.unplace(run.physical, run.len);
        self.space.counts.give(u64::from(run.len));
    }
}

#[cfg(test)]
mod tests {
    use crate::mkfs::{self, MkfsOptions};
    use crate::{Fallocate, Volume, VolumeOptions};
    use std::sync::Arc;

    /// Returns the blocks that a new file's first request allocates, with the preallocated ones, while groups are busy or not.
    fn preallocated(volume: &Volume, name: &str, busy: bool) -> u32 {
        let engine = volume.guard_engine();
        let file = volume.create_new_file(name).unwrap();
        (0..100).for_each(|_| engine.space.blocks.contention.note(busy));
        assert_eq!(engine.space.blocks.is_busy(), busy);
        let grow = Fallocate::Allocate { keep_size: false };
        file.fallocate(grow, 0, 8 * 4096).unwrap();
        let inode = engine.inodes.in_core.iter().find(|i| i.ino.0 == file.ino());
        let inode = Arc::clone(&inode.unwrap());
        inode.touched_file().unwrap().preallocation.lock().size
    }

    fn volume() -> Volume {
        let device = Arc::new(blockdev::MemDevice::new(256 << 20));
        let options = MkfsOptions {
            size: Some(256 << 20),
            block_size: Some(4096),
            zeroed_device: true,
            ..MkfsOptions::default()
        };
        mkfs::format(&*device, &options).unwrap();
        let options = VolumeOptions::new().background(false);
        options.open_device(device).unwrap()
    }

    #[test]
    fn small_files_that_are_synced_while_open_lie_together() {
        let volume = volume();
        let place = |n: u64| {
            let file = volume.create_new_file(format!("/{n}")).unwrap();
            file.write_at(&[1; 4096], 0).unwrap();
            file.sync_all().unwrap();
            file.extents().unwrap()[0].physical
        };
        let first = place(0);
        for n in 1..40 {
            assert_eq!(place(n), first + n * 4096);
        }
        // A growing file continues behind them, and returns its unused blocks to the slot.
        let grow = |file: &crate::File, blocks: std::ops::Range<u64>| {
            for n in blocks {
                file.write_at(&[1; 4096], n * 4096).unwrap();
                file.sync_all().unwrap();
            }
            let extents = file.extents().unwrap();
            (extents.len(), extents[0].physical)
        };
        let file = volume.create_new_file("/grows").unwrap();
        assert_eq!(grow(&file, 0..12), (1, first + 40 * 4096));
        drop(file);
        assert_eq!(place(52), first + 52 * 4096);
        // Of two that grow side by side, one continues elsewhere. A large file leaves the slot's blocks to others.
        let [one, other] = ["/one", "/other"].map(|name| volume.create_new_file(name).unwrap());
        for n in 0..10 {
            grow(&one, n..n + 1);
            grow(&other, n..n + 1);
        }
        assert_eq!((grow(&one, 10..11).0, grow(&other, 10..11).0), (2, 1));
        assert_eq!(grow(&other, 11..100).0, 2);
        drop((one, other));
        // No block is counted twice, and none is lost.
        let engine = volume.guard_engine();
        assert!(engine.data.discard_aside() && engine.space.counts.aside() == 0);
        let in_bitmaps = engine.space.blocks.free_in_bitmaps(&*engine.space).unwrap();
        assert_eq!(engine.space.counts.free().0, in_bitmaps);
    }

    #[test]
    fn preallocations_double_while_groups_are_busy() {
        let volume = volume();
        let calm = preallocated(&volume, "/calm", false);
        assert_eq!(preallocated(&volume, "/busy", true), 2 * calm);
        assert_eq!(preallocated(&volume, "/calm again", false), calm);
    }
}
