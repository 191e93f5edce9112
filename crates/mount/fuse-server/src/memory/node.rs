//! Files and directories in memory, and their table.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustix::io::Errno;

use super::{DIRECTORY, Pages};
use crate::attr::{Attr, Time};

#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) state: Mutex<NodeState>,
}

#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) attr: Attr,
    pub(super) content: Content,
    /// Number of the kernel's lookups of the node that it has not forgotten.
    pub(super) lookups: u64,
}

#[derive(Debug)]
pub(super) enum Content {
    File(Pages),
    Directory(Directory),
    Link(Box<[u8]>),
}

impl NodeState {
    pub(super) fn directory(&mut self) -> Result<&mut Directory, Errno> {
        match &mut self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR),
        }
    }

    pub(super) fn changed(&mut self) {
        let now = Time::now();
        self.attr.mtime = now;
        self.attr.ctime = now;
    }
}

/// A name's meaning.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) node: Arc<Node>,
    pub(super) kind: u32,
}

/// Names by name, and by the order of their creation: their positions in a listing never change.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) parent: u64,
    places: HashMap<Arc<[u8]>, u64>,
    names: BTreeMap<u64, (Arc<[u8]>, Named)>,
    next: u64,
}

impl Directory {
    pub(super) fn new(parent: u64) -> Self {
        // The first two positions are those of `.` and `..`.
        Self {
            parent,
            places: HashMap::new(),
            names: BTreeMap::new(),
            next: 3,
        }
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<&Named> {
        self.places
            .get(name)
            .and_then(|place| self.names.get(place))
            .map(|(_, named)| named)
    }

    pub(super) fn add(&mut self, name: &[u8], named: Named) -> Result<(), Errno> {
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        if self.places.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let name: Arc<[u8]> = name.into();
        self.places.insert(Arc::clone(&name), self.next);
        self.names.insert(self.next, (name, named));
        self.next += 1;
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Named> {
        let place = self.places.remove(name)?;
        self.names.remove(&place).map(|(_, named)| named)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn after(&self, place: u64) -> impl Iterator<Item = (u64, &[u8], &Named)> {
        self.names
            .range(place.saturating_add(1)..)
            .map(|(&place, (name, named))| (place, &**name, named))
    }
}

/// Locks two nodes, or one if they are the same. No thread waits for a node while it holds another, so the order does
/// not matter.
pub(super) fn lock_all<'a>(
    [first, second]: [&'a Arc<Node>; 2],
) -> [Option<MutexGuard<'a, NodeState>>; 2] {
    if Arc::ptr_eq(first, second) {
        return [Some(first.state.lock()), None];
    }
    loop {
        let guard = first.state.lock();
        if let Some(other) = second.state.try_lock() {
            return [Some(guard), Some(other)];
        }
        drop(guard);
        drop(second.state.lock());
    }
}

const SHARDS: usize = 256;
/// Number of node numbers that a thread takes at once. A block is in one shard, so threads that make files rarely
/// contend.
const BLOCK: u64 = 64;

type Shard = RwLock<HashMap<u64, Arc<Node>>>;

/// All nodes by number.
#[derive(Debug)]
pub(super) struct Nodes {
    shards: Box<[CachePadded<Shard>]>,
}

impl Nodes {
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| CachePadded::default()).collect();
        let nodes = Self { shards };
        let now = Time::now();
        let attr = Attr {
            ino: 1,
            mode: DIRECTORY | 0o755,
            nlink: 2,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            blksize: 4096,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            ..Attr::default()
        };
        let state = NodeState {
            attr,
            content: Content::Directory(Directory::new(1)),
            lookups: 1,
        };
        nodes.add(Arc::new(Node {
            id: 1,
            state: Mutex::new(state),
        }));
        nodes
    }

    fn shard(&self, id: u64) -> &Shard {
        &self.shards[(id / BLOCK) as usize % SHARDS]
    }

    pub(super) fn get(&self, id: u64) -> Result<Arc<Node>, Errno> {
        self.shard(id).read().get(&id).cloned().ok_or(Errno::STALE)
    }

    /// Makes a node with a new number, without a name yet.
    pub(super) fn make(&self, attr: Attr, content: Content) -> Arc<Node> {
        let id = next_number();
        let state = NodeState {
            attr: Attr { ino: id, ..attr },
            content,
            lookups: 0,
        };
        Arc::new(Node {
            id,
            state: Mutex::new(state),
        })
    }

    pub(super) fn add(&self, node: Arc<Node>) {
        self.shard(node.id).write().insert(node.id, node);
    }

    pub(super) fn remove(&self, id: u64) {
        self.shard(id).write().remove(&id);
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }
}

/// Returns a number that no node of this process had before; 0 and 1 are in the unused first block.
fn next_number() -> u64 {
    static BLOCKS: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NEXT: Cell<u64> = const { Cell::new(0) });
    NEXT.with(|next| {
        let mut number = next.get();
        if number.is_multiple_of(BLOCK) {
            number = BLOCKS.fetch_add(1, Ordering::Relaxed) * BLOCK;
        }
        next.set(number + 1);
        number
    })
}
