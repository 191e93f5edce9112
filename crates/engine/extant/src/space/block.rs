//! Block allocation: a lock per group (mechanism L2), whose free blocks are kept by order ([`crate::space::buddy`]) and
//! searched by criteria ([`crate::space::search`]). Every group is searched before the volume is called full (L4).
//!
//! A group is loaded in two steps. When the group is first considered, its count of free blocks is read, with the
//! counts of its neighbours. When the group is searched or blocks of it are freed, its bitmap is read. So a volume of a
//! million groups costs the memory of the groups in use. When too many bitmaps are in memory, bitmaps that equal their
//! image are evicted ([`BlockAlloc::shrink`]).
//!
//! A freed block stays set in the in-core bitmap until the context that frees it is durable
//! ([`BlockAlloc::mark_free`]). So its old contents are never overwritten while a crash could restore its owner.

use crate::base::chunked::Chunked;
use crate::base::error::{Error, Result};
use crate::base::grown::Grown;
use crate::base::invariants::insist;
use crate::base::locks::{self, Mutex};
use crate::space::bound::{Bound, Looked};
use crate::space::buddy::Buddy;
use crate::space::contention::{Contention, Searches};
use crate::space::goals::Goals;
use crate::space::ranks::{Rank, Ranks};
use crate::types::settings::BlockScan;
use ext4_format::geometry::Geometry;
use ext4_format::{BlockNr, FormatError, GroupNr, Where};
use percpu::Counter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The source of groups' counts and bitmaps.
pub trait GroupSource {
    /// Returns the number of free blocks of a group, by its descriptor.
    fn free_blocks(&self, group: GroupNr) -> Result<u32>;
    /// Reads a group's bitmap: one bit per block, with the bits past the group's end set.
    fn block_bitmap(&self, group: GroupNr) -> Result<Vec<u64>>;
    /// Checks that a range of a group is in use by its bitmap, which breaks another rule. Only then is the range
    /// freed.
    fn check_in_use(&self, _: GroupNr, _from: u32, _to: u32) -> Result<()> {
        Ok(())
    }
    /// Notes that this many blocks, counted as free, cannot be had: their group is corrupt.
    fn lost(&self, blocks: u32);
}

/// A group, on a separate cache line because different threads use neighbouring groups.
#[repr(align(64))]
pub struct BlockGroup {
    /// Free blocks of the group, or `None` until its first use.
    buddy: Mutex<Option<Box<Buddy>>, locks::BlockGroup>,
    /// Free blocks; written with the lock held, read without.
    free: AtomicU32,
    pub(super) rank: Rank,
    /// The bitmap breaks a rule; the group is not used.
    skip: AtomicBool,
}

impl BlockGroup {
    pub(super) fn free(&self) -> u32 {
        self.free.load(Ordering::Relaxed)
    }

    pub(super) fn skipped(&self) -> bool {
        self.skip.load(Ordering::Relaxed)
    }
}

/// The wanted run of free blocks of [`BlockAlloc::take_free`].
pub(crate) struct RunRequest {
    /// Fewest blocks of the run.
    pub least: u32,
    /// Most blocks taken of the run.
    pub most: u32,
    /// A run at the start of the range may be shorter.
    pub any_at_start: bool,
}

/// Returns the number of groups that a volume can grow to while it is open. The sets of groups have room for them, a
/// few bits each.
fn room_for(groups: u32) -> u32 {
    let most = groups.saturating_mul(16).clamp(1 << 10, 1 << 17);
    most.max(groups.saturating_mul(2))
}

/// Blocks of one volume.
pub struct BlockAlloc {
    groups: Chunked<BlockGroup>,
    geometry: Grown<Geometry>,
    /// Groups that there is room for.
    room: u32,
    scan: BlockScan,
    pub(super) ranks: Ranks,
    pub(super) goals: Goals,
    pub(crate) contention: Arc<Contention>,
    /// The work of searches, for statistics.
    pub(crate) searches: Searches,
    /// Number of calls that freed blocks.
    times_freed: Counter,
    /// Bitmaps in memory.
    bound: Bound,
}

impl BlockAlloc {
    /// Makes an allocator with no group read. Bitmaps in memory take about `memory` bytes, at most.
    pub fn new(
        geometry: &Geometry,
        scan: BlockScan,
        memory: u64,
        contention: Arc<Contention>,
    ) -> Self {
        // All levels of a bitmap are as large as two bitmaps.
        let each = u64::from(geometry.blocks_per_group / 4);
        let room = room_for(geometry.groups);
        Self {
            groups: Chunked::new(geometry.groups),
            geometry: Grown::new(geometry.clone()),
            room,
            scan,
            ranks: Ranks::new(geometry.groups, room),
            goals: Goals::new(geometry.groups),
            contention,
            searches: Searches::default(),
            times_freed: Counter::new(),
            bound: Bound::new(memory, each),
        }
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the number of groups that the volume can grow to while it is open.
    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    /// Grows the volume. The last group before the growth is in memory, and its new blocks are free from now on. The
    /// new groups are free as well.
    pub(crate) fn grow(&self, new: &Geometry) {
        let old = self.geometry.newest();
        let last = old.groups.saturating_sub(1);
        let longer = new.blocks_in_group(GroupNr(last));
        self.groups.grow(new.groups - old.groups);
        // The geometry changes with the lock held, so that a bitmap always has the length that the geometry requires.
        let group = self.groups.get(last);
        let mut guard = group.map(|group| group.buddy.lock());
        let more = longer - old.blocks_in_group(GroupNr(last));
        if let (Some(group), true) = (group, more > 0) {
            match guard.as_deref_mut() {
                Some(Some(buddy)) => {
                    **buddy = buddy.longer(longer);
                    group.free.store(buddy.free(), Ordering::Relaxed);
                    self.ranks.update(last, &group.rank, buddy);
                }
                _ if group.skipped() => {}
                _ => drop(group.free.fetch_add(more, Ordering::Relaxed)),
            }
        }
        let first = old.groups;
        self.geometry.grow(new.clone());
        drop(guard);
        (first..new.groups).for_each(|group| self.ranks.unread.insert(group));
    }

    pub(super) fn scan(&self) -> BlockScan {
        self.scan
    }

    pub(super) fn count(&self) -> u32 {
        self.geometry.groups
    }

    /// Returns the number of calls that freed blocks, for comparison.
    pub(super) fn times_freed(&self) -> i64 {
        // Pairs with the fence of `mark_free`: a block that was counted as free before is seen.
        std::sync::atomic::fence(Ordering::SeqCst);
        self.times_freed.sum()
    }

    /// Returns the number of free blocks of a group, or none if the group is not used for allocating.
    pub(super) fn free_of(&self, group: u32, source: &dyn GroupSource) -> Result<u32> {
        let group = self.group(group, source)?;
        Ok(if group.skipped() { 0 } else { group.free() })
    }

    /// Returns true if threads compete for groups [B3].
    pub fn is_busy(&self) -> bool {
        self.contention.is_busy()
    }

    /// Returns the number of blocks that are free by the bitmaps of all groups.
    #[cfg(test)]
    pub(crate) fn free_in_bitmaps(&self, source: &dyn GroupSource) -> Result<u64> {
        (0..self.count()).try_fold(0, |sum, g| {
            Ok(sum + u64::from(self.group(g, source)?.free()))
        })
    }

    /// Returns a group, with its count of free blocks.
    pub(super) fn group(&self, index: u32, source: &dyn GroupSource) -> Result<&BlockGroup> {
        let found = self.groups.get_or_make(index, |g| {
            // A descriptor that breaks a rule is reported, and its group is not used.
            let (free, skip) = match source.free_blocks(GroupNr(g)) {
                Ok(free) => (free, false),
                Err(Error::Format(e)) => {
                    tracing::error!(group = g, error = %e, "group descriptor refused");
                    (0, true)
                }
                Err(e) => return Err(e),
            };
            Ok(BlockGroup {
                buddy: Mutex::new(None),
                free: AtomicU32::new(free),
                rank: Rank::default(),
                skip: AtomicBool::new(skip),
            })
        })?;
        let bad = || FormatError::corrupt("group number", Where::Group(GroupNr(index)));
        Ok(found.ok_or_else(bad)?)
    }

    /// Returns the number of groups in memory.
    #[cfg(test)]
    fn in_memory(&self) -> usize {
        self.groups.in_memory().count()
    }

    /// Reads the group's bitmap; its lock is held.
    fn read(&self, index: u32, group: &BlockGroup, source: &dyn GroupSource) -> Result<Box<Buddy>> {
        let words = source.block_bitmap(GroupNr(index))?;
        let buddy = Box::new(Buddy::new(
            &words,
            self.geometry.blocks_in_group(GroupNr(index)),
        ));
        let counted = group.free.swap(buddy.free(), Ordering::Relaxed);
        if counted > buddy.free() {
            tracing::error!(
                group = index,
                counted,
                free = buddy.free(),
                "count of free blocks"
            );
            source.lost(counted - buddy.free());
        }
        self.ranks.update(index, &group.rank, &buddy);
        self.ranks.unread.remove(index);
        self.bound.came();
        Ok(buddy)
    }

    /// Bitmaps in memory.
    #[cfg(test)]
    pub fn loaded(&self) -> u32 {
        self.bound.loaded()
    }

    /// Returns [`Bound::excess`].
    #[inline]
    pub fn excess(&self) -> u32 {
        self.bound.excess()
    }

    /// Returns [`Bound::has_shrunk`].
    pub fn has_shrunk(&self) -> bool {
        self.bound.has_shrunk()
    }

    /// Drops bitmaps that equal their image, until a fifth fewer than the limit are in memory. The caller makes sure
    /// that no image is published meanwhile.
    ///
    /// Bitmaps that differ stay: some of their blocks were taken and are in no image yet, or are set aside, or were
    /// freed by an image that is not on disk yet. One case remains, a free that was logged and is in no image: the push
    /// that formats it loads the bitmap before it publishes.
    pub fn shrink(&self, source: &dyn GroupSource) {
        if !self.bound.is_over() {
            return;
        }
        self.bound.walk(self.count(), |at| {
            let in_memory = |g: &&BlockGroup| g.buddy.try_lock().is_some_and(|b| b.is_some());
            let Some(group) = self.groups.get(at).filter(in_memory) else {
                return Looked::Absent;
            };
            let Ok(words) = source.block_bitmap(GroupNr(at)) else {
                return Looked::Stays;
            };
            let Some(mut guard) = group.buddy.try_lock() else {
                return Looked::Stays;
            };
            if !guard.as_deref().is_some_and(|buddy| buddy.agrees(&words)) {
                return Looked::Stays;
            }
            *guard = None;
            self.ranks.unread.insert(at);
            self.ranks.forget(at, &group.rank);
            Looked::Left
        });
    }

    /// Stops using a group whose bitmap breaks a rule.
    fn refuse(
        &self,
        index: u32,
        group: &BlockGroup,
        error: &FormatError,
        source: &dyn GroupSource,
    ) {
        tracing::error!(group = index, error = %error, "block bitmap refused");
        group.skip.store(true, Ordering::Relaxed);
        self.ranks.unread.remove(index);
        source.lost(group.free.swap(0, Ordering::Relaxed));
    }

    /// Takes the blocks that `find` finds in a group. A busy lock is passed over [B1] unless `wait`.
    pub(super) fn take_from(
        &self,
        index: u32,
        wait: bool,
        source: &dyn GroupSource,
        find: impl FnOnce(&Buddy) -> Option<(u32, u32)>,
    ) -> Result<Option<(BlockNr, u32)>> {
        let group = self.group(index, source)?;
        if group.skipped() {
            return Ok(None);
        }
        let guard = group.buddy.try_lock();
        self.contention.note(guard.is_none());
        if guard.is_none() {
            self.searches.busy();
        }
        let mut guard = match guard {
            Some(guard) => guard,
            None if wait => group.buddy.lock(),
            None => return Ok(None),
        };
        if guard.is_none() {
            match self.read(index, group, source) {
                Ok(buddy) => *guard = Some(buddy),
                Err(Error::Format(e)) => {
                    self.refuse(index, group, &e, source);
                    return Ok(None);
                }
                Err(e) => return Err(e),
            }
        }
        // The search is repeated with the lock held [B2].
        let Some(buddy) = guard.as_deref_mut() else {
            return Ok(None);
        };
        let Some((start, len)) = find(buddy).filter(|&(_, len)| len > 0) else {
            self.searches.failed();
            return Ok(None);
        };
        let free = buddy.run_at(start, len);
        insist!(
            free == len,
            TakenWasFree,
            "{free} of {len} blocks at {start} of group {index}"
        );
        buddy.take(start, len);
        group.free.store(buddy.free(), Ordering::Relaxed);
        self.ranks.update(index, &group.rank, buddy);
        let first = self.geometry.group_first_block(GroupNr(index));
        Ok(Some((BlockNr(first.0 + u64::from(start)), len)))
    }

    /// Takes the first fitting run of free blocks in a range of a group, or the wanted part of it.
    pub(crate) fn take_free(
        &self,
        group: GroupNr,
        range: std::ops::Range<u32>,
        wanted: &RunRequest,
        source: &dyn GroupSource,
    ) -> Result<Option<(BlockNr, u32)>> {
        self.take_from(group.0, true, source, |buddy| {
            let here = buddy.run_at(range.start, range.end.saturating_sub(range.start));
            let (start, len) = if wanted.any_at_start && here > 0 {
                (range.start, here)
            } else {
                buddy.free_in(range.start, range.end, wanted.least)?
            };
            Some((start, len.min(wanted.most)))
        })
    }

    /// Loads the bitmaps of these blocks. A caller that frees blocks loads them before it logs the free, so that the
    /// image read never holds half of a logged change. A bitmap that breaks a rule is not used for allocating, now or
    /// later, but blocks of files can still be freed in it.
    pub fn ensure_loaded(&self, start: BlockNr, len: u32, source: &dyn GroupSource) -> Result<()> {
        self.each_group(start, len, |index, from, to| {
            let group = self.group(index, source)?;
            let mut guard = self.contention.lock(&group.buddy);
            if guard.is_some() {
                return Ok(());
            }
            match self.read(index, group, source) {
                Ok(buddy) => *guard = Some(buddy),
                Err(Error::Format(e @ FormatError::Corrupt { .. })) => {
                    self.refuse(index, group, &e, source);
                    return source.check_in_use(GroupNr(index), from, to);
                }
                Err(e) => return Err(e),
            }
            Ok(())
        })
    }

    /// Marks blocks as free: the context that frees them is durable, or they were never logged.
    pub fn mark_free(&self, start: BlockNr, len: u32) -> Result<()> {
        self.each_group(start, len, |index, from, to| {
            // A group that was never read equals its image, which contains the free by now.
            let Some(group) = self.groups.get(index) else {
                return Ok(());
            };
            let mut guard = self.contention.lock(&group.buddy);
            match guard.as_deref_mut() {
                Some(buddy) => {
                    let given = buddy.give(from, to - from);
                    insist!(
                        given == to - from,
                        FreedWasUsed,
                        "{given} of {} blocks at {from} of group {index}",
                        to - from
                    );
                    group.free.store(buddy.free(), Ordering::Relaxed);
                    self.ranks.update(index, &group.rank, buddy);
                }
                None if group.skipped() => {}
                None => {
                    group.free.fetch_add(to - from, Ordering::Relaxed);
                }
            }
            Ok(())
        })?;
        self.times_freed.add(1);
        std::sync::atomic::fence(Ordering::SeqCst);
        Ok(())
    }

    fn each_group(
        &self,
        start: BlockNr,
        len: u32,
        mut f: impl FnMut(u32, u32, u32) -> Result<()>,
    ) -> Result<()> {
        let (mut at, mut left) = (start, len);
        while left > 0 {
            let (group, bit) = self.geometry.group_of_block(at).ok_or_else(|| {
                FormatError::corrupt("block outside the volume", Where::Block(at, 0))
            })?;
            let here = left.min(self.geometry.blocks_in_group(group).saturating_sub(bit));
            if here == 0 {
                return Err(
                    FormatError::corrupt("block outside its group", Where::Block(at, 0)).into(),
                );
            }
            f(group.0, bit, bit + here)?;
            at = BlockNr(at.0 + u64::from(here));
            left -= here;
        }
        Ok(())
    }

    /// Returns a goal for a file without blocks: in the inode's group, spread over it by number.
    pub fn goal_for(&self, group: GroupNr, spread: u32) -> BlockNr {
        let blocks = self.geometry.blocks_in_group(group);
        let first = self.geometry.group_first_block(group);
        BlockNr(first.0 + u64::from(blocks / 4 * (spread % 4)))
    }
}

#[cfg(test)]
#[path = "block_tests.rs"]
pub(crate) mod tests;
