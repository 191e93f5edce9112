//! The inodes that the kernel knows: node number, number of lookups, and the inode itself, which stays usable until
//! the kernel forgets it. Sharded, so that two clients rarely contend.
//!
//! A node number is the inode number, except that the root is 1 in FUSE and 2 in ext4: these two are swapped. Inode 1
//! of ext4 is not a visible file.

use extant::unstable::Node;
use fuse_server::Errno;
use lockmeter::{RwLock, lock_class};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

lock_class!(
    /// Table of inodes that the kernel knows.
    pub(crate) Known = "nodes known to the kernel"
);

/// The kernel's number of the root.
pub(crate) const ROOT: u64 = 1;
pub(crate) const ROOT_INO: u32 = 2;

/// Returns the node number of an inode.
pub(crate) fn node_of(ino: u32) -> u64 {
    match ino {
        ROOT_INO => ROOT,
        1 => u64::from(ROOT_INO),
        other => other.into(),
    }
}

/// Returns the inode number of a node.
pub(crate) fn ino_of(node: u64) -> Option<u32> {
    match u32::try_from(node).ok()? {
        1 => Some(ROOT_INO),
        ROOT_INO => Some(1),
        other => Some(other),
    }
}

/// An inode that the kernel knows.
pub(crate) struct HeldNode {
    pub node: Node,
    /// Number of lookups that the kernel has not forgotten. Changed under the shard's lock: for writing if the count
    /// may become zero, for reading if it grows.
    lookups: AtomicU64,
    /// Number of the kernel's handles that are open for writing: the kernel may have dirty data.
    pub writers: AtomicU32,
    /// Whether data that the kernel wrote back could not be stored: the next write reports that.
    pub failed: AtomicBool,
    /// Whether the kernel's size of the file is too large, because data at its end could not be stored.
    pub cut_short: AtomicBool,
    /// Number of sectors last reported to the kernel, while the file is open for writing.
    pub told: AtomicU64,
    /// Whether the kernel may have cached pages of the file from reads.
    pub pages_read: AtomicBool,
}

impl HeldNode {
    /// Makes an inode without lookups.
    pub fn new(node: Node) -> Arc<Self> {
        Arc::new(Self {
            node,
            lookups: AtomicU64::new(0),
            writers: AtomicU32::new(0),
            failed: AtomicBool::new(false),
            cut_short: AtomicBool::new(false),
            told: AtomicU64::new(0),
            pages_read: AtomicBool::new(false),
        })
    }
}

/// Inode numbers of a group are consecutive, so the number itself is a good hash.
#[derive(Default)]
struct Number(u64);

impl Hasher for Number {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only numbers are hashed; other types would be spread, but not well.
        for &b in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(b);
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.0 = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type Shard = RwLock<HashMap<u32, Arc<HeldNode>, BuildHasherDefault<Number>>, Known>;

/// A shard on separate cache lines.
#[repr(align(128))]
struct Padded(Shard);

const SHARDS: usize = 256;

/// All inodes that the kernel knows.
pub(crate) struct Nodes {
    root: Arc<HeldNode>,
    shards: Box<[Padded]>,
}

impl Nodes {
    pub fn new(root: Node) -> Self {
        let shard = |_| Padded(RwLock::new(HashMap::default()));
        Self {
            root: HeldNode::new(root),
            shards: (0..SHARDS).map(shard).collect(),
        }
    }

    /// Returns the shard of an inode. Sixteen neighbours share a shard, because a task usually makes the inodes of a
    /// directory in order.
    fn shard(&self, ino: u32) -> &Shard {
        &self.shards[(ino / 16) as usize % SHARDS].0
    }

    /// Returns the inode of a node number.
    pub fn get(&self, node: u64) -> Result<Arc<HeldNode>, Errno> {
        if node == ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let ino = ino_of(node).ok_or(Errno::STALE)?;
        let shard = self.shard(ino).read();
        shard.get(&ino).cloned().ok_or(Errno::STALE)
    }

    /// Counts one more lookup of this inode by the kernel. If the table holds another inode under the number, that
    /// inode was removed and its number reused. The new inode replaces it and keeps the count of both, because the
    /// kernel forgets inodes by number.
    pub fn tell(&self, node: Node) -> Arc<HeldNode> {
        let ino = node.ino();
        if ino == ROOT_INO {
            return Arc::clone(&self.root);
        }
        let shard = self.shard(ino);
        if let Some(held) = shard.read().get(&ino).filter(|held| held.node.is(&node)) {
            held.lookups.fetch_add(1, Relaxed);
            return Arc::clone(held);
        }
        let mut shard = shard.write();
        let there = shard.get(&ino).cloned();
        let held = match &there {
            Some(held) if held.node.is(&node) => Arc::clone(held),
            other => {
                let held = HeldNode::new(node);
                let before = other.as_ref().map_or(0, |old| old.lookups.load(Relaxed));
                held.lookups.store(before, Relaxed);
                shard.insert(ino, Arc::clone(&held));
                held
            }
        };
        held.lookups.fetch_add(1, Relaxed);
        drop(shard);
        held
    }

    /// Drops this many of the kernel's lookups of a node. A node without lookups leaves the table; that frees the
    /// space of a removed file, outside of any lock of this table.
    pub fn forget(&self, node: u64, lookups: u64) {
        let Some(ino) = ino_of(node).filter(|&ino| ino != ROOT_INO) else {
            return;
        };
        let mut shard = self.shard(ino).write();
        let Some(held) = shard.get(&ino) else {
            return;
        };
        let left = held.lookups.load(Relaxed).saturating_sub(lookups);
        held.lookups.store(left, Relaxed);
        let gone = if left == 0 { shard.remove(&ino) } else { None };
        drop(shard);
        drop(gone);
    }

    /// Returns the number of inodes that the kernel knows besides the root.
    pub fn count(&self) -> usize {
        self.shards.iter().map(|s| s.0.read().len()).sum()
    }

    /// Forgets all lookups of the kernel.
    pub fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.0.write());
            drop(gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant::Credentials;
    use extant::unstable::MakeNode;

    #[test]
    fn root_and_its_number_change_places() {
        assert_eq!((node_of(2), ino_of(1)), (1, Some(2)));
        assert_eq!((node_of(1), ino_of(2)), (2, Some(1)));
        assert_eq!((node_of(12), ino_of(12)), (12, Some(12)));
        assert_eq!(ino_of(1 << 32), None);
    }

    #[test]
    fn an_inode_is_known_as_often_as_it_was_told() {
        let volume = extant::doc_volume();
        let root = Node::root(&volume).unwrap();
        let nodes = Nodes::new(root.clone());
        let who = Credentials::root();
        let file = root.make(&who, b"a", MakeNode::File, 0o600).unwrap();
        let ino = file.ino();
        let again = root.lookup(&who, b"a").unwrap();
        nodes.tell(file);
        nodes.tell(again);
        assert_eq!(nodes.count(), 1);
        nodes.forget(node_of(ino), 1);
        assert_eq!(nodes.get(node_of(ino)).unwrap().node.ino(), ino);
        // More lookups than counted, as only a broken kernel would send.
        nodes.forget(node_of(ino), 7);
        assert_eq!(nodes.get(node_of(ino)).err(), Some(Errno::STALE));
        nodes.forget(ROOT, 100);
        assert_eq!(nodes.get(ROOT).unwrap().node.ino(), 2);
    }

    /// Two volumes stand for two uses of one number.
    #[test]
    fn another_inode_of_a_number_is_not_taken_for_the_first() {
        let volumes = [extant::doc_volume(), extant::doc_volume()];
        let who = Credentials::root();
        let made = volumes.each_ref().map(|volume| {
            let root = Node::root(volume).unwrap();
            root.make(&who, b"a", MakeNode::File, 0o600).unwrap()
        });
        let ino = made[0].ino();
        assert_eq!(made[1].ino(), ino);
        let nodes = Nodes::new(Node::root(&volumes[0]).unwrap());
        let [first, second] = made;
        let old = nodes.tell(first);
        let new = nodes.tell(second);
        assert!(!Arc::ptr_eq(&old, &new));
        assert!(Arc::ptr_eq(&new, &nodes.get(node_of(ino)).unwrap()));
        // The kernel forgets both inodes.
        nodes.forget(node_of(ino), 1);
        assert!(Arc::ptr_eq(&new, &nodes.get(node_of(ino)).unwrap()));
        nodes.forget(node_of(ino), 1);
        assert_eq!(nodes.get(node_of(ino)).err(), Some(Errno::STALE));
    }

    #[test]
    fn a_removed_file_stays_until_it_is_forgotten() {
        let volume = extant::doc_volume();
        let root = Node::root(&volume).unwrap();
        let nodes = Nodes::new(root.clone());
        let who = Credentials::root();
        let held = nodes.tell(root.make(&who, b"a", MakeNode::File, 0o600).unwrap());
        held.node.write_at(&who, &[1; 5000], 0).unwrap();
        let node = node_of(held.node.ino());
        root.unlink(&who, b"a").unwrap();
        drop(held);
        let mut buf = [0; 8];
        assert_eq!(
            nodes.get(node).unwrap().node.read_at(&mut buf, 0).unwrap(),
            8
        );
        let before = volume.statfs().unwrap().free_inodes;
        nodes.forget(node, 1);
        volume.sync().unwrap();
        assert_eq!(volume.statfs().unwrap().free_inodes, before + 1);
    }
}
