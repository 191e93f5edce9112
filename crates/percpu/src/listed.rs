//! A flag that says whether an object is on a list of objects to visit.

use crate::sync::{AtomicBool, Ordering, fence};

/// Whether an object is on a list of dirty objects, which visitors take and clean.
///
/// A thread that made the object dirty calls [`join`](Self::join), and puts the object on the list if the answer is true. A
/// visitor, who has taken the object off the list, calls [`leave`](Self::leave), and looks for what is dirty after that. So
/// each of the two writes its own word and reads the other's, and a processor may let the read overtake the write: then
/// the visitor finds the object clean, the writer finds it listed, and the change is lost. The fences in both calls prevent
/// that: the visitor sees the change, or the writer puts the object on the list again.
///
/// ```
/// use extant_percpu::Listed;
/// let listed = Listed::default();
/// assert!(listed.join()); // to be put on the list
/// assert!(!listed.join()); // it is there
/// listed.leave();
/// assert!(listed.join());
/// ```
#[derive(Debug)]
pub struct Listed(AtomicBool);

impl Default for Listed {
    fn default() -> Self {
        Self::new()
    }
}

impl Listed {
    /// The flag of an object that is on no list.
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Marks the object, which the caller has made dirty, as listed. True if it was not: the caller puts it on the list.
    #[inline]
    pub fn join(&self) -> bool {
        fence(Ordering::SeqCst);
        // The flag is read first, because a line that is only read is shared by all who make the object dirty.
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::AcqRel)
    }

    /// Marks the object, which the caller has taken off the list and visits next, as not listed.
    #[inline]
    pub fn leave(&self) {
        self.0.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Whether the object is on the list.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
