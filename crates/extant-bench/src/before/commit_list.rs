//! Committing a transaction's items [C1, C3]: three items of 32 bytes each. The task that finds a context full pushes
//! it: it takes all committed items and sorts them.

use super::tasks;
use crate::runner::{Shape, Task, Tasks};
use anyhow::Result;
use lockmeter::{SpinLock, lock_class};
use percpu::{CommitLists, Counter};
use std::hint::black_box;
use std::sync::Arc;

lock_class!(
    /// The one commit list.
    CommitList = "before: commit list"
);

#[derive(Clone, Copy)]
struct Item {
    order: u64,
    what: [u64; 3],
}

const ITEMS: u64 = 3;
/// Commits of one task between two looks at whether to push.
const LOOK: u64 = 1024;
/// Items of a context when it is pushed.
const FULL: i64 = 100_000;

fn items(order: u64, n: u64) -> impl Iterator<Item = Item> {
    (0..ITEMS).map(move |i| Item {
        order,
        what: [n, i, 0],
    })
}

/// A push: what the formatter needs first.
fn sort(mut items: Vec<Item>) {
    items.sort_unstable_by_key(|item| (item.what[0], item.order));
    black_box(items);
}

#[derive(Default)]
struct OneList {
    order: u64,
    items: Vec<Item>,
}

struct Before {
    list: Arc<SpinLock<OneList, CommitList>>,
    used: Arc<Counter>,
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
        let pushed = if self.used.sum() >= FULL {
            self.used.add(-(list.items.len() as i64));
            std::mem::take(&mut list.items)
        } else {
            Vec::new()
        };
        drop(list);
        if !pushed.is_empty() {
            sort(pushed);
        }
        Ok(true)
    }
}

pub fn before(shape: &Shape) -> Result<Tasks> {
    let (list, used) = (Arc::new(SpinLock::default()), Arc::new(Counter::new()));
    tasks(shape, |_| Before {
        list: Arc::clone(&list),
        used: Arc::clone(&used),
        left: shape.files,
    })
}

struct After {
    lists: Arc<CommitLists<Vec<Item>>>,
    used: Arc<Counter>,
    left: u64,
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
                let (_context, lists) = self.lists.switch();
                let pushed = lists.concat();
                self.used.add(-(pushed.len() as i64));
                sort(pushed);
            }
        }
        Ok(true)
    }
}

pub fn after(shape: &Shape) -> Result<Tasks> {
    let (lists, used) = (Arc::new(CommitLists::new()), Arc::new(Counter::new()));
    tasks(shape, |_| After {
        lists: Arc::clone(&lists),
        used: Arc::clone(&used),
        left: shape.files,
    })
}
