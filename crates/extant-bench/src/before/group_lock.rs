//! Allocating blocks, two at a time, as fallocate2 does [B1]: after 128 times a task frees all of its blocks.

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
/// Allocations until all are freed.
const HELD: usize = 128;
/// Into so many parts goals are spread.
pub const SPREAD: u32 = 16;

/// The position of a run of blocks.
#[derive(Clone, Copy)]
struct GroupBit {
    group: u32,
    bit: u32,
}

struct Groups {
    groups: Vec<SpinLock<Box<[u8]>, Group>>,
    /// The group where the last blocks were found, one goal for all tasks.
    goal: AtomicU32,
}

/// A run of free blocks, taken; what is done with the group's lock held.
fn take(map: &mut [u8]) -> Option<u32> {
    let bit = bitmap::find_zero_run(map, 0, BLOCKS, WANT)?;
    bitmap::set_range(map, bit, WANT);
    Some(bit)
}

impl Groups {
    fn new(shape: &Shape) -> Arc<Self> {
        // Half of the blocks stay free, so that it is locks that are measured.
        let used = shape.tasks as u32 * HELD as u32 * WANT;
        let count = (2 * used / BLOCKS).max(64);
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

    fn before(&self) -> Option<GroupBit> {
        let goal = self.goal.load(Ordering::Relaxed);
        (0..self.len()).find_map(|step| {
            let group = (goal + step) % self.len();
            let bit = take(&mut self.groups[group as usize].lock())?;
            self.goal.store(group, Ordering::Relaxed);
            Some(GroupBit { group, bit })
        })
    }

    fn after(&self, goal: u32) -> Option<GroupBit> {
        let at = |step| (goal + step) % self.len();
        let place = |group, bit| GroupBit { group, bit };
        let free = |group: u32| {
            let mut map = self.groups[group as usize].try_lock()?;
            take(&mut map).map(|bit| place(group, bit))
        };
        // The last pass waits, so that no space is overlooked.
        let any = |group: u32| {
            let mut map = self.groups[group as usize].lock();
            take(&mut map).map(|bit| place(group, bit))
        };
        let found = (0..self.len()).find_map(|step| free(at(step)));
        found.or_else(|| (0..self.len()).find_map(|step| any(at(step))))
    }

    fn give(&self, place: GroupBit) {
        let mut map = self.groups[place.group as usize].lock();
        bitmap::clear_range(&mut map, place.bit, WANT);
    }
}

struct Allocate {
    groups: Arc<Groups>,
    /// `None`: the goal that all tasks share, and waiting for its lock.
    goal: Option<u32>,
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
        let place = match self.goal {
            Some(goal) => self.groups.after(goal),
            None => self.groups.before(),
        };
        self.held
            .push(place.context("half of the blocks are free")?);
        Ok(true)
    }
}

fn prepare(shape: &Shape, spread: bool) -> Result<Tasks> {
    let groups = Groups::new(shape);
    tasks(shape, |task| {
        let goal = task as u32 % SPREAD * (groups.len() / SPREAD);
        Allocate {
            groups: Arc::clone(&groups),
            goal: spread.then_some(goal),
            held: Vec::with_capacity(HELD),
            left: shape.files,
        }
    })
}

pub fn before(shape: &Shape) -> Result<Tasks> {
    prepare(shape, false)
}

pub fn after(shape: &Shape) -> Result<Tasks> {
    prepare(shape, true)
}
