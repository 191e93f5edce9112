//! A mutex that is released by a plain store.
//!
//! A thread that releases an ordinary mutex must learn by the same step whether a thread sleeps until it is free. That
//! takes a read-modify-write of about 20 cycles, as does taking the mutex. Here the holder stores that the mutex is
//! free and then reads a flag that sleepers set. A processor may read the flag before others see the store. Then a
//! thread sets the flag, finds the mutex taken, and sleeps, and no thread wakes it. That is rare, because a store is
//! seen after a microsecond at most, and the thread waits for that time before its last look. It is harmless, because
//! the thread sleeps no longer than ten milliseconds. A thread that has slept for the full time has all other threads
//! of the process pass a full barrier (membarrier(2)) between setting the flag and looking at the mutex. Then it sleeps
//! without a limit. The pair of a light and a heavy barrier is that of asymmetric fences (C++ proposal P1202,
//! Goldblatt).
//!
//! **No thread sleeps for ever.** Suppose that a thread S sets the flag and that its barrier ends at a time E. A holder
//! that did not see the flag looked before its own barrier, so its store is seen at E: S finds the mutex free, or taken
//! by a thread that has yet to look at the flag. The flag is cleared only while the queue is locked and empty. If that
//! happens before S has looked for the last time, S tries again, unless another thread has set the flag again. That
//! thread looks again after ten milliseconds at the latest. Then it takes the mutex and sees the flag when it releases
//! it, or it sleeps after a barrier.
//!
//! If the kernel has no such barrier, sleepers look again each ten milliseconds.
#![allow(unsafe_code)] // to say that it excludes, which is what RawMutex asks of it, and to call the parking lot

use crate::sync::{AtomicBool, AtomicU8, Ordering};

/// The bit of the flags of a [`Word`] that is set while a thread waits.
pub const WAITING: u8 = 1 << 7;

/// Looks at a taken mutex before a thread goes to sleep.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 10 };
/// Pauses, together of about a microsecond, in which a store that was made is seen.
const PAUSES: u32 = if cfg!(loom) { 0 } else { 16 };

/// Reason why a sleeping thread woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// The mutex is its own.
    HandedOver,
    /// The thread may try to take the mutex.
    Free,
    /// The ten milliseconds are over.
    InVain,
}

/// Threads that sleep until a mutex is free; the kernel's, or a model's.
trait Sleepers {
    /// Makes all other threads of the process pass a full barrier. Returns false if that is not possible.
    fn barrier(&self) -> bool;
    /// Sleeps if `wanted`, called with the queue of the mutex locked, returns true; for ten milliseconds if not
    /// `for_long`. `last_left` is called with the queue locked if the time is over and no other thread sleeps.
    fn sleep(
        &self,
        mutex: usize,
        wanted: impl FnOnce() -> bool,
        last_left: impl FnOnce(),
        for_long: bool,
    ) -> Woken;
    /// Wakes one thread; `woken` is called with the queue locked. Its arguments are whether other threads are left, and
    /// whether it is time to pass the mutex directly to the woken thread. It returns whether the mutex is passed.
    fn wake(&self, mutex: usize, woken: impl FnOnce(bool, bool) -> bool);
}

/// A mutex in two bytes that its user lays out: whether it is held, and flags, of which one is the mutex's own. The
/// others are for the user, who changes them by atomic steps that leave [`WAITING`] as it is.
///
/// ```
/// use std::sync::atomic::{AtomicBool, AtomicU8};
/// let (held, flags) = (AtomicBool::new(false), AtomicU8::new(1));
/// let mutex = lockmeter::Word { held: &held, flags: &flags };
/// mutex.take();
/// assert!(!mutex.try_take());
/// mutex.release();
/// assert!(mutex.try_take());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Word<'a> {
    /// Somebody holds the mutex.
    pub held: &'a AtomicBool,
    /// [`WAITING`] and the user's own.
    pub flags: &'a AtomicU8,
}

impl Word<'_> {
    /// Takes the mutex if it is free.
    #[inline]
    pub fn try_take(self) -> bool {
        let taken = self
            .held
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Takes the mutex, and waits until it is free.
    #[cfg(not(loom))]
    #[inline]
    pub fn take(self) {
        if !self.try_take() {
            self.take_waiting(&kernel::ParkingLot);
        }
    }

    /// Releases the mutex, which the caller holds.
    #[cfg(not(loom))]
    #[inline]
    pub fn release(self) {
        if self.let_go() {
            self.wake(&kernel::ParkingLot);
        }
    }

    /// Releases the mutex. Returns true if a thread must be woken.
    #[inline]
    fn let_go(self) -> bool {
        self.held.store(false, Ordering::Release);
        // The compiler keeps the order. The barrier of a thread that sets the flag ensures that the processor has kept
        // it, too.
        crate::sync::light_barrier();
        self.flags.load(Ordering::Relaxed) & WAITING != 0
    }

    fn key(self) -> usize {
        std::ptr::from_ref(self.held).addr()
    }

    #[cold]
    #[inline(never)]
    fn take_waiting(self, sleepers: &impl Sleepers) {
        let mut slept = false;
        loop {
            for look in 1..=LOOKS {
                if !self.held.load(Ordering::Relaxed) && self.try_take() {
                    return;
                }
                if self.flags.load(Ordering::Relaxed) & WAITING != 0 {
                    // Queue behind the threads that sleep already.
                    break;
                }
                match look {
                    1..=3 => (0..1 << look).for_each(|_| std::hint::spin_loop()),
                    _ => std::thread::yield_now(),
                }
            }
            self.flags.fetch_or(WAITING, Ordering::SeqCst);
            let for_long = slept && sleepers.barrier();
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            let waiting = || self.flags.load(Ordering::SeqCst) & WAITING != 0;
            let wanted = || self.held.load(Ordering::SeqCst) && waiting();
            let woken = sleepers.sleep(self.key(), wanted, || self.nobody_waits(), for_long);
            if woken == Woken::HandedOver || self.try_take() {
                return;
            }
            slept = woken == Woken::InVain;
        }
    }

    /// Clears the flag, because the queue is locked and empty.
    fn nobody_waits(self) {
        self.flags.fetch_and(!WAITING, Ordering::SeqCst);
    }

    #[cold]
    #[inline(never)]
    fn wake(self, sleepers: &impl Sleepers) {
        sleepers.wake(self.key(), |others, is_time| {
            if !others {
                self.nobody_waits();
            }
            is_time && self.try_take()
        });
    }
}

#[cfg(not(loom))]
mod kernel {
    use crate::mutex::{Sleepers, Woken, Word};
    use parking_lot_core::{DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, ParkResult, UnparkToken};
    use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    use std::time::{Duration, Instant};

    /// Token of a thread that was woken as the new holder of the mutex.
    const HANDED_OVER: UnparkToken = UnparkToken(1);

    /// Time that a thread sleeps that may have been missed.
    const UNSURE: Duration = Duration::from_millis(10);

    #[cfg(not(miri))]
    fn barrier() -> bool {
        use rustix::thread::{MembarrierCommand, membarrier};
        let done = |command| membarrier(command).is_ok();
        let barrier = || done(MembarrierCommand::PrivateExpedited);
        // A process registers once for these barriers.
        barrier() || done(MembarrierCommand::RegisterPrivateExpedited) && barrier()
    }

    /// Does nothing, because the interpreter has no membarrier and releasing includes a full barrier there.
    #[cfg(miri)]
    fn barrier() -> bool {
        std::sync::atomic::fence(Ordering::SeqCst);
        true
    }

    /// Threads that wait for all mutexes, by the address of each.
    pub(super) struct ParkingLot;

    impl Sleepers for ParkingLot {
        fn barrier(&self) -> bool {
            barrier()
        }

        fn sleep(
            &self,
            mutex: usize,
            wanted: impl FnOnce() -> bool,
            last_left: impl FnOnce(),
            for_long: bool,
        ) -> Woken {
            let until = (!for_long).then(|| Instant::now() + UNSURE);
            let timed_out = |_, was_last| {
                if was_last {
                    last_left();
                }
            };
            // SAFETY: the address is that of the mutex, which no other part of the process uses as a key; none of the
            // functions panics or calls the parking lot.
            let parked = unsafe {
                parking_lot_core::park(mutex, wanted, || {}, timed_out, DEFAULT_PARK_TOKEN, until)
            };
            match parked {
                ParkResult::Unparked(HANDED_OVER) => Woken::HandedOver,
                ParkResult::TimedOut => Woken::InVain,
                _ => Woken::Free,
            }
        }

        fn wake(&self, mutex: usize, woken: impl FnOnce(bool, bool) -> bool) {
            let token = |result: parking_lot_core::UnparkResult| {
                let is_time = result.unparked_threads > 0 && result.be_fair;
                if woken(result.have_more_threads, is_time) {
                    HANDED_OVER
                } else {
                    DEFAULT_UNPARK_TOKEN
                }
            };
            // SAFETY: as above.
            unsafe { parking_lot_core::unpark_one(mutex, token) };
        }
    }

    /// A raw mutex of two bytes that is released by a plain store.
    ///
    /// ```
    /// use lock_api::RawMutex as _;
    /// let mutex = lockmeter::RawMutex::INIT;
    /// assert!(mutex.try_lock() && !mutex.try_lock());
    /// // SAFETY: it was locked above.
    /// unsafe { mutex.unlock() };
    /// assert_eq!(size_of_val(&mutex), 2);
    /// ```
    #[derive(Debug)]
    pub struct RawMutex {
        held: AtomicBool,
        flags: AtomicU8,
    }

    impl RawMutex {
        #[inline]
        fn word(&self) -> Word<'_> {
            let Self { held, flags } = self;
            Word { held, flags }
        }
    }

    // SAFETY: only the thread that turns `held` to true, or that became the holder while it was true, holds the mutex;
    // acquire and release order the accesses of successive holders.
    unsafe impl lock_api::RawMutex for RawMutex {
        #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for
        const INIT: Self = Self {
            held: AtomicBool::new(false),
            flags: AtomicU8::new(0),
        };
        type GuardMarker = lock_api::GuardNoSend;

        #[inline]
        fn lock(&self) {
            self.word().take();
        }

        #[inline]
        fn try_lock(&self) -> bool {
            self.word().try_take()
        }

        #[inline]
        unsafe fn unlock(&self) {
            self.word().release();
        }

        #[inline]
        fn is_locked(&self) -> bool {
            self.held.load(Ordering::Relaxed)
        }
    }
}

#[cfg(not(loom))]
pub use kernel::RawMutex;
#[cfg(loom)]
#[doc(hidden)]
pub use parking_lot::RawMutex;

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::mutex::RawMutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// Threads that go to sleep soon, because the holder sleeps now and then: no wake-up is lost, no addition either.
    #[test]
    fn nobody_sleeps_for_ever() {
        let (threads, turns) = if cfg!(miri) { (3, 40) } else { (8, 20_000) };
        let sum = lock_api::Mutex::<RawMutex, u64>::new(0);
        let inside = AtomicU64::new(0);
        std::thread::scope(|s| {
            for thread in 0..threads {
                let (sum, inside) = (&sum, &inside);
                s.spawn(move || {
                    for turn in 0..turns {
                        let mut sum = sum.lock();
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        *sum += 1;
                        if (turn + thread) % 512 == 0 {
                            std::thread::sleep(Duration::from_micros(50));
                        }
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), threads * turns);
    }

    /// Two threads that hand a mutex to and fro as fast as they can sleep: each turn is one that could be lost. A thread that looks in vain
    /// gives its processor to the other: on a busy machine, a turn would take a time slice otherwise.
    #[test]
    fn every_sleeper_is_woken() {
        let turns = if cfg!(miri) { 20 } else { 20_000 };
        let word = lock_api::Mutex::<RawMutex, u64>::new(0);
        std::thread::scope(|s| {
            for me in 0..2 {
                let word = &word;
                s.spawn(move || {
                    let (mut done, mut looks) = (0, 0_u32);
                    while done < turns {
                        let mut whose = word.lock();
                        let mine = *whose % 2 == me;
                        if mine {
                            *whose += 1;
                            done += 1;
                        }
                        drop(whose);
                        looks += u32::from(!mine);
                        if looks % 64 == 63 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(word.into_inner(), 2 * turns);
    }
}

/// Every interleaving of two and three threads. The model's barrier and the light one are both full fences: it shows
/// that nobody is missed if the barrier does what the kernel says.
#[cfg(all(test, loom))]
mod model {
    use crate::mutex::{Sleepers, Woken, Word};
    use crate::sync::{AtomicBool, AtomicU8, Ordering};
    use loom::sync::{Arc, Condvar, Mutex};

    #[derive(Default)]
    struct Queue {
        asleep: usize,
        /// Tokens of woken threads, for any of them to take.
        woken: Vec<Woken>,
    }

    struct Lock {
        held: AtomicBool,
        flags: AtomicU8,
        inside: AtomicBool,
        queue: Mutex<Queue>,
        woke: Condvar,
        /// Each thread that is woken is handed the mutex.
        fair: bool,
    }

    impl Sleepers for Lock {
        fn barrier(&self) -> bool {
            loom::sync::atomic::fence(Ordering::SeqCst);
            true
        }

        fn sleep(
            &self,
            _: usize,
            wanted: impl FnOnce() -> bool,
            last_left: impl FnOnce(),
            for_long: bool,
        ) -> Woken {
            let mut queue = self.queue.lock().unwrap();
            if !wanted() {
                return Woken::Free;
            }
            if !for_long {
                // The time is over at once.
                if queue.asleep == 0 {
                    last_left();
                }
                return Woken::InVain;
            }
            queue.asleep += 1;
            loop {
                // A wake-up that is lost is a deadlock here, which the model reports.
                queue = self.woke.wait(queue).unwrap();
                if let Some(woken) = queue.woken.pop() {
                    return woken;
                }
            }
        }

        fn wake(&self, _: usize, woken: impl FnOnce(bool, bool) -> bool) {
            let mut queue = self.queue.lock().unwrap();
            let any = queue.asleep > 0;
            queue.asleep -= usize::from(any);
            let handed = woken(queue.asleep > 0, any && self.fair);
            if any {
                queue.woken.push(if handed {
                    Woken::HandedOver
                } else {
                    Woken::Free
                });
                self.woke.notify_all();
            }
        }
    }

    impl Lock {
        fn new(fair: bool) -> Arc<Self> {
            Arc::new(Self {
                held: AtomicBool::new(false),
                flags: AtomicU8::new(0),
                inside: AtomicBool::new(false),
                queue: Mutex::default(),
                woke: Condvar::new(),
                fair,
            })
        }

        fn pass(&self) {
            let word = Word {
                held: &self.held,
                flags: &self.flags,
            };
            if !word.try_take() {
                word.take_waiting(self);
            }
            assert!(!self.inside.swap(true, Ordering::Relaxed));
            self.inside.store(false, Ordering::Relaxed);
            if word.let_go() {
                word.wake(self);
            }
        }
    }

    fn all_pass(threads: usize, times: usize, fair: bool) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(3));
        builder.check(move || {
            let lock = Lock::new(fair);
            let others: Vec<_> = (1..threads)
                .map(|_| {
                    let lock = lock.clone();
                    loom::thread::spawn(move || (0..times).for_each(|_| lock.pass()))
                })
                .collect();
            (0..times).for_each(|_| lock.pass());
            others.into_iter().for_each(|t| t.join().unwrap());
            assert!(!lock.held.load(Ordering::Relaxed));
        });
    }

    #[test]
    fn two_threads_pass() {
        all_pass(2, 2, false);
    }

    #[test]
    fn three_threads_pass() {
        all_pass(3, 1, false);
    }

    #[test]
    fn a_mutex_that_is_handed_over_is_held_once() {
        all_pass(3, 1, true);
    }
}
