//! The number of an inode's handles, in one word with the mark that its last name was removed. The thread that removes
//! the last name and the thread that closes the last handle both change this word, so that the later one of them frees
//! the inode.

use std::sync::atomic::{AtomicU32, Ordering};

/// Set if the last name is gone.
const NAMELESS: u32 = 1 << 31;

/// Handles on an inode, but those that slots count.
pub struct Handles(AtomicU32);

/// The state of an inode's handles after one was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Other handles are still open.
    OneOfSeveral,
    /// The last handle of an inode with a name was closed.
    Last,
    /// The last handle of an inode that had no name at some time was closed.
    LastOfNameless,
}

impl Handles {
    /// Makes the word without a handle, on an inode with or without a name.
    pub const fn new(nameless: bool) -> Self {
        Self(AtomicU32::new(if nameless { NAMELESS } else { 0 }))
    }

    /// Sets the number of handles of a new inode.
    #[inline]
    pub fn begin(&mut self, handles: u32) {
        *self.0.get_mut() |= handles;
    }

    /// Returns the number of handles.
    #[inline]
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire) & !NAMELESS
    }

    /// Adds handles.
    #[inline]
    pub fn add(&self, handles: u32) {
        self.0.fetch_add(handles, Ordering::AcqRel);
    }

    /// Closes one handle.
    #[inline]
    pub fn close(&self) -> Closed {
        match self.0.fetch_sub(1, Ordering::AcqRel) {
            1 => Closed::Last,
            before if before == NAMELESS | 1 => Closed::LastOfNameless,
            _ => Closed::OneOfSeveral,
        }
    }

    /// Notes that the last name was removed. Returns the number of handles. Called with the inode's state locked, so
    /// that no handle is added.
    #[inline]
    pub fn unname(&self) -> u32 {
        self.0.fetch_or(NAMELESS, Ordering::AcqRel) & !NAMELESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_name_and_handles_is_told() {
        let mut handles = Handles::new(false);
        handles.begin(1);
        handles.add(1);
        assert_eq!(handles.close(), Closed::OneOfSeveral);
        assert_eq!(handles.close(), Closed::Last);
        handles.add(2);
        assert_eq!(handles.unname(), 2);
        assert_eq!(handles.count(), 2);
        assert_eq!(handles.close(), Closed::OneOfSeveral);
        assert_eq!(handles.close(), Closed::LastOfNameless);
        assert_eq!(handles.unname(), 0);
        let mut unnamed = Handles::new(true);
        unnamed.begin(1);
        assert_eq!(unnamed.count(), 1);
        assert_eq!(unnamed.close(), Closed::LastOfNameless);
    }

    /// Exactly one of the two threads comes last.
    #[test]
    fn one_of_two_threads_comes_last() {
        for _ in 0..2000 {
            let mut handles = Handles::new(false);
            handles.begin(1);
            let handles = &handles;
            let (unnamed_last, closed_last) = std::thread::scope(|s| {
                let closer = s.spawn(|| handles.close() == Closed::LastOfNameless);
                (handles.unname() == 0, closer.join().unwrap())
            });
            assert!(unnamed_last != closed_last);
        }
    }
}
