//! Work shared among threads: units by number, taken by an atomic counter.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs `work` for each unit from 0 to `units`, on up to `threads` threads, each with a separate state;
/// returns the states.
pub(crate) fn each<S: Send>(
    threads: usize,
    units: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) + Sync,
) -> Vec<S> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut state = state();
        loop {
            let unit = next.fetch_add(1, Ordering::Relaxed);
            if unit >= units {
                return state;
            }
            work(&mut state, unit);
        }
    };
    let threads = threads.clamp(1, units.max(1));
    if threads == 1 {
        return vec![run()];
    }
    thread::scope(|scope| {
        let others = blockdev::start_threads(scope, 1..threads, |_| run());
        let mut states = vec![run()];
        for other in others {
            match other.join() {
                Ok(state) => states.push(state),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        states
    })
}
