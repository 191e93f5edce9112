//! Committing a transaction's items [C1, C3]: three items of 32 bytes each, as a create logs them. The task that finds
//! a context full pushes it: it takes all committed items and sorts them by object and order, as the formatter does. A
//! context is full at the number of items that the engine logs between two pushes with a journal of 64 MiB, a third of
//! the capacity of a transaction. Remaining items are pushed at the end.
//!
//! *Before* is one list under one lock, and the used space is summed at each commit; *after* is a list for each slot,
//! whose items are counted in batches, as credits are drawn.

use super::tasks;
use crate::runner::{Shape, Task, Tasks};
use anyhow::Result;
use lockmeter::{SpinLock, lock_class};
use percpu::{CommitLists, Counter};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

lock_class!(
    /// The single commit list.
    CommitList = "before: commit list"
);

#[derive(Clone, Copy)]
struct Item {
    order: u64,
    what: [u64; 3],
}

const ITEMS: u64 = 3;
/// Commits of a task between two checks whether to push.
const LOOK: u64 = 64;
/// Number of items at which a context is pushed: a third of 4096 blocks, at four items a block.
const FULL: i64 = 5_461;

fn items(order: u64, n: u64) -> impl Iterator<Item = Item> {
    (0..ITEMS).map(move |i| Item {
        order,
        what: [n, i, 0],
    })
}

/// Totals of the pushes, and the number of tasks that still commit.
struct Pushes {
    items: AtomicU64,
    count: AtomicU64,
    committing: AtomicU64,
}

impl Pushes {
    fn new(shape: &Shape) -> Arc<Self> {
        Arc::new(Self {
            items: AtomicU64::new(0),
            count: AtomicU64::new(0),
            committing: AtomicU64::new(shape.tasks as u64),
        })
    }

    /// Pushes items: prepares them for the formatter.
    fn push(&self, mut items: Vec<Item>) {
        if items.is_empty() {
            return;
        }
        items.sort_unstable_by_key(|item| (item.what[0], item.order));
        self.items.fetch_add(items.len() as u64, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        black_box(items);
    }

    /// Returns whether the caller, which has committed all its items, is the last task.
    fn is_last(&self) -> bool {
        self.committing.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

#[derive(Default)]
struct OneList {
    order: u64,
    items: Vec<Item>,
}

struct Before {
    list: Arc<SpinLock<OneList, CommitList>>,
    used: Arc<Counter>,
    pushes: Arc<Pushes>,
    left: u64,
}

impl Task for Before {
    fn op(&mut self) -> Result<bool> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(false);
        };
        self.left = left;
        let mut list = self.list.lock();
        list.order += 1;
        let order = list.order;
        list.items.extend(items(order, left));
        self.used.add(ITEMS as i64);
        let full = self.used.sum() >= FULL || left == 0 && self.pushes.is_last();
        let pushed = if full {
            self.used.add(-(list.items.len() as i64));
            std::mem::take(&mut list.items)
        } else {
            Vec::new()
        };
        drop(list);
        self.pushes.push(pushed);
        Ok(true)
    }
}

fn with_one_list(shape: &Shape) -> Result<(Tasks, Arc<Pushes>)> {
    let (list, used) = (Arc::new(SpinLock::default()), Arc::new(Counter::new()));
    let pushes = Pushes::new(shape);
    let made = tasks(shape, |_| Before {
        list: Arc::clone(&list),
        used: Arc::clone(&used),
        pushes: Arc::clone(&pushes),
        left: shape.files,
    })?;
    Ok((made, pushes))
}

pub fn before(shape: &Shape) -> Result<Tasks> {
    Ok(with_one_list(shape)?.0)
}

struct After {
    lists: Arc<CommitLists<Vec<Item>>>,
    used: Arc<Counter>,
    /// Set while a task takes a context; other tasks that find it full continue.
    taking: Arc<AtomicBool>,
    pushes: Arc<Pushes>,
    left: u64,
}

impl After {
    /// Pushes the committed items, unless `others` is true and another task is pushing.
    fn push(&self, others: bool) {
        if self.taking.swap(true, Ordering::Acquire) && others {
            return;
        }
        let (_context, lists) = self.lists.switch();
        let pushed = lists.concat();
        self.used.add(-(pushed.len() as i64));
        self.taking.store(false, Ordering::Release);
        self.pushes.push(pushed);
    }
}

impl Task for After {
    fn op(&mut self) -> Result<bool> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(false);
        };
        self.left = left;
        self.lists.commit(|_context, clock, list| {
            list.extend(items(percpu::stamp(clock, 0), left));
        });
        if left % LOOK == 0 {
            self.used.add((LOOK * ITEMS) as i64);
            if self.used.sum() >= FULL {
                self.push(true);
            }
        }
        if left == 0 && self.pushes.is_last() {
            self.push(false);
        }
        Ok(true)
    }
}

fn with_slot_lists(shape: &Shape) -> Result<(Tasks, Arc<Pushes>)> {
    let (lists, used) = (Arc::new(CommitLists::new()), Arc::new(Counter::new()));
    let (pushes, taking) = (Pushes::new(shape), Arc::default());
    let made = tasks(shape, |_| After {
        lists: Arc::clone(&lists),
        used: Arc::clone(&used),
        taking: Arc::clone(&taking),
        pushes: Arc::clone(&pushes),
        left: shape.files,
    })?;
    Ok((made, pushes))
}

pub fn after(shape: &Shape) -> Result<Tasks> {
    Ok(with_slot_lists(shape)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::before::tests::run_all;

    const SHAPE: Shape = Shape {
        tasks: 4,
        seconds: 30.0,
        files: 10_000,
        rounds: 1,
    };
    const ALL: u64 = 4 * 10_000 * ITEMS;

    /// Both sort every item once. The number of pushes depends on the schedule: while a task that takes a context
    /// waits for a processor, the others fill it further.
    #[test]
    fn every_item_is_pushed_by_both() {
        for made in [with_one_list(&SHAPE), with_slot_lists(&SHAPE)] {
            let (made, pushes) = made.unwrap();
            run_all(made);
            assert_eq!(pushes.items.load(Ordering::Relaxed), ALL);
        }
    }

    /// Both push a full context: here the tasks alternate on one thread.
    #[test]
    fn both_push_as_often_when_tasks_take_turns() {
        let full = ALL / FULL as u64;
        for made in [with_one_list(&SHAPE), with_slot_lists(&SHAPE)] {
            let (mut made, pushes) = made.unwrap();
            for _ in 0..SHAPE.files {
                for task in &mut made {
                    assert!(task.op().unwrap());
                }
            }
            assert_eq!(pushes.items.load(Ordering::Relaxed), ALL);
            let count = pushes.count.load(Ordering::Relaxed);
            assert!(
                count >= full * 3 / 4 && count <= full * 3 / 2,
                "{count} of {full}"
            );
        }
    }
}
