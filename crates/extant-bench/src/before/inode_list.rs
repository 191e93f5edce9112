//! The list of all inodes in core [P1]: each task adds a batch, then takes it off again.
//! They do not meet between: one whose time is over would not come.

use super::tasks;
use crate::runner::{Shape, Task, Tasks};
use anyhow::{Context, Result};
use lockmeter::{SpinLock, lock_class};
use percpu::{Position, SlotList};
use std::sync::Arc;

lock_class!(
    /// The one list.
    List = "before: inode list"
);

/// What is on a list: a handle on an inode, as the engine has it.
type Inode = Arc<u64>;

/// A list that elements are added to and taken off.
trait InodeList: Send + Sync + 'static {
    type At: Send;
    fn add(&self, inode: Inode) -> Self::At;
    fn remove(&self, at: Self::At) -> Option<Inode>;
}

/// No neighbour.
const NONE: u32 = u32::MAX;

struct Node {
    inode: Option<Inode>,
    before: u32,
    after: u32,
}

/// A doubly linked list; places of removed elements are used again.
struct Linked {
    nodes: Vec<Node>,
    head: u32,
    free: Vec<u32>,
}

impl Linked {
    fn node(&mut self, at: u32) -> Option<&mut Node> {
        self.nodes.get_mut(at as usize)
    }
}

/// One of them under one lock.
struct OneList(SpinLock<Linked, List>);

impl InodeList for OneList {
    type At = u32;

    fn add(&self, inode: Inode) -> u32 {
        let mut list = self.0.lock();
        let head = list.head;
        let node = Node {
            inode: Some(inode),
            before: NONE,
            after: head,
        };
        let at = match list.free.pop() {
            Some(at) => {
                list.nodes[at as usize] = node;
                at
            }
            None => {
                list.nodes.push(node);
                list.nodes.len() as u32 - 1
            }
        };
        if let Some(next) = list.node(head) {
            next.before = at;
        }
        list.head = at;
        at
    }

    fn remove(&self, at: u32) -> Option<Inode> {
        let mut list = self.0.lock();
        let node = list.node(at)?;
        let (inode, before, after) = (node.inode.take()?, node.before, node.after);
        match list.node(before) {
            Some(node) => node.after = after,
            None => list.head = after,
        }
        if let Some(node) = list.node(after) {
            node.before = before;
        }
        list.free.push(at);
        Some(inode)
    }
}

impl InodeList for SlotList<Inode> {
    type At = Position;

    fn add(&self, inode: Inode) -> Position {
        Self::add(self, inode)
    }

    fn remove(&self, at: Position) -> Option<Inode> {
        Self::remove(self, at)
    }
}

struct AddRemove<L: InodeList> {
    list: Arc<L>,
    inodes: Vec<Inode>,
    on: Vec<L::At>,
    dropped: Vec<Inode>,
}

impl<L: InodeList> Task for AddRemove<L> {
    fn op(&mut self) -> Result<bool> {
        if let Some(inode) = self.inodes.pop() {
            self.on.push(self.list.add(inode));
            return Ok(true);
        }
        let Some(at) = self.on.pop() else {
            return Ok(false);
        };
        let inode = self.list.remove(at).context("it is on the list")?;
        self.dropped.push(inode);
        Ok(true)
    }
}

fn prepare<L: InodeList>(shape: &Shape, list: L) -> Result<Tasks> {
    let list = Arc::new(list);
    tasks(shape, |task| AddRemove {
        list: Arc::clone(&list),
        inodes: (0..shape.files)
            .map(|n| Arc::new(task as u64 * shape.files + n))
            .collect(),
        on: Vec::with_capacity(shape.files as usize),
        dropped: Vec::with_capacity(shape.files as usize),
    })
}

pub fn before(shape: &Shape) -> Result<Tasks> {
    let list = Linked {
        nodes: Vec::new(),
        head: NONE,
        free: Vec::new(),
    };
    prepare(shape, OneList(SpinLock::new(list)))
}

pub fn after(shape: &Shape) -> Result<Tasks> {
    prepare(shape, SlotList::new())
}
