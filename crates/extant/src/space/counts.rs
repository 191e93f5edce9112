//! How many blocks are free, for whom. Blocks are counted here before anybody looks for one: who has
//! taken a number from the count finds that many.
//!
//! Of the blocks that are neither used nor promised some are *held back*, as Linux holds them back:
//!
//! - the *reserve* of the superblock, which only root (or the user or group it names) may take;
//! - a fiftieth of the volume, at most 4096, which nobody may take but write-back and the formatter, for
//!   metadata that they need beyond what was promised to them.
//!
//! What is not held back is a per-slot counter [L4]. What somebody takes of the rest is one word, the
//! *overdraft*; it is paid back first by whatever becomes free.

use crate::types::credentials::Credentials;
use percpu::{BoundedCounter, Counter};
use std::sync::atomic::{AtomicU64, Ordering};

/// Whose reserve it is.
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
    /// Blocks that anybody may take.
    open: BoundedCounter,
    /// Blocks taken of those held back.
    overdraft: AtomicU64,
    /// Blocks taken for nobody in particular yet: preallocations.
    aside: Counter,
    reserve: Reserve,
    withheld: u64,
    /// Blocks that pushes ever gave back.
    returned: AtomicU64,
    /// Blocks that are freed, but stay busy until the context that frees them is durable.
    leaving: Counter,
}

/// Most blocks that a slot takes at hand.
const BATCH: u64 = 256;

impl Counts {
    /// A volume of `blocks` blocks of which `free` are free.
    pub fn new(blocks: u64, free: u64, reserve: Reserve) -> Self {
        let withheld = (blocks / 50).min(4096);
        let reserve = Reserve {
            blocks: reserve.blocks.min(blocks),
            ..reserve
        };
        let held = reserve.blocks.saturating_add(withheld);
        Self {
            open: BoundedCounter::new(free.saturating_sub(held), BATCH),
            overdraft: AtomicU64::new(held.saturating_sub(free)),
            aside: Counter::new(),
            reserve,
            withheld,
            returned: AtomicU64::new(0),
            leaving: Counter::new(),
        }
    }

    /// Takes blocks in the name of a caller, or none if there are too few for him.
    pub fn take(&self, who: &Credentials, blocks: u64) -> bool {
        self.open.try_take(blocks) || self.may_use_reserve(who) && self.take_reserved(blocks)
    }

    /// Takes up to `blocks` in the name of a caller; returns how many.
    pub fn take_up_to(&self, who: &Credentials, blocks: u64) -> u64 {
        let taken = self.open.take_up_to(blocks);
        if taken < blocks && self.may_use_reserve(who) {
            return taken + self.overdraw(self.reserve.blocks, 1, blocks - taken);
        }
        taken
    }

    fn may_use_reserve(&self, who: &Credentials) -> bool {
        let Reserve { uid, gid, .. } = self.reserve;
        who.is_privileged() || who.uid == uid || gid != 0 && who.in_group(gid)
    }

    #[cold]
    fn take_reserved(&self, blocks: u64) -> bool {
        let taken = self.open.take_up_to(blocks);
        let missing = blocks - taken;
        if self.overdraw(self.reserve.blocks, missing, missing) == missing {
            return true;
        }
        self.open.give(taken);
        false
    }

    /// Takes what an operation may need that makes room: if there is no other, half of what is withheld is for such.
    pub fn take_to_give(&self, blocks: u64) -> bool {
        let taken = self.open.take_up_to(blocks);
        let missing = blocks - taken;
        let most = self.reserve.blocks.saturating_add(self.withheld / 2);
        if missing == 0 || self.overdraw(most, missing, missing) == missing {
            return true;
        }
        self.open.give(taken);
        false
    }

    /// Takes `most` blocks of those held back, of which the first `limit` are to be had, or as many as there are if
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

    /// Gives blocks back, those overdrawn first.
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

    /// Takes blocks that anybody may take, to be set aside; none if there are too few.
    pub fn set_aside(&self, blocks: u64) -> bool {
        let taken = blocks > 0 && self.open.try_take(blocks);
        if taken {
            self.note_aside(blocks);
        }
        taken || blocks == 0
    }

    /// Blocks that were in use are set aside now.
    pub fn note_aside(&self, blocks: u64) {
        self.aside.add(blocks as i64);
    }

    /// Blocks set aside are in use now.
    #[inline]
    pub fn use_aside(&self, blocks: u64) {
        self.aside.add(-(blocks as i64));
    }

    /// Blocks set aside go back.
    pub fn bring_back(&self, blocks: u64) {
        if blocks > 0 {
            self.use_aside(blocks);
            self.give(blocks);
        }
    }

    /// Blocks set aside.
    pub fn aside(&self) -> u64 {
        u64::try_from(self.aside.sum()).unwrap_or(0)
    }

    /// Blocks were freed by an operation; they can be taken once that is durable.
    #[inline]
    pub fn note_leaving(&self, blocks: u64) {
        self.leaving.add(blocks as i64);
    }

    /// Blocks that were freed can be taken from now on.
    pub fn give_left(&self, blocks: u64) {
        self.leaving.add(-(blocks as i64));
        self.give(blocks);
    }

    /// Of `promised` blocks `used` were needed: the rest goes back; what was needed beyond, whoever
    /// needed it must have.
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

    /// Blocks that pushes gave back so far, of what was promised: who finds too few and sees it grow may try
    /// again.
    pub fn returned(&self) -> u64 {
        self.returned.load(Ordering::Relaxed)
    }

    /// Blocks that are neither used nor promised, those set aside and those that a push makes free among them, and
    /// those of them that are not held back. Exact when nobody takes or gives.
    pub fn free(&self) -> (u64, u64) {
        let held = self.reserve.blocks.saturating_add(self.withheld);
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
    fn others_leave_the_reserve() {
        // 20 withheld.
        let space = Counts::new(1000, 300, RESERVE);
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
        let space = Counts::new(1000, 75, RESERVE);
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
        let space = Counts::new(1000, 71, RESERVE);
        assert!(space.take_to_give(1));
        assert!(space.take_to_give(50 + 10));
        assert!(!space.take_to_give(1), "the rest is for write-back");
        assert!(!space.take(&Credentials::root(), 1));
        space.give(61);
        assert_eq!(space.free(), (71, 1));
    }

    #[test]
    fn opened_with_less_free_than_is_held_back() {
        let space = Counts::new(1000, 30, RESERVE);
        let root = Credentials::root();
        assert_eq!(space.free(), (30, 0));
        assert!(!space.take(&root, 11) && space.take(&root, 10));
        space.give(100);
        assert_eq!(space.free(), (120, 50));
        // A reserve of all there is.
        let all = Reserve {
            blocks: u64::MAX,
            ..RESERVE
        };
        let space = Counts::new(1000, 300, all);
        assert_eq!(space.free(), (300, 0));
    }
}
