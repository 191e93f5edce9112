//! [`SlotList`]: a list of all of something, with a lock per slot. Mechanisms P1–P4.
//!
//! - P1: an element is added to the list of the adding thread's slot, and any thread removes it from the list it is on.
//!   Only those two threads touch that list's lock.
//! - P2: [`SlotList::iter`] tolerates concurrent add and remove, by others and by the code that
//!   runs between two steps: it copies a few handles at a time and holds no lock while the
//!   caller looks at them.
//! - P4: with one slot it is a single list. An element has to keep nothing but its [`Position`], one word.

use std::num::NonZeroU64;

use crate::per_slot::PerSlot;
use crate::slot::{self, SlotId};
use crate::sync::{AtomicUsize, Mutex, Ordering, classes};

/// Position of an element: its list, and its entry there. Never zero, so `Option<Position>` is one word, too.
///
/// ```
/// use extant_percpu::{Position, SlotList};
/// let list = SlotList::new();
/// let word: u64 = list.add('x').to_raw();
/// assert_eq!(list.remove(Position::from_raw(word).unwrap()), Some('x'));
/// assert_eq!(Position::from_raw(0), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position(NonZeroU64);

/// Bits of the index, above the lowest bit, which is always set.
const INDEX_BITS: u32 = 47;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

impl Position {
    fn new(slot: usize, index: usize) -> Self {
        let raw = (slot as u64) << INDEX_BITS | (index as u64 & INDEX_MASK);
        Position(NonZeroU64::MIN | raw << 1)
    }

    /// Returns the slot whose list the element is on.
    pub fn slot(self) -> SlotId {
        SlotId::new((self.0.get() >> (INDEX_BITS + 1)) as u32)
    }

    /// Returns the entry of that list, from zero.
    pub fn index(self) -> usize {
        (self.0.get() >> 1 & INDEX_MASK) as usize
    }

    /// Returns the word, never zero.
    pub fn to_raw(self) -> u64 {
        self.0.get()
    }

    /// Returns the position of a word, or `None` for zero.
    pub fn from_raw(raw: u64) -> Option<Self> {
        NonZeroU64::new(raw).map(Position)
    }
}

/// A slab: positions are stable, freed ones are chained and used again.
#[derive(Debug)]
struct Slab<T> {
    entries: Vec<Entry<T>>,
    /// The first free entry, or `entries.len()` or more if all are used.
    free: usize,
    live: usize,
}

#[derive(Debug)]
enum Entry<T> {
    Live(T),
    Free { next: usize },
}

const NO_ENTRY: usize = usize::MAX;
/// Entries that a list may keep when it is empty.
const FEW: usize = if cfg!(miri) { 64 } else { 1024 };

impl<T> Slab<T> {
    fn new() -> Self {
        Slab {
            entries: Vec::new(),
            free: NO_ENTRY,
            live: 0,
        }
    }

    #[inline]
    fn insert(&mut self, item: T) -> usize {
        self.live += 1;
        let index = self.free;
        match self.entries.get_mut(index) {
            Some(entry) => {
                if let Entry::Free { next } = std::mem::replace(entry, Entry::Live(item)) {
                    self.free = next;
                }
                index
            }
            None => {
                self.entries.push(Entry::Live(item));
                self.entries.len() - 1
            }
        }
    }

    #[inline]
    fn remove_if(&mut self, index: usize, agree: impl FnOnce(&T) -> bool) -> Option<T> {
        let entry = self.entries.get_mut(index)?;
        match entry {
            Entry::Live(item) if agree(item) => {}
            _ => return None,
        }
        let entry = std::mem::replace(entry, Entry::Free { next: self.free });
        self.free = index;
        self.live -= 1;
        if self.live == 0 && self.entries.len() > FEW {
            self.start_afresh();
        }
        match entry {
            Entry::Live(item) => Some(item),
            Entry::Free { .. } => None,
        }
    }

    /// Returns memory after a peak, when no position is in use.
    #[cold]
    fn start_afresh(&mut self) {
        self.entries.clear();
        self.entries.shrink_to(FEW);
        self.free = NO_ENTRY;
    }
}

/// Per-slot lists of handles, usually `Arc`s.
///
/// ```
/// use extant_percpu::SlotList;
/// use std::sync::Arc;
/// let inodes = SlotList::new();
/// let at = inodes.add(Arc::new("inode 12"));
/// inodes.add(Arc::new("inode 13"));
/// for inode in inodes.iter() {
///     if *inode == "inode 12" {
///         inodes.remove(at); // no lock is held here
///     }
/// }
/// assert_eq!(inodes.len(), 1);
/// ```
#[derive(Debug)]
pub struct SlotList<T> {
    lists: PerSlot<List<T>>,
}

/// The list of one slot.
#[derive(Debug)]
struct List<T> {
    slab: Mutex<Slab<T>, classes::List>,
    /// The slab's number of elements, for readers that do not take its lock.
    live: AtomicUsize,
}

impl<T> List<T> {
    fn new() -> Self {
        List {
            slab: Mutex::new(Slab::new()),
            live: AtomicUsize::new(0),
        }
    }

    /// Changes the slab.
    #[inline(always)]
    fn with<R>(&self, change: impl FnOnce(&mut Slab<T>) -> R) -> R {
        let mut slab = self.slab.lock();
        let result = change(&mut slab);
        self.live.store(slab.live, Ordering::Relaxed);
        result
    }
}

impl<T> SlotList<T> {
    /// Makes empty lists for the slots of this process.
    pub fn new() -> Self {
        Self::with_slots(slot::count())
    }

    /// Makes empty lists for `slots` slots, rounded up to a power of two.
    pub fn with_slots(slots: usize) -> Self {
        SlotList {
            lists: PerSlot::with_slots(slots, |_| List::new()),
        }
    }

    /// Adds an element to the list of the calling thread's slot.
    #[inline]
    pub fn add(&self, item: T) -> Position {
        self.add_on(slot::current(), item)
    }

    /// Adds an element to the list of a given slot.
    #[inline]
    pub fn add_on(&self, slot: SlotId, item: T) -> Position {
        let list = slot.index() & (self.lists.slots() - 1);
        Position::new(list, self.lists.get(slot).with(|slab| slab.insert(item)))
    }

    /// Adds an element as [`add`](SlotList::add) does and runs `then` with its position before the list is
    /// unlocked: before any iteration can meet the element.
    ///
    /// ```
    /// use extant_percpu::{Position, SlotList};
    /// use std::sync::{Arc, OnceLock};
    /// let files: SlotList<Arc<OnceLock<Position>>> = SlotList::new();
    /// let file = Arc::default();
    /// files.add_then(Arc::clone(&file), |at| file.set(at).expect("added once"));
    /// assert!(files.iter().all(|f| f.get().is_some()));
    /// ```
    pub fn add_then(&self, item: T, then: impl FnOnce(Position)) -> Position {
        self.add_then_on(slot::current(), item, then)
    }

    /// Calls [`add_then`](SlotList::add_then) for the list of a given slot.
    #[inline(always)]
    pub fn add_then_on(&self, slot: SlotId, item: T, then: impl FnOnce(Position)) -> Position {
        let list = slot.index() & (self.lists.slots() - 1);
        self.lists.get(SlotId::new(list as u32)).with(
            #[inline(always)]
            |slab| {
                let position = Position::new(list, slab.insert(item));
                then(position);
                position
            },
        )
    }

    /// Removes an element as [`remove`](SlotList::remove) does, if `agree` returns true for it. An iteration that
    /// reaches this list later does not meet the element, and sees the effects of `agree`.
    #[inline]
    pub fn remove_if(&self, position: Position, agree: impl FnOnce(&T) -> bool) -> Option<T> {
        let list = self.lists.get(position.slot());
        list.with(|slab| slab.remove_if(position.index(), agree))
    }

    /// Waits for the thread that is adding to or removing from the list of this position.
    pub fn wait(&self, position: Position) {
        drop(self.lists.get(position.slot()).slab.lock());
    }

    /// Removes the element at `position`, on whichever list that is. The position can be reused at once, so the
    /// owner of the element must let it be removed only once.
    #[inline]
    pub fn remove(&self, position: Position) -> Option<T> {
        // The lock is released before the caller may drop the element.
        self.remove_if(position, |_| true)
    }

    /// Returns the number of elements on all lists, without a lock. It is exact while no thread adds or removes, for a
    /// thread that has seen all earlier additions and removals.
    pub fn len(&self) -> usize {
        let lists = self.lists.iter();
        lists.map(|l| l.live.load(Ordering::Relaxed)).sum()
    }

    /// Returns true if all lists are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Clone> SlotList<T> {
    /// Iterates over clones of all elements, slot by slot. An element that is on the list for the whole time is met
    /// exactly once. An element that is added meanwhile may be met or not; an element that is removed meanwhile may
    /// be met shortly after its removal.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter {
            list: self,
            slot: 0,
            next: 0,
            batch: Vec::new(),
        }
    }

    /// Calls `visit` for each element as [`iter`](SlotList::iter) meets it.
    pub fn for_each(&self, visit: impl FnMut(T)) {
        self.iter().for_each(visit);
    }
}

impl<T> Default for SlotList<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, T: Clone> IntoIterator for &'a SlotList<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Elements cloned per hold of a lock.
const BATCH: usize = if cfg!(any(loom, shuttle)) { 1 } else { 32 };
/// Entries looked at per hold of a lock, for lists that are mostly holes.
const SCAN: usize = if cfg!(miri) { 64 } else { 1024 };

/// The iterator of [`SlotList::iter`].
#[derive(Debug)]
pub struct Iter<'a, T> {
    list: &'a SlotList<T>,
    slot: usize,
    next: usize,
    /// Handles in reverse order, so that the batch is emptied from the end.
    batch: Vec<T>,
}

impl<T: Clone> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        while self.batch.is_empty() && self.slot < self.list.lists.slots() {
            let list = self.list.lists.get(SlotId::new(self.slot as u32));
            let slab = list.slab.lock();
            let stop = self.next.saturating_add(SCAN);
            while self.next < stop && self.batch.len() < BATCH {
                match slab.entries.get(self.next) {
                    Some(Entry::Live(item)) => self.batch.push(item.clone()),
                    Some(Entry::Free { .. }) => {}
                    None => {
                        self.slot += 1;
                        self.next = 0;
                        break;
                    }
                }
                self.next += 1;
            }
            drop(slab);
            self.batch.reverse();
        }
        self.batch.pop()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    #[test]
    fn positions_are_stable_and_reused() {
        let list = SlotList::with_slots(2);
        let (a, b) = (SlotId::new(0), SlotId::new(5));
        let at: Vec<_> = (0..100)
            .map(|i| list.add_on(if i % 2 == 0 { a } else { b }, i))
            .collect();
        assert_eq!(at[1].slot(), SlotId::new(1));
        assert_eq!(list.remove(at[10]), Some(10));
        assert_eq!(list.remove(at[10]), None);
        assert_eq!(list.add_on(a, 1000), at[10]);
        assert_eq!(list.remove(at[11]), Some(11));
        assert_eq!(list.len(), 99);
        let seen: HashSet<_> = list.iter().collect();
        assert_eq!(seen.len(), 99);
        assert!(seen.contains(&1000) && !seen.contains(&10) && !seen.contains(&11));
        assert_eq!(size_of::<Option<Position>>(), 8);
        assert_eq!(list.remove(Position::from_raw(u64::MAX).unwrap()), None);
    }

    #[test]
    fn iteration_skips_large_holes() {
        let list = SlotList::with_slots(1);
        let at: Vec<_> = (0..10 * SCAN).map(|i| list.add(i)).collect();
        at[1..10 * SCAN - 1]
            .iter()
            .for_each(|&p| assert!(list.remove(p).is_some()));
        assert_eq!(list.iter().collect::<Vec<_>>(), [0, 10 * SCAN - 1]);
    }

    #[test]
    fn removing_everything_while_iterating() {
        let list = SlotList::with_slots(4);
        let at: Vec<_> = (0..500u32)
            .map(|i| list.add_on(SlotId::new(i), i))
            .collect();
        list.for_each(|i| assert_eq!(list.remove(at[i as usize]), Some(i)));
        assert!(list.is_empty());
        assert_eq!(list.iter().next(), None);
    }

    #[test]
    fn stress_iteration_meets_what_stays() {
        let rounds = if cfg!(miri) { 4 } else { 3000 };
        let list = SlotList::with_slots(4);
        let kept = if cfg!(miri) { 40u32 } else { 200 };
        for i in 0..kept {
            list.add_on(SlotId::new(i), Arc::new(i));
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            let workers: Vec<_> = (0..4u32)
                .map(|t| {
                    let list = &list;
                    s.spawn(move || {
                        for i in 0..rounds {
                            let mine: Vec<_> = (0..50)
                                .map(|k| list.add_on(SlotId::new(t), Arc::new(kept + i + k)))
                                .collect();
                            for p in mine {
                                assert!(list.remove(p).is_some());
                            }
                        }
                    })
                })
                .collect();
            s.spawn(|| {
                while !done.load(SeqCst) {
                    let met: Vec<u32> = list.iter().map(|i| *i).filter(|&i| i < kept).collect();
                    assert_eq!(met.len(), kept as usize);
                    assert_eq!(met.into_iter().collect::<HashSet<_>>().len(), kept as usize);
                }
            });
            workers.into_iter().for_each(|w| w.join().unwrap());
            done.store(true, SeqCst);
        });
        assert_eq!(list.len(), kept as usize);
    }
}
