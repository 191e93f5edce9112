//! Groups for new directories [I4], after Orlov's rule as ext4 has it.
//!
//! Directories at the top of a hierarchy are those of the root and of directories with the flag `TOPDIR`. They are
//! spread over the volume. They are placed in groups that are not far below the averages of free inodes and free
//! blocks, and not above that of directories by more than a few. Other directories stay in their parent's flex group,
//! in groups that are not much below the averages, and have no *debt*: no more directories above the average than a
//! sixteenth of a group's inodes. If no group of the flex group will do, the following groups are tried.
//!
//! Groups take turns, and each slot has separate turns, so that tasks in separate directories use separate groups. The
//! averages are of at most 64 groups, evenly spread over the volume. A slot computes them again when it has used them
//! 64 times, or finds no group by them. So most new directories read the counts of one group.

use crate::base::error::Result;
use crate::space::inode::{InodeAlloc, KEPT, STRETCH};
use crate::space::inode_source::InodeSource;
use ext4_format::InodeNr;
use ext4_format::inode::flags;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most groups for the averages, and most groups that are tried.
const LOOKED_AT: u32 = 64;
/// Number of directories until a slot computes the averages again.
const USES: u32 = 64;
/// Number of directories by which a group may exceed the average and still get another directory of the root.
const FEW: u32 = 4;
/// Groups among which the one with most free inodes is chosen if no rule finds one.
const LAST_RESORT: u32 = 256;

/// Most directories that a slot makes in a group, or removes, before it counts them there.
const UNCOUNTED: i64 = 8;

/// Directories that a slot made in each of [`KEPT`] groups, less those it removed, since it last added them to the
/// group's count. So slots whose directories are in one group seldom write that count at the same time.
#[derive(Default)]
pub(super) struct Directories([(u32, i64); KEPT]);

impl Directories {
    /// Returns the change in the directories of a group.
    fn of(&self, group: u32) -> i64 {
        let (counted_for, change) = self.0[group as usize % KEPT];
        if counted_for == group { change } else { 0 }
    }

    /// Adds to those of a group; returns what another group, or this one, has to count now.
    fn add(&mut self, group: u32, change: i64) -> Option<(u32, i64)> {
        let own = &mut self.0[group as usize % KEPT];
        let mut due = None;
        if own.0 != group || (own.1 + change).abs() > UNCOUNTED {
            let before = std::mem::replace(own, (group, 0));
            due = Some(before).filter(|(_, change)| *change != 0);
        }
        own.1 += change;
        due
    }
}

/// Purpose of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodePurpose {
    /// Anything but a directory: near its parent.
    File,
    /// A directory.
    Directory,
    /// A directory whose parent has the flag `TOPDIR`. The root's are treated so, too.
    TopDirectory,
}

impl InodePurpose {
    /// Returns the request for a directory whose parent has these flags. It is outside of the code of create, most of
    /// whose calls make files.
    #[cold]
    #[inline(never)]
    pub fn directory_below(of_parent: u32) -> Self {
        match of_parent & flags::TOPDIR {
            0 => Self::Directory,
            _ => Self::TopDirectory,
        }
    }

    /// Returns true for a directory.
    #[inline]
    pub fn is_dir(self) -> bool {
        self != Self::File
    }
}

/// A group's counts, or averages of them.
#[derive(Clone, Copy, Debug, Default)]
struct GroupCounts {
    inodes: u32,
    blocks: u32,
    dirs: u32,
}

/// The turns of one slot, and the averages that it last computed. Threads that share a slot may mix two computations
/// up, because the averages are estimates.
#[derive(Debug, Default)]
pub(super) struct Turns {
    top: AtomicU32,
    others: AtomicU32,
    uses: AtomicU32,
    inodes: AtomicU32,
    blocks: AtomicU32,
    dirs: AtomicU32,
}

impl Turns {
    /// Makes the turns of a slot. They begin far apart, so that slots that make directories at the same time use
    /// different groups.
    pub(super) fn of_slot(slot: usize) -> Self {
        let first = (slot as u32).wrapping_mul(9);
        Self {
            top: AtomicU32::new(first),
            others: AtomicU32::new(first),
            ..Self::default()
        }
    }

    fn averages(&self) -> GroupCounts {
        GroupCounts {
            inodes: self.inodes.load(Ordering::Relaxed),
            blocks: self.blocks.load(Ordering::Relaxed),
            dirs: self.dirs.load(Ordering::Relaxed),
        }
    }

    fn set(&self, averages: GroupCounts) {
        self.inodes.store(averages.inodes, Ordering::Relaxed);
        self.blocks.store(averages.blocks, Ordering::Relaxed);
        self.dirs.store(averages.dirs, Ordering::Relaxed);
        self.uses.store(USES, Ordering::Relaxed);
    }

    /// Returns true if the averages can be used once more.
    fn use_averages(&self) -> bool {
        let left = self.uses.load(Ordering::Relaxed);
        self.uses.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }
}

/// The least and the most that a group must have.
struct Limits {
    inodes: u32,
    blocks: u32,
    dirs: u32,
}

impl Limits {
    fn met_by(&self, counts: GroupCounts) -> bool {
        counts.inodes >= self.inodes && counts.blocks >= self.blocks && counts.dirs <= self.dirs
    }
}

impl InodeAlloc {
    /// Chooses the group for a new directory.
    pub(super) fn directory_group(
        &self,
        parent: InodeNr,
        wanted: InodePurpose,
        source: &dyn InodeSource,
    ) -> Result<u32> {
        let count = self.group_count();
        let turns = self.turns.local();
        let top = wanted == InodePurpose::TopDirectory || parent == InodeNr::ROOT;
        let own = if top { &turns.top } else { &turns.others };
        let turn = own.fetch_add(1, Ordering::Relaxed);
        let (start, span) = if top {
            (0, count)
        } else {
            self.flex_group_of(parent)
        };
        let mut fresh = !turns.use_averages();
        loop {
            if fresh {
                turns.set(self.averages(source)?);
            }
            let limits = self.limits(top, turns.averages());
            let mut fitting = Ok(None);
            let mut ask = |group: u32| {
                let fits = self.counts(group, source).map(|c| limits.met_by(c));
                fitting = fits.map(|fits| fits.then_some(group));
                !matches!(fitting, Ok(None))
            };
            let near = (0..span.min(LOOKED_AT)).any(|i| ask(start + turn.wrapping_add(i) % span));
            let beyond = (span..count).take(LOOKED_AT as usize);
            let _asked = near || beyond.into_iter().any(|i| ask((start + i) % count));
            if let Some(group) = fitting? {
                return Ok(group);
            }
            if fresh {
                return self.emptiest(start, source);
            }
            fresh = true;
        }
    }

    /// Returns the first group of the parent's flex group, and the number of its groups.
    fn flex_group_of(&self, parent: InodeNr) -> (u32, u32) {
        let count = self.group_count();
        let flex = 1u32.checked_shl(self.flex_log.into()).unwrap_or(count);
        let flex = flex.clamp(1, count);
        let start = self.group_of(parent) / flex * flex;
        (start, flex.min(count - start))
    }

    /// Computes the limits from averages. Free inodes of stretches that slots have claimed are not counted, so a group
    /// may be a stretch below the average for that alone.
    fn limits(&self, top: bool, average: GroupCounts) -> Limits {
        let GroupCounts {
            inodes,
            blocks,
            dirs,
        } = average;
        if top {
            Limits {
                inodes: inodes.saturating_sub(STRETCH).max(1),
                blocks: blocks.saturating_sub(self.blocks_per_group / 4),
                dirs: dirs.saturating_add(FEW),
            }
        } else {
            Limits {
                inodes: inodes
                    .saturating_sub(STRETCH.max(self.per_group / 4))
                    .max(1),
                blocks: blocks.saturating_sub(self.blocks_per_group / 4),
                dirs: dirs.saturating_add(self.per_group / 16),
            }
        }
    }

    /// Counts a directory that was made or removed: `change` is 1 or -1.
    #[inline(never)]
    pub fn count_directory(&self, ino: InodeNr, change: i64) {
        let group = self.group_of(ino);
        // A group that was never looked at counts from its descriptor.
        if self.groups.get(group).is_none() {
            return;
        }
        let due = self.slots.local().lock().directories.add(group, change);
        if let Some((group, change)) = due
            && let Some(g) = self.groups.get(group)
        {
            g.add_directories(change);
        }
    }

    /// Returns the counts of free inodes outside of stretches, of free blocks, and of directories without those that
    /// other slots have yet to count.
    fn counts(&self, group: u32, source: &dyn InodeSource) -> Result<GroupCounts> {
        let g = self.group(group, source)?;
        let own = self.slots.local().lock().directories.of(group);
        let count = |n: i64| u32::try_from(n.max(0)).unwrap_or(u32::MAX);
        Ok(GroupCounts {
            inodes: count(g.free()),
            blocks: source.room_for_data(ext4_format::GroupNr(group))?,
            dirs: count(g.directories() + own),
        })
    }

    /// Averages of groups evenly spread over the volume: free ones rounded down, directories rounded up, so that there
    /// is always a group that is at least as good. That of directories is of the groups that have room for more.
    fn averages(&self, source: &dyn InodeSource) -> Result<GroupCounts> {
        let count = self.group_count();
        let looked_at = count.clamp(1, LOOKED_AT);
        let group = |i: u32| (u64::from(i) * u64::from(count) / u64::from(looked_at)) as u32;
        let counts: Vec<GroupCounts> = (0..looked_at)
            .map(|i| self.counts(group(i), source))
            .collect::<Result<_>>()?;
        let sum =
            |of: fn(&GroupCounts) -> u32| counts.iter().map(|c| u64::from(of(c))).sum::<u64>();
        // Averages of 32-bit numbers have 32 bits.
        let average = GroupCounts {
            inodes: (sum(|c| c.inodes) / u64::from(looked_at)) as u32,
            blocks: (sum(|c| c.blocks) / u64::from(looked_at)) as u32,
            dirs: u32::MAX,
        };
        let room = self.limits(true, average);
        let with_room = counts.iter().filter(|c| room.met_by(**c));
        let (groups, dirs) =
            with_room.fold((0u64, 0), |(n, sum), c| (n + 1, sum + u64::from(c.dirs)));
        Ok(GroupCounts {
            dirs: dirs.div_ceil(groups.max(1)) as u32,
            ..average
        })
    }

    /// Returns the group with the most free inodes, of the next [`LAST_RESORT`] groups.
    fn emptiest(&self, start: u32, source: &dyn InodeSource) -> Result<u32> {
        let count = self.group_count();
        let mut best = (i64::MIN, start);
        for i in 0..count.min(LAST_RESORT) {
            let group = (start + i) % count;
            best = best.max((self.group(group, source)?.free(), group));
        }
        Ok(best.1)
    }
}
