//! Taking a free inode bit [I1]. Groups of 8192 inodes, filled one after the other by all tasks.
//!
//! Two pairs, each with one difference. In `inode-search` both variants take the first free bit of the first group
//! that has a free one, found without a lock. *Before* locks the group, tests the bit again, and starts over if
//! another task was faster; *after* sets the bit with one atomic test-and-set. In `inode-stretches` both take bits by
//! test-and-set. *Before* all tasks search from the start of the group; *after* each task searches in a separate
//! stretch.

use super::tasks;
use crate::runner::{Shape, Task, Tasks};
use anyhow::{Result, ensure};
use lockmeter::{SpinLock, lock_class};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

lock_class!(
    /// Lock of a group in the variant before.
    GroupLock = "before: inode group"
);

const BITS: u32 = 8192;

/// A group of inodes. Both variants count its free inodes.
struct Group {
    words: Vec<AtomicU64>,
    free: AtomicU32,
    lock: SpinLock<(), GroupLock>,
}

/// Method of taking a bit that was found.
#[derive(Clone, Copy)]
enum Take {
    /// With the group locked, after a second test.
    Locked,
    /// One atomic test-and-set.
    TestAndSet,
}

impl Group {
    fn new() -> Self {
        Self {
            words: (0..BITS / 64).map(|_| AtomicU64::new(0)).collect(),
            free: AtomicU32::new(BITS),
            lock: SpinLock::new(()),
        }
    }

    /// Returns a free bit in a range of words.
    fn find(&self, words: std::ops::Range<u32>) -> Option<u32> {
        words.into_iter().find_map(|i| {
            let bit = self.words[i as usize]
                .load(Ordering::Relaxed)
                .trailing_ones();
            (bit < 64).then_some(i * 64 + bit)
        })
    }

    /// Takes a bit; returns whether it was free.
    fn take_bit(&self, bit: u32, take: Take) -> bool {
        let (word, mask) = (&self.words[(bit / 64) as usize], 1 << (bit % 64));
        match take {
            Take::Locked => {
                let _locked = self.lock.lock();
                let held = word.load(Ordering::Relaxed);
                if held & mask == 0 {
                    word.store(held | mask, Ordering::Relaxed);
                }
                held & mask == 0
            }
            Take::TestAndSet => word.fetch_or(mask, Ordering::Relaxed) & mask == 0,
        }
    }

    /// Finds and takes a bit; starts over if another task was faster.
    fn take(&self, words: std::ops::Range<u32>, take: Take) -> Option<u32> {
        loop {
            let bit = self.find(words.clone())?;
            if self.take_bit(bit, take) {
                self.free.fetch_sub(1, Ordering::Relaxed);
                return Some(bit);
            }
        }
    }

    fn has_free(&self) -> bool {
        self.free.load(Ordering::Relaxed) > 0
    }
}

/// The groups of a round.
pub struct Groups(Vec<Group>);

impl Groups {
    fn new(shape: &Shape) -> Arc<Self> {
        let bits = shape.tasks as u64 * shape.files;
        let count = bits.div_ceil(u64::from(BITS)) as usize;
        Arc::new(Self((0..count).map(|_| Group::new()).collect()))
    }

    /// Returns the present bits.
    #[cfg(test)]
    pub fn image(&self) -> Vec<u64> {
        let words = self.0.iter().flat_map(|g| &g.words);
        words.map(|w| w.load(Ordering::Relaxed)).collect()
    }
}

/// Takes the first free bit of all groups.
struct First {
    groups: Arc<Groups>,
    take: Take,
    left: u64,
}

impl Task for First {
    fn op(&mut self) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let mut groups = self.groups.0.iter().filter(|g| g.has_free());
        let taken = groups.find_map(|g| g.take(0..BITS / 64, self.take));
        ensure!(taken.is_some(), "there is a bit for everybody");
        Ok(true)
    }
}

fn first(shape: &Shape, take: Take) -> Result<(Tasks, Arc<Groups>)> {
    let groups = Groups::new(shape);
    let made = tasks(shape, |_| First {
        groups: Arc::clone(&groups),
        take,
        left: shape.files,
    })?;
    Ok((made, groups))
}

pub fn before(shape: &Shape) -> Result<Tasks> {
    Ok(first(shape, Take::Locked)?.0)
}

pub fn after(shape: &Shape) -> Result<Tasks> {
    Ok(first(shape, Take::TestAndSet)?.0)
}

/// Size of the stretch in which a task searches first.
pub const STRETCH: u32 = 256;
const STRETCHES: u32 = BITS / STRETCH;

/// Takes bits in a task's own stretch.
struct Stretches {
    groups: Arc<Groups>,
    /// The next stretch that no task owns, over all groups.
    next: Arc<AtomicU32>,
    stretch: u32,
    left: u64,
}

impl Stretches {
    fn take_in(&self, stretch: u32) -> Option<u32> {
        let from = stretch % STRETCHES * STRETCH / 64;
        let group = self.groups.0.get((stretch / STRETCHES) as usize)?;
        group.take(from..from + STRETCH / 64, Take::TestAndSet)
    }

    fn take(&mut self) -> Option<u32> {
        let stretches = self.groups.0.len() as u32 * STRETCHES;
        loop {
            if let Some(bit) = self.take_in(self.stretch) {
                return Some(bit);
            }
            self.stretch = self.next.fetch_add(1, Ordering::Relaxed);
            if self.stretch >= stretches {
                // Use bits that other tasks left in their stretches.
                return (0..stretches).find_map(|s| self.take_in(s));
            }
        }
    }
}

impl Task for Stretches {
    fn op(&mut self) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        ensure!(self.take().is_some(), "there is a bit for everybody");
        Ok(true)
    }
}

fn spread(shape: &Shape) -> Result<(Tasks, Arc<Groups>)> {
    let groups = Groups::new(shape);
    let next = Arc::new(AtomicU32::new(shape.tasks as u32));
    let made = tasks(shape, |task| Stretches {
        groups: Arc::clone(&groups),
        next: Arc::clone(&next),
        stretch: task as u32,
        left: shape.files,
    })?;
    Ok((made, groups))
}

pub fn in_stretches(shape: &Shape) -> Result<Tasks> {
    Ok(spread(shape)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::before::tests::run_all;

    /// Both variants leave equal images: the same bits for one search, the same number of bits for the other.
    #[test]
    fn both_searches_leave_the_same_bits() {
        let shape = Shape {
            tasks: 4,
            seconds: 30.0,
            files: 3000,
            rounds: 1,
        };
        let (made, before) = first(&shape, Take::Locked).unwrap();
        run_all(made);
        let (made, after) = first(&shape, Take::TestAndSet).unwrap();
        run_all(made);
        assert_eq!(before.image(), after.image());
        let (made, spread) = spread(&shape).unwrap();
        run_all(made);
        let taken = |g: &Groups| g.image().iter().map(|w| w.count_ones()).sum::<u32>();
        assert_eq!(taken(&before), 12_000);
        assert_eq!(taken(&spread), 12_000);
    }
}
