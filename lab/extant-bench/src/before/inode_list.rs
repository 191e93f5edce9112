//! The list of all inodes in core [P1, P2]: a thousand threads each bring a batch of inodes in core. When all inodes
//! are in core, all threads drop their inodes at once. With walks, the thread that brings in each 400,000th inode also
//! walks over all inodes, as sync does: ten walks for 4,000,000 inodes.
//!
//! *Before* is `s_inodes` of earlier Linux: a doubly linked list through the inodes, where adding or removing one
//! inode writes to its neighbours; one spin lock; and walks that hold the lock from the first inode to the last. sync,
//! drop_caches, umount and quota walked the list like that: they took each inode's own lock, found no pages in nearly
//! all inodes, and continued without releasing the list's lock.
//!
//! *After* is the engine's [`SlotList`]: a slab and a lock per slot, walks that hold a lock for 32 elements.
//!
//! In both variants an inode has 256 bytes, a quarter of an inode of ext4 in Linux, and the task touches one line of
//! it. The other work on an inode is left out.

use super::tasks;
use crate::runner::{Shape, Task, Tasks};
use anyhow::{Context, Result, ensure};
use lockmeter::{Condvar, Mutex, SpinLock, lock_class};
use percpu::{Position, SlotList};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

lock_class!(
    /// The single list.
    List = "before: inode list"
);

lock_class!(
    /// The wait of tasks until all inodes are in core.
    Waiting = "tasks of inode-list"
);

/// The task that adds each multiple of this number walks.
const WALK: u32 = 400_000;

/// Marks a missing neighbour.
const NONE: u32 = u32::MAX;

/// An inode, reduced to the fields that lists and walks touch.
#[repr(align(256))]
struct Inode {
    /// Its position on the single list; guarded by that list's lock.
    before: AtomicU32,
    after: AtomicU32,
    /// Its position on the slots' lists.
    at: AtomicU64,
    /// Pins of the inode: a walk pins it, or takes its lock, with one atomic operation, and releases it with another.
    pins: AtomicU32,
    /// Number of pages, which a walk looks for.
    pages: AtomicU32,
}

/// All possible inodes; a number is a handle.
struct Inodes(Vec<Inode>);

impl Inodes {
    fn new(count: u64) -> Self {
        let inode = |_| Inode {
            before: AtomicU32::new(NONE),
            after: AtomicU32::new(NONE),
            at: AtomicU64::new(0),
            pins: AtomicU32::new(0),
            pages: AtomicU32::new(0),
        };
        Self((0..count).map(inode).collect())
    }

    fn get(&self, n: u32) -> Option<&Inode> {
        self.0.get(n as usize)
    }

    /// Returns whether the inode has work for a walk.
    fn look(&self, n: u32) -> bool {
        self.get(n).is_some_and(|inode| {
            inode.pins.fetch_add(1, Relaxed);
            let pages = inode.pages.load(Relaxed);
            inode.pins.fetch_sub(1, Relaxed);
            pages > 0
        })
    }
}

/// A list of inodes in core.
trait InodeList: Send + Sync + 'static {
    fn add(&self, inodes: &Inodes, n: u32);
    /// Removes an inode; returns false if the inode is not on the list.
    fn remove(&self, inodes: &Inodes, n: u32) -> bool;
    /// Walks over all inodes; returns their number.
    fn walk(&self, inodes: &Inodes) -> u64;
}

/// The first inode of the single list.
struct OneList(SpinLock<u32, List>);

impl InodeList for OneList {
    fn add(&self, inodes: &Inodes, n: u32) {
        let Some(inode) = inodes.get(n) else { return };
        let mut head = self.0.lock();
        inode.before.store(NONE, Relaxed);
        inode.after.store(*head, Relaxed);
        if let Some(next) = inodes.get(*head) {
            next.before.store(n, Relaxed);
        }
        *head = n;
    }

    fn remove(&self, inodes: &Inodes, n: u32) -> bool {
        let Some(inode) = inodes.get(n) else {
            return false;
        };
        let mut head = self.0.lock();
        let (before, after) = (inode.before.load(Relaxed), inode.after.load(Relaxed));
        match inodes.get(before) {
            Some(before) => before.after.store(after, Relaxed),
            None if *head == n => *head = after,
            None => return false,
        }
        if let Some(after) = inodes.get(after) {
            after.before.store(before, Relaxed);
        }
        true
    }

    fn walk(&self, inodes: &Inodes) -> u64 {
        let head = self.0.lock();
        let (mut at, mut met) = (*head, 0);
        while let Some(inode) = inodes.get(at) {
            met += 1 + u64::from(inodes.look(at));
            at = inode.after.load(Relaxed);
        }
        met
    }
}

// Elements have the size of the engine's handles.
impl InodeList for SlotList<u64> {
    fn add(&self, inodes: &Inodes, n: u32) {
        if let Some(inode) = inodes.get(n) {
            let at = Self::add(self, u64::from(n));
            inode.at.store(at.to_raw(), Relaxed);
        }
    }

    fn remove(&self, inodes: &Inodes, n: u32) -> bool {
        let at = inodes
            .get(n)
            .and_then(|i| Position::from_raw(i.at.load(Relaxed)));
        at.and_then(|at| Self::remove(self, at)).is_some()
    }

    fn walk(&self, inodes: &Inodes) -> u64 {
        self.iter()
            .map(|n| 1 + u64::from(inodes.look(n as u32)))
            .sum()
    }
}

/// The meeting point of all tasks. A task whose time is over leaves, so that the others do not wait for it.
struct Meeting {
    away: Mutex<usize, Waiting>,
    all: Condvar,
}

impl Meeting {
    fn come(&self) {
        let mut away = self.away.lock();
        *away -= 1;
        if *away == 0 {
            self.all.notify_all();
        }
    }

    fn wait(&self) {
        let mut away = self.away.lock();
        while *away > 0 {
            self.all.wait(&mut away);
        }
    }
}

struct InCore<L: InodeList> {
    list: Arc<L>,
    inodes: Arc<Inodes>,
    meeting: Arc<Meeting>,
    came: bool,
    walks: bool,
    walk_now: bool,
    to_add: Range<u32>,
    to_remove: Range<u32>,
}

impl<L: InodeList> InCore<L> {
    fn come(&mut self) {
        if !std::mem::replace(&mut self.came, true) {
            self.meeting.come();
        }
    }
}

impl<L: InodeList> Drop for InCore<L> {
    fn drop(&mut self) {
        self.come();
    }
}

impl<L: InodeList> Task for InCore<L> {
    fn op(&mut self) -> Result<bool> {
        if std::mem::take(&mut self.walk_now) {
            let met = self.list.walk(&self.inodes);
            ensure!(met > 0, "a walk meets what is there");
            return Ok(true);
        }
        if let Some(n) = self.to_add.next() {
            self.list.add(&self.inodes, n);
            self.walk_now = self.walks && n % WALK == WALK - 1;
            return Ok(true);
        }
        if !self.came {
            self.come();
            self.meeting.wait();
        }
        let Some(n) = self.to_remove.next() else {
            return Ok(false);
        };
        ensure!(self.list.remove(&self.inodes, n), "it is on the list");
        Ok(true)
    }

    fn leave(&mut self) {
        self.come();
    }
}

fn prepare<L: InodeList>(shape: &Shape, walks: bool, list: L) -> Result<Tasks> {
    let all = shape.tasks as u64 * shape.files;
    let last = u32::try_from(all).ok().filter(|&n| n < NONE);
    last.context("fewer inodes than numbers of 32 bits")?;
    let (list, inodes) = (Arc::new(list), Arc::new(Inodes::new(all)));
    let meeting = Arc::new(Meeting {
        away: Mutex::new(shape.tasks),
        all: Condvar::new(),
    });
    tasks(shape, |task| {
        // Smaller than `all`, which fits.
        let first = (task as u64 * shape.files) as u32;
        let batch = first..first + shape.files as u32;
        InCore {
            list: Arc::clone(&list),
            inodes: Arc::clone(&inodes),
            meeting: Arc::clone(&meeting),
            came: false,
            walks,
            walk_now: false,
            to_add: batch.clone(),
            to_remove: batch,
        }
    })
}

fn one_list() -> OneList {
    OneList(SpinLock::new(NONE))
}

pub fn before(shape: &Shape) -> Result<Tasks> {
    prepare(shape, false, one_list())
}

pub fn after(shape: &Shape) -> Result<Tasks> {
    prepare(shape, false, SlotList::<u64>::new())
}

pub fn before_with_walks(shape: &Shape) -> Result<Tasks> {
    prepare(shape, true, one_list())
}

pub fn after_with_walks(shape: &Shape) -> Result<Tasks> {
    prepare(shape, true, SlotList::<u64>::new())
}
