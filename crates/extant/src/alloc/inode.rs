//! Inode allocation, mechanisms I1–I4 with L2–L4.
//!
//! - I1, L3: a free bit is found and set by one atomic test-and-set of its word, the transaction having
//!   been opened before; who loses the race for a bit goes on in the same word. Nothing is found
//!   unlocked, then locked, tested and retried.
//! - I2: a reserved inode found free in group 0 is an error on the file system; the group is skipped.
//! - I3: without a journal a number freed moments ago is not handed out again; see [`InodeAlloc::release`].
//! - I4: the search wraps over all groups from the parent's; directories spread by flex group (Orlov).
//! - L4: free counts are per group and per stretch; a full volume is found by searching the groups.
//!
//! Each slot draws from a stretch of its own in a group, a cache line of the bitmap, so that slots
//! that create in one directory do not meet.

use crate::chunked::Chunked;
use crate::error::{Error, Result};
use crate::locks::{self, Mutex};
use crossbeam_utils::CachePadded;
use ext4_format::geometry::Geometry;
use ext4_format::{FormatError, GroupNr, InodeNr, Where};
use percpu::{AtomicBitmap, PerSlot};
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Inodes of one stretch: 512 bits, one cache line of the bitmap, 32 table blocks.
const STRETCH: u32 = 512;
/// Stretches a slot keeps at hand: one in each group of a flex group, over which directories take turns.
const KEPT: usize = 16;
/// How long a number rests without a journal [I3].
const RECENTLY_DELETED: Duration = Duration::from_secs(5);

/// In-core inode bitmap and counts of one group.
pub struct InodeGroup {
    bits: OnceLock<AtomicBitmap>,
    /// What changes with every claim, apart from what every allocation reads.
    claims: CachePadded<Claims>,
    /// The group breaks a rule and is not used.
    skip: AtomicBool,
    /// Free inodes when it came into memory.
    found: u32,
}

struct Claims {
    /// Free inodes outside all claimed stretches; may be off while stretches are claimed.
    free: AtomicI64,
    /// Start of the next stretch to claim.
    cursor: AtomicU32,
}

/// Context in which the log was last charged for each block of a group's inode table.
type Charged = OnceLock<Box<[AtomicU64]>>;

/// Where groups come from.
pub trait InodeSource {
    /// Free inodes of a group, by its descriptor.
    fn free_inodes(&self, group: GroupNr) -> Result<u32>;
    /// A group's bitmap: one bit per inode, those past the group's end set.
    fn inode_bitmap(&self, group: GroupNr) -> Result<Vec<u64>>;
}

#[derive(Clone, Copy)]
struct Stretch {
    group: u32,
    next: u32,
    end: u32,
    /// Free numbers in it that are off the group's count.
    left: u32,
}

#[derive(Default)]
struct SlotShare {
    stretches: [Option<Stretch>; KEPT],
    /// A full home group, and the group that was found instead: the next search from that home begins
    /// there, not with all the full groups in between.
    overflow: Option<(u32, u32)>,
    /// Numbers allocated and freed in one open checkpoint, with the stamp of the free.
    born_free: Vec<(InodeNr, u64)>,
}

/// Inode numbers of one volume.
pub struct InodeAlloc {
    groups: Chunked<InodeGroup>,
    charged: Chunked<Charged>,
    /// Free inodes at open.
    found: u64,
    per_group: u32,
    per_block: u32,
    first_ino: u32,
    flex_log: u8,
    slots: PerSlot<Mutex<SlotShare, locks::InodeStretches>>,
    /// Numbers that rest without a journal.
    resting: Mutex<VecDeque<(Instant, InodeNr)>, locks::Resting>,
    /// Turns of new directories over the groups, for each slot.
    turns: PerSlot<AtomicU32>,
}

/// A number handed out; `after` is a stamp that everything logged for it must exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// The number.
    pub ino: InodeNr,
    /// Stamp of the free in the same checkpoint, else 0.
    pub after: u64,
}

impl InodeAlloc {
    /// For a volume with so many free inodes; what each group has is read when it is first looked at.
    pub fn new(geometry: &Geometry, free: u64) -> Self {
        Self {
            groups: Chunked::new(geometry.groups),
            charged: Chunked::new(geometry.groups),
            found: free,
            per_group: geometry.inodes_per_group,
            per_block: geometry.inodes_per_block(),
            first_ino: geometry.first_ino,
            flex_log: geometry.log_groups_per_flex,
            slots: PerSlot::default(),
            resting: Mutex::default(),
            // Far apart, so that slots that make directories at the same time do so in different groups.
            turns: PerSlot::new(|slot| AtomicU32::new((slot.index() as u32).wrapping_mul(9))),
        }
    }

    fn locate(&self, ino: InodeNr) -> (u32, u32) {
        let zero_based = ino.0.saturating_sub(1);
        (zero_based / self.per_group, zero_based % self.per_group)
    }

    fn number(&self, group: u32, index: u32) -> InodeNr {
        InodeNr(group * self.per_group + index + 1)
    }

    /// A group, with its counts.
    fn group(&self, group: u32, source: &dyn InodeSource) -> Result<&InodeGroup> {
        let found = self.groups.get_or_make(group, |g| {
            // What breaks a rule is said, and not used.
            let (free, skip) = match source.free_inodes(GroupNr(g)) {
                Ok(free) => (free, false),
                Err(Error::Format(e)) => {
                    tracing::error!(group = g, error = %e, "group descriptor refused");
                    (0, true)
                }
                Err(e) => return Err(e),
            };
            Ok(InodeGroup {
                bits: OnceLock::new(),
                claims: CachePadded::new(Claims {
                    free: AtomicI64::new(i64::from(free)),
                    cursor: AtomicU32::new(0),
                }),
                skip: AtomicBool::new(skip),
                found: free,
            })
        })?;
        let bad = || FormatError::corrupt("group number", Where::Group(GroupNr(group)));
        Ok(found.ok_or_else(bad)?)
    }

    fn bits<'a>(
        &self,
        g: &'a InodeGroup,
        group: u32,
        source: &dyn InodeSource,
    ) -> Result<&'a AtomicBitmap> {
        if let Some(bits) = g.bits.get() {
            return Ok(bits);
        }
        let words = source.inode_bitmap(GroupNr(group))?;
        if group == 0 {
            let reserved = (1u64 << (self.first_ino - 1).min(63)) - 1;
            if words.first().is_none_or(|w| w & reserved != reserved) {
                g.skip.store(true, Ordering::Relaxed);
                return Err(FormatError::corrupt(
                    "reserved inodes marked free",
                    Where::Group(GroupNr(0)),
                )
                .into());
            }
        }
        Ok(g.bits.get_or_init(|| AtomicBitmap::new(words)))
    }

    /// A free number near `parent`; for a directory the group is chosen by [`InodeAlloc::directory_group`].
    /// `source` is where a group comes from when it is needed first.
    pub fn allocate(
        &self,
        parent: InodeNr,
        is_dir: bool,
        source: &dyn InodeSource,
    ) -> Result<Allocated> {
        let home = if is_dir {
            self.directory_group(parent, source)?
        } else {
            self.locate(parent).0
        };
        let mut share = self.slots.local().lock();
        if !is_dir && let Some((ino, after)) = share.born_free.pop() {
            return Ok(Allocated { ino, after });
        }
        let start = share
            .overflow
            .filter(|(full, _)| *full == home)
            .map_or(home, |(_, group)| group);
        if let Some(ino) = self.take_from_group(&mut share, start, source)? {
            return Ok(Allocated { ino, after: 0 });
        }
        share.overflow = None;
        drop(share);
        self.wake_resting(Instant::now());
        let count = self.groups.len();
        for pass in 0..2 {
            for step in 0..count {
                let group = (home + step) % count;
                let g = self.group(group, source)?;
                // The counts may be off by what slots claim: the second pass looks at every bitmap.
                if pass == 0 && g.claims.free.load(Ordering::Relaxed) <= 0 {
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
                    return Ok(Allocated { ino, after: 0 });
                }
            }
        }
        // Last: what other slots hold back, and what rests.
        for slot in self.slots.iter() {
            if let Some((ino, after)) = slot.lock().born_free.pop() {
                return Ok(Allocated { ino, after });
            }
        }
        if let Some((_, ino)) = self.resting.lock().pop_front() {
            return Ok(Allocated { ino, after: 0 });
        }
        Err(Error::NoSpace("no free inode"))
    }

    /// Takes a number of the slot's stretch of a group, or of one that it claims: the bit is found and set at once [I1].
    fn take_from_group(
        &self,
        share: &mut SlotShare,
        group: u32,
        source: &dyn InodeSource,
    ) -> Result<Option<InodeNr>> {
        let g = self.group(group, source)?;
        if g.skip.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let place = group as usize % KEPT;
        if let Some(other) = share.stretches[place].filter(|s| s.group != group) {
            share.stretches[place] = None;
            self.group(other.group, source)?
                .claims
                .free
                .fetch_add(i64::from(other.left), Ordering::Relaxed);
        }
        loop {
            let mut stretch = match share.stretches[place] {
                Some(s) => s,
                None if g.claims.free.load(Ordering::Relaxed) <= 0 => return Ok(None),
                None => match self.claim(g, group, source) {
                    Ok(Some(s)) => s,
                    Ok(None) => return Ok(None),
                    // A bad group is skipped and said, the search goes on.
                    Err(Error::Format(e)) => {
                        g.skip.store(true, Ordering::Relaxed);
                        tracing::error!(group, error = %e, "inode bitmap refused");
                        return Ok(None);
                    }
                    Err(e) => return Err(e),
                },
            };
            match self.bits(g, group, source)?.take(stretch.next, stretch.end) {
                Some(index) => {
                    stretch.next = index + 1;
                    match stretch.left.checked_sub(1) {
                        Some(left) => stretch.left = left,
                        // A number freed since the stretch was claimed: the group has counted it.
                        None => {
                            g.claims.free.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                    share.stretches[place] = Some(stretch);
                    return Ok(Some(self.number(group, index)));
                }
                None => {
                    share.stretches[place] = None;
                    g.claims
                        .free
                        .fetch_add(i64::from(stretch.left), Ordering::Relaxed);
                }
            }
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
                g.claims.free.fetch_sub(i64::from(left), Ordering::Relaxed);
                return Ok(Some(Stretch {
                    group,
                    next: start,
                    end,
                    left,
                }));
            }
        }
        Ok(None)
    }

    /// Takes any free number of a group, past its stretches.
    fn any_in(
        &self,
        g: &InodeGroup,
        group: u32,
        source: &dyn InodeSource,
    ) -> Result<Option<InodeNr>> {
        if g.skip.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let found = self.bits(g, group, source)?.take(0, self.per_group);
        Ok(found.map(|index| {
            g.claims.free.fetch_sub(1, Ordering::Relaxed);
            self.number(group, index)
        }))
    }

    /// Orlov by flex group [I4]: directories of the root are spread over the volume, others stay in
    /// their parent's flex group while it has room. Within it they take turns over the groups, so
    /// that tasks in separate directories use separate groups.
    fn directory_group(&self, parent: InodeNr, source: &dyn InodeSource) -> Result<u32> {
        let count = self.groups.len();
        let turn = self.turns.local().fetch_add(1, Ordering::Relaxed);
        let room = |g: u32| -> Result<i64> {
            let group = self.group(g, source)?;
            Ok(group.claims.free.load(Ordering::Relaxed))
        };
        let (start, span) = if parent == InodeNr::ROOT {
            (0, count)
        } else {
            let flex = 1u32
                .checked_shl(u32::from(self.flex_log))
                .unwrap_or(count)
                .clamp(1, count);
            let start = self.locate(parent).0 / flex * flex;
            (start, flex.min(count - start))
        };
        let enough = i64::from(self.per_group / 4);
        for i in 0..span.min(64) {
            let group = start + turn.wrapping_add(i) % span;
            if room(group)? > enough {
                return Ok(group);
            }
        }
        let mut best = (i64::MIN, start);
        for i in 0..count.min(256) {
            let group = (start + i) % count;
            best = best.max((room(group)?, group));
        }
        Ok(best.1)
    }

    /// The number was allocated and freed in one open checkpoint: it is free again at once, for the
    /// slot that freed it. `stamp` is that of the free.
    pub fn release_at_once(&self, ino: InodeNr, stamp: u64) {
        self.slots.local().lock().born_free.push((ino, stamp));
    }

    /// The number was handed out just now, and nothing was logged for it.
    pub fn undo(&self, allocated: Allocated) {
        match allocated.after {
            0 => self.clear(allocated.ino),
            stamp => self.release_at_once(allocated.ino, stamp),
        }
    }

    /// The checkpoint that frees the number is on disk. `rest` keeps it back for five seconds,
    /// for volumes without a journal: a crash could leave the directory entry of its last life [I3].
    pub fn release(&self, ino: InodeNr, rest: bool) {
        if rest {
            let now = Instant::now();
            self.wake_resting(now);
            self.resting.lock().push_back((now, ino));
        } else {
            self.clear(ino);
        }
    }

    fn wake_resting(&self, now: Instant) {
        let mut resting = self.resting.lock();
        while let Some(&(since, ino)) = resting.front() {
            if now.duration_since(since) < RECENTLY_DELETED {
                break;
            }
            resting.pop_front();
            self.clear(ino);
        }
    }

    fn clear(&self, ino: InodeNr) {
        let (group, index) = self.locate(ino);
        // What was never looked at is as the image, formatted by now, says it.
        let Some(g) = self.groups.get(group) else {
            return;
        };
        if let Some(bits) = g.bits.get() {
            bits.give(index);
        }
        g.claims.free.fetch_add(1, Ordering::Relaxed);
    }

    /// Brings the group's bitmap in core: whoever frees a number calls it before logging the free,
    /// so that the image read is never one that holds half of what is logged.
    pub fn ensure_loaded(&self, ino: InodeNr, source: &dyn InodeSource) -> Result<()> {
        let group = self.locate(ino).0;
        let g = self.group(group, source)?;
        self.bits(g, group, source).map(|_| ())
    }

    /// True the first time the inode's table block is touched in a context: the log charges for it.
    pub fn charge(&self, ino: InodeNr, context: u64) -> bool {
        let (group, index) = self.locate(ino);
        let blocks = self.per_group.div_ceil(self.per_block);
        // No inode has a number past the last group.
        let Some(charged) = self.charged.get_or_default(group) else {
            return false;
        };
        let charged = charged.get_or_init(|| (0..blocks).map(|_| AtomicU64::new(0)).collect());
        let cell = &charged[(index / self.per_block) as usize];
        cell.load(Ordering::Relaxed) != context && cell.swap(context, Ordering::Relaxed) != context
    }

    /// Free inodes: those found at open, and what became of them in groups that were looked at, folded over the
    /// groups and what slots and rest hold back.
    pub fn free(&self) -> u64 {
        let changes: i64 = self
            .groups
            .in_memory()
            .map(|g| g.claims.free.load(Ordering::Relaxed) - i64::from(g.found))
            .sum();
        let groups = i64::try_from(self.found)
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
        groups.saturating_add_unsigned(held).max(0) as u64 + self.resting.lock().len() as u64
    }
}
