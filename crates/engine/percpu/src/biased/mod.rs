//! Locks whose readers, once there are several, write nothing that another slot writes.
//!
//! A reader of an ordinary reader-writer lock writes the lock's word twice: readers that do not wait for each other
//! still pass its line around. Here a lock may be *biased* towards readers. Then a reader stores the lock's address in
//! a place of its slot ([`VisibleReaders`]), checks again that the lock is biased, and holds it. A writer takes the
//! lock beneath, clears the bias, and waits until no slot has the lock's address. The idea is that of BRAVO (Dice and
//! Kogan, USENIX ATC 2019).
//!
//! **When a lock is biased.** A writer pays by looking at all slots, so the bias is set only where it gains something.
//! A reader sets it when it finds, for the n-th time since the last writer, that the last reader was of another slot.
//! Here n is half the number of slots. A mutex that only one slot reads and writes is never biased. Before a writer
//! that looks at all slots, readers have passed the line on n times. So the writer costs at most a small multiple of
//! these readings without the bias. A reader of a reader-writer lock takes and leaves it by a read-modify-write each,
//! but takes a place by one and leaves it by a plain store. Therefore such a lock is also biased by the 4n-th reading
//! of one slot.
//!
//! **Threads of one slot** share its places: a reader takes one that is free, and releases it by a plain store, because
//! no other thread writes it meanwhile.

use crate::per_slot::PerSlot;
use crate::slot::SlotId;
use crate::sync::{AtomicU8, AtomicUsize, Ordering, relax};

/// Biased locks that the threads of a slot can read at one moment: a cache line of addresses. Further readers take
/// the lock beneath.
const PLACES: usize = if cfg!(loom) { 2 } else { 8 };

/// The state of the bias, kept next to the lock beneath it.
///
/// ```
/// use extant_percpu::{Bias, SlotId, VisibleReaders};
/// let (a, b) = (SlotId::new(0), SlotId::new(1));
/// let readers = VisibleReaders::with_slots(2);
/// let bias = Bias::default();
/// assert_eq!(readers.enter_on(a, &bias), None); // not biased: the lock beneath is to be taken
/// readers.was_read_on(a, &bias);
/// readers.was_read_on(b, &bias); // another slot reads it
/// let place = readers.enter_on(a, &bias).expect("it is biased");
/// assert!(!readers.try_revoke(&bias)); // a reader is in
/// readers.leave_on(a, place);
/// assert!(readers.try_revoke(&bias));
/// ```
#[derive(Debug)]
pub struct Bias {
    /// [`ON`], and what the lock beneath keeps here: changed by steps that leave each other's bits.
    flags: AtomicU8,
    /// The last reader that took the lock beneath: its slot, modulo 256.
    last: AtomicU8,
    /// Readings since the last writer that tell for a bias.
    told: AtomicU8,
}

/// Set if readers may enter by their places. Set by a reader that holds the lock beneath shared, cleared by a writer
/// that holds it exclusively.
const ON: u8 = 1;

impl Bias {
    /// The bias of a lock that is not biased.
    #[cfg(not(any(loom, shuttle)))]
    #[allow(clippy::declare_interior_mutable_const)] // lock_api wants raw locks as constants
    pub const NEW: Self = Self {
        flags: AtomicU8::new(0),
        last: AtomicU8::new(0),
        told: AtomicU8::new(0),
    };
}

impl Bias {
    /// Returns true if a writer that holds the lock beneath exclusively has to look at the slots.
    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    fn needs_clearing(&self) -> bool {
        self.is_on(Ordering::Relaxed) || self.told.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn is_on(&self, order: Ordering) -> bool {
        self.flags.load(order) & ON != 0
    }

    #[inline]
    fn was_read_by(&self, slot: SlotId) -> bool {
        self.last.load(Ordering::Relaxed) == slot.index() as u8
    }
}

impl Default for Bias {
    fn default() -> Self {
        Self {
            flags: AtomicU8::new(0),
            last: AtomicU8::new(0),
            told: AtomicU8::new(0),
        }
    }
}

/// The readers of biased locks: some places for each slot, on a separate line.
#[derive(Debug)]
pub struct VisibleReaders {
    slots: PerSlot<[AtomicUsize; PLACES]>,
    enough: u8,
}

/// A place of a slot, in which a reader has put the address of its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderPlace(usize);

/// Returns the word that a reader of this lock stores in a place.
fn address(bias: &Bias) -> usize {
    std::ptr::from_ref(bias).addr()
}

impl VisibleReaders {
    /// Makes places for this many slots.
    pub fn with_slots(slots: usize) -> Self {
        let slots = PerSlot::with_slots(slots, |_| std::array::from_fn(|_| AtomicUsize::new(0)));
        // The count has eight bits.
        let enough = (slots.slots() / 2).clamp(1, 255) as u8;
        Self { slots, enough }
    }

    /// Begins a reading, if the lock is biased and the slot has a place left; else the caller takes the lock
    /// beneath.
    #[inline]
    pub fn enter_on(&self, slot: SlotId, bias: &Bias) -> Option<ReaderPlace> {
        if bias.is_on(Ordering::Relaxed) {
            self.publish(slot, bias)
        } else {
            None
        }
    }

    #[inline]
    fn publish(&self, slot: SlotId, bias: &Bias) -> Option<ReaderPlace> {
        let lock = address(bias);
        let take = |place: &AtomicUsize| {
            place.load(Ordering::Relaxed) == 0
                && place
                    .compare_exchange(0, lock, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
        };
        let place = self
            .slots
            .get(slot)
            .iter()
            .position(take)
            .map(ReaderPlace)?;
        // The writer clears the bias and then looks at the places. So either the writer sees this place, or this
        // reader sees that the bias was cleared: all four accesses are in one order. loom models that order by
        // fences only.
        #[cfg(loom)]
        crate::sync::fence(Ordering::SeqCst);
        if bias.is_on(Ordering::SeqCst) {
            return Some(place);
        }
        self.leave_on(slot, place);
        None
    }

    /// Ends a reading that [`enter_on`](Self::enter_on) began.
    #[inline]
    pub fn leave_on(&self, slot: SlotId, place: ReaderPlace) {
        if let Some(place) = self.slots.get(slot).get(place.0) {
            place.store(0, Ordering::Release);
        }
    }

    /// Sets the bias if it is worth it. Called by a reader that has taken the lock beneath and holds it.
    #[inline]
    pub fn was_read_on(&self, slot: SlotId, bias: &Bias) {
        if bias.was_read_by(slot) {
            return;
        }
        bias.last.store(slot.index() as u8, Ordering::Relaxed);
        self.count(bias, self.enough);
    }

    /// Counts a reading by the slot that read last, of a lock that is left by a read-modify-write.
    #[inline]
    pub fn was_read_again(&self, bias: &Bias) {
        self.count(bias, self.enough.saturating_mul(4));
    }

    /// Counts a reading in favour of a bias, and sets the bias after `enough` readings.
    #[inline]
    fn count(&self, bias: &Bias, enough: u8) {
        // Several readers may count at the same time. Then one of the readings is lost.
        let told = bias.told.load(Ordering::Relaxed).saturating_add(1);
        bias.told.store(told, Ordering::Relaxed);
        if told >= enough && !bias.is_on(Ordering::Relaxed) {
            // Release: a reader that enters by the bias has seen the writes of the last writer, as this reader has.
            bias.flags.fetch_or(ON, Ordering::Release);
        }
    }

    /// Clears the bias and waits until the readers have left. The caller holds the lock beneath exclusively.
    #[cold]
    pub fn revoke(&self, bias: &Bias) {
        if self.clear(bias) {
            let mut waited = 0;
            while self.is_read(bias) {
                relax(&mut waited);
            }
        }
    }

    /// Takes the bias away without waiting. Fails, and leaves the bias, if there are readers.
    #[inline]
    pub fn try_revoke(&self, bias: &Bias) -> bool {
        if self.clear(bias) && self.is_read(bias) {
            bias.flags.fetch_or(ON, Ordering::Release);
            return false;
        }
        true
    }

    /// Clears the bias, so that no more readers enter. Returns true if readers may still hold the lock.
    #[inline]
    fn clear(&self, bias: &Bias) -> bool {
        if bias.told.load(Ordering::Relaxed) != 0 {
            bias.told.store(0, Ordering::Relaxed);
        }
        if !bias.is_on(Ordering::Relaxed) {
            return false;
        }
        bias.flags.fetch_and(!ON, Ordering::SeqCst);
        #[cfg(loom)]
        crate::sync::fence(Ordering::SeqCst);
        true
    }

    #[cold]
    fn is_read(&self, bias: &Bias) -> bool {
        let lock = address(bias);
        self.slots
            .iter()
            .flatten()
            .any(|place| place.load(Ordering::SeqCst) == lock)
    }
}

#[cfg(not(any(loom, shuttle)))]
pub use beneath::{Beneath, Exclusive};
#[cfg(not(any(loom, shuttle)))]
pub use raw::{
    Biased, ReadGuard, ReadMostly, RwLock, RwLockReadGuard, WriteGuard, bias_at_once, readers_at,
};

#[cfg(not(any(loom, shuttle)))]
mod beneath;
#[cfg(not(any(loom, shuttle)))]
mod raw;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    lockmeter::lock_class!(Pair = "pair");

    const A: SlotId = SlotId::new(0);
    const B: SlotId = SlotId::new(1);

    #[test]
    fn biased_only_where_slots_meet() {
        let readers = VisibleReaders::with_slots(4);
        let bias = Bias::default();
        for _ in 0..100 {
            readers.was_read_on(A, &bias);
            readers.was_read_on(A, &bias);
            readers.revoke(&bias);
        }
        assert_eq!(readers.enter_on(A, &bias), None);
        for slot in [A, B, A] {
            assert_eq!(readers.enter_on(slot, &bias), None);
            readers.was_read_on(slot, &bias);
        }
        let enter = |slot| readers.enter_on(slot, &bias).expect("it is biased");
        let (a, b) = (enter(A), enter(B));
        assert!(!readers.try_revoke(&bias));
        readers.leave_on(A, a);
        assert!(!readers.try_revoke(&bias));
        readers.leave_on(B, b);
        readers.revoke(&bias);
        assert_eq!(readers.enter_on(A, &bias), None);
    }

    #[test]
    fn one_slot_that_reads_often_is_enough_where_leaving_is_dear() {
        let readers = VisibleReaders::with_slots(4);
        let bias = Bias::default();
        for _ in 0..7 {
            readers.was_read_again(&bias);
        }
        assert_eq!(readers.enter_on(A, &bias), None);
        readers.was_read_again(&bias);
        assert!(readers.enter_on(A, &bias).is_some());
    }

    #[test]
    fn a_slot_without_a_place_left_takes_the_lock_beneath() {
        let readers = VisibleReaders::with_slots(2);
        let many: Vec<Bias> = (0..PLACES + 1).map(|_| Bias::default()).collect();
        for bias in &many {
            readers.was_read_on(B, bias);
        }
        let entered: Vec<_> = many
            .iter()
            .filter_map(|bias| readers.enter_on(A, bias))
            .collect();
        assert_eq!(entered.len(), PLACES);
        for place in entered {
            readers.leave_on(A, place);
        }
        assert!(many.iter().all(|bias| readers.try_revoke(bias)));
    }

    /// More threads than slots, so that threads share the places of a slot.
    #[test]
    fn readers_see_whole_writes() {
        let pair: ReadMostly<[u64; 2], Pair> = ReadMostly::new([0; 2]);
        let map: RwLock<[u64; 2], Pair> = RwLock::new([0; 2]);
        let read = AtomicU64::new(0);
        let threads = crate::slot::count() + 3;
        let turns = if cfg!(miri) { 20 } else { 5_000 };
        std::thread::scope(|s| {
            for t in 0..threads {
                let (pair, map, read) = (&pair, &map, &read);
                s.spawn(move || {
                    for n in 0..turns {
                        if (n + t) % 64 == 0 {
                            let mut both = pair.lock();
                            both[0] += 1;
                            std::thread::yield_now();
                            both[1] += 1;
                            let mut both = map.write();
                            both[0] += 1;
                            both[1] += 1;
                        } else if n % 64 == 32 {
                            drop(pair.try_lock());
                            drop(map.try_read());
                        } else {
                            let (a, b) = (*pair.read(), *map.read());
                            assert!(a[0] == a[1] && b[0] == b[1]);
                            read.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert!(read.into_inner() > 0);
        assert_eq!(*pair.lock(), *map.read());
    }
}
