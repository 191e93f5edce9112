//! Numbered pieces of work, done by several threads until one fails.

use std::io;
use std::sync::{Mutex, PoisonError};

/// The next piece, and the failed piece of the lowest number with its error.
#[derive(Default)]
struct Progress {
    next: u64,
    failed: Option<(u64, io::Error)>,
}

/// Calls `work` with each number below `pieces`, by several threads. After a failure no piece is begun. Returns the error of the failed
/// piece of the lowest number.
pub(crate) fn for_each(
    threads: usize,
    pieces: u64,
    work: impl Fn(u64) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let progress = Mutex::new(Progress::default());
    let progress = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    let take = || {
        let mut progress = progress();
        let piece = progress.next;
        let left = progress.failed.is_none() && piece < pieces;
        progress.next += u64::from(left);
        left.then_some(piece)
    };
    let run = || {
        while let Some(piece) = take() {
            let Err(error) = work(piece) else { continue };
            let mut progress = progress();
            let earlier = progress.failed.as_ref().map(|(earlier, _)| *earlier);
            if earlier.is_none_or(|earlier| piece < earlier) {
                progress.failed = Some((piece, error));
            }
        }
    };
    std::thread::scope(|scope| {
        blockdev::start_threads(scope, 1..threads.min(64), |_| run());
        run();
    });
    let failed = progress().failed.take();
    failed.map_or(Ok(()), |(_, error)| Err(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn every_piece_is_done_once() {
        for threads in [0, 1, 5] {
            let sum = AtomicU64::new(0);
            let done = for_each(threads, 1000, |piece| {
                sum.fetch_add(piece, Ordering::Relaxed);
                Ok(())
            });
            done.unwrap();
            assert_eq!(sum.into_inner(), 999 * 1000 / 2);
        }
    }

    #[test]
    fn the_first_failure_is_reported_and_ends_the_work() {
        let failure = |piece: u64| Err(io::Error::other(piece.to_string()));
        let begun = AtomicU64::new(0);
        let failed = for_each(1, 1000, |piece| {
            begun.fetch_add(1, Ordering::Relaxed);
            if piece < 7 { Ok(()) } else { failure(piece) }
        });
        assert_eq!(failed.unwrap_err().to_string(), "7");
        assert_eq!(begun.into_inner(), 8);
        // All threads have a piece before any fails.
        let all = Barrier::new(4);
        let failed = for_each(4, 1000, |piece| {
            all.wait();
            failure(piece)
        });
        assert_eq!(failed.unwrap_err().to_string(), "0");
    }
}
