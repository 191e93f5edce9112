//! Locks whose hold is being measured. A thread has few of them at any moment, so it keeps a short list.

use crate::site::Cell;
use crate::switch::nanos;
use std::cell::{Cell as StdCell, RefCell};
use std::sync::Arc;
use std::time::Instant;

/// Locks that one thread measures at once; a guard that was forgotten makes room for a newer one.
const MOST: usize = 32;

thread_local! {
    /// Length of the list: unlock looks at nothing else while it is 0.
    static COUNT: StdCell<usize> = const { StdCell::new(0) };
    static HELD: RefCell<Vec<(usize, Instant, Arc<Cell>)>> = const { RefCell::new(Vec::new()) };
}

/// Notes that the lock at this address was taken just now.
#[cold]
pub(crate) fn begin(address: usize, cell: &Arc<Cell>) {
    let _ = HELD.try_with(|held| {
        let Ok(mut held) = held.try_borrow_mut() else {
            return;
        };
        if held.len() >= MOST {
            held.remove(0);
        }
        held.push((address, Instant::now(), Arc::clone(cell)));
        COUNT.set(held.len());
    });
}

/// Ends the measuring of the lock at this address, which is about to be released.
#[inline]
pub(crate) fn end(address: usize) {
    if COUNT.try_with(StdCell::get).is_ok_and(|n| n > 0) {
        finish(address);
    }
}

#[cold]
fn finish(address: usize) {
    let _ = HELD.try_with(|held| {
        let Ok(mut held) = held.try_borrow_mut() else {
            return;
        };
        // The latest entry, because one thread may hold a lock shared twice.
        if let Some(i) = held.iter().rposition(|(at, ..)| *at == address) {
            let (_, since, cell) = held.swap_remove(i);
            cell.held(nanos(since));
        }
        COUNT.set(held.len());
    });
}
