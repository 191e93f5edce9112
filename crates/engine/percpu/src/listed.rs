//! A flag of an object: it is on a list of objects to visit.

use crate::sync::{AtomicBool, Ordering, fence};

/// A mark that an object is on a list of dirty objects, which visitors take and clean.
///
/// A thread that made the object dirty asks [`is_missing`](Self::is_missing). If the answer is true, the thread locks
/// the list, calls [`join`](Self::join), and puts the object on the list if that answer is true as well. A visitor
/// takes the object off the list, calls [`leave`](Self::leave), and looks for changes after that.
///
/// Each of the two threads writes its own word and then reads the other's, and a processor may let the read overtake
/// the write. Then the visitor would find the object clean, the other thread would find it listed, and the change would
/// be lost. A fence in both calls prevents that. The lock prevents another loss: a thread that finds the flag set finds
/// the object on the list, too, once it has the lock.
///
/// ```
/// use extant_percpu::Listed;
/// let listed = Listed::default();
/// assert!(listed.is_missing());
/// assert!(listed.join()); // to be put on the list
/// assert!(!listed.is_missing()); // it is there
/// listed.leave();
/// assert!(listed.is_missing());
/// ```
#[derive(Debug)]
pub struct Listed(AtomicBool);

impl Default for Listed {
    fn default() -> Self {
        Self::new()
    }
}

impl Listed {
    /// Makes the flag of an object that is on no list.
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Returns true if the object, which the caller has made dirty, is on no list. It writes nothing, so threads that
    /// make one object dirty share the cache line.
    #[inline]
    pub fn is_missing(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.0.load(Ordering::Relaxed)
    }

    /// Marks the object as listed; call it with the list locked. True if the caller has to put the object on the list.
    #[inline]
    pub fn join(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Marks the object, which the caller has taken off the list and visits next, as not listed.
    #[inline]
    pub fn leave(&self) {
        self.0.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Returns whether the object is on the list.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
