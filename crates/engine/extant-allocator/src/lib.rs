//! The memory allocator of the programs. Inodes, names and cached pages are allocated and freed by the hundred thousand, from many
//! threads.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: extant_allocator::MiMalloc = extant_allocator::MiMalloc;
//!
//! let delay = extant_allocator::keep_freed_memory();
//! # if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() {
//! assert_eq!(delay, Some(std::time::Duration::from_secs(10)));
//! # }
//! ```
#![allow(unsafe_code)] // for the allocator's options, which are functions in C

use libmimalloc_sys::{mi_option_get, mi_option_set_default, mi_option_t};
use std::time::Duration;

pub use mimalloc::MiMalloc;

/// Number of mimalloc's option `mi_option_purge_delay`, in versions 2 and 3.
const PURGE_DELAY: mi_option_t = 15;

/// Sets the time after which the system gets freed memory back to ten seconds, unless the environment variable
/// `MIMALLOC_PURGE_DELAY` sets it. Returns the time that is in force, `None` if memory is never returned. Call it before other threads
/// start.
///
/// mimalloc 3 itself keeps memory for one second. A program that removes files and creates others then waits for the system to clear
/// pages: a quarter of the time of a created, written and synced file.
pub fn keep_freed_memory() -> Option<Duration> {
    // SAFETY: both functions access one aligned word. A thread that frees memory meanwhile sees either value.
    let milliseconds = unsafe {
        mi_option_set_default(PURGE_DELAY, 10_000);
        mi_option_get(PURGE_DELAY)
    };
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}
