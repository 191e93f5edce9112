//! The object that a thread wants a lock for: two names in one bucket, two inodes of one group.
//!
//! A lock that protects many objects makes threads wait for each other although they want different ones. The meter can
//! count such waits separately if threads name their objects ([`wanting`]). It remembers, for a metered lock, the
//! object of the last thread that held it alone, and compares it when another thread has to wait.

use crate::switch::is_on;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// The object that this thread takes locks for, as [`key`] has it; 0 if it has not said.
    static WANTED: Cell<u32> = const { Cell::new(0) };
}

/// A word on a separate cache line.
#[repr(align(64))]
struct Word(AtomicU64);

/// The objects of holders, by the address of their lock: the lock in the upper half, the object in the lower one. Two
/// locks of one place overwrite each other, and then a wait counts as one of which nothing is known.
static HELD: [Word; PLACES] = [const { Word(AtomicU64::new(0)) }; PLACES];
const PLACES: usize = 1024;

/// Returns the key by which the meter compares an object: never 0.
fn key(object: u64) -> u32 {
    let mixed = object.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 32) as u32).max(1)
}

/// Returns the key by which the meter compares a lock, and the lock's place.
fn place(address: usize) -> (u64, &'static AtomicU64) {
    let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let place = &HELD[(mixed >> 54) as usize % PLACES];
    (mixed << 10 >> 32 << 32, &place.0)
}

/// Says for which object `take` takes locks, so that a wait for a thread that wanted another object can be counted as
/// such. Costs a load and a branch while the meter is off.
///
/// ```
/// lockmeter::lock_class!(Bucket = "bucket of names");
/// let bucket: lockmeter::Mutex<Vec<u64>, Bucket> = lockmeter::Mutex::new(Vec::new());
/// let hash = 17;
/// lockmeter::wanting(hash, || bucket.lock()).push(hash);
/// ```
#[inline(always)]
pub fn wanting<R>(object: u64, take: impl FnOnce() -> R) -> R {
    let before = is_on().then(|| want(key(object)));
    let taken = take();
    if let Some(before) = before {
        want(before);
    }
    taken
}

/// Sets the object that this thread wants from now on. Returns the previous one.
#[cold]
#[inline(never)]
fn want(key: u32) -> u32 {
    WANTED.replace(key)
}

/// Notes what the thread that now holds the lock alone wants of it.
pub(crate) fn note(address: usize) {
    let (lock, place) = place(address);
    let held = place.load(Ordering::Relaxed);
    match WANTED.get() {
        // Forget the object of the previous holder.
        0 if held & !u64::from(u32::MAX) == lock => place.store(0, Ordering::Relaxed),
        0 => {}
        wanted if held != lock | u64::from(wanted) => {
            place.store(lock | u64::from(wanted), Ordering::Relaxed);
        }
        _ => {}
    }
}

/// Returns whether the lock is held for another object than this thread wants, or `None` if one of the two threads has
/// not named its object.
pub(crate) fn differs(address: usize) -> Option<bool> {
    let wanted = WANTED.get();
    let (lock, place) = place(address);
    let held = place.load(Ordering::Relaxed);
    let known = wanted != 0 && held != 0 && held & !u64::from(u32::MAX) == lock;
    known.then_some(held as u32 != wanted)
}
