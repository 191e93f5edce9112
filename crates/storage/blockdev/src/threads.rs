//! Threads that share work with their caller.

use std::ops::Range;
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Starts a thread for each number, which it passes to `work`, and returns the started ones. After the first thread
/// that the system refuses (`EAGAIN`, as under a limit of processes) no further one is started: the caller must be able
/// to do the work alone.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
/// let work = || {
///     while next.fetch_add(1, Ordering::Relaxed) < 100 {
///         done.fetch_add(1, Ordering::Relaxed);
///     }
/// };
/// std::thread::scope(|scope| {
///     extant_blockdev::start_threads(scope, 1..4, |_| work());
///     work();
/// });
/// assert_eq!(done.into_inner(), 100);
/// ```
pub fn start_threads<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    numbers: Range<usize>,
    work: impl FnOnce(usize) -> T + Copy + Send + 'scope,
) -> Vec<ScopedJoinHandle<'scope, T>> {
    let start = |number| {
        Builder::new()
            .spawn_scoped(scope, move || work(number))
            .ok()
    };
    numbers.map_while(start).collect()
}
