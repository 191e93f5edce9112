//! Memory of dropped block images, for new images. A push replaces thousands of old images by new ones, and memory
//! fresh from the system costs a page fault and a clearing each time. All volumes of the process share this memory.

use crate::locks::{self, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The smallest block, as a power of two; blocks of 1 KiB to 64 KiB are kept.
const SMALLEST: u32 = 10;
const SIZES: usize = 7;
/// Bytes kept of each size.
const MOST: usize = 64 << 20;

type Spare = Mutex<Vec<Vec<u8>>, locks::BlockMemory>;

static SPARE: [Spare; SIZES] = [const { Mutex::new(Vec::new()) }; SIZES];

fn of(size: usize) -> Option<&'static Spare> {
    if !size.is_power_of_two() {
        return None;
    }
    let nth = size.trailing_zeros().checked_sub(SMALLEST)?;
    SPARE.get(nth as usize)
}

fn take(size: usize) -> Option<Vec<u8>> {
    of(size)?.lock().pop()
}

/// Returns a block with arbitrary contents. The caller writes every byte.
pub fn unset(size: usize) -> Vec<u8> {
    take(size).unwrap_or_else(|| vec![0; size])
}

/// Returns an empty vector with room for a block.
pub fn empty(size: usize) -> Vec<u8> {
    match take(size) {
        Some(mut bytes) => {
            bytes.clear();
            bytes
        }
        None => Vec::with_capacity(size),
    }
}

/// Copies a block.
pub fn copied(block: &[u8]) -> Vec<u8> {
    match take(block.len()) {
        Some(mut bytes) => {
            bytes.copy_from_slice(block);
            bytes
        }
        None => block.to_vec(),
    }
}

/// Keeps a block for reuse.
pub fn give(bytes: Vec<u8>) {
    if let Some(spare) = of(bytes.len()) {
        let mut spare = spare.lock();
        if spare.len() < MOST / bytes.len() {
            spare.push(bytes);
        }
    }
}

/// Number of users.
static USERS: AtomicUsize = AtomicUsize::new(0);

/// A user of this memory, such as an open volume. When the last one is dropped, all of it returns to the system: a process that opens
/// and closes volumes keeps nothing.
#[derive(Debug)]
pub struct User(());

impl User {
    /// Adds a user.
    #[allow(clippy::new_without_default)] // A default would hide that it counts.
    pub fn new() -> Self {
        USERS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // Blocks that a new user gives meanwhile may be released, too: then it allocates.
        if USERS.fetch_sub(1, Ordering::Relaxed) == 1 {
            release();
        }
    }
}

/// Returns all of it to the system.
pub fn release() {
    for spare in &SPARE {
        drop(std::mem::take(&mut *spare.lock()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_user_releases_all() {
        let (first, last) = (User::new(), User::new());
        give(vec![7; 64 << 10]);
        drop(first);
        assert_eq!(unset(64 << 10), vec![7; 64 << 10]);
        give(vec![7; 64 << 10]);
        drop(last);
        assert_eq!(unset(64 << 10), vec![0; 64 << 10]);
    }

    #[test]
    fn blocks_come_back_as_asked() {
        give(vec![7; 32 << 10]);
        assert_eq!(unset(32 << 10).len(), 32 << 10);
        give(vec![7; 32 << 10]);
        let room = empty(32 << 10);
        assert!(room.is_empty() && room.capacity() >= 32 << 10);
        give(vec![7; 32 << 10]);
        assert_eq!(copied(&[9; 32 << 10]), vec![9; 32 << 10]);
        // Sizes that no block has are not kept.
        for odd in [0, 1, 512, 3000, 1 << 20] {
            give(vec![7; odd]);
            assert_eq!(unset(odd), vec![0; odd]);
        }
    }
}
