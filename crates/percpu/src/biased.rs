//! Locks whose readers, once there are several, write nothing that another slot writes.
//!
//! A reader of an ordinary reader-writer lock writes the lock's word twice: readers that do not wait for each other
//! still hand its line around. Here a lock may be *biased* towards readers. Then a reader stores the lock's address
//! in a place of its own slot ([`VisibleReaders`]), looks again whether the lock is biased, and is in. A writer
//! takes the lock beneath, takes the bias away, and waits until no slot has the lock's address. The idea is that of
//! BRAVO (Dice and Kogan, USENIX ATC 2019).
//!
//! **When a lock is biased.** A writer pays by looking at all slots, so the bias is set only where it gains
//! something: by a reader that finds the last reader to have been of another slot, for the n-th time since the last
//! writer, n being half the number of slots. A mutex that only one slot reads and writes is never biased. A writer
//! that looks at all slots was preceded by readers that handed the line on n times, so it costs at most a small
//! multiple of what they did without the bias. A reader of a reader-writer lock takes and leaves it by a
//! read-modify-write each, and takes a place by one and leaves it by a plain store: such a lock is biased by the
//! 4n-th reading of one slot as well.
//!
//! **Threads of one slot** share its places: a reader takes one that is free, and gives it back by a plain store,
//! because nobody else writes it meanwhile.

use crate::per_slot::PerSlot;
use crate::slot::SlotId;
use crate::sync::{AtomicU8, AtomicUsize, Ordering, relax};

/// Biased locks that the threads of a slot can read at one moment: a cache line of addresses. Further readers take
/// the lock beneath.
const PLACES: usize = if cfg!(loom) { 2 } else { 8 };

/// The state of the bias, kept beside the lock beneath it.
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

/// Readers may come in by their places. Set by a reader that holds the lock beneath shared, cleared by a writer
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
    /// Whether a writer, who holds the lock beneath exclusively, has to look at the slots.
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

/// The readers of biased locks: some places for each slot, on a line of its own.
#[derive(Debug)]
pub struct VisibleReaders {
    slots: PerSlot<[AtomicUsize; PLACES]>,
    enough: u8,
}

/// One of the places of a slot, in which a reader has put the address of its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(usize);

/// The word that stands in a place.
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
    pub fn enter_on(&self, slot: SlotId, bias: &Bias) -> Option<Place> {
        match bias.is_on(Ordering::Relaxed) {
            true => self.publish(slot, bias),
            false => None,
        }
    }

    #[inline]
    fn publish(&self, slot: SlotId, bias: &Bias) -> Option<Place> {
        let lock = address(bias);
        let take = |place: &AtomicUsize| {
            place.load(Ordering::Relaxed) == 0
                && place
                    .compare_exchange(0, lock, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
        };
        let place = self.slots.get(slot).iter().position(take).map(Place)?;
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
    pub fn leave_on(&self, slot: SlotId, place: Place) {
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

    /// The same for a reader of the slot that read last, of a lock that is left by a read-modify-write.
    #[inline]
    pub fn was_read_again(&self, bias: &Bias) {
        self.count(bias, self.enough.saturating_mul(4));
    }

    /// Counts a reading that tells for a bias, and sets it after so many.
    #[inline]
    fn count(&self, bias: &Bias, enough: u8) {
        // Several readers may count at once; then one of the readings is lost.
        let told = bias.told.load(Ordering::Relaxed).saturating_add(1);
        bias.told.store(told, Ordering::Relaxed);
        if told >= enough && !bias.is_on(Ordering::Relaxed) {
            // Release: a reader that comes in by the bias has seen what the last writer wrote, as this reader has.
            bias.flags.fetch_or(ON, Ordering::Release);
        }
    }

    /// Takes the bias away and waits until the readers are out. The caller holds the lock beneath exclusively.
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

    /// Clears the bias, so that no reader comes in any more; true if readers may still be in.
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
pub use raw::{
    Beneath, Biased, Exclusive, ReadGuard, ReadMostly, RwLock, RwLockReadGuard, WriteGuard,
    bias_at_once, readers_at,
};

#[cfg(not(any(loom, shuttle)))]
mod raw {
    #![allow(unsafe_code)] // the contracts of lock_api's raw locks

    use super::{Bias, Ordering, Place, VisibleReaders};
    use crate::slot;
    use lock_api::{GuardNoSend, RawRwLock};
    use lockmeter::{LockClass, Metered, Word};
    use std::cell::Cell;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU8};

    thread_local! {
        /// The biased locks that this thread reads by an address in its slot, and the places of these.
        static HELD: [Cell<(usize, Place)>; super::PLACES] =
            const { [const { Cell::new((0, Place(0))) }; super::PLACES] };
        /// The number of these locks: most calls of unlock look at nothing else.
        static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    /// Begins a reading without the lock beneath, if that is possible.
    #[inline]
    fn enter(bias: &Bias) -> bool {
        if !bias.is_on(Ordering::Relaxed) {
            return false;
        }
        HELD.with(|held| {
            let count = COUNT.get();
            let Some(held) = held.get(count) else {
                return false;
            };
            let place = readers().publish(slot::current(), bias);
            if let Some(place) = place {
                held.set((super::address(bias), place));
                COUNT.set(count + 1);
            }
            place.is_some()
        })
    }

    /// Notes that the lock beneath was taken to read.
    #[inline]
    fn note_read<R: Beneath>(bias: &Bias) {
        let slot = slot::current();
        if !bias.was_read_by(slot) {
            readers().was_read_on(slot, bias);
        } else if R::LEFT_BY_STEP {
            readers().was_read_again(bias);
        }
    }

    /// Ends a reading by address; false if this thread has none of this lock.
    #[inline]
    fn leave(bias: &Bias) -> bool {
        let count = COUNT.get();
        count > 0 && leave_one_of(count, bias)
    }

    fn leave_one_of(count: usize, bias: &Bias) -> bool {
        HELD.with(|held| {
            let locks = &held[..count];
            // The last entry, nearly always.
            let is_this = |l: &Cell<(usize, _)>| l.get().0 == super::address(bias);
            let Some(i) = locks.iter().rposition(is_this) else {
                return false;
            };
            locks[i].swap(&locks[count - 1]);
            COUNT.set(count - 1);
            readers().leave_on(slot::current(), locks[count - 1].get().1);
            true
        })
    }

    static READERS: OnceLock<VisibleReaders> = OnceLock::new();

    fn readers() -> &'static VisibleReaders {
        READERS.get_or_init(|| VisibleReaders::with_slots(slot::count()))
    }

    /// Makes one reader of another slot enough to bias a lock, for tests of locks that contention has biased: with many
    /// slots that takes half as many readers. False if a lock of the process has readers already.
    #[doc(hidden)]
    pub fn bias_at_once() -> bool {
        let mut readers = VisibleReaders::with_slots(slot::count());
        readers.enough = 1;
        READERS.set(readers).is_ok()
    }

    /// Addresses of the lines in which slots note the locks that they read, for tools that look at a trace of accesses.
    #[doc(hidden)]
    pub fn readers_at() -> std::ops::Range<usize> {
        let slots = &readers().slots;
        let at = |places: &[_; super::PLACES]| std::ptr::from_ref(places).addr();
        let first = slots.iter().map(at).min().unwrap_or(0);
        let last = slots.iter().map(at).max().unwrap_or(0);
        first..last + size_of::<[usize; super::PLACES]>()
    }

    /// A raw reader-writer lock that may be biased towards readers, over one that may not.
    ///
    /// ```
    /// let map: lock_api::RwLock<extant_percpu::Biased<parking_lot::RawRwLock>, u32> = lock_api::RwLock::new(1);
    /// *map.write() += 1;
    /// assert_eq!(*map.read(), 2);
    /// ```
    pub struct Biased<R> {
        beneath: R,
        bias: Bias,
    }

    // SAFETY: a writer that holds the lock beneath exclusively and took the bias away is alone: readers are in by a
    // share of the lock beneath, or by an address in a place of their slot, for which `revoke` waits;
    // `tests/loom.rs` has the model. A release gives up what the same thread acquired, because each thread keeps a
    // list of its addresses.
    unsafe impl<R: Beneath> RawRwLock for Biased<R> {
        #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for
        const INIT: Self = Self {
            beneath: R::INIT,
            bias: Bias::NEW,
        };
        // A reading ends in the thread in which it began.
        type GuardMarker = GuardNoSend;

        #[inline]
        fn lock_shared(&self) {
            if !enter(&self.bias) {
                self.beneath.lock_shared(&self.bias.flags);
                note_read::<R>(&self.bias);
            }
        }

        #[inline]
        fn try_lock_shared(&self) -> bool {
            if enter(&self.bias) {
                return true;
            }
            let done = self.beneath.try_lock_shared(&self.bias.flags);
            if done {
                note_read::<R>(&self.bias);
            }
            done
        }

        #[inline]
        unsafe fn unlock_shared(&self) {
            if !leave(&self.bias) {
                // SAFETY: the caller holds the lock shared, and not by an address.
                unsafe { self.beneath.unlock_shared(&self.bias.flags) }
            }
        }

        #[inline]
        fn lock_exclusive(&self) {
            self.beneath.lock_exclusive(&self.bias.flags);
            if self.bias.needs_clearing() {
                readers().revoke(&self.bias);
            }
        }

        #[inline]
        fn try_lock_exclusive(&self) -> bool {
            if !self.beneath.try_lock_exclusive(&self.bias.flags) {
                return false;
            }
            let alone = !self.bias.needs_clearing() || readers().try_revoke(&self.bias);
            if !alone {
                // SAFETY: it was taken above.
                unsafe { self.beneath.unlock_exclusive(&self.bias.flags) }
            }
            alone
        }

        #[inline]
        unsafe fn unlock_exclusive(&self) {
            // SAFETY: the caller holds the lock exclusively, and so the one beneath.
            unsafe { self.beneath.unlock_exclusive(&self.bias.flags) }
        }

        #[inline]
        fn is_locked(&self) -> bool {
            self.beneath.is_locked() || readers().is_read(&self.bias)
        }

        #[inline]
        fn is_locked_exclusive(&self) -> bool {
            self.beneath.is_locked_exclusive()
        }
    }

    /// A lock for beneath a bias, which may keep a bit in the flags of that; the methods are those of
    /// [`RawRwLock`], with its contracts.
    #[allow(missing_docs, clippy::missing_safety_doc)]
    pub trait Beneath: Sized {
        const INIT: Self;
        /// A reader leaves it by a read-modify-write, not by a store.
        const LEFT_BY_STEP: bool;
        fn lock_shared(&self, flags: &AtomicU8);
        fn try_lock_shared(&self, flags: &AtomicU8) -> bool;
        unsafe fn unlock_shared(&self, flags: &AtomicU8);
        fn lock_exclusive(&self, flags: &AtomicU8);
        fn try_lock_exclusive(&self, flags: &AtomicU8) -> bool;
        unsafe fn unlock_exclusive(&self, flags: &AtomicU8);
        fn is_locked(&self) -> bool;
        fn is_locked_exclusive(&self) -> bool;
    }

    impl Beneath for parking_lot::RawRwLock {
        #[allow(clippy::declare_interior_mutable_const)] // as above
        const INIT: Self = RawRwLock::INIT;
        const LEFT_BY_STEP: bool = true;

        #[inline]
        fn lock_shared(&self, _: &AtomicU8) {
            RawRwLock::lock_shared(self);
        }

        #[inline]
        fn try_lock_shared(&self, _: &AtomicU8) -> bool {
            RawRwLock::try_lock_shared(self)
        }

        #[inline]
        unsafe fn unlock_shared(&self, _: &AtomicU8) {
            // SAFETY: the contract is the same.
            unsafe { RawRwLock::unlock_shared(self) }
        }

        #[inline]
        fn lock_exclusive(&self, _: &AtomicU8) {
            RawRwLock::lock_exclusive(self);
        }

        #[inline]
        fn try_lock_exclusive(&self, _: &AtomicU8) -> bool {
            RawRwLock::try_lock_exclusive(self)
        }

        #[inline]
        unsafe fn unlock_exclusive(&self, _: &AtomicU8) {
            // SAFETY: the contract is the same.
            unsafe { RawRwLock::unlock_exclusive(self) }
        }

        #[inline]
        fn is_locked(&self) -> bool {
            RawRwLock::is_locked(self)
        }

        #[inline]
        fn is_locked_exclusive(&self) -> bool {
            RawRwLock::is_locked_exclusive(self)
        }
    }

    /// A raw mutex as a reader-writer lock: its readers wait for each other. One byte, and a bit in the flags of the
    /// bias above.
    ///
    /// ```
    /// assert_eq!(size_of::<extant_percpu::Biased<extant_percpu::Exclusive>>(), 4);
    /// ```
    pub struct Exclusive(AtomicBool);

    impl Exclusive {
        #[inline]
        fn word<'a>(&'a self, flags: &'a AtomicU8) -> Word<'a> {
            let held = &self.0;
            Word { held, flags }
        }
    }

    impl Beneath for Exclusive {
        #[allow(clippy::declare_interior_mutable_const)] // as above
        const INIT: Self = Self(AtomicBool::new(false));
        const LEFT_BY_STEP: bool = false;

        #[inline]
        fn lock_shared(&self, flags: &AtomicU8) {
            self.word(flags).take();
        }

        #[inline]
        fn try_lock_shared(&self, flags: &AtomicU8) -> bool {
            self.word(flags).try_take()
        }

        #[inline]
        unsafe fn unlock_shared(&self, flags: &AtomicU8) {
            self.word(flags).release();
        }

        #[inline]
        fn lock_exclusive(&self, flags: &AtomicU8) {
            self.word(flags).take();
        }

        #[inline]
        fn try_lock_exclusive(&self, flags: &AtomicU8) -> bool {
            self.word(flags).try_take()
        }

        #[inline]
        unsafe fn unlock_exclusive(&self, flags: &AtomicU8) {
            self.word(flags).release();
        }

        #[inline]
        fn is_locked(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }

        #[inline]
        fn is_locked_exclusive(&self) -> bool {
            Beneath::is_locked(self)
        }
    }

    /// A metered reader-writer lock of class `C` that may be biased towards readers.
    ///
    /// ```
    /// lockmeter::lock_class!(Map = "map");
    /// let map: extant_percpu::RwLock<_, Map> = extant_percpu::RwLock::new(1);
    /// *map.write() += 1;
    /// assert_eq!(*map.read(), 2);
    /// ```
    pub type RwLock<T, C> = lock_api::RwLock<Metered<Biased<parking_lot::RawRwLock>, C>, T>;

    /// The guard of a reader of a [`RwLock`].
    pub type RwLockReadGuard<'a, T, C> =
        lock_api::RwLockReadGuard<'a, Metered<Biased<parking_lot::RawRwLock>, C>, T>;

    type Inner<T, C> = lock_api::RwLock<Metered<Biased<Exclusive>, C>, T>;
    /// The guard of a reader.
    pub type ReadGuard<'a, T, C> = lock_api::RwLockReadGuard<'a, Metered<Biased<Exclusive>, C>, T>;
    /// The guard of a writer.
    pub type WriteGuard<'a, T, C> =
        lock_api::RwLockWriteGuard<'a, Metered<Biased<Exclusive>, C>, T>;

    /// A metered mutex of class `C` that several readers may hold at once while it is biased. While it is not, it
    /// is a mutex, and of a mutex's size. It is meant for values that are mostly read, or mostly used by one
    /// thread.
    ///
    /// ```
    /// lockmeter::lock_class!(Names = "names");
    /// let names: extant_percpu::ReadMostly<_, Names> = extant_percpu::ReadMostly::new(vec![1]);
    /// names.lock().push(2);
    /// assert_eq!(*names.read(), [1, 2]);
    /// assert_eq!(size_of::<extant_percpu::ReadMostly<(), Names>>(), 8);
    /// ```
    pub struct ReadMostly<T, C: LockClass>(Inner<T, C>);

    impl<T: Default, C: LockClass> Default for ReadMostly<T, C> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T, C: LockClass> ReadMostly<T, C> {
        /// An unlocked lock that is not biased.
        pub const fn new(value: T) -> Self {
            Self(Inner::new(value))
        }

        /// Locks it to write.
        #[inline]
        #[track_caller]
        pub fn lock(&self) -> WriteGuard<'_, T, C> {
            self.0.write()
        }

        /// Locks it to write if nobody holds it.
        #[inline]
        #[track_caller]
        pub fn try_lock(&self) -> Option<WriteGuard<'_, T, C>> {
            self.0.try_write()
        }

        /// Locks it to read. A thread that holds it must not take it again.
        #[inline]
        #[track_caller]
        pub fn read(&self) -> ReadGuard<'_, T, C> {
            self.0.read()
        }

        /// Locks it to read if nobody writes.
        #[inline]
        #[track_caller]
        pub fn try_read(&self) -> Option<ReadGuard<'_, T, C>> {
            self.0.try_read()
        }

        /// The value, for a caller with exclusive access to the lock.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }

    impl<T: std::fmt::Debug, C: LockClass> std::fmt::Debug for ReadMostly<T, C> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt(f)
        }
    }
}

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
