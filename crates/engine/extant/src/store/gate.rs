//! The gate that holds changes back while a volume is frozen.
//!
//! Freezing has two steps. While the gate is *closing*, new changes wait, and the freezing thread waits for changes in
//! progress. Then everything is made durable, the journal is emptied, and the gate is *shut*: nothing is written to the
//! device until the gate opens again. Readers do not use the gate.
//!
//! Two kinds of changes:
//! - Changes of file data hold a file's mapping while they write to the device. Before they lock anything, they take a
//!   [`Pass`], which is counted in their thread's slot. A closing gate waits for passes.
//! - Changes of names and attributes only check that the gate is open, before they lock anything
//!   ([`Committer::begin`](crate::commit::Committer::begin)). A change that has checked a moment before the gate closes
//!   commits into memory, and no push writes it to the device before the gate opens. `fsync` and `sync` wait for that.

use crate::base::locks::{self, Condvar, Mutex};
use percpu::PerSlot;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const CLOSED: u8 = 2;

thread_local! {
    /// The gate this thread is inside of, by address; 0 for none. Calls made inside need not pass it again.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Holds changes back.
#[derive(Default)]
pub(crate) struct Gate {
    state: AtomicU8,
    inside: PerSlot<AtomicU64>,
    lock: Mutex<(), locks::Gate>,
    changed: Condvar,
}

/// A thread is inside; a closing gate waits until this is dropped.
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    count: Option<&'a AtomicU64>,
    before: usize,
    /// A pass belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl Gate {
    fn id(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Returns true if the gate is open at this moment.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OPEN
    }

    /// Waits until the gate is open, unless this thread is inside. The caller holds no lock.
    #[inline]
    pub fn look(&self) {
        if self.state.load(Ordering::Relaxed) != OPEN && INSIDE.get() != self.id() {
            self.wait();
        }
    }

    /// Passes the gate, waiting until it is open. The caller holds no lock.
    #[inline]
    pub fn enter(&self) -> Pass<'_> {
        loop {
            if let Some(pass) = self.try_enter() {
                return pass;
            }
            self.wait();
        }
    }

    /// Passes the gate if it is open, or this thread is inside already.
    #[inline]
    pub fn try_enter(&self) -> Option<Pass<'_>> {
        let before = INSIDE.get();
        let mut count = None;
        if before != self.id() {
            // The thread is counted before it looks at the state, and the state is changed before the counts are read.
            // So one of the two sides sees the other.
            let here = self.inside.local();
            here.fetch_add(1, Ordering::SeqCst);
            if self.state.load(Ordering::SeqCst) != OPEN {
                self.leave(here);
                return None;
            }
            INSIDE.set(self.id());
            count = Some(here);
        }
        Some(self.pass(count, before))
    }

    /// Passes the gate for a thread that works for one that is inside, and waits for it; also for the thread that has
    /// closed the gate.
    pub fn pass_on_behalf(&self) -> Pass<'_> {
        let before = INSIDE.replace(self.id());
        self.pass(None, before)
    }

    fn pass<'a>(&'a self, count: Option<&'a AtomicU64>, before: usize) -> Pass<'a> {
        Pass {
            gate: self,
            count,
            before,
            _here: PhantomData,
        }
    }

    fn leave(&self, count: &AtomicU64) {
        count.fetch_sub(1, Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) != OPEN {
            let _lock = self.lock.lock();
            self.changed.notify_all();
        }
    }

    #[cold]
    fn wait(&self) {
        let mut lock = self.lock.lock();
        while self.state.load(Ordering::SeqCst) != OPEN {
            self.changed.wait(&mut lock);
        }
    }

    /// Begins to close the gate and waits until no thread is inside; false if it is not open.
    pub fn close(&self) -> bool {
        let begun = self
            .state
            .compare_exchange(OPEN, CLOSING, Ordering::SeqCst, Ordering::SeqCst);
        if begun.is_err() {
            return false;
        }
        let mut lock = self.lock.lock();
        let inside = || self.inside.iter().any(|n| n.load(Ordering::SeqCst) != 0);
        while inside() && self.state.load(Ordering::SeqCst) == CLOSING {
            self.changed.wait_for(&mut lock, Duration::from_millis(50));
        }
        true
    }

    /// Waits until all threads inside have left: for a volume that has stopped, where a thread that enters finds that
    /// out before it writes.
    pub fn drain(&self) {
        for count in self.inside.iter() {
            while count.load(Ordering::SeqCst) != 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Shuts the gate: from now on nothing may reach the device. False if the gate was opened meanwhile.
    pub fn shut(&self) -> bool {
        self.state
            .compare_exchange(CLOSING, CLOSED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Returns true if nothing may reach the device.
    #[inline]
    pub fn is_shut(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    /// Waits while the gate is shut.
    pub fn wait_while_shut(&self) {
        let mut lock = self.lock.lock();
        while self.is_shut() {
            self.changed.wait(&mut lock);
        }
    }

    /// Waits until the gate is either open or shut: passes it, or returns `None` if it is shut.
    pub fn enter_or_shut(&self) -> Option<Pass<'_>> {
        loop {
            if let Some(pass) = self.try_enter() {
                return Some(pass);
            }
            let mut lock = self.lock.lock();
            while self.state.load(Ordering::SeqCst) == CLOSING {
                self.changed.wait(&mut lock);
            }
            if self.is_shut() {
                return None;
            }
        }
    }

    /// Opens the gate in any state.
    pub fn open(&self) {
        if self.state.swap(OPEN, Ordering::SeqCst) != OPEN {
            let _lock = self.lock.lock();
            self.changed.notify_all();
        }
    }

    /// Wakes the threads that wait for the end of closing.
    pub fn notify(&self) {
        let _lock = self.lock.lock();
        self.changed.notify_all();
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        INSIDE.set(self.before);
        if let Some(count) = self.count {
            self.gate.leave(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn closing_waits_for_those_inside_and_others_wait_for_opening() {
        let gate = Gate::default();
        let (left, came) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|s| {
            let pass = gate.enter();
            s.spawn(|| {
                assert!(gate.close());
                assert!(left.load(Ordering::SeqCst));
                assert!(gate.shut() && gate.is_shut());
                assert!(!gate.close(), "once at a time");
                s.spawn(|| {
                    let _pass = gate.enter();
                    assert!(came.load(Ordering::SeqCst));
                });
                std::thread::sleep(Duration::from_millis(20));
                came.store(true, Ordering::SeqCst);
                gate.open();
            });
            while gate.state.load(Ordering::SeqCst) == OPEN {
                std::thread::yield_now();
            }
            // The thread is inside already: a closing gate does not hold it.
            let again = gate.enter();
            gate.look();
            drop(again);
            left.store(true, Ordering::SeqCst);
            drop(pass);
        });
        assert!(gate.enter_or_shut().is_some());
    }
}
