//! A directory with its model. Every batch is applied over images read again from a device, then the whole structure is
//! checked block by block and every name looked up.

mod hostile;
mod model;
mod speed;

use super::*;
use crate::error::Error;
use crate::error::Result;
use crate::image::BlockImages;
use crate::tests::images::DeviceImages;
use crate::threads::Crew;
use crate::workspace::Workspace;
use blockdev::{BlockDevice, MemDevice};
use ext4_format::dir_entry;
use ext4_format::features::{Compat, Incompat, RoCompat};
use ext4_format::geometry::Geometry;
use ext4_format::hash::DirHasher;
use ext4_format::htree::{self, DxEntry};
use ext4_format::layout::{Layout, LayoutParams};
use ext4_format::{BlockNr, FileType, InodeNr};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

const SEED: u32 = 0x1234_5678;
const OWN: InodeNr = InodeNr(12);

/// The kind of a directory block in a separate test volume.
#[derive(Clone, Copy, Debug)]
struct DirectoryKind {
    block_size: u32,
    csum: bool,
    index: bool,
    large_dir: bool,
    filetype: bool,
}

const PLAIN: DirectoryKind = DirectoryKind {
    block_size: 1024,
    csum: true,
    index: true,
    large_dir: false,
    filetype: true,
};

fn geometry(kind: DirectoryKind) -> Geometry {
    let mut g = Layout::new(&LayoutParams::for_size(64 << 20))
        .unwrap()
        .geometry;
    g.block_size = kind.block_size;
    g.features.compat.set(Compat::DIR_INDEX, kind.index);
    g.features.incompat.set(Incompat::LARGE_DIR, kind.large_dir);
    g.features.incompat.set(Incompat::FILETYPE, kind.filetype);
    g.features.ro_compat.set(RoCompat::METADATA_CSUM, kind.csum);
    g
}

/// Blocks one after the other, but not in logical order.
struct Blocks(u32);

const fn physical(logical: u32) -> BlockNr {
    BlockNr(((logical ^ 1) + 100) as u64)
}

impl DirBlocks for Blocks {
    fn blocks(&self) -> u32 {
        self.0
    }
    fn get(&mut self, _: &mut Workspace<'_>, logical: u32) -> Result<BlockNr> {
        if logical < self.0 {
            Ok(physical(logical))
        } else {
            Err(Error::Unsupported("hole"))
        }
    }
    fn append(&mut self, _: &mut Workspace<'_>) -> Result<(u32, BlockNr)> {
        self.0 += 1;
        Ok((self.0 - 1, physical(self.0 - 1)))
    }
}

/// A directory, its model, and the device it is on.
struct Volume {
    kind: DirectoryKind,
    geometry: Geometry,
    device: Arc<dyn BlockDevice>,
    hasher: DirHasher,
    blocks: u32,
    indexed: bool,
    parent: InodeNr,
    model: BTreeMap<Vec<u8>, (InodeNr, FileType)>,
    /// Blocks written by the last batch.
    written: usize,
    threads: usize,
    keeps_room: bool,
}

#[derive(Clone, Debug)]
enum Op {
    Add(Vec<u8>, u32, FileType),
    Remove(Vec<u8>),
}

impl Volume {
    fn new(kind: DirectoryKind) -> Self {
        let geometry = geometry(kind);
        let hasher = DirHasher::new(1, geometry.unsigned_hash, geometry.hash_seed).unwrap();
        let device = Arc::new(MemDevice::new(1 << 32));
        let parent = InodeNr(2);
        let model = BTreeMap::new();
        Self {
            kind,
            geometry,
            device,
            hasher,
            blocks: 0,
            indexed: false,
            parent,
            model,
            written: 0,
            threads: 3,
            keeps_room: false,
        }
    }

    fn buffers(&self) -> DeviceImages {
        DeviceImages::new(Arc::clone(&self.device), self.kind.block_size)
    }

    fn try_apply(&mut self, ops: &[Op], init: bool, new_parent: Option<InodeNr>) -> Result<()> {
        let names = net_names(ops, &self.hasher);
        let update = DirUpdate {
            ino: OWN,
            seed: SEED,
            indexed: self.indexed,
            init: init.then_some(self.parent),
            new_parent,
            keeps_room: self.keeps_room,
            names: &names,
            hasher: &self.hasher,
            crew: &Crew::of(self.threads),
        };
        let buffers = self.buffers();
        let mut ws = Workspace::new(&self.geometry, &buffers);
        let mut blocks = Blocks(self.blocks);
        let outcome = apply(&mut ws, &mut blocks, &update)?;
        (self.blocks, self.indexed) = (blocks.0, outcome.indexed);
        let (changed, revoked) = ws.finish();
        assert!(revoked.is_empty());
        self.written = changed.len();
        for (block, image) in changed {
            self.device
                .write_at(block.offset(self.kind.block_size), &image)
                .unwrap();
        }
        self.parent = new_parent.unwrap_or(self.parent);
        for op in ops {
            match op {
                Op::Add(n, ino, ftype) => self.model.insert(n.clone(), (InodeNr(*ino), *ftype)),
                Op::Remove(n) => self.model.remove(n),
            };
        }
        Ok(())
    }

    fn apply(&mut self, ops: &[Op]) {
        self.try_apply(ops, self.blocks == 0, None).unwrap();
    }

    fn raw(&self, logical: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.kind.block_size as usize];
        self.device
            .read_at(physical(logical).offset(self.kind.block_size), &mut bytes)
            .unwrap();
        bytes
    }

    fn write_raw(&self, logical: u32, bytes: &[u8]) {
        self.device
            .write_at(physical(logical).offset(self.kind.block_size), bytes)
            .unwrap();
    }

    fn with_reader<T>(&self, f: impl FnOnce(&DirReader<'_>) -> T) -> T {
        let buffers = self.buffers();
        let locate = |l| {
            if l < self.blocks {
                Ok(physical(l))
            } else {
                Err(Error::Unsupported("hole"))
            }
        };
        f(&DirReader {
            geometry: &self.geometry,
            images: &buffers,
            locate: &locate,
            ino: OWN,
            seed: SEED,
            blocks: self.blocks,
            indexed: self.indexed,
            hasher: &self.hasher,
        })
    }

    /// Looks up every name of the model and one that is not there.
    fn check_lookups(&self) {
        self.with_reader(|reader| {
            let look = |name: &[u8]| reader.lookup(name, self.hasher.hash(name).0).unwrap();
            for (name, (ino, ftype)) in &self.model {
                let expected = Some((*ino, self.kind.filetype.then_some(*ftype)));
                assert_eq!(look(name), expected, "{}", String::from_utf8_lossy(name));
            }
            assert_eq!(look(b"no such name"), None);
        });
    }

    /// Checks every block, that each is reached once, hash intervals, and that the names are the model's.
    fn check(&self) {
        let mut names = BTreeMap::new();
        let mut reached = HashSet::from([0]);
        let csum = self.kind.csum;
        let mut leaf = |logical: u32, low: u32, next: Option<u32>| {
            let block = self.raw(logical);
            if csum {
                dir_entry::verify_tail(&block, SEED).unwrap();
            }
            dir_entry::space(&block, csum).unwrap();
            for entry in dir_entry::entries(&block) {
                let entry = entry.unwrap();
                if self.indexed {
                    let hash = self.hasher.hash(entry.name).0;
                    assert!(
                        hash >= low & !1 && next.is_none_or(|n| hash < n),
                        "{hash:x} {low:x} {next:x?}"
                    );
                }
                let old = names.insert(entry.name.to_vec(), (entry.inode, entry.file_type));
                assert!(old.is_none(), "name twice");
            }
        };
        if self.indexed {
            let block = self.raw(0);
            if csum {
                htree::verify_checksum(&block, htree::IndexBlockKind::Root, SEED).unwrap();
            }
            let root = htree::parse_root(&block, csum, self.kind.large_dir, self.blocks).unwrap();
            assert_eq!((root.own, root.parent), (OWN, self.parent));
            let mut level: Vec<DxEntry> = root.index.iter().collect();
            for depth in (0..=root.levels).rev() {
                let mut below = Vec::new();
                for (i, e) in level.iter().enumerate() {
                    assert!(reached.insert(e.block), "block reached twice");
                    let next = level.get(i + 1).map(|n| n.hash);
                    assert!(next.is_none_or(|n| n >= e.hash), "order");
                    if depth == 0 {
                        leaf(e.block, e.hash, next);
                        continue;
                    }
                    let node = self.raw(e.block);
                    if csum {
                        htree::verify_checksum(&node, htree::IndexBlockKind::Node, SEED).unwrap();
                    }
                    let index = htree::parse_node(&node, csum, self.blocks).unwrap();
                    let first = below.len();
                    below.extend(index.iter());
                    below[first].hash = e.hash;
                }
                level = below;
            }
            assert_eq!(reached.len(), self.blocks as usize, "unreferenced block");
        } else {
            (0..self.blocks).for_each(|l| leaf(l, 0, None));
            let dir = self.kind.filetype.then_some(FileType::Directory);
            assert_eq!(names.remove(&b"."[..]), Some((OWN, dir)));
            assert_eq!(names.remove(&b".."[..]), Some((self.parent, dir)));
        }
        let types = |t| self.kind.filetype.then_some(t);
        let expected: BTreeMap<_, _> = self
            .model
            .iter()
            .map(|(n, (ino, t))| (n.clone(), (*ino, types(*t))))
            .collect();
        assert_eq!(names.len(), expected.len());
        assert!(names == expected);
    }

    fn levels(&self) -> u8 {
        htree::parse_root(&self.raw(0), self.kind.csum, true, u32::MAX)
            .unwrap()
            .levels
    }
}

/// Returns the names as the log would pass them.
fn net_names<'o>(ops: &'o [Op], hasher: &DirHasher) -> Vec<NetName<'o>> {
    let net = |op: &'o Op| {
        let (name, ftype, change) = match op {
            Op::Add(n, ino, ftype) => (n, *ftype, NetChange::Add(InodeNr(*ino))),
            Op::Remove(n) => (n, FileType::Regular, NetChange::Remove),
        };
        let (hash, minor) = hasher.hash(name);
        NetName {
            hash,
            minor,
            name,
            ftype,
            change,
            is_new: false,
        }
    };
    let mut names: Vec<_> = ops.iter().map(net).collect();
    names.sort_unstable_by(|a, b| (a.hash, a.minor, a.name).cmp(&(b.hash, b.minor, b.name)));
    names
}

fn add(i: u32) -> Op {
    Op::Add(
        format!("file-{i:08}").into_bytes(),
        100 + i,
        FileType::Regular,
    )
}

fn remove(i: u32) -> Op {
    Op::Remove(format!("file-{i:08}").into_bytes())
}

fn kinds() -> impl Iterator<Item = DirectoryKind> {
    (0..16).map(|bits| DirectoryKind {
        block_size: if bits & 1 == 0 { 1024 } else { 4096 },
        csum: bits & 2 == 0,
        index: bits & 4 == 0,
        large_dir: bits & 1 == 0,
        filetype: bits & 8 == 0,
    })
}
