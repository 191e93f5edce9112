//! Taking a free inode bit [I1]. Groups of 8192 inodes, filled one after the other by all tasks.

use super::tasks;
use crate::runner::{Shape, Task, Tasks};
use anyhow::{Result, ensure};
use lockmeter::{SpinLock, lock_class};
use percpu::AtomicBitmap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

lock_class!(
    /// A group, as it was before.
    Group = "before: inode group"
);

const BITS: u32 = 8192;

fn groups(shape: &Shape) -> usize {
    (shape.tasks as u64 * shape.files).div_ceil(u64::from(BITS)) as usize
}

/// A group whose bits are found without its lock, and taken with it.
struct LockedGroup {
    words: Vec<AtomicU64>,
    free: AtomicU32,
    lock: SpinLock<(), Group>,
}

impl LockedGroup {
    fn new() -> Self {
        Self {
            words: (0..BITS / 64).map(|_| AtomicU64::new(0)).collect(),
            free: AtomicU32::new(BITS),
            lock: SpinLock::new(()),
        }
    }

    fn find(&self) -> Option<u32> {
        self.words.iter().enumerate().find_map(|(i, word)| {
            let bit = word.load(Ordering::Relaxed).trailing_ones();
            (bit < 64).then_some(i as u32 * 64 + bit)
        })
    }

    /// Finds, locks, tests again, and starts over when another task was faster.
    fn take(&self) -> Option<u32> {
        loop {
            let bit = self.find()?;
            let word = &self.words[(bit / 64) as usize];
            let locked = self.lock.lock();
            let held = word.load(Ordering::Relaxed);
            if held & (1 << (bit % 64)) == 0 {
                word.store(held | 1 << (bit % 64), Ordering::Relaxed);
                self.free.fetch_sub(1, Ordering::Relaxed);
                return Some(bit);
            }
            drop(locked);
        }
    }
}

struct Before {
    groups: Arc<Vec<LockedGroup>>,
    left: u64,
}

impl Task for Before {
    fn op(&mut self) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let has_free = |g: &&LockedGroup| g.free.load(Ordering::Relaxed) > 0;
        let taken = self
            .groups
            .iter()
            .filter(has_free)
            .find_map(LockedGroup::take);
        ensure!(taken.is_some(), "there is a bit for everybody");
        Ok(true)
    }
}

pub fn before(shape: &Shape) -> Result<Tasks> {
    let groups = Arc::new((0..groups(shape)).map(|_| LockedGroup::new()).collect());
    tasks(shape, |_| Before {
        groups: Arc::clone(&groups),
        left: shape.files,
    })
}

/// Bits that a task draws its own from before it looks for others.
pub const STRETCH: u32 = 256;

struct After {
    groups: Arc<Vec<AtomicBitmap>>,
    /// The next stretch that no task has, over all groups.
    next: Arc<AtomicU32>,
    stretch: u32,
    left: u64,
}

impl After {
    fn take_in(&self, stretch: u32) -> Option<u32> {
        let (group, from) = (stretch * STRETCH / BITS, stretch * STRETCH % BITS);
        self.groups.get(group as usize)?.take(from, from + STRETCH)
    }

    fn take(&mut self) -> Option<u32> {
        let stretches = self.groups.len() as u32 * (BITS / STRETCH);
        loop {
            if let Some(bit) = self.take_in(self.stretch) {
                return Some(bit);
            }
            self.stretch = self.next.fetch_add(1, Ordering::Relaxed);
            if self.stretch >= stretches {
                // Numbers that other tasks left in their stretches.
                return (0..stretches).find_map(|s| self.take_in(s));
            }
        }
    }
}

impl Task for After {
    fn op(&mut self) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        ensure!(self.take().is_some(), "there is a bit for everybody");
        Ok(true)
    }
}

pub fn after(shape: &Shape) -> Result<Tasks> {
    let bitmap = || AtomicBitmap::new(vec![0; (BITS / 64) as usize]);
    let groups = Arc::new((0..groups(shape)).map(|_| bitmap()).collect());
    let next = Arc::new(AtomicU32::new(shape.tasks as u32));
    tasks(shape, |task| After {
        groups: Arc::clone(&groups),
        next: Arc::clone(&next),
        stretch: task as u32,
        left: shape.files,
    })
}
