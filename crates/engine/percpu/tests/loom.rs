//! Models of the crate's algorithms, run under every interleaving by `scripts/loom.sh`. Each is
//! as small as the property allows.
#![cfg(loom)]

use extant_percpu::slot::Registry;
use extant_percpu::{
    AtomicSet, Bias, BoundedCounter, CommitLists, Listed, Position, SlotId, SlotList,
    VisibleReaders, stamp,
};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

const A: SlotId = SlotId::new(0);
const B: SlotId = SlotId::new(1);

#[test]
fn slots_are_shared_only_when_there_are_too_few() {
    loom::model(|| {
        let registry = Arc::new(Registry::new(2));
        let other = {
            let registry = registry.clone();
            thread::spawn(move || {
                let slot = registry.take();
                registry.give(slot);
                registry.take()
            })
        };
        let mine = registry.take();
        let theirs = other.join().unwrap();
        assert_ne!(mine, theirs);
        assert_eq!(registry.users(), [1, 1]);
        registry.give(mine);
        registry.give(theirs);
        assert_eq!(registry.users(), [0, 0]);
    });
}

/// Commits on both slots while a switch runs: each operation is whole in one context.
#[test]
fn commit_no_item_lost_no_operation_split() {
    loom::model(|| {
        let log: Arc<CommitLists<Vec<u32>>> = Arc::new(CommitLists::with_slots(2, 1));
        let workers: Vec<_> = [A, B]
            .into_iter()
            .map(|slot| {
                let log = log.clone();
                thread::spawn(move || {
                    log.commit_on(slot, |context, _, list| {
                        list.push(1);
                        thread::yield_now();
                        list.push(2);
                        context
                    })
                })
            })
            .collect();
        let (first, one) = log.switch();
        let contexts: Vec<u64> = workers.into_iter().map(|w| w.join().unwrap()).collect();
        let (second, two) = log.switch();
        assert_eq!((first, second), (1, 2));
        for (slot, &context) in contexts.iter().enumerate() {
            let (holder, other) = if context == 1 {
                (&one, &two)
            } else {
                (&two, &one)
            };
            assert_eq!(holder[slot], [1, 2]);
            assert!(other[slot].is_empty());
        }
    });
}

/// Two switches race each other and a commit: no list is taken twice or skipped, and two lists
/// per slot are enough.
#[test]
fn commit_concurrent_switches() {
    loom::model(|| {
        let log: Arc<CommitLists<Vec<u64>>> = Arc::new(CommitLists::with_slots(1, 1));
        let switcher = {
            let log = log.clone();
            thread::spawn(move || log.switch())
        };
        let worker = {
            let log = log.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    log.commit_on(A, |context, _, list| list.push(context));
                }
            })
        };
        let mut closed = vec![log.switch(), switcher.join().unwrap()];
        worker.join().unwrap();
        closed.push(log.switch());
        closed.sort();
        let mut items = 0;
        for (n, (context, lists)) in closed.iter().enumerate() {
            assert_eq!(*context, n as u64 + 1);
            items += lists[0].len();
            assert!(
                lists[0].iter().all(|c| c == context),
                "an item in the wrong context"
            );
        }
        assert_eq!(items, 2);
    });
}

/// Two operations on one object, from two slots, during a switch: the operation that takes the object's lock later is
/// not in an earlier context and has the greater stamp.
#[test]
fn commit_causal_order() {
    #[derive(Default)]
    struct Object {
        version: u64,
        stamp: u64,
    }
    loom::model(|| {
        let log: Arc<CommitLists<Vec<(u64, u64)>>> = Arc::new(CommitLists::with_slots(2, 1));
        let object = Arc::new(loom::sync::Mutex::new(Object::default()));
        let mut workers: Vec<_> = [A, B]
            .into_iter()
            .map(|slot| {
                let (log, object) = (log.clone(), object.clone());
                thread::spawn(move || {
                    let mut object = object.lock().unwrap();
                    object.version += 1;
                    let (version, seen) = (object.version, object.stamp);
                    object.stamp = log.commit_on(slot, |_, clock, list| {
                        let id = stamp(clock, seen);
                        list.push((id, version));
                        id
                    });
                })
            })
            .collect();
        let mut order = Vec::new();
        for last in [false, true] {
            if last {
                workers.drain(..).for_each(|w| w.join().unwrap());
            }
            let (_, lists) = log.switch();
            let mut items: Vec<_> = lists.into_iter().flatten().collect();
            items.sort();
            order.extend(items);
        }
        let versions: Vec<u64> = order.iter().map(|&(_, version)| version).collect();
        assert_eq!(versions, [1, 2]);
    });
}

/// An iterator runs against an add and a remove: what stays is met exactly once.
#[test]
fn list_iteration_meets_what_stays() {
    loom::model(|| {
        let list = Arc::new(SlotList::with_slots(2));
        let goes = list.add_on(A, 'g');
        list.add_on(A, 's');
        list.add_on(B, 't');
        let adder = {
            let list = list.clone();
            thread::spawn(move || {
                assert_eq!(list.remove(goes), Some('g'));
                list.add_on(B, 'n');
            })
        };
        let met: Vec<char> = list.iter().collect();
        for stays in ['s', 't'] {
            assert_eq!(met.iter().filter(|&&c| c == stays).count(), 1);
        }
        assert!(met.iter().filter(|&&c| c == 'g' || c == 'n').count() <= 2);
        adder.join().unwrap();
        let mut left: Vec<char> = list.iter().collect();
        left.sort();
        assert_eq!(left, ['n', 's', 't']);
    });
}

/// Two threads want two units each of three: exactly one succeeds, whichever stock the units are in. An element added
/// while a walk over all elements begins is shown to it, by the walk or by the thread that adds it. An element that
/// leaves is taken back once, by the thread that removes it or by the walk that met it before.
#[test]
fn list_shown_once_taken_back_once() {
    use loom::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};
    #[derive(Default)]
    struct Element {
        position: AtomicU64,
        shown: AtomicBool,
        references: AtomicI32,
    }
    impl Element {
        fn show(&self) {
            if !self.shown.swap(true, AcqRel) {
                self.references.fetch_add(1, Relaxed);
            }
        }
        fn hide(&self) {
            if self.shown.swap(false, AcqRel) {
                self.references.fetch_sub(1, Relaxed);
            }
        }
        fn is_there(&self) -> Option<Position> {
            Position::from_raw(self.position.load(Relaxed))
        }
    }
    loom::model(|| {
        let list: Arc<SlotList<Arc<Element>>> = Arc::new(SlotList::with_slots(1));
        let looking = Arc::new(AtomicBool::new(false));
        let add = move |list: &SlotList<Arc<Element>>, looking: &AtomicBool| {
            let element = Arc::new(Element::default());
            list.add_then_on(A, Arc::clone(&element), |at| {
                element.position.store(at.to_raw(), Relaxed);
                if looking.load(Relaxed) {
                    element.show();
                }
            });
            element
        };
        let old = add(&list, &looking);
        let worker = {
            let (list, looking, old) = (list.clone(), looking.clone(), old.clone());
            thread::spawn(move || {
                let new = add(&list, &looking);
                let at = old.is_there().unwrap();
                list.remove_if(at, |there| {
                    there.position.store(0, Relaxed);
                    if there.shown.load(Relaxed) {
                        there.hide();
                    }
                    true
                });
                new
            })
        };
        looking.store(true, Relaxed);
        for element in list.iter() {
            let Some(at) = element.is_there() else {
                continue;
            };
            element.show();
            list.wait(at);
            if element.is_there().is_none() {
                element.hide();
            }
        }
        let new = worker.join().unwrap();
        assert_eq!(old.references.load(Relaxed), 0, "it left");
        assert_eq!(new.references.load(Relaxed), 1, "it stays");
    });
}

#[test]
fn bounded_never_overdrawn() {
    loom::model(|| {
        let units = Arc::new(BoundedCounter::with_slots(2, 3, 2));
        let other = {
            let units = units.clone();
            thread::spawn(move || units.try_take_on(B, 2))
        };
        let mine = units.try_take_on(A, 2);
        let theirs = other.join().unwrap();
        assert!(mine != theirs, "one, and not both, can have two of three");
        assert_eq!(units.sum(), 1);
        assert!(units.try_take_on(B, 1), "the last unit is found");
        assert!(!units.try_take_on(A, 1));
    });
}

/// A thread moves units from slot to slot, one at a time. The rest always covers the other thread's demand, though the
/// units move between slots, so neither thread must ever be refused. A scan of stocks that are not closed would fail
/// here.
#[test]
fn bounded_refuses_only_if_too_few() {
    loom::model(|| {
        let units = Arc::new(BoundedCounter::with_slots(2, 12, 2));
        // Each stock gets a batch of two; the other six come from the pool, which is then empty.
        assert!(units.try_take_on(A, 1) && units.try_take_on(B, 1));
        assert!(units.try_take_on(A, 6));
        assert_eq!(units.sum(), 4);
        let mover = {
            let units = units.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    assert!(units.try_take_on(B, 1));
                    units.give_on(A, 1);
                }
            })
        };
        assert!(units.try_take_on(A, 3));
        mover.join().unwrap();
        assert_eq!(units.sum(), 1);
    });
}

/// Closing the stocks races with a take and a give on one of them.
#[test]
fn bounded_closing_races_with_local_use() {
    loom::model(|| {
        let units = Arc::new(BoundedCounter::with_slots(2, 12, 1));
        assert!(units.try_take_on(A, 1) && units.try_take_on(B, 1)); // both stocks: 1 each
        let total = units.sum();
        let local = {
            let units = units.clone();
            thread::spawn(move || {
                let took = units.try_take_on(B, 1);
                if took {
                    units.give_on(B, 1);
                }
                took
            })
        };
        let all = units.try_take_on(A, total);
        let took = local.join().unwrap();
        assert!(all || took, "one of them was first");
        assert_eq!(units.sum(), if all { 0 } else { total });
    });
}

/// Two threads race for two bits while a third bit comes free: no bit is taken twice, none is overlooked.
#[test]
fn bitmap_hands_every_bit_out_once() {
    loom::model(|| {
        // Bits 3.. are taken; 0 is taken and will be cleared.
        let map = Arc::new(extant_percpu::AtomicBitmap::new(vec![!0b110]));
        let other = {
            let map = map.clone();
            thread::spawn(move || map.take(0, 64))
        };
        let giver = {
            let map = map.clone();
            thread::spawn(move || assert!(map.give(0)))
        };
        let mine = map.take(0, 64);
        let theirs = other.join().unwrap();
        giver.join().unwrap();
        let (Some(mine), Some(theirs)) = (mine, theirs) else {
            panic!("a free bit was overlooked")
        };
        assert_ne!(mine, theirs);
        assert!(mine < 3 && theirs < 3);
        assert!(
            map.take(0, 64)
                .is_some_and(|last| last != mine && last != theirs)
        );
        assert_eq!(map.take(0, 64), None);
    });
}

/// A member is removed while another of the same word is added: the added one is found.
#[test]
fn set_loses_no_member() {
    loom::model(|| {
        let set = Arc::new(AtomicSet::new(128));
        set.insert(65);
        let workers = [
            {
                let set = set.clone();
                thread::spawn(move || set.remove(65))
            },
            {
                let set = set.clone();
                thread::spawn(move || set.insert(66))
            },
        ];
        set.insert(67);
        set.remove(67);
        workers.into_iter().for_each(|w| w.join().unwrap());
        assert_eq!(set.next(0, 128), Some(66));
        assert_eq!(set.next(67, 128), None);
    });
}

/// A biased lock over a mutex, as the crate's are. The guarded value is written in two steps.
struct BiasedPair {
    beneath: loom::sync::Mutex<bool>,
    free: loom::sync::Condvar,
    bias: Bias,
    pair: loom::cell::UnsafeCell<u32>,
}

#[allow(unsafe_code)] // loom's cells: it tells when an access is not exclusive
impl BiasedPair {
    fn try_beneath(&self) -> bool {
        !std::mem::replace(&mut *self.beneath.lock().unwrap(), true)
    }

    fn lock_beneath(&self) {
        let mut taken = self.beneath.lock().unwrap();
        while *taken {
            taken = self.free.wait(taken).unwrap();
        }
        *taken = true;
    }

    fn unlock_beneath(&self) {
        *self.beneath.lock().unwrap() = false;
        self.free.notify_one();
    }

    fn read(&self, readers: &VisibleReaders, slot: SlotId) -> u32 {
        let place = readers.enter_on(slot, &self.bias);
        if place.is_none() {
            self.lock_beneath();
            readers.was_read_on(slot, &self.bias);
        }
        // SAFETY: the lock is held shared; loom would see a concurrent writer.
        let seen = self.pair.with(|p| unsafe { *p });
        match place {
            Some(place) => readers.leave_on(slot, place),
            None => self.unlock_beneath(),
        }
        seen
    }

    fn write(&self, readers: &VisibleReaders) {
        self.lock_beneath();
        readers.revoke(&self.bias);
        self.change();
        self.unlock_beneath();
    }

    fn change(&self) {
        // SAFETY: the lock is held alone.
        self.pair.with_mut(|p| unsafe { *p += 1 });
    }
}

fn biased_pair() -> (Arc<VisibleReaders>, Arc<BiasedPair>) {
    let pair = BiasedPair {
        beneath: loom::sync::Mutex::new(false),
        free: loom::sync::Condvar::new(),
        bias: Bias::default(),
        pair: loom::cell::UnsafeCell::new(0),
    };
    (Arc::new(VisibleReaders::with_slots(2)), Arc::new(pair))
}

/// A reader by its place and a writer exclude each other; and the bias is set again while a writer comes.
#[test]
fn a_biased_reader_and_a_writer_exclude_each_other() {
    loom::model(|| {
        let (readers, pair) = biased_pair();
        // The last reader was of slot A: one of B sets the bias.
        readers.was_read_on(B, &pair.bias);
        let writer = {
            let (readers, pair) = (readers.clone(), pair.clone());
            thread::spawn(move || pair.write(&readers))
        };
        let first = pair.read(&readers, A);
        let second = pair.read(&readers, A);
        assert!(first <= second);
        writer.join().unwrap();
        assert_eq!(pair.read(&readers, A), 1);
    });
}

/// A reader that sets the bias lets another in, past a writer that tries without waiting.
#[test]
fn who_tries_to_write_finds_readers() {
    loom::model(|| {
        let (readers, pair) = biased_pair();
        let reader = {
            let (readers, pair) = (readers.clone(), pair.clone());
            thread::spawn(move || (pair.read(&readers, B), pair.read(&readers, B)))
        };
        if pair.try_beneath() {
            if readers.try_revoke(&pair.bias) {
                pair.change();
            }
            pair.unlock_beneath();
        }
        let (first, second) = reader.join().unwrap();
        assert!(first <= second);
    });
}

/// Two threads read by places of one slot, while a writer writes.
#[test]
fn readers_of_one_slot_share_their_places() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (readers, pair) = biased_pair();
        readers.was_read_on(B, &pair.bias);
        let others: Vec<_> = [true, false]
            .into_iter()
            .map(|reads| {
                let (readers, pair) = (readers.clone(), pair.clone());
                thread::spawn(move || {
                    if reads {
                        drop(pair.read(&readers, A))
                    } else {
                        pair.write(&readers)
                    }
                })
            })
            .collect();
        pair.read(&readers, A);
        others.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(pair.read(&readers, A), 1);
        pair.write(&readers);
    });
}

/// A file as write-back sees it: the version of its data, the version on the device, and its place on the list of dirty
/// files.
#[derive(Default)]
struct File {
    data: AtomicU32,
    on_device: AtomicU32,
    listed: Listed,
    list: Mutex<u32>,
}

impl File {
    /// Writes like a writer that holds the mapping shared, as other writers may. Returns the version.
    fn overwrite(&self) -> u32 {
        let version = self.data.fetch_add(1, Ordering::Relaxed) + 1;
        if self.listed.is_missing() {
            let mut list = self.list.lock().unwrap();
            if self.listed.join() {
                *list += 1;
            }
        }
        version
    }

    /// Writes back, looking at the pages with the mapping held shared, too.
    fn write_back(&self) {
        let taken = std::mem::take(&mut *self.list.lock().unwrap());
        assert!(taken <= 1, "listed twice");
        if taken == 1 {
            self.listed.leave();
            let data = self.data.load(Ordering::Relaxed);
            self.on_device.store(data, Ordering::Relaxed);
        }
    }
}

/// An overwrite meets the write-back of an earlier one: the change is written, or the file is on the list for the next
/// write-back. Without either fence of [`Listed`] the model fails.
#[test]
fn no_overwrite_is_lost_between_list_and_write_back() {
    loom::model(|| {
        let file = Arc::new(File::default());
        file.overwrite();
        let writer = {
            let file = file.clone();
            thread::spawn(move || file.overwrite())
        };
        file.write_back();
        writer.join().unwrap();
        file.write_back();
        let on_device = file.on_device.load(Ordering::Relaxed);
        assert_eq!(on_device, file.data.load(Ordering::Relaxed));
    });
}

/// Two threads overwrite, and one of them syncs: its own change is written, also if the other thread is about to list
/// the file.
#[test]
fn a_sync_finds_the_file_that_another_thread_lists() {
    loom::model(|| {
        let file = Arc::new(File::default());
        let other = {
            let file = file.clone();
            thread::spawn(move || {
                file.overwrite();
            })
        };
        let version = file.overwrite();
        file.write_back();
        assert!(file.on_device.load(Ordering::Relaxed) >= version);
        other.join().unwrap();
    });
}
