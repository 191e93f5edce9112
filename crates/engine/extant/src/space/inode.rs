//! Inode allocation, mechanisms I1–I4 with L2–L4.
//!
//! - I1, L3: a free bit is found and set by one atomic test-and-set of its word, after the transaction was opened. A
//!   thread that loses the race for a bit continues in the same word. Nothing is found unlocked, then locked, tested
//!   and retried.
//! - I2: a reserved inode found free in group 0 is an error on the file system; the group is skipped.
//! - I3: without a journal a number freed moments ago is not allocated again; see [`InodeAlloc::release`].
//! - I4: the search wraps over all groups from the parent's; directories spread by Orlov's rule, see
//!   [`crate::space::orlov`].
//! - L4: free counts are per group and per stretch; a full volume is found by searching the groups.
//!
//! Each slot draws from a separate stretch of a group, one cache line of the bitmap, so that slots that create in one
//! directory do not share lines.
//!
//! A group's bitmap is loaded when a number of it is first wanted or freed. When too many are in memory, bitmaps are
//! evicted that equal their image and hold no slot's stretch ([`InodeAlloc::shrink`]). A slot holds the bitmap of its
//! stretch itself, so drawing from it neither writes nor reads the group's lines.

use crate::base::chunked::Chunked;
use crate::base::error::{Error, Result};
use crate::base::failing::{self, Call};
use crate::base::locks::{self, Mutex};
use crate::space::allocated::{Allocated, DIRECTORY, first_taken};
use crate::space::bound::{Bound, Looked};
use crate::space::contention::Contention;
use crate::space::inode_source::InodeSource;
use crate::space::orlov::{Directories, InodePurpose, Turns};
use crossbeam_utils::CachePadded;
use ext4_format::geometry::Geometry;
use ext4_format::{FormatError, GroupNr, InodeNr, Where};
use percpu::{AtomicBitmap, Counter, PerSlot};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Inodes of one stretch: 512 bits, one cache line of the bitmap, 32 table blocks.
pub(super) const STRETCH: u32 = 512;
/// Stretches that a slot keeps: one in each group of a flex group, over which directories take turns.
pub(super) const KEPT: usize = 16;
/// Time for which a number rests without a journal [I3].
const RECENTLY_DELETED: Duration = Duration::from_secs(5);

/// A bitmap, apart from the count of its references.
type Bits = CachePadded<AtomicBitmap>;

/// Bytes of a bitmap in memory beyond its bits, about.
const BESIDES: u64 = 320;

/// In-core inode bitmap and counts of one group.
pub struct InodeGroup {
    claims: Claims,
    state: GroupState,
}

/// The fields that claims and releases write. They have a separate cache line, because different threads use
/// neighbouring groups.
#[repr(align(64))]
struct Claims {
    /// Held while the bitmap is read, so that the image is not older than any allocation.
    bits: Mutex<Option<Arc<Bits>>, locks::InodeGroup>,
    /// Free inodes outside all claimed stretches; may be off while stretches are claimed.
    free: AtomicI64,
    /// Start of the next stretch to claim.
    cursor: AtomicU32,
    /// Directories, those not yet logged and those being freed too, without those that slots have yet to count here: a
    /// hint for where to put the next.
    dirs: AtomicI64,
}

/// The fields that freeing a number reads.
#[repr(align(64))]
struct GroupState {
    /// The bitmap is in memory. Written with its lock held.
    loaded: AtomicBool,
    /// The group breaks a rule and is not used.
    skip: AtomicBool,
    /// Free inodes when the group was loaded.
    found: u32,
}

impl InodeGroup {
    pub(super) fn free(&self) -> i64 {
        self.claims.free.load(Ordering::Relaxed)
    }

    /// Adds to the count of free inodes.
    fn add_free(&self, change: i64) {
        self.claims.free.fetch_add(change, Ordering::Relaxed);
    }

    /// Returns the number of directories, without those that slots have yet to count here.
    pub(super) fn directories(&self) -> i64 {
        self.claims.dirs.load(Ordering::Relaxed)
    }

    /// Adds to the count of directories.
    pub(super) fn add_directories(&self, change: i64) {
        self.claims.dirs.fetch_add(change, Ordering::Relaxed);
    }

    fn is_loaded(&self) -> bool {
        self.state.loaded.load(Ordering::Relaxed)
    }

    fn is_skipped(&self) -> bool {
        self.state.skip.load(Ordering::Relaxed)
    }

    fn skip(&self) {
        self.state.skip.store(true, Ordering::Relaxed);
    }
}

struct Stretch {
    group: u32,
    bits: Arc<Bits>,
    next: u32,
    end: u32,
    /// Free numbers in it that are off the group's count.
    left: u32,
}

#[derive(Default)]
pub(super) struct SlotNumbers {
    stretches: [Option<Stretch>; KEPT],
    pub(super) directories: Directories,
    /// A full home group, and the group that was found instead: the next search from that home begins there and skips
    /// the full groups in between.
    overflow: Option<(u32, u32)>,
    /// Numbers allocated and freed in one open context.
    born_free: Vec<Allocated>,
}

/// Inode numbers of one volume.
pub struct InodeAlloc {
    pub(super) groups: Chunked<InodeGroup>,
    bound: CachePadded<Bound>,
    contention: Arc<Contention>,
    /// Free inodes at open, and those added when the volume grew.
    pub(super) found: AtomicU64,
    pub(super) per_group: u32,
    first_ino: u32,
    /// Index of the first number of group 0 that is taken as long as there are others.
    first_taken: u32,
    pub(super) flex_log: u8,
    pub(super) slots: PerSlot<Mutex<SlotNumbers, locks::InodeStretches>>,
    /// Numbers that rest without a journal.
    resting: Mutex<VecDeque<(Instant, InodeNr)>, locks::Resting>,
    /// Numbers that are freed, but in use until the context that frees them is durable.
    leaving: Counter,
    /// Numbers that were ever made free to be taken again.
    released: AtomicU64,
    /// Turns of new directories over the groups, for each slot.
    pub(super) turns: PerSlot<Turns>,
    pub(super) blocks_per_group: u32,
}

impl InodeAlloc {
    /// Makes an allocator for a volume with `free` free inodes. Each group is read when it is first looked at. Bitmaps
    /// in memory take about `memory` bytes, at most.
    pub fn new(geometry: &Geometry, free: u64, memory: u64, contention: Arc<Contention>) -> Self {
        let per_group = geometry.inodes_per_group;
        Self {
            groups: Chunked::new(geometry.groups),
            bound: CachePadded::new(Bound::new(memory, u64::from(per_group / 8) + BESIDES)),
            contention,
            found: AtomicU64::new(free),
            per_group,
            first_ino: geometry.first_ino,
            first_taken: first_taken(geometry),
            flex_log: geometry.log_groups_per_flex,
            slots: PerSlot::default(),
            resting: Mutex::default(),
            leaving: Counter::new(),
            released: AtomicU64::new(0),
            turns: PerSlot::new(|slot| Turns::of_slot(slot.index())),
            blocks_per_group: geometry.blocks_per_group,
        }
    }

    fn locate(&self, ino: InodeNr) -> (u32, u32) {
        let zero_based = ino.0.saturating_sub(1);
        (zero_based / self.per_group, zero_based % self.per_group)
    }

    fn number(&self, group: u32, index: u32) -> InodeNr {
        InodeNr(group * self.per_group + index + 1)
    }

    /// Returns a group, with its counts.
    pub(super) fn group(&self, group: u32, source: &dyn InodeSource) -> Result<&InodeGroup> {
        let found = self.groups.get_or_make(group, |g| {
            // A descriptor that breaks a rule is reported, and its group is not used.
            let counts = source.free_inodes(GroupNr(g));
            let counts = counts.and_then(|free| Ok((free, source.directories(GroupNr(g))?)));
            let (free, dirs, skip) = match counts {
                Ok((free, dirs)) => (free, dirs, false),
                Err(Error::Format(e)) => {
                    tracing::error!(group = g, error = %e, "group descriptor refused");
                    (0, 0, true)
                }
                Err(e) => return Err(e),
            };
            Ok(InodeGroup {
                claims: Claims {
                    bits: Mutex::new(None),
                    free: AtomicI64::new(i64::from(free)),
                    cursor: AtomicU32::new(0),
                    dirs: AtomicI64::new(dirs.into()),
                },
                state: GroupState {
                    loaded: AtomicBool::new(false),
                    skip: AtomicBool::new(skip),
                    found: free,
                },
            })
        })?;
        let bad = || FormatError::corrupt("group number", Where::Group(GroupNr(group)));
        Ok(found.ok_or_else(bad)?)
    }

    /// Returns the bitmap of a group, read if it is not in memory.
    fn bits(&self, g: &InodeGroup, group: u32, source: &dyn InodeSource) -> Result<Arc<Bits>> {
        let mut guard = self.contention.lock(&g.claims.bits);
        if let Some(bits) = &*guard {
            return Ok(Arc::clone(bits));
        }
        let words = source.inode_bitmap(GroupNr(group), self.has_shrunk())?;
        if group == 0 {
            let reserved = (1u64 << (self.first_ino - 1).min(63)) - 1;
            if words.first().is_none_or(|w| w & reserved != reserved) {
                g.skip();
                return Err(FormatError::corrupt(
                    "reserved inodes marked free",
                    Where::Group(GroupNr(0)),
                )
                .into());
            }
        }
        let bits = Arc::new(CachePadded::new(AtomicBitmap::new(words)));
        *guard = Some(Arc::clone(&bits));
        g.state.loaded.store(true, Ordering::Relaxed);
        self.bound.came();
        Ok(bits)
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

    /// Drops bitmaps that equal their image and that no slot holds, until a fifth fewer than the limit are in memory.
    /// The caller makes sure that no image is published meanwhile, and that all contexts up to `formatted` are
    /// published.
    ///
    /// Bitmaps that differ stay: some of their numbers were allocated and are in no image yet, or were freed by an
    /// image that is not on disk yet, or still rest. One case remains, a free that was logged and is in no image: the
    /// push that formats it loads the bitmap before it publishes.
    pub fn shrink(&self, formatted: u64, source: &dyn InodeSource) {
        if !self.bound.is_over() {
            return;
        }
        self.wake_resting(Instant::now());
        // Numbers of formatted contexts that a slot keeps for its next file are in no image any more, so any slot may
        // take them.
        for slot in self.slots.iter() {
            let mut over = Vec::new();
            slot.lock().born_free.retain(|n| {
                let stays = n.context > formatted;
                if !stays {
                    over.push(n.ino);
                }
                stays
            });
            self.clear(over);
        }
        self.bound.walk(self.groups.len(), |at| {
            let Some(g) = self.groups.get(at).filter(|g| g.is_loaded()) else {
                return Looked::Absent;
            };
            let Ok(words) = source.inode_bitmap(GroupNr(at), true) else {
                return Looked::Stays;
            };
            let Some(mut guard) = g.claims.bits.try_lock() else {
                return Looked::Stays;
            };
            // A slot takes its reference with the lock held.
            let unheld = guard.as_mut().and_then(Arc::get_mut);
            if !unheld.is_some_and(|bits| bits.agrees(&words)) {
                return Looked::Stays;
            }
            *guard = None;
            g.state.loaded.store(false, Ordering::Relaxed);
            Looked::Left
        });
    }

    /// Takes a free number near `parent`. For a directory [`InodeAlloc::directory_group`] chooses the group. `source`
    /// is read for groups that are not in memory.
    #[inline(always)]
    pub fn allocate(
        &self,
        parent: InodeNr,
        wanted: InodePurpose,
        source: &dyn InodeSource,
    ) -> Result<Allocated> {
        if failing::now(Call::Number) {
            return Err(Error::NoSpace("no free inode"));
        }
        match self.at_hand(parent, wanted.is_dir()) {
            Some(allocated) => Ok(allocated),
            None => self.search(parent, wanted, source),
        }
    }

    /// Returns a number for a file without a search: one that the slot has freed in this context, or the next of its
    /// stretch.
    #[inline(always)]
    fn at_hand(&self, parent: InodeNr, is_dir: bool) -> Option<Allocated> {
        if is_dir {
            return None;
        }
        let mut share = self.slots.local().lock();
        if let Some(allocated) = share.born_free.pop() {
            return Some(allocated);
        }
        let home = self.locate(parent).0;
        let group = match share.overflow {
            Some((full, other)) if full == home => other,
            _ => home,
        };
        let stretch = share.stretches[group as usize % KEPT].as_mut()?;
        // A number that was freed after the stretch was claimed is counted by the group.
        if stretch.group != group || stretch.left == 0 {
            return None;
        }
        let index = stretch.bits.take(stretch.next, stretch.end)?;
        (stretch.next, stretch.left) = (index + 1, stretch.left - 1);
        Some(Allocated::new(self.number(group, index)))
    }

    #[cold]
    #[inline(never)]
    fn search(
        &self,
        parent: InodeNr,
        wanted: InodePurpose,
        source: &dyn InodeSource,
    ) -> Result<Allocated> {
        if !wanted.is_dir() {
            return self.allocate_from(self.locate(parent).0, parent, false, source);
        }
        let home = self.directory_group(parent, wanted, source)?;
        let found = self.allocate_from(home, parent, true, source)?;
        self.count_directory(found.ino, 1);
        let context = found.context | DIRECTORY;
        Ok(Allocated { context, ..found })
    }

    fn allocate_from(
        &self,
        home: u32,
        parent: InodeNr,
        is_dir: bool,
        source: &dyn InodeSource,
    ) -> Result<Allocated> {
        let mut share = self.slots.local().lock();
        if !is_dir && let Some(allocated) = share.born_free.pop() {
            return Ok(allocated);
        }
        let start = share
            .overflow
            .filter(|(full, _)| *full == home)
            .map_or(home, |(_, group)| group);
        // Waiting for the lock of a group that two directories share would gain nothing [L4].
        let take = || self.take_from_group(&mut share, start, source);
        if let Some(ino) = lockmeter::wanting(parent.0.into(), take)? {
            return Ok(Allocated::new(ino));
        }
        share.overflow = None;
        drop(share);
        self.wake_resting(Instant::now());
        let count = self.groups.len();
        for pass in 0..2 {
            for step in 0..count {
                let group = (home + step) % count;
                let g = self.group(group, source)?;
                // Claims of slots make the counts inexact, so the second pass looks at every bitmap in memory. In a
                // group without a bitmap in memory no slot has claimed anything.
                let counted = pass == 0 || !g.is_loaded();
                if counted && g.free() <= 0 {
                    continue;
                }
                let mut share = self.slots.local().lock();
                let found = if pass == 0 {
                    self.take_from_group(&mut share, group, source)?
                } else {
                    self.any_in(g, group, source)?
                };
                if let Some(ino) = found {
                    share.overflow = Some((home, group));
                    return Ok(Allocated::new(ino));
                }
            }
        }
        // The last resort: numbers that other slots keep, and resting ones.
        for slot in self.slots.iter() {
            if let Some(allocated) = slot.lock().born_free.pop() {
                return Ok(allocated);
            }
        }
        if let Some((_, ino)) = self.resting.lock().pop_front() {
            return Ok(Allocated::new(ino));
        }
        Err(Error::NoSpace("no free inode"))
    }

    /// Takes a number of the slot's stretch in a group, or of one that it claims: the bit is found and set at once
    /// [I1].
    fn take_from_group(
        &self,
        share: &mut SlotNumbers,
        group: u32,
        source: &dyn InodeSource,
    ) -> Result<Option<InodeNr>> {
        let g = self.group(group, source)?;
        let kept = &mut share.stretches[group as usize % KEPT];
        if let Some(other) = kept.take_if(|s| s.group != group) {
            self.group(other.group, source)?
                .add_free(i64::from(other.left));
        }
        loop {
            if kept.is_none() {
                if g.is_skipped() || g.free() <= 0 {
                    return Ok(None);
                }
                *kept = match self.claim(g, group, source) {
                    Ok(claimed) => claimed,
                    // A group that breaks a rule is reported and skipped, and the search continues.
                    Err(Error::Format(e)) => {
                        g.skip();
                        tracing::error!(group, error = %e, "inode bitmap refused");
                        return Ok(None);
                    }
                    Err(e) => return Err(e),
                };
            }
            let Some(stretch) = kept else {
                return Ok(None);
            };
            if let Some(index) = stretch.bits.take(stretch.next, stretch.end) {
                stretch.next = index + 1;
                match stretch.left.checked_sub(1) {
                    Some(left) => stretch.left = left,
                    // The number was freed after the stretch was claimed: the group has counted it.
                    None => {
                        g.add_free(-1);
                    }
                }
                return Ok(Some(self.number(group, index)));
            }
            g.add_free(i64::from(stretch.left));
            *kept = None;
        }
    }

    fn claim(
        &self,
        g: &InodeGroup,
        group: u32,
        source: &dyn InodeSource,
    ) -> Result<Option<Stretch>> {
        let bits = self.bits(g, group, source)?;
        let stretches = self.per_group.div_ceil(STRETCH);
        for _ in 0..stretches {
            let at = g.claims.cursor.fetch_add(1, Ordering::Relaxed) % stretches;
            let (start, end) = (at * STRETCH, ((at + 1) * STRETCH).min(self.per_group));
            let left = bits.free_in(start, end);
            if left > 0 {
                g.add_free(-i64::from(left));
                let skips = group == 0
                    && (start..end).contains(&self.first_taken)
                    && bits.free_in(self.first_taken, end) > 0;
                return Ok(Some(Stretch {
                    group,
                    bits,
                    next: if skips { self.first_taken } else { start },
                    end,
                    left,
                }));
            }
        }
        Ok(None)
    }

    /// Takes any free number of a group, also inside stretches.
    fn any_in(
        &self,
        g: &InodeGroup,
        group: u32,
        source: &dyn InodeSource,
    ) -> Result<Option<InodeNr>> {
        if g.is_skipped() {
            return Ok(None);
        }
        let bits = match self.bits(g, group, source) {
            Ok(bits) => bits,
            Err(Error::Format(_)) => {
                g.skip();
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let found = bits.take(0, self.per_group);
        Ok(found.map(|index| {
            g.add_free(-1);
            self.number(group, index)
        }))
    }

    pub(super) fn group_count(&self) -> u32 {
        self.groups.len()
    }

    pub(super) fn group_of(&self, ino: InodeNr) -> u32 {
        self.locate(ino).0
    }

    /// Notes a number that was allocated and freed in the open context `context`: it is free again at once, for the
    /// slot that freed it. `stamp` is that of the free.
    pub fn release_at_once(&self, ino: InodeNr, stamp: u64, context: u64) {
        let freed = Allocated {
            ino,
            after: stamp,
            context,
        };
        self.slots.local().lock().born_free.push(freed);
    }

    /// Returns how many numbers were made free to be taken until now. A caller that finds none may retry if this number
    /// has grown, because other threads took them.
    pub fn released(&self) -> u64 {
        self.released.load(Ordering::Relaxed)
    }

    /// Counts a number that an operation freed. It can be allocated once the operation is durable.
    pub fn note_leaving(&self) {
        self.leaving.add(1);
    }

    /// Returns a number that was just allocated and for which nothing was logged.
    #[cold]
    #[inline(never)]
    pub fn undo(&self, mut allocated: Allocated) {
        if allocated.context & DIRECTORY != 0 {
            allocated.context &= !DIRECTORY;
            self.count_directory(allocated.ino, -1);
        }
        match allocated.after {
            0 => self.clear([allocated.ino]),
            _ => self.slots.local().lock().born_free.push(allocated),
        }
    }

    /// Frees numbers whose context is durable. With `rest` they stay unused for five seconds. Volumes without a journal
    /// need that, because a crash could leave the directory entry of a number's last life [I3]. ext4 counts from the
    /// deletion, and waits longer while the inode's block of the table is not written. Here that block is on the device
    /// by now, whatever the inode was. Numbers of directories rest like numbers of files, and neither kind of request
    /// gets a resting number.
    pub fn release(&self, numbers: Vec<InodeNr>, rest: bool) {
        self.release_at(numbers, rest, Instant::now());
    }

    fn release_at(&self, numbers: Vec<InodeNr>, rest: bool, now: Instant) {
        self.leaving.add(-(numbers.len() as i64));
        if rest {
            self.wake_resting(now);
            let numbers = numbers.into_iter().map(|ino| (now, ino));
            self.resting.lock().extend(numbers);
        } else {
            self.clear(numbers);
        }
    }

    fn wake_resting(&self, now: Instant) {
        let mut resting = self.resting.lock();
        let rested = |(since, _): &(Instant, InodeNr)| {
            now.saturating_duration_since(*since) >= RECENTLY_DELETED
        };
        let awake = resting.iter().take_while(|n| rested(n)).count();
        let awake: Vec<_> = resting.drain(..awake).map(|(_, ino)| ino).collect();
        drop(resting);
        self.clear(awake);
    }

    /// Clears the bits of numbers; those of one group that follow each other are cleared together.
    fn clear(&self, numbers: impl AsRef<[InodeNr]>) {
        let same_group = |a: &InodeNr, b: &InodeNr| self.locate(*a).0 == self.locate(*b).0;
        for numbers in numbers.as_ref().chunk_by(same_group) {
            let group = numbers.first().map_or(0, |&ino| self.locate(ino).0);
            // A group that was never read, or whose bitmap was evicted, equals its image, which contains the free by
            // now.
            let Some(g) = self.groups.get(group) else {
                continue;
            };
            let first = numbers.first().map_or(0, |ino| ino.0);
            if let Some(bits) =
                &*lockmeter::wanting(first.into(), || self.contention.lock(&g.claims.bits))
            {
                for &ino in numbers {
                    bits.give(self.locate(ino).1);
                }
            }
            // The sum is at most the number of inodes.
            g.add_free(numbers.len() as i64);
            self.released
                .fetch_add(numbers.len() as u64, Ordering::Relaxed);
        }
    }

    /// Returns true if the bitmap of a number's group is in memory.
    #[inline]
    pub fn is_loaded(&self, ino: InodeNr) -> bool {
        let group = self.groups.get(self.locate(ino).0);
        group.is_some_and(InodeGroup::is_loaded)
    }

    /// Loads the group's bitmap. A caller that frees a number loads it before it logs the free, so that the image read
    /// never holds half of a logged change.
    pub fn ensure_loaded(&self, ino: InodeNr, source: &dyn InodeSource) -> Result<()> {
        let group = self.locate(ino).0;
        let g = self.group(group, source)?;
        if g.is_loaded() {
            return Ok(());
        }
        match self.bits(g, group, source) {
            // The bitmap can be read and breaks a rule: it is not used for allocating, but numbers can be freed in
            // it.
            Err(Error::Format(FormatError::Corrupt { .. })) => {
                g.skip();
                source.check_in_use(ino)
            }
            other => other.map(drop),
        }
    }

    /// Returns the number of free inodes: those found at open, with the changes of groups that were looked at, and the
    /// numbers that are resting or held by slots.
    pub fn free(&self) -> u64 {
        let changes: i64 = self
            .groups
            .in_memory()
            .map(|g| g.free() - i64::from(g.state.found))
            .sum();
        let groups = i64::try_from(self.found.load(Ordering::Relaxed))
            .unwrap_or(i64::MAX)
            .saturating_add(changes);
        let held: u64 = self
            .slots
            .iter()
            .map(|slot| {
                let share = slot.lock();
                let left: u64 = share
                    .stretches
                    .iter()
                    .flatten()
                    .map(|s| u64::from(s.left))
                    .sum();
                left + share.born_free.len() as u64
            })
            .sum();
        let leaving = u64::try_from(self.leaving.sum()).unwrap_or(0);
        groups.saturating_add_unsigned(held).max(0) as u64
            + self.resting.lock().len() as u64
            + leaving
    }
}

#[cfg(test)]
#[path = "inode_tests.rs"]
mod tests;
