//! Named points at which a test holds a thread, so that a schedule does not depend on chance.
//!
//! A test calls [`at`] in the thread that it wants to hold. The closure runs when that thread first reaches the point,
//! and the thread waits there until the closure returns. Other threads, and other tests in the same process, pass the
//! point without a check. A build without debug assertions does not have the points.

/// A point at which a schedule can be held.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A metadata block was read from the device and is not in memory yet.
    BlockRead,
    /// The pages of a file were written, and its commit is about to be made durable.
    FsyncWritten,
    /// A fast commit is put together, and is about to take the lock of the area.
    FastCommitQueued,
    /// A fast commit is about to be written, and the next one may begin.
    FastCommitBegun,
    /// A list of inodes was taken to be written back, and none of them is written.
    WriteBackTaken,
    /// A name was found to lead to an inode, which is not looked up yet.
    NameFound,
    /// A push is about to take the formatter's lock.
    PushQueued,
    /// Writing a transaction or a fast commit has failed, and the volume has not stopped.
    LogFailed,
    /// A commit block is written and not flushed.
    CommitWritten,
    /// A transaction is open and holds no lock.
    Begun,
    /// A part of a file was copied to another place, and its mapping still leads to the old one.
    Copied,
    /// A new file found no free inode number, and a push is about to free some.
    NoInode,
    /// A push freed blocks or numbers for a thread that had found none, and the thread has not taken any of them.
    Freed,
}

#[cfg(debug_assertions)]
type Held = Option<(Point, Box<dyn FnOnce()>)>;

#[cfg(debug_assertions)]
thread_local! {
    static HELD: std::cell::RefCell<Held> = const { std::cell::RefCell::new(None) };
}

/// Runs `hold` when this thread next reaches the point. Returns true if this build has the points.
#[doc(hidden)]
pub fn at(point: Point, hold: impl FnOnce() + 'static) -> bool {
    #[cfg(debug_assertions)]
    HELD.with(|held| *held.borrow_mut() = Some((point, Box::new(hold))));
    #[cfg(not(debug_assertions))]
    let _ = (point, hold);
    cfg!(debug_assertions)
}

/// Holds a thread that has reached the point, if a test asked for that.
#[inline(always)]
pub(crate) fn reached(point: Point) {
    #[cfg(debug_assertions)]
    {
        // An ending thread has no schedule left.
        let hold = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            let here = held.as_ref().is_some_and(|(p, _)| *p == point);
            if here { held.take() } else { None }
        });
        if let Ok(Some((_, hold))) = hold {
            hold();
        }
    }
    let _ = point;
}

/// Runs tasks one at a time, in the schedule of a seed; see `lockmeter`'s `turns`. Returns how often a turn was passed
/// on.
#[cfg(debug_assertions)]
#[doc(hidden)]
pub fn run<'a>(seed: u64, tasks: Vec<Box<dyn FnOnce() + Send + 'a>>) -> u64 {
    lockmeter::turns::run(seed, tasks)
}

/// Passes a task's turn on, in [`run`].
#[doc(hidden)]
pub fn pass() {
    #[cfg(debug_assertions)]
    lockmeter::turns::pass();
}
