//! Work done by many threads, with results in the order in which the work was found.
//!
//! One thread finds pieces of work, others do them, and the caller's own thread takes the results. A piece holds a
//! place in a queue of bounded length from its discovery until its result is taken, so the number of results in
//! memory is bounded, whichever thread is slow.

use anyhow::{Context, Result, anyhow};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

/// Results waiting to be taken, per thread.
const AHEAD: usize = 4;

/// Runs `find`, which passes each piece of work to its argument; `work` in `threads` threads; and `take`, in the order
/// of the pieces. Returns the first failure in this order, which ends all work. With one thread the caller does all of
/// it, piece by piece.
pub fn ordered<J: Send, R: Send>(
    threads: usize,
    find: impl FnOnce(&mut dyn FnMut(J) -> Result<()>) -> Result<()> + Send,
    work: impl Fn(J) -> Result<R> + Sync,
    mut take: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    if threads <= 1 {
        return find(&mut |piece| take(work(piece)?));
    }
    let (to_taker, in_order) = sync_channel::<Receiver<Result<R>>>(threads * AHEAD);
    // The bound of the result queue bounds this queue too.
    let (to_workers, pieces) = sync_channel::<(J, SyncSender<Result<R>>)>(threads * AHEAD + 1);
    let pieces = Mutex::new(pieces);
    std::thread::scope(|s| {
        let work = || {
            loop {
                // The lock is held while waiting: its holder gets the next piece.
                let next = pieces.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((piece, result)) = next else { return };
                // After a failure the receiver is gone.
                let _ = result.send(work(piece));
            }
        };
        // The finder owns what the workers wait for, which ends with it, also if it or a worker cannot be started. One
        // worker is enough.
        let finder = Builder::new().spawn_scoped(s, move || {
            find(&mut |piece| {
                let (result, place) = sync_channel(1);
                let sent = to_taker.send(place).is_ok() && to_workers.send((piece, result)).is_ok();
                sent.then_some(()).ok_or_else(|| Stopped.into())
            })
        });
        let finder = finder.context("cannot start a thread")?;
        for thread in 0..threads {
            match Builder::new().spawn_scoped(s, work) {
                Ok(_) => {}
                Err(e) if thread == 0 => {
                    drop(in_order);
                    return Err(e).context("cannot start a thread");
                }
                Err(_) => break,
            }
        }
        let taken = (|| {
            for place in in_order {
                take(
                    place
                        .recv()
                        .map_err(|_| anyhow!("a thread ended early"))??,
                )?;
            }
            Ok(())
        })();
        let found = finder.join().map_err(|_| anyhow!("a thread ended early"))?;
        match found {
            Err(e) if taken.is_ok() => Err(e),
            _ => taken,
        }
    })
}

/// An error means that no more results are taken; the taking side reports why.
#[derive(Debug)]
struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stopped")
    }
}

impl std::error::Error for Stopped {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_come_in_order_and_few_are_waiting() {
        for threads in [1, 2, 7] {
            let waiting = AtomicUsize::new(0);
            let mut taken = Vec::new();
            ordered(
                threads,
                |give| (0..500u64).try_for_each(give),
                |n| {
                    waiting.fetch_add(1, Ordering::Relaxed);
                    // Later pieces are often done first.
                    std::thread::sleep(std::time::Duration::from_micros(n * 7919 % 97));
                    Ok(n * 2)
                },
                |n| {
                    let now = waiting.fetch_sub(1, Ordering::Relaxed);
                    assert!(now <= threads * (AHEAD + 1) + 1, "{now}");
                    taken.push(n);
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!(taken, (0..500).map(|n| n * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_failure_in_order_is_told() {
        for threads in [1, 4] {
            let run = |fail_find: u64, fail_work: u64, fail_take: u64| {
                let mut last = 0;
                let done = ordered(
                    threads,
                    |give| {
                        (0..1000).try_for_each(|n| {
                            anyhow::ensure!(n != fail_find, "find {n}");
                            give(n)
                        })
                    },
                    |n| {
                        anyhow::ensure!(n < fail_work, "work {n}");
                        Ok(n)
                    },
                    |n| {
                        anyhow::ensure!(n != fail_take, "take {n}");
                        last = n;
                        Ok(())
                    },
                );
                (done.unwrap_err().to_string(), last)
            };
            assert_eq!(run(100, 2000, 2000), ("find 100".into(), 99));
            assert_eq!(run(2000, 50, 2000), ("work 50".into(), 49));
            assert_eq!(run(2000, 2000, 7), ("take 7".into(), 6));
            assert_eq!(run(2000, 60, 10), ("take 10".into(), 9));
        }
    }
}
