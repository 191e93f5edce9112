//! The log: per-slot committed item lists, contexts, pushes (mechanisms C1–C7).
//!
//! An operation opens a [`Transaction`] before it takes any lock. At that point it waits for log space and reserves
//! blocks for the formatter. It commits while it still holds the locks of everything it changed. The commit appends all
//! of its items to the slot's list of one context. A push closes the context, and gathers the lists. The formatter
//! turns them into block images, and the journal writes these to disk. Meanwhile operations commit into the next
//! context. Only callers that ask for a push, or find the log full, wait for one.
//!
//! The number of blocks that the items of a context will change is an estimate, which keeps contexts to about half of
//! the journal. The formatter measures the real space: a context that turns out larger than a transaction of the
//! journal is formatted in parts.

mod relog;
pub mod transaction;
pub mod wakeup;

use crate::base::error::Result;
use crate::base::in_flight::InFlight;
use crate::base::invariants::insist;
use crate::base::locks::{self, Condvar, Mutex};
use crate::log::wakeup::Wakeup;
use crate::space::Space;
use crate::store::Store;
use crate::store::health::Waiters;
use crossbeam_utils::CachePadded;
use extant_formatter::item::{ItemList, SpareItems};
use percpu::CommitLists;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use relog::Relog;
pub use transaction::{Commit, Cost};

/// Log space, counted in items per context [C3, C8]. Slots draw credits for items in batches inside the commit; nothing
/// is summed on the way. The batch is a slot's share of a 64th of the journal. If that is small, because many slots
/// share a small journal, the batch is half of what the slot has logged in the context. So a slot that commits often
/// draws seldom. The credits that slots have drawn but not used are at most half of the used ones, plus [`LEAST`] for
/// each slot. The number of blocks that an item changes is measured: it is the rate of the last large context.
pub struct Budget {
    /// Items granted, by the parity of the context. On lines apart from words that every operation reads.
    granted: CachePadded<[AtomicU64; 2]>,
    /// The number of the last context that was not [`Fullness::Free`], and its fullness; written once for each of the
    /// other two values.
    full: AtomicU64,
    /// Blocks that [`RATE_UNIT`] items change. Written by a push.
    rate: AtomicU64,
    soft: u64,
    hard: u64,
    /// Blocks for which a slot draws items at once.
    batch: u64,
    /// Fewest items that it draws: if the bounds allow it, the first draws of all slots are a quarter of a [`Fullness::Soft`] context.
    least: u64,
    /// Number of contexts, from the open one on, that must stay small. Read where credits are drawn. Written by fsyncs
    /// and pushes.
    small: AtomicU64,
}

/// Items for which a rate is given.
const RATE_UNIT: u64 = 1024;
/// Rate before anything is measured.
const FIRST_RATE: u64 = RATE_UNIT / 4;
/// Bounds of the fewest items that a slot draws at once.
const LEAST: RangeInclusive<u64> = 16..=64;
/// Most blocks for which it does.
const MOST: u64 = 256;
/// Items of a small context. A push costs a create about a tenth more than without this bound, as fewer names of a
/// directory share a leaf; the figures for other bounds are in docs/mechanisms/push.md.
pub(crate) const SMALL: u64 = 32 << 10;
/// Contexts that stay small after an fsync has waited for one: a burst fills them in a tenth of a second.
const SMALL_CONTEXTS: u64 = 8;
/// Bounds of the rate. The lower one bounds how far a context outgrows the journal when operations that change many
/// blocks follow on many that change few.
const RATES: RangeInclusive<u64> = RATE_UNIT / 8..=RATE_UNIT * 8;

/// Part of the journal that a context will take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fullness {
    /// The context may grow.
    Free,
    /// The context should be pushed.
    Soft,
    /// The context must not grow.
    Hard,
}

impl Budget {
    fn new(capacity: u64, slots: u64) -> Self {
        let soft = capacity / 3;
        let share = soft * RATE_UNIT / FIRST_RATE / slots;
        Self {
            granted: Default::default(),
            full: AtomicU64::new(0),
            rate: AtomicU64::new(FIRST_RATE),
            soft,
            hard: capacity / 2,
            batch: (capacity / (slots * 64)).clamp(1, MOST),
            least: (share / 4).clamp(*LEAST.start(), *LEAST.end()),
            small: AtomicU64::new(0),
        }
    }

    /// Notes that an fsync is about to wait for a context. More fsyncs may follow, so the next contexts are pushed
    /// while they are small.
    pub(crate) fn note_waiter(&self) {
        if self.small.load(Ordering::Relaxed) < SMALL_CONTEXTS {
            self.small.store(SMALL_CONTEXTS, Ordering::Relaxed);
        }
    }

    /// Draws credits for at least `need` items, for a slot that has logged `used` in the context.
    fn draw(&self, context: u64, need: u64, used: u64) -> u64 {
        // The rate is within `RATES`, so never 0.
        let items_of = |blocks| blocks * RATE_UNIT / self.rate.load(Ordering::Relaxed);
        let by_need = (used / 2).clamp(self.least, items_of(MOST).max(self.least));
        // At least `need`, which keeps a slot's credits from going below zero.
        let most = match self.small.load(Ordering::Relaxed) {
            0 => u64::MAX,
            _ => SMALL / 32,
        };
        let batch = items_of(self.batch).max(by_need).min(most).max(need);
        let granted = &self.granted[(context & 1) as usize];
        let before = granted.fetch_add(batch, Ordering::Relaxed);
        let now = self.judge(before + batch);
        // The bound may have become smaller since the last draw.
        if now > self.fullness(context) {
            // Context numbers grow, and fullness grows within one, so the maximum is the latest.
            self.full
                .fetch_max(context << 2 | now as u64, Ordering::Relaxed);
        }
        batch
    }

    fn judge(&self, granted: u64) -> Fullness {
        let (blocks, small) = (
            self.blocks_of(granted),
            self.small.load(Ordering::Relaxed) > 0,
        );
        if blocks > 0 && blocks >= self.hard || small && granted >= SMALL {
            Fullness::Hard
        } else if blocks > 0 && blocks >= self.soft || small && granted >= SMALL / 4 * 3 {
            Fullness::Soft
        } else {
            Fullness::Free
        }
    }

    /// Returns the number of blocks that this number of items will change.
    fn blocks_of(&self, items: u64) -> u64 {
        items.saturating_mul(self.rate.load(Ordering::Relaxed)) / RATE_UNIT
    }

    /// Notes that a context of this number of items changed this number of blocks. The rate of a context far from full
    /// does not predict that of a full one, because items of a larger context share more blocks.
    pub(crate) fn measure(&self, items: usize, blocks: usize) {
        let (items, blocks) = (items as u64, blocks as u64);
        if blocks.max(self.blocks_of(items)) >= self.soft / 2
            && let Some(rate) = blocks.saturating_mul(RATE_UNIT).checked_div(items)
        {
            let rate = rate.clamp(*RATES.start(), *RATES.end());
            self.rate.store(rate, Ordering::Relaxed);
        }
    }

    /// Returns how full a context is.
    #[inline]
    pub(crate) fn fullness(&self, context: u64) -> Fullness {
        let full = self.full.load(Ordering::Relaxed);
        match (full >> 2 == context, full & 3) {
            (true, 1) => Fullness::Soft,
            (true, 2) => Fullness::Hard,
            _ => Fullness::Free,
        }
    }

    /// Ends the drawing for a context.
    pub(crate) fn close(&self, context: u64) {
        self.granted[(context & 1) as usize].store(0, Ordering::Relaxed);
        let less = |small: u64| small.checked_sub(1);
        // The subtraction fails at 0, where nothing is left to count.
        let _ = self
            .small
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Committed items on their way to the journal.
pub struct Log {
    pub(crate) store: Arc<Store>,
    pub(crate) space: Arc<Space>,
    pub(crate) wakeup: Wakeup,
    pub(crate) lists: CommitLists<ItemList>,
    pub(crate) budget: Budget,
    /// Last context that the formatter has applied: readers see its images.
    pub(crate) formatted: AtomicU64,
    /// Last context that is in the log as a whole and waits for its flushes, or is on disk. Written with `durable`
    /// locked.
    logged: AtomicU64,
    /// Last context on disk.
    pub(crate) durable: Mutex<u64, locks::Durable>,
    /// The last context on disk, readable without the lock.
    durable_now: AtomicU64,
    pub(crate) durable_changed: Condvar,
    /// Formatted contexts whose freed blocks and numbers cannot be taken yet.
    pub(crate) unreleased: InFlight<locks::Unreleased>,
    /// Blocks that the formatter may change at once: the capacity of one journal transaction, without the superblock
    /// that is added.
    most: usize,
    /// Blocks that one operation should change at most.
    step: u64,
    /// The journal's log is half full: the next push empties it first.
    pub(crate) half_full: AtomicBool,
    /// Pushes with items to format.
    pub(crate) pushes: AtomicU64,
    /// Memory of formatted lists, for the next contexts.
    pub(crate) spare: SpareItems,
}

/// Blocks changed by a context without a journal, which only memory bounds.
const WITHOUT_JOURNAL: u64 = 1 << 17;

impl Log {
    /// Makes a log over a journal that holds `capacity` blocks in one transaction, or over none. Contexts are formatted
    /// in parts of `most` blocks if that is less.
    pub(crate) fn new(space: Arc<Space>, capacity: Option<u64>, most: Option<u64>) -> Self {
        let parts = most.into_iter().chain(capacity).min();
        let capacity = capacity.unwrap_or(WITHOUT_JOURNAL);
        Self {
            store: Arc::clone(&space.store),
            space,
            wakeup: Wakeup::default(),
            lists: CommitLists::new(),
            budget: Budget::new(capacity, percpu::slot::count() as u64),
            formatted: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            durable: Mutex::new(0),
            durable_now: AtomicU64::new(0),
            durable_changed: Condvar::new(),
            unreleased: InFlight::default(),
            most: parts.map_or(usize::MAX, |n| n.saturating_sub(1) as usize),
            step: parts.unwrap_or(capacity) / 4,
            half_full: AtomicBool::new(false),
            pushes: AtomicU64::new(0),
            spare: SpareItems::default(),
        }
    }

    /// Returns the number of blocks that the formatter may change at once.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Returns the number of blocks that one operation should change at most. Larger operations are done in steps.
    pub(crate) fn step(&self) -> u64 {
        self.step
    }

    /// Returns the open context, which may have been closed by the time the caller looks at it.
    pub(crate) fn context(&self) -> u64 {
        self.lists.context()
    }

    /// Returns the last formatted context: everything logged up to it is in the metadata images.
    pub fn formatted(&self) -> u64 {
        self.formatted.load(Ordering::Acquire)
    }

    /// Returns true if committed items wait for a push.
    pub(crate) fn is_pending(&self) -> bool {
        self.lists.any(|list| !list.is_empty())
    }

    /// Notes that a context is in the log as a whole, perhaps without a thread that makes it durable.
    pub(crate) fn note_logged(&self, context: u64) {
        let durable = self.durable.lock();
        self.logged.fetch_max(context, Ordering::Relaxed);
        drop(durable);
        self.durable_changed.notify_all();
    }

    /// Waits until a formatted context is in the log, or durable; true in the first case.
    pub(crate) fn wait_logged(&self, context: u64) -> Result<bool> {
        let mut durable = self.durable.lock();
        loop {
            self.store.check_running()?;
            if *durable >= context {
                return Ok(false);
            }
            if self.logged.load(Ordering::Relaxed) >= context {
                return Ok(true);
            }
            self.durable_changed.wait(&mut durable);
        }
    }

    /// Notes that a context is durable.
    pub(crate) fn note_durable(&self, context: u64) -> Result<()> {
        let mut durable = self.durable.lock();
        insist!(
            context > *durable,
            DurableInOrder,
            "context {context} after {durable}"
        );
        let formatted = self.formatted();
        insist!(
            context <= formatted,
            DurableIsFormatted,
            "context {context}, formatted {formatted}"
        );
        *durable = context;
        self.durable_now.store(context, Ordering::Release);
        drop(durable);
        self.durable_changed.notify_all();
        Ok(())
    }

    /// Returns the last context that is durable.
    pub fn durable(&self) -> u64 {
        self.durable_now.load(Ordering::Acquire)
    }
}

impl Waiters for Log {
    fn wake(&self) {
        let _durable = self.durable.lock();
        self.durable_changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of items that a context takes before it is full.
    fn room(budget: &Budget) -> u64 {
        let items = |&n: &u64| budget.judge(n) < Fullness::Hard;
        (0..).take_while(items).last().unwrap_or(0)
    }

    /// Returns the draws for each transaction of three items, as a create's, when all slots take turns to fill a
    /// context.
    fn draws(journal: u64, slots: u64) -> f64 {
        let budget = Budget::new(journal / 4096 / 4, slots);
        let mut credits = vec![0; slots as usize];
        let (mut draws, mut commits) = (0u64, 0u64);
        while budget.fullness(1) < Fullness::Soft {
            let used = commits / slots * 3 + 3;
            let slot = &mut credits[(commits % slots) as usize];
            if *slot < 3 {
                *slot += budget.draw(1, 3 - *slot, used);
                draws += 1;
            }
            *slot -= 3;
            commits += 1;
        }
        draws as f64 / commits as f64
    }

    /// The table in docs/mechanisms/commit-list.md.
    #[test]
    fn many_slots_of_a_small_journal_draw_seldom() {
        let of = |journal| [16, 64, 256].map(|slots| draws(journal, slots));
        let (small, large) = (of(64 << 20), of(1 << 30));
        println!("shared draws for each transaction: 64 MiB {small:.4?}, 1 GiB {large:.4?}");
        // With batches of a slot's share alone, these draws would be 0.19, 0.75 and 0.75 of the small journal.
        for (found, most) in small.into_iter().zip([0.1, 0.2, 0.3]) {
            assert!(found < most, "{small:?}");
        }
        assert!(large.iter().all(|&n| n < 0.1), "{large:?}");
    }

    #[test]
    fn contexts_are_small_for_a_while_after_an_fsync_has_waited() {
        let budget = Budget::new(64 << 10, 4);
        let large = room(&budget);
        assert!(large > SMALL, "{large}");
        // Credits drawn already count.
        budget.draw(1, SMALL, 0);
        assert_eq!(budget.fullness(1), Fullness::Free);
        budget.note_waiter();
        budget.draw(1, 1, 0);
        assert_eq!(budget.fullness(1), Fullness::Hard);
        for context in 1..=SMALL_CONTEXTS {
            assert_eq!(room(&budget), SMALL - 1);
            budget.close(context);
        }
        assert_eq!(room(&budget), large);
        // A small journal's own bound holds if it is lower.
        let small = Budget::new(1000, 4);
        small.note_waiter();
        assert_eq!(room(&small), 1999);
    }

    #[test]
    fn full_contexts_say_how_many_blocks_an_item_changes() {
        let budget = Budget::new(1000, 4);
        assert_eq!(room(&budget), 1999);
        // A small context changes nothing.
        budget.measure(3, 12);
        assert_eq!(room(&budget), 1999);
        budget.measure(100, 800);
        assert_eq!(room(&budget), 62);
        // A context that was expected to be large but is small does.
        budget.measure(62, 62);
        assert_eq!(room(&budget), 499);
        budget.measure(usize::MAX, 1);
        assert_eq!(room(&budget), 3999);
        budget.measure(1, usize::MAX);
        assert_eq!(room(&budget), 62);
    }
}

#[cfg(test)]
mod alone_tests;
