//! Allocating blocks, two at a time, as in fallocate2 [B1]: after 128 allocations a task frees all of its blocks.
//!
//! Two pairs, each with one difference. In `group-lock` all tasks have one goal, the group where the last blocks were
//! found; *before* waits for the lock of a group, *after* passes over a group whose lock is busy, in all passes but the
//! last. In `group-goals` both pass over busy groups; *before* has the one goal, *after* spreads the goals of the tasks
//! over the groups.

use super::tasks;
use crate::runner::{Shape, Task, Tasks};
use anyhow::{Context, Result};
use ext4_format::bitmap;
use lockmeter::{SpinLock, lock_class};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

lock_class!(
    /// A group of blocks.
    Group = "before: block group"
);

/// Blocks of a group.
const BLOCKS: u32 = 32_768;
const WANT: u32 = 2;
/// Number of allocations before all are freed.
const HELD: usize = 128;
/// Number of parts over which goals are spread.
pub const SPREAD: u32 = 16;
/// Smallest number of groups.
pub const GROUPS: u32 = 64;

/// The position of a run of blocks.
#[derive(Clone, Copy)]
struct GroupBit {
    group: u32,
    bit: u32,
}

struct Groups {
    groups: Vec<SpinLock<Box<[u8]>, Group>>,
    /// The group of the last allocation, one goal for all tasks.
    goal: AtomicU32,
}

/// Finds a run of free blocks and marks it as used, with the group's lock held.
fn take(map: &mut [u8]) -> Option<u32> {
    let bit = bitmap::find_zero_run(map, 0, BLOCKS, WANT)?;
    bitmap::set_range(map, bit, WANT);
    Some(bit)
}

impl Groups {
    fn new(shape: &Shape) -> Arc<Self> {
        // Half of the blocks stay free, so that the locks dominate the result.
        let used = shape.tasks as u32 * HELD as u32 * WANT;
        let count = (2 * used / BLOCKS).max(GROUPS);
        Arc::new(Self {
            groups: (0..count)
                .map(|_| SpinLock::new(vec![0; (BLOCKS / 8) as usize].into_boxed_slice()))
                .collect(),
            goal: AtomicU32::new(0),
        })
    }

    fn len(&self) -> u32 {
        self.groups.len() as u32
    }

    /// Allocates blocks in the first group from the goal on that has free blocks, and whose lock is free if `skip`.
    fn pass(&self, goal: u32, skip: bool) -> Option<GroupBit> {
        (0..self.len()).find_map(|step| {
            let group = (goal + step) % self.len();
            let lock = &self.groups[group as usize];
            let mut map = if skip { lock.try_lock()? } else { lock.lock() };
            take(&mut map).map(|bit| GroupBit { group, bit })
        })
    }

    fn allocate(&self, way: Way) -> Option<GroupBit> {
        let goal = way.goal.unwrap_or(self.goal.load(Ordering::Relaxed));
        let skipping = if way.skips {
            self.pass(goal, true)
        } else {
            None
        };
        // The last pass waits for locks, so that no free space is missed.
        let found = skipping.or_else(|| self.pass(goal, false))?;
        if way.goal.is_none() {
            self.goal.store(found.group, Ordering::Relaxed);
        }
        Some(found)
    }

    fn give(&self, place: GroupBit) {
        let mut map = self.groups[place.group as usize].lock();
        bitmap::clear_range(&mut map, place.bit, WANT);
    }

    /// Returns the number of used blocks.
    #[cfg(test)]
    fn taken(&self) -> u32 {
        let taken = |map: &[u8]| map.iter().map(|b| b.count_ones()).sum::<u32>();
        self.groups.iter().map(|g| taken(&g.lock())).sum()
    }
}

/// The search of a task.
#[derive(Clone, Copy)]
struct Way {
    /// Whether the task skips groups whose lock is busy.
    skips: bool,
    /// The task's own goal; `None` for the shared goal.
    goal: Option<u32>,
}

struct Allocate {
    groups: Arc<Groups>,
    way: Way,
    held: Vec<GroupBit>,
    left: u64,
}

impl Task for Allocate {
    fn op(&mut self) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        if self.held.len() == HELD {
            let groups = &self.groups;
            self.held.drain(..).for_each(|place| groups.give(place));
        }
        let place = self.groups.allocate(self.way);
        self.held
            .push(place.context("half of the blocks are free")?);
        Ok(true)
    }
}

fn prepare(shape: &Shape, skips: bool, spread: bool) -> Result<(Tasks, Arc<Groups>)> {
    let groups = Groups::new(shape);
    let made = tasks(shape, |task| {
        let goal = task as u32 % SPREAD * (groups.len() / SPREAD);
        Allocate {
            groups: Arc::clone(&groups),
            way: Way {
                skips,
                goal: spread.then_some(goal),
            },
            held: Vec::with_capacity(HELD),
            left: shape.files,
        }
    })?;
    Ok((made, groups))
}

pub fn waiting(shape: &Shape) -> Result<Tasks> {
    Ok(prepare(shape, false, false)?.0)
}

pub fn skipping(shape: &Shape) -> Result<Tasks> {
    Ok(prepare(shape, true, false)?.0)
}

pub fn skipping_and_spread(shape: &Shape) -> Result<Tasks> {
    Ok(prepare(shape, true, true)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::before::tests::run_all;

    /// All variants leave the same number of used blocks: those of the last allocations of each task.
    #[test]
    fn all_leave_as_many_blocks_taken() {
        let shape = Shape {
            tasks: 4,
            seconds: 30.0,
            files: 3000,
            rounds: 1,
        };
        // A task frees its allocations when it has 128 of them, and starts again.
        let held = (3000 - 1) % HELD as u32 + 1;
        for (skips, spread) in [(false, false), (true, false), (true, true)] {
            let (made, groups) = prepare(&shape, skips, spread).unwrap();
            run_all(made);
            assert_eq!(groups.taken(), 4 * held * WANT, "{skips} {spread}");
        }
    }
}
