//! How many bitmaps of groups are in memory, and when and which of them should leave.
//!
//! What may leave is as it is in the image, and nobody holds it. What may not is what operations since the last push
//! have changed, or hold; so memory is bounded by pushes, which are asked for, and then waited for, as bitmaps come in.

use percpu::PerSlot;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

/// Bitmaps that may always be in memory.
const FEWEST: u32 = 4;
/// Groups one walk looks at, and bitmaps it compares beyond twice those that should go, at most: the formatter waits
/// for it.
const WALKED: u32 = 1 << 20;
const COMPARED: u32 = 256;

/// The bound of one kind of bitmaps.
pub(super) struct Bound {
    /// Bitmaps in memory, but for those in `came`.
    loaded: AtomicI64,
    /// What each slot has brought in and not yet added: at most a few, so that slots seldom meet at the sum.
    came: PerSlot<AtomicU32>,
    few: u32,
    /// How many there should be at most: the limit, or as many as were left when there was nothing more to drop.
    most: AtomicU32,
    limit: u32,
    /// Some may have left.
    shrunk: AtomicBool,
    /// Where the next walk begins.
    hand: AtomicU32,
}

/// What became of a group's bitmap that a walk has looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// It is not in memory.
    Absent,
    /// It is in use, or is not as in the image.
    Stays,
    /// It was dropped.
    Left,
}

impl Bound {
    /// So much memory, for bitmaps of this size.
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

    /// A bitmap has come into memory.
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

    /// Bitmaps in memory, to within a few.
    pub fn loaded(&self) -> u32 {
        let loaded = self.loaded.load(Ordering::Relaxed);
        u32::try_from(loaded.max(0)).unwrap_or(u32::MAX)
    }

    /// There are more than there may be.
    pub fn is_over(&self) -> bool {
        self.loaded() > self.limit
    }

    /// By how much too many bitmaps are in memory, in eighths of those that may come in between two pushes; 0 up to the
    /// first.
    ///
    /// Those are as many as the limit, or half of those that could not leave: pushes must not come too often, and
    /// since it is not all of them, what cannot leave after one push does not make room for more of it before the
    /// next, and so on.
    pub fn excess(&self) -> u32 {
        let most = self.most.load(Ordering::Relaxed);
        let over = self.loaded().saturating_sub(most);
        if over == 0 {
            return 0; // asked at each operation: without a division
        }
        let step = self.limit.max(most / 2);
        u32::try_from(u64::from(over) * 8 / u64::from(step)).unwrap_or(u32::MAX)
    }

    /// Whether bitmaps may have left memory: then one that is about to change in the image may have.
    pub fn has_shrunk(&self) -> bool {
        self.shrunk.load(Ordering::Relaxed)
    }

    /// Looks at groups until there are a fifth fewer bitmaps than the limit, or enough was looked at.
    pub fn walk(&self, groups: u32, mut look: impl FnMut(u32) -> Looked) {
        self.came.iter().for_each(|came| self.add(came));
        // Before any does: who finds that one is not in memory then knows that it may have been.
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
        // If there is nothing more to drop, the next walk waits until there are many more.
        let most = self.limit.max(self.loaded());
        self.most.store(most, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations that each bring in so many bitmaps, which can leave after the push after next, as those do whose
    /// blocks are freed: what stays after one push is what came in before it.
    #[test]
    fn what_stays_for_a_push_does_not_add_up() {
        for (limit, each) in [(256, 128), (256, 1000), (4, 7)] {
            let bound = Bound::new(limit, 1);
            let (mut may_leave, mut came, mut most) = (0, 0, 0);
            for _ in 0..100_000 {
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
