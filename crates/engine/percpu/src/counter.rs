//! Counters without a shared cache line. Mechanism L4, and the credits of C3.
//!
//! [`Counter`] may be added to freely, and is summed up on request. [`BoundedCounter`] counts a resource that must not
//! be overdrawn, such as free blocks or log space.

use crossbeam_utils::CachePadded;

use crate::per_slot::PerSlot;
use crate::slot::{self, SlotId};
use crate::sync::{AtomicI64, AtomicU64, Mutex, Ordering, classes};

/// A sum of per-slot parts.
///
/// ```
/// let dirty_pages = extant_percpu::Counter::new();
/// dirty_pages.add(3);
/// std::thread::scope(|s| { s.spawn(|| dirty_pages.add(-1)); });
/// assert_eq!(dirty_pages.sum(), 2);
/// ```
#[derive(Debug)]
pub struct Counter {
    parts: PerSlot<AtomicI64>,
}

impl Counter {
    /// Makes a counter at zero.
    pub fn new() -> Self {
        Self::with_slots(slot::count())
    }

    /// Makes a counter of `slots` parts, rounded up to a power of two.
    pub fn with_slots(slots: usize) -> Self {
        Counter {
            parts: PerSlot::with_slots(slots, |_| AtomicI64::new(0)),
        }
    }

    /// Adds to the part of the calling thread's slot.
    #[inline]
    pub fn add(&self, n: i64) {
        self.add_on(slot::current(), n);
    }

    /// Adds to the part of a given slot. Parts wrap; their sum is right all the same.
    #[inline]
    pub fn add_on(&self, slot: SlotId, n: i64) {
        self.parts.get(slot).fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the part of the calling thread's slot, which another thread of the slot may change. To notice when the
    /// sum gets large, watch this part, and read the sum when it has grown: the parts of the other slots are on lines
    /// that they write.
    ///
    /// ```
    /// let cached = extant_percpu::Counter::new();
    /// cached.add(10);
    /// assert_eq!(cached.local(), 10);
    /// ```
    #[inline]
    pub fn local(&self) -> i64 {
        self.parts.local().load(Ordering::Relaxed)
    }

    /// Returns the sum of all parts. It is exact when no thread is adding. Otherwise it contains some of the concurrent
    /// additions, and a single part may be ahead of another, so it can be briefly negative.
    pub fn sum(&self) -> i64 {
        self.parts.iter().fold(0, |sum, part| {
            sum.wrapping_add(part.load(Ordering::Relaxed))
        })
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

/// A slot's stock that must not be used: takes and gives go to the pool.
const CLOSED: u64 = u64::MAX;

/// Units of a resource, of which no more can be taken than there are.
///
/// Each slot has a *stock*, taken from and given to with one compare-and-swap on the slot's own
/// line. The other units are in the *pool*, under a mutex. A slot that runs out takes a batch
/// from the pool; a slot that has more than two batches returns the surplus. The batch shrinks
/// as the pool does.
///
/// When the pool cannot serve a take, all stocks are closed: their contents move to the pool and
/// the slots use the pool only, until it has enough again for batches. So the last unit is
/// found wherever it was, and a refusal is exact:
///
/// - *Never overdrawn*: every unit is in one stock or in the pool, and only moves.
/// - *Refused only if too few*: the refusal is decided with the mutex held and all stocks closed,
///   so at that moment the pool is the total, and nobody can change it.
///
/// The counter orders no memory: a unit can be taken before the writes of the thread that returned it are visible. The
/// objects behind the units need separate locks.
///
/// ```
/// let free = extant_percpu::BoundedCounter::new(100, 32);
/// assert!(free.try_take(60));
/// assert!(!free.try_take(41));
/// assert!(free.try_take(40));
/// free.give(1);
/// assert_eq!(free.sum(), 1);
/// ```
#[derive(Debug)]
pub struct BoundedCounter {
    stocks: PerSlot<AtomicU64>,
    /// Apart from what every take reads.
    pool: CachePadded<Mutex<Pool, classes::Pool>>,
    batch: u64,
}

#[derive(Debug)]
struct Pool {
    units: u64,
    /// Number of stocks that are not closed.
    open: usize,
}

impl BoundedCounter {
    /// Makes a counter of `total` units, which slots take from the pool in batches of up to `batch`.
    pub fn new(total: u64, batch: u64) -> Self {
        Self::with_slots(slot::count(), total, batch)
    }

    /// Makes a counter with `slots` stocks, rounded up to a power of two.
    pub fn with_slots(slots: usize, total: u64, batch: u64) -> Self {
        BoundedCounter {
            stocks: PerSlot::with_slots(slots, |_| AtomicU64::new(CLOSED)),
            pool: CachePadded::new(Mutex::new(Pool {
                units: total,
                open: 0,
            })),
            batch: batch.min(u64::MAX / 4), // two batches stay below CLOSED
        }
    }

    /// Takes `n` units, or none if there are fewer in all.
    #[inline]
    pub fn try_take(&self, n: u64) -> bool {
        self.try_take_on(slot::current(), n)
    }

    /// Calls [`try_take`](BoundedCounter::try_take) for a given slot.
    #[inline]
    pub fn try_take_on(&self, slot: SlotId, n: u64) -> bool {
        let stock = self.stocks.get(slot);
        let local = |s: u64| if s == CLOSED { None } else { s.checked_sub(n) };
        stock
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, local)
            .is_ok()
            || self.take_from_pool(stock, n)
    }

    /// Takes `n` units, or all there are if there are fewer; returns how many.
    ///
    /// ```
    /// let free = extant_percpu::BoundedCounter::new(5, 2);
    /// assert_eq!(free.take_up_to(3), 3);
    /// assert_eq!(free.take_up_to(3), 2);
    /// ```
    pub fn take_up_to(&self, n: u64) -> u64 {
        let slot = slot::current();
        if self.try_take_on(slot, n) {
            return n;
        }
        // The refusal has closed the stocks; some may have been given to or opened since.
        let mut pool = self.pool.lock();
        if pool.units < n {
            self.close(&mut pool);
        }
        let taken = pool.units.min(n);
        pool.units -= taken;
        taken
    }

    /// Returns `n` units, or adds new ones.
    #[inline]
    pub fn give(&self, n: u64) {
        self.give_on(slot::current(), n);
    }

    /// Calls [`give`](BoundedCounter::give) for a given slot.
    #[inline]
    pub fn give_on(&self, slot: SlotId, n: u64) {
        let stock = self.stocks.get(slot);
        let local = |s: u64| {
            s.checked_add(n)
                .filter(|&sum| s != CLOSED && sum <= 2 * self.batch)
        };
        if stock
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, local)
            .is_err()
        {
            self.give_to_pool(stock, n);
        }
    }

    /// Returns the number of units that are not taken. It is exact when no thread takes or gives.
    pub fn sum(&self) -> u64 {
        let pool = self.pool.lock(); // nothing moves between the parts meanwhile
        self.stocks
            .iter()
            .map(|s| s.load(Ordering::Relaxed))
            .filter(|&s| s != CLOSED)
            .fold(pool.units, u64::saturating_add)
    }

    /// Returns the units that are in no stock: a lower bound of the units left, and cheaper than
    /// [`sum`](BoundedCounter::sum).
    pub fn pooled(&self) -> u64 {
        self.pool.lock().units
    }

    #[cold]
    fn take_from_pool(&self, stock: &AtomicU64, n: u64) -> bool {
        let mut pool = self.pool.lock();
        if pool.units < n {
            self.close(&mut pool);
        }
        if pool.units < n {
            return false;
        }
        pool.units -= n;
        self.refill(&mut pool, stock);
        true
    }

    /// Moves all stocks to the pool, from which everybody takes until it can refill them.
    fn close(&self, pool: &mut Pool) {
        if pool.open == 0 {
            return;
        }
        for stock in self.stocks.iter() {
            let units = stock.swap(CLOSED, Ordering::Relaxed);
            if units != CLOSED {
                pool.units = pool.units.saturating_add(units);
            }
        }
        pool.open = 0;
    }

    #[cold]
    fn give_to_pool(&self, stock: &AtomicU64, n: u64) {
        let mut pool = self.pool.lock();
        pool.units = pool.units.saturating_add(n);
        // Not closed, so full: leave it one batch.
        let surplus = |s: u64| (s != CLOSED && s > self.batch).then_some(self.batch);
        match stock.fetch_update(Ordering::Relaxed, Ordering::Relaxed, surplus) {
            Ok(was) => pool.units = pool.units.saturating_add(was - self.batch),
            Err(CLOSED) => self.refill(&mut pool, stock),
            Err(_) => {} // others have taken from it meanwhile
        }
    }

    /// Moves a batch to a stock and opens it, if the pool has twice that much for every slot.
    fn refill(&self, pool: &mut Pool, stock: &AtomicU64) {
        let share = pool.units / (2 * self.stocks.slots() as u64);
        let batch = self.batch.min(share);
        if batch == 0 {
            return;
        }
        // Only a holder of the mutex opens or closes a stock, so its state cannot change in between.
        if stock.load(Ordering::Relaxed) == CLOSED {
            stock.store(batch, Ordering::Relaxed);
            pool.open += 1;
        } else {
            let room = |s: u64| s.checked_add(batch).filter(|&sum| sum <= 2 * self.batch);
            if stock
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
                .is_err()
            {
                return;
            }
        }
        pool.units -= batch;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64 as StdU64;

    const A: SlotId = SlotId::new(0);
    const B: SlotId = SlotId::new(1);

    #[test]
    fn counter_folds_parts_of_either_sign() {
        let c = Counter::with_slots(2);
        c.add_on(A, i64::MAX);
        c.add_on(A, 10); // wraps
        c.add_on(B, -10);
        assert_eq!(c.sum(), i64::MAX);
    }

    #[test]
    fn the_last_unit_is_found_in_another_stock() {
        for batch in [0, 1, 7, 1000, u64::MAX] {
            let c = BoundedCounter::with_slots(4, 1000, batch);
            for slot in 0..4 {
                assert!(c.try_take_on(SlotId::new(slot), 1)); // fills its stock
            }
            assert_eq!(c.sum(), 996);
            for _ in 0..996 {
                assert!(c.try_take_on(A, 1));
            }
            assert!(!c.try_take_on(A, 1) && !c.try_take_on(B, 1));
            c.give_on(B, 5);
            assert!(!c.try_take_on(A, 6));
            assert!(c.try_take_on(A, 5));
            assert_eq!(c.sum(), 0);
        }
    }

    #[test]
    fn as_much_as_there_is_wherever_it_is() {
        let c = BoundedCounter::with_slots(4, 1000, 8);
        for slot in 0..4 {
            assert!(c.try_take_on(SlotId::new(slot), 1)); // fills its stock
        }
        assert_eq!(c.take_up_to(900), 900);
        assert_eq!(c.take_up_to(900), 96);
        assert_eq!(c.take_up_to(900), 0);
        c.give_on(B, 3);
        assert_eq!(c.take_up_to(2), 2);
        assert_eq!(c.sum(), 1);
        assert!(c.pooled() <= 1);
    }

    #[test]
    fn surplus_goes_back_and_zero_is_free() {
        let c = BoundedCounter::with_slots(2, 0, 8);
        assert!(c.try_take_on(A, 0));
        for _ in 0..1000 {
            c.give_on(A, 3);
        }
        assert_eq!(c.sum(), 3000);
        assert!(
            c.stocks.get(A).load(Ordering::Relaxed) <= 16,
            "a stock is bounded"
        );
        assert!(c.try_take_on(B, 3000));
        c.give_on(A, u64::MAX - 1); // absurd, but no overflow
        assert!(c.try_take_on(B, u64::MAX - 1));
    }

    #[test]
    fn stress_never_overdrawn() {
        const THREADS: u64 = 8;
        let rounds: u64 = if cfg!(miri) { 30 } else { 50_000 };
        let total = 40;
        let c = BoundedCounter::with_slots(4, total, 4);
        let out = StdU64::new(0);
        std::thread::scope(|s| {
            for t in 0..THREADS {
                let (c, out) = (&c, &out);
                s.spawn(move || {
                    for i in 0..rounds {
                        let n = 1 + (i * 5 + t) % 12;
                        let (from, to) = (SlotId::new(t as u32), SlotId::new((t + i) as u32));
                        if c.try_take_on(from, n) {
                            assert!(out.fetch_add(n, Ordering::Relaxed) + n <= total);
                            out.fetch_sub(n, Ordering::Relaxed);
                            c.give_on(to, n);
                        }
                    }
                });
            }
        });
        assert_eq!(c.sum(), total);
        assert!(c.try_take_on(A, total) && !c.try_take_on(A, 1));
    }
}
