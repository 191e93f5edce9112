//! [`CommitLists`]: the commit epoch. Mechanisms C1 and C6.
//!
//! Operations commit items into the current *context*; at intervals a push closes the context and takes all its items.
//! XFS stops all commits to do so, jbd2 waits for whole operations. Here no commit waits for a switch, and a switch
//! waits only for the threads that are inside [`commit`](CommitLists::commit) at that moment, a few hundred nanoseconds
//! each.
//!
//! # How
//! One word holds the number of the current context. Only switches write it, so reading it is a hit in every core's
//! cache. Each slot has a small mutex, its list of the current context and, during a switch, the list of the previous
//! context.
//! - `commit`: lock the own slot, read the word (N), append to the slot's list N, unlock.
//! - `switch`: set the word from N to N+1; then, slot by slot, lock, take list N, unlock.
//!
//! # Why it is right
//! 1. *Nothing is lost.* For each slot, a commit into N is either before or after the switch's turn on the slot's
//!    mutex. If it is before, its items are taken. If it is after, it happens after the word was set and reads N+1 or
//!    later, so it was not a commit into N.
//! 2. *No operation is split.* A commit reads the word once and appends all of its items to one
//!    list under one hold of one mutex.
//! 3. *Causal order.* A thread that has seen an effect of a commit into N+1 happens after that commit's reading of the
//!    word, so by coherence it reads N+1 or later itself. An effect is seen through an object's lock. Hence the rule:
//!    **commit while still holding the locks of everything the operation changed.** Then, of two operations on one
//!    object, the earlier is never in a later context than the later.
//! 4. *Two lists per slot are enough.* Switches exclude each other, and a switch to N+1 leaves
//!    only after it has emptied every list N. So while the word is N+1, lists N and N+1 are the
//!    only ones that can hold anything, and N+2 may use the place of N: the parity of the
//!    number chooses the list.
//!
//! # Order inside a context
//! Each slot has a Lamport clock, no word is shared. [`stamp`] advances it beyond the stamps
//! of the objects an operation has locked; the caller stores the result in those objects. So
//! if two operations met at an object, their stamps have the order in which they held its lock;
//! operations that never met, even through others, commute, and equal stamps do no harm. Sort by
//! (stamp, slot) for an order that is total.

use crossbeam_utils::CachePadded;

use crate::per_slot::PerSlot;
use crate::slot::{self, SlotId};
use crate::sync::{AtomicU64, Mutex, Ordering, classes};

/// Advances a slot's order clock past `seen`, the greatest stamp among the locked objects, and
/// returns the new stamp.
///
/// ```
/// let mut clock = 5;
/// assert_eq!(extant_percpu::stamp(&mut clock, 3), 6);
/// assert_eq!(extant_percpu::stamp(&mut clock, 100), 101);
/// ```
#[inline]
pub fn stamp(clock: &mut u64, seen: u64) -> u64 {
    *clock = (*clock).max(seen) + 1;
    *clock
}

#[derive(Debug, Default)]
struct Lists<T> {
    clock: u64,
    /// Indexed by the parity of the context, see point 4 above.
    by_parity: [T; 2],
}

/// Per-slot lists of committed items, by context. `T` is a slot's list: a `Vec`, a map, or a struct with a list and its
/// counts.
///
/// ```
/// use extant_percpu::{CommitLists, stamp};
/// let log: CommitLists<Vec<(u64, &str)>> = CommitLists::new();
/// log.commit(|_context, clock, list| {
///     let id = stamp(clock, 0);
///     list.push((id, "inode 12"));
///     list.push((id, "name a"));
/// });
/// let (context, lists) = log.switch();
/// assert_eq!(lists.into_iter().flatten().count(), 2);
/// assert_eq!(log.context(), context + 1);
/// ```
#[derive(Debug)]
pub struct CommitLists<T> {
    context: CachePadded<AtomicU64>,
    switching: Mutex<(), classes::Switch>,
    slots: PerSlot<Mutex<Lists<T>, classes::Commit>>,
}

impl<T: Default> CommitLists<T> {
    /// Makes empty lists for the slots of this process. The first context is number 1.
    pub fn new() -> Self {
        Self::with_slots(slot::count(), 1)
    }

    /// Makes empty lists for `slots` slots, rounded up to a power of two, starting at context `first`.
    pub fn with_slots(slots: usize, first: u64) -> Self {
        CommitLists {
            context: CachePadded::new(AtomicU64::new(first)),
            switching: Mutex::new(()),
            slots: PerSlot::with_slots(slots, |_| Mutex::new(Lists::default())),
        }
    }

    /// Runs `append` with the current context, the slot's order clock (for [`stamp`]) and the
    /// slot's list of that context. Call it with the locks held of everything the operation
    /// changed, and keep it short: the slot's mutex is held. It must not commit or switch.
    #[inline]
    pub fn commit<R>(&self, append: impl FnOnce(u64, &mut u64, &mut T) -> R) -> R {
        self.commit_on(slot::current(), append)
    }

    /// Calls [`commit`](CommitLists::commit) on a given slot.
    #[inline(always)]
    pub fn commit_on<R>(&self, slot: SlotId, append: impl FnOnce(u64, &mut u64, &mut T) -> R) -> R {
        let mut lists = self.slots.get(slot).lock();
        // The word is read under the mutex: point 1 rests on that.
        let context = self.context.load(Ordering::Acquire);
        let lists = &mut *lists;
        append(
            context,
            &mut lists.clock,
            &mut lists.by_parity[(context & 1) as usize],
        )
    }

    /// Returns the current context. It may have advanced by the time the caller looks at it.
    #[inline]
    pub fn context(&self) -> u64 {
        self.context.load(Ordering::Acquire)
    }

    /// Returns true if `such` holds for any slot's list, of the current context or of one that is being closed. A
    /// commit that runs meanwhile may be seen or not.
    pub fn any(&self, such: impl Fn(&T) -> bool) -> bool {
        self.slots
            .iter()
            .any(|slot| slot.lock().by_parity.iter().any(&such))
    }

    /// Calls `of` on each slot's lists, in the order of slots: the list of the current context with that of one being
    /// closed. As with [`any`](CommitLists::any), the results are not of one moment.
    pub fn each<R>(&self, of: impl Fn(&[T; 2]) -> R) -> Vec<R> {
        let look = |slot: &Mutex<Lists<T>, classes::Commit>| of(&slot.lock().by_parity);
        self.slots.iter().map(look).collect()
    }

    /// Closes the current context and returns its number with its items, one list per slot in the order of slots. Of
    /// two switches at once, one follows the other.
    pub fn switch(&self) -> (u64, Vec<T>) {
        let _one_at_a_time = self.switching.lock();
        let closed = self.context.load(Ordering::Relaxed); // only written with the lock held
        (closed, self.close(closed))
    }

    /// Closes the current context only if it is still `expected`; else another thread has closed it, and nothing is
    /// left to do.
    pub fn switch_if(&self, expected: u64) -> Option<Vec<T>> {
        let _one_at_a_time = self.switching.lock();
        if self.context.load(Ordering::Relaxed) != expected {
            return None;
        }
        Some(self.close(expected))
    }

    /// Does the switch itself. The caller holds `switching`.
    fn close(&self, closed: u64) -> Vec<T> {
        self.context.store(closed + 1, Ordering::Release);
        let take = |slot: &Mutex<Lists<T>, classes::Commit>| {
            std::mem::take(&mut slot.lock().by_parity[(closed & 1) as usize])
        };
        self.slots.iter().map(take).collect()
    }
}

impl<T: Default> Default for CommitLists<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    #[test]
    fn contexts_hold_what_was_committed_into_them() {
        let log: CommitLists<Vec<u32>> = CommitLists::with_slots(2, 7);
        let (a, b) = (SlotId::new(0), SlotId::new(1));
        assert_eq!(log.commit_on(a, |n, _, l| (l.push(1), n).1), 7);
        log.commit_on(b, |_, _, l| l.push(2));
        assert!(log.any(|l| l.contains(&2)));
        assert_eq!(log.each(|[a, b]| a.len() + b.len()), [1, 1]);
        assert_eq!(log.switch(), (7, vec![vec![1], vec![2]]));
        assert!(!log.any(|l| !l.is_empty()));
        log.commit_on(b, |_, _, l| l.push(3));
        assert_eq!(log.switch_if(7), None);
        assert_eq!(log.switch_if(8), Some(vec![vec![], vec![3]]));
        assert_eq!(log.switch(), (9, vec![vec![], vec![]]));
    }

    const OBJECTS: usize = 8;
    const OPS: u64 = if cfg!(miri) { 50 } else { 20_000 };
    #[derive(Default, Clone, Copy)]
    struct Object {
        stamp: u64,
        version: u64,
    }
    struct Item {
        op: (u64, u64),
        stamp: u64,
        change: (usize, u64),
    }

    /// Threads change shared objects under their locks while another one switches. At the end
    /// nothing is lost, no operation is split, and each object's changes are in order both by
    /// context and by stamp.
    #[test]
    fn stress() {
        let log: CommitLists<Vec<Item>> = CommitLists::with_slots(4, 1);
        let objects: Vec<_> = (0..OBJECTS)
            .map(|_| Mutex::<_, classes::List>::new(Object::default()))
            .collect();
        let done = AtomicBool::new(false);
        let mut closed = Vec::new();
        std::thread::scope(|s| {
            let switcher = s.spawn(|| {
                let mut closed = Vec::new();
                while !done.load(SeqCst) {
                    closed.push(log.switch());
                }
                closed.push(log.switch());
                closed
            });
            let workers: Vec<_> = (0..6u64)
                .map(|t| {
                    let (log, objects) = (&log, &objects);
                    s.spawn(move || {
                        for i in 0..OPS {
                            let x = (i * 7 + t * 3) as usize % OBJECTS;
                            let y = (x + 1 + (i % 3) as usize) % OBJECTS;
                            let mut lo = objects[x.min(y)].lock();
                            let mut hi = objects[x.max(y)].lock();
                            let seen = lo.stamp.max(hi.stamp);
                            lo.version += 1;
                            hi.version += 1;
                            let changes = [(x.min(y), lo.version), (x.max(y), hi.version)];
                            let id = log.commit_on(SlotId::new(t as u32), |_, clock, list| {
                                let stamp = stamp(clock, seen);
                                for change in changes {
                                    list.push(Item {
                                        op: (t, i),
                                        stamp,
                                        change,
                                    });
                                }
                                stamp
                            });
                            lo.stamp = id;
                            hi.stamp = id;
                        }
                    })
                })
                .collect();
            workers.into_iter().for_each(|w| w.join().unwrap());
            done.store(true, SeqCst);
            closed = switcher.join().unwrap();
        });

        assert_eq!(in_order(closed), 6 * OPS * 2);
    }

    /// Checks that no operation was split and that each object's changes are in order; how many items there were.
    fn in_order(closed: Vec<(u64, Vec<Vec<Item>>)>) -> u64 {
        let mut versions = [0u64; OBJECTS];
        let mut items_seen = 0;
        for (n, (context, lists)) in closed.into_iter().enumerate() {
            assert_eq!(context, n as u64 + 1);
            let mut items: Vec<Item> = lists.into_iter().flatten().collect();
            items_seen += items.len() as u64;
            let mut per_op = std::collections::HashMap::new();
            items
                .iter()
                .for_each(|i| *per_op.entry(i.op).or_insert(0) += 1);
            assert!(per_op.values().all(|&n| n == 2), "an operation was split");
            items.sort_by_key(|i| i.stamp);
            for (object, version) in items.iter().map(|i| i.change) {
                versions[object] += 1;
                assert_eq!(versions[object], version, "object {object} out of order");
            }
        }
        items_seen
    }
}
