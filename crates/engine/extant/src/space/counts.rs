//! Counts of free blocks, and which callers may take them. Blocks are counted here before a bitmap is searched: a
//! caller that has taken a number from the count finds that many blocks.
//!
//! Of the blocks that are neither used nor reserved, some are *held back*, as Linux holds them back:
//!
//! - the *reserve* of the superblock, for root and for the user or group that the superblock names;
//! - a fiftieth of the volume, at most 4096, which only write-back and the formatter may take, for metadata beyond
//!   their reservations.
//!
//! The other free blocks are a per-slot counter [L4]. Blocks taken of those held back are counted in one word, the
//! *overdraft*; blocks that become free pay it back first.

use crate::base::failing::{self, Call};
use crate::types::credentials::Credentials;
use percpu::{BoundedCounter, Counter};
use std::sync::atomic::{AtomicU64, Ordering};

/// The reserve, and the user and group that may take it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reserve {
    /// Blocks.
    pub blocks: u64,
    /// User.
    pub uid: u32,
    /// Group, unless it is root's.
    pub gid: u32,
}

/// Free blocks of one volume.
pub(crate) struct Counts {
    /// Blocks that any caller may take.
    open: BoundedCounter,
    /// Blocks taken of those held back.
    overdraft: AtomicU64,
    /// Blocks taken for files that may grow: preallocations.
    aside: Counter,
    /// Blocks of the reserve.
    reserved: AtomicU64,
    reserve: Reserve,
    withheld: u64,
    /// Reserved blocks that pushes ever returned.
    returned: AtomicU64,
    /// Blocks of durable contexts that could ever be taken again.
    released: AtomicU64,
    /// Blocks that are freed, but stay busy until the context that frees them is durable.
    leaving: Counter,
}

/// Most blocks in a slot's stock.
const BATCH: u64 = 256;

impl Counts {
    /// Makes the counts of a volume of `blocks` blocks of which `free` are free. Whole clusters of `ratio` blocks are
    /// held back.
    pub fn new(blocks: u64, ratio: u32, free: u64, reserve: Reserve) -> Self {
        let ratio = u64::from(ratio.max(1));
        let withheld = (blocks / ratio / 50).min(4096) * ratio;
        let reserve = Reserve {
            blocks: reserve.blocks.min(blocks),
            ..reserve
        };
        let held = reserve.blocks.saturating_add(withheld);
        Self {
            open: BoundedCounter::new(free.saturating_sub(held), BATCH),
            overdraft: AtomicU64::new(held.saturating_sub(free)),
            aside: Counter::new(),
            reserved: AtomicU64::new(reserve.blocks),
            reserve,
            withheld,
            returned: AtomicU64::new(0),
            released: AtomicU64::new(0),
            leaving: Counter::new(),
        }
    }

    /// Takes blocks in the name of a caller, or none if too few are left for that caller.
    #[inline]
    pub fn take(&self, who: &Credentials, blocks: u64) -> bool {
        if failing::now(Call::Count) {
            return false;
        }
        self.open.try_take(blocks) || self.may_use_reserve(who) && self.take_reserved(blocks)
    }

    /// Takes up to `blocks` in the name of a caller; returns how many.
    pub fn take_up_to(&self, who: &Credentials, blocks: u64) -> u64 {
        if failing::now(Call::Count) {
            return 0;
        }
        let taken = self.open.take_up_to(blocks);
        if taken < blocks && self.may_use_reserve(who) {
            return taken + self.overdraw(self.reserved(), 1, blocks - taken);
        }
        taken
    }

    fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Adds the free blocks of a volume that has grown, some of which are for the reserve.
    pub fn grow(&self, free: u64, reserve: u64) {
        let reserve = reserve.min(free);
        self.reserved.fetch_add(reserve, Ordering::Relaxed);
        self.give(free - reserve);
    }

    fn may_use_reserve(&self, who: &Credentials) -> bool {
        let Reserve { uid, gid, .. } = self.reserve;
        who.is_privileged() || who.uid == uid || gid != 0 && who.in_group(gid)
    }

    #[cold]
    fn take_reserved(&self, blocks: u64) -> bool {
        let taken = self.open.take_up_to(blocks);
        let missing = blocks - taken;
        if self.overdraw(self.reserved(), missing, missing) == missing {
            return true;
        }
        self.open.give(taken);
        false
    }

    /// Takes the blocks that an operation needs in order to free space. If no other blocks are left, half of the
    /// withheld blocks are for such operations.
    pub fn take_to_give(&self, blocks: u64) -> bool {
        if failing::now(Call::Count) {
            return false;
        }
        let taken = self.open.take_up_to(blocks);
        let missing = blocks - taken;
        let most = self.reserved().saturating_add(self.withheld / 2);
        if missing == 0 || self.overdraw(most, missing, missing) == missing {
            return true;
        }
        self.open.give(taken);
        false
    }

    /// Takes `most` of the blocks held back, of which the first `limit` may be taken, or as many as there are if
    /// these are at least `least`.
    fn overdraw(&self, limit: u64, least: u64, most: u64) -> u64 {
        let mut taken = 0;
        let draw = |overdraft: u64| {
            taken = limit.saturating_sub(overdraft).min(most);
            (taken >= least).then_some(overdraft + taken)
        };
        match self
            .overdraft
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, draw)
        {
            Ok(_) => taken,
            Err(_) => 0,
        }
    }

    /// Returns blocks, those overdrawn first.
    pub fn give(&self, blocks: u64) {
        if blocks == 0 {
            return;
        }
        let mut left = blocks;
        let pay = |overdraft: u64| {
            left = blocks.saturating_sub(overdraft);
            (overdraft > 0).then(|| overdraft.saturating_sub(blocks))
        };
        let paid = self
            .overdraft
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
        self.open.give(if paid.is_ok() { left } else { blocks });
    }

    /// Takes blocks that any caller may take, to be set aside; none if there are too few.
    pub fn set_aside(&self, blocks: u64) -> bool {
        if failing::now(Call::Count) {
            return false;
        }
        let taken = blocks > 0 && self.open.try_take(blocks);
        if taken {
            self.note_aside(blocks);
        }
        taken || blocks == 0
    }

    /// Counts blocks that were in use as set aside.
    pub fn note_aside(&self, blocks: u64) {
        self.aside.add(blocks as i64);
    }

    /// Counts blocks that were set aside as in use.
    #[inline]
    pub fn use_aside(&self, blocks: u64) {
        self.aside.add(-(blocks as i64));
    }

    /// Returns blocks that were set aside.
    pub fn bring_back(&self, blocks: u64) {
        if blocks > 0 {
            self.use_aside(blocks);
            self.give(blocks);
        }
    }

    /// Returns true if more blocks than this are set aside. A slot that has set few aside answers without fetching the
    /// counts of all others.
    pub fn is_much_aside(&self, limit: u64) -> bool {
        let share = limit / percpu::slot::count() as u64;
        u64::try_from(self.aside.local()).is_ok_and(|own| own > share) && self.aside() > limit
    }

    /// Returns the number of blocks set aside.
    pub fn aside(&self) -> u64 {
        u64::try_from(self.aside.sum()).unwrap_or(0)
    }

    /// Counts blocks that an operation freed; they can be taken once that is durable.
    #[inline]
    pub fn note_leaving(&self, blocks: u64) {
        self.leaving.add(blocks as i64);
    }

    /// Counts freed blocks as free to be taken from now on.
    pub fn give_left(&self, blocks: u64) {
        self.leaving.add(-(blocks as i64));
        self.give(blocks);
        self.released.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Accounts for `promised` reserved blocks of which `used` were needed, and returns the rest. Blocks needed beyond
    /// the reservation are taken in any case, from the overdraft if necessary.
    pub fn account(&self, promised: u64, used: u64) {
        match promised.checked_sub(used) {
            Some(left) => {
                self.give(left);
                self.returned.fetch_add(left, Ordering::Relaxed);
            }
            None => {
                let missing = used - promised;
                let overdrawn = missing - self.open.take_up_to(missing);
                self.overdraft.fetch_add(overdrawn, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of reserved blocks that pushes have returned until now. A caller that finds too few blocks
    /// may retry if this number has grown.
    pub fn returned(&self) -> u64 {
        self.returned.load(Ordering::Relaxed)
    }

    /// Returns the number of freed blocks that pushes have made free to be taken until now. A caller that finds too few
    /// blocks may retry if this number has grown by as many as it needs, because other threads took them.
    pub fn released(&self) -> u64 {
        self.released.load(Ordering::Relaxed)
    }

    /// Returns the number of blocks that are neither in use nor reserved, including preallocations and blocks that a
    /// push will free, and the number of those that are not held back. Both are exact when no block is taken or
    /// returned.
    pub fn free(&self) -> (u64, u64) {
        let held = self.reserved().saturating_add(self.withheld);
        let overdraft = self.overdraft.load(Ordering::Relaxed);
        let leaving = u64::try_from(self.leaving.sum()).unwrap_or(0);
        let free = (self.open.sum() + self.aside() + leaving + held).saturating_sub(overdraft);
        (free, free.saturating_sub(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVE: Reserve = Reserve {
        blocks: 50,
        uid: 7,
        gid: 8,
    };

    #[test]
    fn much_is_set_aside_when_the_slot_has_its_share_of_it() {
        let counts = Counts::new(100_000, 1, 100_000, Reserve::default());
        let share = 8000 / percpu::slot::count() as u64;
        assert!(counts.set_aside(share));
        assert!(!counts.is_much_aside(8000), "its share and no more");
        assert!(counts.set_aside(8000 - share));
        assert!(!counts.is_much_aside(8000));
        assert!(counts.set_aside(1));
        assert!(counts.is_much_aside(8000));
        counts.bring_back(8001);
        assert!(!counts.is_much_aside(8000));
    }

    #[test]
    fn others_leave_the_reserve() {
        // 20 withheld.
        let space = Counts::new(1000, 1, 300, RESERVE);
        let other = Credentials::new(1000, 1000, &[]);
        assert_eq!(space.free(), (300, 230));
        assert!(!space.take(&other, 231));
        assert!(space.take(&other, 229));
        for who in [
            Credentials::root(),
            Credentials::new(7, 1, &[]),
            Credentials::new(1, 1, &[8]),
        ] {
            assert!(!space.take(&other, 2));
            assert!(space.take(&who, 2), "one of each kind");
            assert_eq!(space.free(), (69, 0));
            assert!(!space.take(&who, 50));
            assert!(space.take(&who, 49));
            assert!(!space.take(&who, 1));
            assert_eq!(space.free(), (20, 0));
            space.give(51);
            assert_eq!(space.free(), (71, 1));
        }
        assert_eq!(space.take_up_to(&other, 10), 1);
        assert_eq!(space.take_up_to(&other, 10), 0);
        assert_eq!(space.take_up_to(&Credentials::root(), 100), 50);
    }

    #[test]
    fn the_overdraft_is_paid_first() {
        let space = Counts::new(1000, 1, 75, RESERVE);
        let other = Credentials::new(1000, 1000, &[]);
        space.account(3, 3 + 5 + 12);
        assert_eq!(space.free(), (58, 0));
        space.give(10);
        assert_eq!(space.free(), (68, 0));
        assert!(!space.take(&other, 1));
        space.account(9, 4);
        assert_eq!(space.free(), (73, 3));
        assert!(space.take(&other, 3));
        assert!(!space.take(&other, 1));
    }

    #[test]
    fn who_makes_room_finds_some() {
        let space = Counts::new(1000, 1, 71, RESERVE);
        assert!(space.take_to_give(1));
        assert!(space.take_to_give(50 + 10));
        assert!(!space.take_to_give(1), "the rest is for write-back");
        assert!(!space.take(&Credentials::root(), 1));
        space.give(61);
        assert_eq!(space.free(), (71, 1));
    }

    #[test]
    fn opened_with_less_free_than_is_held_back() {
        let space = Counts::new(1000, 1, 30, RESERVE);
        let root = Credentials::root();
        assert_eq!(space.free(), (30, 0));
        assert!(!space.take(&root, 11) && space.take(&root, 10));
        space.give(100);
        assert_eq!(space.free(), (120, 50));
        // The whole volume is reserved.
        let all = Reserve {
            blocks: u64::MAX,
            ..RESERVE
        };
        let space = Counts::new(1000, 1, 300, all);
        assert_eq!(space.free(), (300, 0));
    }
}
