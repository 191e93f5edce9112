//! Work spread over threads, which end with the work.

use crate::base::error::{Error, Result};
use std::any::Any;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More threads than this gain little: one thread prepares their work, and continues with their results.
pub const MAX_THREADS: usize = 16;

/// Returns the number of CPUs. The system is asked once, because the answer is read from files, which takes longer than
/// formatting a small batch.
pub fn cpus() -> usize {
    static CPUS: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    *CPUS
}

/// Threads for `work` units, each of which gets at least `each` of them.
pub fn threads_for(work: usize, each: usize) -> usize {
    cpus().min(MAX_THREADS).min(work / each)
}

/// Returns the error that stands for a thread's panic.
pub fn panicked(_: Box<dyn Any + Send>) -> Error {
    Error::Stopped("a thread panicked".into())
}

/// Does every piece of work, each with its index, by several threads, of which the caller is one. After a failure no
/// further piece is begun; one of the failures is returned.
pub fn for_each<T: Sync>(
    threads: usize,
    pieces: &[T],
    work: impl Fn(usize, &T) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let worker = || loop {
        let i = next.fetch_add(1, Ordering::Relaxed);
        let Some(piece) = pieces.get(i) else {
            return Ok(());
        };
        if let Err(e) = work(i, piece) {
            next.store(pieces.len(), Ordering::Relaxed);
            return Err(e);
        }
    };
    if threads < 2 {
        return worker();
    }
    std::thread::scope(|s| {
        let others = blockdev::start_threads(s, 1..threads, |_| worker());
        let own = worker();
        let others = others.into_iter().map(|t| t.join().map_err(panicked)?);
        others.fold(own, Result::and)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_once() {
        for threads in [0, 1, 3] {
            let done: Vec<_> = (0..100).map(|_| AtomicUsize::new(0)).collect();
            for_each(threads, &done, |i, piece| {
                piece.fetch_add(i + 1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
            let done: Vec<_> = done.into_iter().map(AtomicUsize::into_inner).collect();
            assert_eq!(done, (1..=100).collect::<Vec<_>>());
        }
        for_each(2, &[] as &[u8], |_, _| unreachable!()).unwrap();
    }

    #[test]
    fn a_failure_ends_it() {
        let begun = AtomicUsize::new(0);
        let failed = for_each(1, &[0; 100], |i, _| {
            begun.fetch_add(1, Ordering::Relaxed);
            match i {
                7 => Err(Error::NotFound),
                _ => Ok(()),
            }
        });
        assert!(matches!(failed, Err(Error::NotFound)));
        assert_eq!(begun.into_inner(), 8);
        let failed = for_each(3, &[0; 100], |_, _| Err(Error::NotFound));
        assert!(matches!(failed, Err(Error::NotFound)));
    }
}
