//! Slots: the replacement of the CPU number for user threads.
//!
//! A thread takes a slot at its first use of [`current`] and returns it when it ends. The number of slots is fixed for
//! the life of the process. It is one with one CPU, else a power of two, at least the CPUs available and at least four.
//! [`configure`] chooses another number. A thread gets the slot with the fewest users, so slots are shared only when
//! there are more threads than slots. Sharing is slow, never wrong, because per-slot state has a lock or atomics.
//!
//! A slot, unlike a CPU number, does not change under a running thread, so nothing has to be
//! pinned while it is used.

use std::cell::{Cell, OnceCell};
use std::sync::OnceLock;

use crate::sync::{AtomicU64, Ordering};

/// The number of a slot.
///
/// ```
/// let slot = extant_percpu::slot::current();
/// assert!(slot.index() < extant_percpu::slot::count());
/// assert_eq!(slot, extant_percpu::slot::current()); // one thread, one slot
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(u32);

impl SlotId {
    /// Makes the slot of this number. Numbers beyond the number of slots wrap around where they are used.
    pub const fn new(index: u32) -> Self {
        SlotId(index)
    }

    /// Returns the number, from zero.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Assigns slots, always the one with the fewest users. The process has one registry, behind [`current`]. Others are
/// for models and tests.
///
/// ```
/// use extant_percpu::slot::Registry;
/// let registry = Registry::new(2);
/// let (a, b, c) = (registry.take(), registry.take(), registry.take());
/// assert_ne!(a, b);
/// registry.give(b);
/// assert_eq!(registry.take(), b); // `a` has two users by now
/// # let _ = c;
/// ```
#[derive(Debug)]
pub struct Registry {
    /// Number of threads that use each slot. No lock, because threads that start or end together would wait for each
    /// other.
    users: Box<[AtomicU64]>,
}

impl Registry {
    /// Makes a registry of `slots` slots, rounded up to a power of two.
    pub fn new(slots: usize) -> Self {
        Registry {
            users: (0..round(slots)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns the number of slots.
    pub fn count(&self) -> usize {
        self.users.len()
    }

    /// Takes the least used slot, the lowest of several.
    pub fn take(&self) -> SlotId {
        loop {
            let (mut least, mut fewest) = (0, u64::MAX);
            for (slot, users) in self.users.iter().enumerate() {
                let n = users.load(Ordering::Relaxed);
                if n < fewest {
                    (least, fewest) = (slot, n);
                }
            }
            // No ordering, because no data pass with a slot. If another thread has started or ended here, look again.
            let users = &self.users[least];
            if users
                .compare_exchange(fewest, fewest + 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                return SlotId(least as u32);
            }
        }
    }

    /// Returns a slot obtained from [`take`](Registry::take).
    pub fn give(&self, slot: SlotId) {
        if let Some(users) = self.users.get(slot.index()) {
            // A slot that no thread has taken stays at zero users.
            let _ = users.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        }
    }

    /// Users of each slot at this moment.
    pub fn users(&self) -> Vec<u64> {
        let now = self.users.iter().map(|n| n.load(Ordering::Relaxed));
        now.collect()
    }
}

/// Powers of two up to 4096: enough for any machine, and a bound on padded arrays.
pub(crate) fn round(slots: usize) -> usize {
    slots.clamp(1, 4096).next_power_of_two()
}

/// Returns the number of slots of a machine. Threads of one CPU take turns anyway, so there is one slot, and one list
/// of everything (mechanism P4). With several CPUs there are a few slots more than running threads, for threads that
/// wait.
fn for_cpus(cpus: usize) -> usize {
    match cpus {
        0 | 1 => 1,
        more => more.max(4),
    }
}

static GLOBAL: OnceLock<Registry> = OnceLock::new();

fn global() -> &'static Registry {
    GLOBAL.get_or_init(|| {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        Registry::new(for_cpus(cpus))
    })
}

/// Fixes the number of slots (rounded up to a power of two) if nothing has used a slot yet.
/// Returns the number in force as an error if it is another one.
///
/// ```standalone_crate
/// extant_percpu::slot::configure(8).unwrap();
/// assert_eq!(extant_percpu::slot::count(), 8);
/// assert_eq!(extant_percpu::slot::configure(16), Err(8)); // too late
/// ```
pub fn configure(slots: usize) -> Result<(), usize> {
    let in_force = GLOBAL.get_or_init(|| Registry::new(slots)).count();
    if in_force == round(slots) {
        Ok(())
    } else {
        Err(in_force)
    }
}

/// Returns how many threads use each slot of this process at this moment.
///
/// ```
/// let mine = extant_percpu::slot::current();
/// assert!(extant_percpu::slot::users()[mine.index()] >= 1);
/// ```
pub fn users() -> Vec<u64> {
    global().users()
}

/// Returns the number of slots of this process.
pub fn count() -> usize {
    global().count()
}

const NONE: u32 = u32::MAX;

thread_local! {
    // Apart from the guard, so that reading it is one load: no destructor, no lazy initialisation.
    static SLOT: Cell<u32> = const { Cell::new(NONE) };
    static GUARD: OnceCell<Guard> = const { OnceCell::new() };
}

/// Returns the slot when the thread ends.
struct Guard(SlotId);

impl Drop for Guard {
    fn drop(&mut self) {
        // SLOT keeps the number, so that a destructor that runs after this one still finds a slot. The slot may be
        // shared by then.
        global().give(self.0);
    }
}

/// Returns the slot of the calling thread.
#[inline]
pub fn current() -> SlotId {
    let slot = SLOT.get();
    if slot == NONE { take() } else { SlotId(slot) }
}

#[cold]
fn take() -> SlotId {
    let slot = global().take();
    SLOT.set(slot.0);
    // First use inside a destructor of this thread: the slot is never returned.
    if GUARD.try_with(|g| g.set(Guard(slot)).is_ok()).is_err() {
        global().give(slot);
    }
    slot
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn least_used_first() {
        let r = Registry::new(3);
        assert_eq!(r.count(), 4);
        let taken: Vec<_> = (0..8).map(|_| r.take().index()).collect();
        assert_eq!(taken, [0, 1, 2, 3, 0, 1, 2, 3]);
        r.give(SlotId(2));
        assert_eq!(r.take(), SlotId(2));
        assert_eq!(r.users(), [2; 4]);
        r.give(SlotId(99)); // not a slot: ignored
    }

    #[test]
    fn one_cpu_has_one_slot() {
        let slots = [1, 2, 3, 4, 5, 48].map(|cpus| Registry::new(for_cpus(cpus)).count());
        assert_eq!(slots, [1, 4, 4, 4, 8, 64]);
    }

    #[test]
    fn threads_return_slots_at_exit() {
        let mine = current();
        for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
            let theirs = std::thread::spawn(current).join().unwrap();
            assert!(theirs.index() < count());
        }
        assert_eq!(current(), mine);
        // Other tests run at the same time, but a leak of 1000 would show.
        assert!(global().users().iter().sum::<u64>() < 500);
    }

    #[test]
    fn usable_in_destructors() {
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                assert!(current().index() < count());
            }
        }
        thread_local!(static LATE: Late = const { Late });
        for used_before in [false, true] {
            std::thread::spawn(move || {
                LATE.with(|_| ());
                if used_before {
                    current();
                }
            })
            .join()
            .unwrap();
        }
    }
}
