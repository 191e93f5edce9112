//! The bound on bitmaps of groups in memory, and the choice of the ones to evict.
//!
//! A bitmap may be evicted if it equals its image and no slot holds it. Bitmaps that slots hold, or that operations
//! since the last push have changed, must stay. So pushes bound the memory: loads of bitmaps ask for a push, and later
//! wait for it.

use percpu::PerSlot;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

/// Bitmaps that may always stay in memory.
const FEWEST: u32 = 4;
/// Groups that one walk looks at, and bitmaps that it compares beyond twice the number that should leave, at most:
/// the formatter waits for the walk.
const WALKED: u32 = 1 << 20;
const COMPARED: u32 = 256;

/// The bound of one kind of bitmaps.
pub(super) struct Bound {
    /// Bitmaps in memory, without those in `came`.
    loaded: AtomicI64,
    /// Bitmaps that each slot has loaded and not yet added: at most a few, so that slots rarely write the sum at the
    /// same time.
    came: PerSlot<AtomicU32>,
    few: u32,
    /// Bitmaps that should be in memory at most: the limit, or the number that was left when no more could be
    /// dropped.
    most: AtomicU32,
    limit: u32,
    /// Bitmaps may have left.
    shrunk: AtomicBool,
    /// The group at which the next walk begins.
    hand: AtomicU32,
}

/// The result of a walk's look at a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// The group's bitmap is not in memory.
    Absent,
    /// The group's bitmap is in use, or differs from its image.
    Stays,
    /// The group's bitmap was dropped.
    Left,
}

impl Bound {
    /// Makes a bound of this much memory, for bitmaps of this size.
    pub fn new(memory: u64, each: u64) -> Self {
        let limit = u32::try_from(memory / each.max(1)).unwrap_or(u32::MAX);
        let limit = limit.max(FEWEST);
        Self {
            loaded: AtomicI64::new(0),
            came: PerSlot::default(),
            few: (limit / 16 / percpu::slot::count() as u32).clamp(1, 32),
            most: AtomicU32::new(limit),
            limit,
            shrunk: AtomicBool::new(false),
            hand: AtomicU32::new(0),
        }
    }

    /// Counts a bitmap that was loaded.
    pub fn came(&self) {
        let here = self.came.local();
        if here.fetch_add(1, Ordering::Relaxed) + 1 >= self.few {
            self.add(here);
        }
    }

    fn add(&self, came: &AtomicU32) {
        let came = came.swap(0, Ordering::Relaxed);
        self.loaded.fetch_add(i64::from(came), Ordering::Relaxed);
    }

    /// Approximate number of bitmaps in memory.
    pub fn loaded(&self) -> u32 {
        let loaded = self.loaded.load(Ordering::Relaxed);
        u32::try_from(loaded.max(0)).unwrap_or(u32::MAX)
    }

    /// Returns true if more bitmaps than the limit are in memory.
    pub fn is_over(&self) -> bool {
        self.loaded() > self.limit
    }

    /// Returns how far the number of bitmaps in memory exceeds the limit, in eighths of the number that may be loaded
    /// between two pushes. Returns 0 below the first eighth.
    ///
    /// That number is the limit itself, or half of the bitmaps that could not be evicted, whichever is larger. A larger
    /// one would let memory grow: bitmaps that must stay after one push would make room for more of their kind before
    /// the next. A smaller one would ask for pushes too often.
    #[inline]
    pub fn excess(&self) -> u32 {
        // Every operation asks.
        let most = self.most.load(Ordering::Relaxed);
        if self.loaded.load(Ordering::Relaxed) <= i64::from(most) {
            0
        } else {
            self.excess_over(most)
        }
    }

    #[cold]
    #[inline(never)]
    fn excess_over(&self, most: u32) -> u32 {
        let over = self.loaded().saturating_sub(most);
        let step = self.limit.max(most / 2);
        u32::try_from(u64::from(over) * 8 / u64::from(step)).unwrap_or(u32::MAX)
    }

    /// Returns true if bitmaps may have left memory. Then the bitmap of a group whose image is about to change may be
    /// missing.
    pub fn has_shrunk(&self) -> bool {
        self.shrunk.load(Ordering::Relaxed)
    }

    /// Looks at groups until a fifth fewer bitmaps than the limit are in memory, or the walk was long enough.
    pub fn walk(&self, groups: u32, mut look: impl FnMut(u32) -> Looked) {
        self.came.iter().for_each(|came| self.add(came));
        // Set before any bitmap leaves: a thread that finds one missing then knows that it may have left.
        self.shrunk.store(true, Ordering::Relaxed);
        let target = self.limit - self.limit / 5;
        let most = COMPARED.saturating_add(self.loaded().saturating_sub(target).saturating_mul(2));
        let (mut at, mut compared) = (self.hand.load(Ordering::Relaxed), 0);
        for _ in 0..groups.min(WALKED) {
            if self.loaded() <= target || compared == most {
                break;
            }
            at = if at + 1 < groups { at + 1 } else { 0 };
            compared += match look(at) {
                Looked::Absent => 0,
                Looked::Stays => 1,
                Looked::Left => {
                    self.loaded.fetch_sub(1, Ordering::Relaxed);
                    1
                }
            };
        }
        self.hand.store(at, Ordering::Relaxed);
        // If no more can be dropped, the next walk waits until there are many more.
        let most = self.limit.max(self.loaded());
        self.most.store(most, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations load the same number of bitmaps each, which can be evicted after the push after next, like bitmaps of
    /// groups whose blocks are freed. After a push the bitmaps stay that were loaded before it.
    #[test]
    fn what_stays_for_a_push_does_not_add_up() {
        for (limit, each) in [(256, 128), (256, 1000), (4, 7)] {
            let bound = Bound::new(limit, 1);
            let (mut may_leave, mut came, mut most) = (0, 0, 0);
            for _ in 0..10_000 {
                if bound.excess() >= 8 {
                    bound.walk(u32::MAX, |_| match may_leave {
                        0 => Looked::Stays,
                        _ => {
                            may_leave -= 1;
                            Looked::Left
                        }
                    });
                    may_leave += came;
                    came = 0;
                }
                (0..each).for_each(|_| bound.came());
                came += each;
                most = most.max(bound.loaded());
            }
            let limit = limit as u32;
            assert!(most <= 3 * (limit + 2 * each), "{most} of {limit}");
        }
    }

    #[test]
    fn a_walk_goes_on_where_the_last_one_ended() {
        let bound = Bound::new(10, 1);
        (0..12).for_each(|_| bound.came());
        assert!(bound.is_over() && !bound.has_shrunk());
        assert_eq!(bound.excess(), 1);
        let mut seen = Vec::new();
        let mut look = |g| {
            seen.push(g);
            if g % 2 == 0 {
                Looked::Left
            } else {
                Looked::Absent
            }
        };
        bound.walk(100, &mut look);
        assert_eq!((bound.loaded(), bound.excess()), (8, 0));
        (0..4).for_each(|_| bound.came());
        bound.walk(100, &mut look);
        assert_eq!(seen, (1..=16).collect::<Vec<_>>());
        assert!(bound.has_shrunk());
    }
}
