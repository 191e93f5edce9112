//! Directories against a model: every batch is applied over images read anew from a device, then the
//! whole structure is checked block by block and every name looked up.

use super::*;
use crate::buffers::Buffers;
use crate::error::Error;
use blockdev::{BlockDevice, MemDevice};
use ext4_format::dir_entry;
use ext4_format::features::{Compat, Incompat, RoCompat};
use ext4_format::geometry::Geometry;
use ext4_format::htree::{self, DxEntry};
use ext4_format::layout::{Layout, LayoutParams};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

const SEED: u32 = 0x1234_5678;
const OWN: InodeNr = InodeNr(12);

/// What a directory block is in a test volume of its own.
#[derive(Clone, Copy, Debug)]
struct Kind {
    block_size: u32,
    csum: bool,
    index: bool,
    large_dir: bool,
    filetype: bool,
}

const PLAIN: Kind =
    Kind { block_size: 1024, csum: true, index: true, large_dir: false, filetype: true };

fn geometry(kind: Kind) -> Geometry {
    let mut g = Layout::new(&LayoutParams::for_size(64 << 20)).unwrap().geometry;
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
        if logical < self.0 { Ok(physical(logical)) } else { Err(Error::Invalid("hole")) }
    }
    fn append(&mut self, _: &mut Workspace<'_>) -> Result<(u32, BlockNr)> {
        self.0 += 1;
        Ok((self.0 - 1, physical(self.0 - 1)))
    }
}

/// A directory, its model, and the device it is on.
struct Volume {
    kind: Kind,
    geometry: Geometry,
    device: Arc<dyn BlockDevice>,
    hasher: DirHasher,
    blocks: u32,
    indexed: bool,
    parent: InodeNr,
    model: BTreeMap<Vec<u8>, (InodeNr, FileType)>,
    /// Blocks written by the last batch.
    written: usize,
}

#[derive(Clone, Debug)]
enum Op {
    Add(Vec<u8>, u32, FileType),
    Remove(Vec<u8>),
}

impl Volume {
    fn new(kind: Kind) -> Self {
        let geometry = geometry(kind);
        let hasher = DirHasher::new(1, geometry.unsigned_hash, geometry.hash_seed).unwrap();
        let device = Arc::new(MemDevice::new(1 << 32));
        let parent = InodeNr(2);
        let model = BTreeMap::new();
        Self { kind, geometry, device, hasher, blocks: 0, indexed: false, parent, model, written: 0 }
    }

    fn buffers(&self) -> Buffers {
        Buffers::new(Arc::clone(&self.device), self.kind.block_size, 1 << 20)
    }

    fn try_apply(&mut self, ops: &[Op], init: bool, new_parent: Option<InodeNr>) -> Result<()> {
        let mut names: Vec<NetName<'_>> = ops
            .iter()
            .map(|op| {
                let (name, ftype, change) = match op {
                    Op::Add(n, ino, ftype) => (n, *ftype, NetChange::Add(InodeNr(*ino))),
                    Op::Remove(n) => (n, FileType::Regular, NetChange::Remove),
                };
                let (hash, minor) = self.hasher.hash(name);
                NetName { hash, minor, name, ftype, change }
            })
            .collect();
        names.sort_by(|a, b| (a.hash, a.minor, a.name).cmp(&(b.hash, b.minor, b.name)));
        let update = DirUpdate {
            ino: OWN,
            seed: SEED,
            indexed: self.indexed,
            init: init.then_some(self.parent),
            new_parent,
            names: &names,
            hasher: &self.hasher,
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
            self.device.write_at(block.offset(self.kind.block_size), &image).unwrap();
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
        self.device.read_at(physical(logical).offset(self.kind.block_size), &mut bytes).unwrap();
        bytes
    }

    fn write_raw(&self, logical: u32, bytes: &[u8]) {
        self.device.write_at(physical(logical).offset(self.kind.block_size), bytes).unwrap();
    }

    fn with_reader<T>(&self, f: impl FnOnce(&DirReader<'_>) -> T) -> T {
        let buffers = self.buffers();
        let locate = |l| if l < self.blocks { Ok(physical(l)) } else { Err(Error::Invalid("hole")) };
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
                    assert!(hash >= low & !1 && next.is_none_or(|n| hash < n), "{hash:x} {low:x} {next:x?}");
                }
                let old = names.insert(entry.name.to_vec(), (entry.inode, entry.file_type));
                assert!(old.is_none(), "name twice");
            }
        };
        if self.indexed {
            let block = self.raw(0);
            if csum {
                htree::verify_checksum(&block, htree::Kind::Root, SEED).unwrap();
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
                        htree::verify_checksum(&node, htree::Kind::Node, SEED).unwrap();
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
        let expected: BTreeMap<_, _> =
            self.model.iter().map(|(n, (ino, t))| (n.clone(), (*ino, types(*t)))).collect();
        assert_eq!(names.len(), expected.len());
        assert!(names == expected);
    }

    fn levels(&self) -> u8 {
        htree::parse_root(&self.raw(0), self.kind.csum, true, u32::MAX).unwrap().levels
    }
}

fn add(i: u32) -> Op {
    Op::Add(format!("file-{i:08}").into_bytes(), 100 + i, FileType::Regular)
}

fn remove(i: u32) -> Op {
    Op::Remove(format!("file-{i:08}").into_bytes())
}

fn kinds() -> impl Iterator<Item = Kind> {
    (0..16).map(|bits| Kind {
        block_size: if bits & 1 == 0 { 1024 } else { 4096 },
        csum: bits & 2 == 0,
        index: bits & 4 == 0,
        large_dir: bits & 1 == 0,
        filetype: bits & 8 == 0,
    })
}

#[test]
fn grows_and_shrinks() {
    for kind in kinds() {
        let mut v = Volume::new(kind);
        v.apply(&[]);
        v.check();
        assert_eq!((v.blocks, v.indexed), (1, false));
        let mut next = 0;
        for count in [1, 20, 200, 3000] {
            let ops: Vec<_> = (next..next + count).map(add).collect();
            next += count;
            v.apply(&ops);
            v.check();
        }
        v.check_lookups();
        assert_eq!(v.indexed, kind.index);
        // A batch applied twice changes nothing.
        let ops: Vec<_> = (0..100).map(add).chain((5000..5100).map(remove)).collect();
        v.apply(&ops);
        assert_eq!(v.written, 0);
        // Removals and replacements in one batch with adds.
        let mut ops: Vec<_> = (0..next).filter(|i| i % 3 == 0).map(remove).collect();
        ops.extend((next..next + 500).map(add));
        ops.push(Op::Add(b"file-00000001".to_vec(), 7777, FileType::Symlink));
        v.apply(&ops);
        v.check();
        v.check_lookups();
        v.try_apply(&[], false, Some(InodeNr(99))).unwrap();
        assert_eq!(v.written, 1);
        v.check();
        v.try_apply(&[add(0)], false, Some(InodeNr(98))).unwrap();
        v.check();
        let blocks = v.blocks;
        let ops: Vec<_> = (0..next + 500).map(remove).collect();
        v.apply(&ops);
        v.check();
        assert!(v.model.is_empty());
        v.apply(&(0..next / 2).map(add).collect::<Vec<_>>());
        v.check();
        assert_eq!(v.blocks, blocks, "the room of removed names is used again");
    }
}

#[test]
fn bulk_into_a_new_directory() {
    for kind in kinds() {
        let mut v = Volume::new(kind);
        v.apply(&(0..5000).map(add).collect::<Vec<_>>());
        v.check();
        v.check_lookups();
        assert_eq!(v.indexed, kind.index);
    }
}

#[test]
fn one_by_one() {
    for kind in [PLAIN, Kind { csum: false, ..PLAIN }] {
        let mut v = Volume::new(kind);
        for i in 0..4000 {
            v.apply(&[add(i)]);
            assert!(v.written <= 6);
            if i % 500 == 0 {
                v.check();
            }
        }
        assert_eq!(v.levels(), 1);
        v.check();
        v.check_lookups();
    }
}

#[test]
fn three_levels_and_the_end() {
    let long = |i: u32| Op::Add(format!("{i:0250}").into_bytes(), 100 + i, FileType::Regular);
    let large = Kind { large_dir: true, ..PLAIN };
    let mut v = Volume::new(large);
    // Three names a leaf, about 95 leaves a node, 123 nodes in the root: full at about 35,000.
    for start in [0, 30_000, 60_000] {
        v.apply(&(start..start + 30_000).map(long).collect::<Vec<_>>());
        v.check();
    }
    assert_eq!(v.levels(), 2);
    v.check_lookups();
    v.apply(&[add(1), add(2)]);
    v.check();
    let mut v = Volume::new(PLAIN);
    v.apply(&(0..20_000).map(long).collect::<Vec<_>>());
    v.check();
    let all: Vec<_> = (20_000..90_000).map(long).collect();
    let e = v.try_apply(&all, false, None).unwrap_err();
    assert!(matches!(e, Error::NoSpace(_)), "{e}");
}

/// Names of 220 bytes with one legacy hash: the last byte is solved for, the rest is tried.
fn colliding(count: usize) -> Vec<Vec<u8>> {
    const C: u32 = 7_152_373;
    let inverse = (0..5).fold(C, |x, _| x.wrapping_mul(2_u32.wrapping_sub(C.wrapping_mul(x))));
    let step = |(last, before): (u32, u32), byte: u8| {
        let h = before.wrapping_add(last ^ u32::from(byte).wrapping_mul(C));
        (if h >> 31 == 1 { h.wrapping_sub(0x7fff_ffff) } else { h }, last)
    };
    let hasher = DirHasher::new(0, false, [0; 4]).unwrap();
    let fixed = [b'x'; 211];
    let start = fixed.iter().fold((0x12a3_fe2d, 0x37ab_e8f9), |s, b| step(s, *b));
    let target = 0x2345_6789_u32;
    let mut names = Vec::new();
    for i in 0..u32::MAX {
        let tried = format!("{i:07x}");
        let state = tried.bytes().fold(start, step);
        for byte in b'A'..=b'z' {
            let (last, before) = step(state, byte);
            let end = (target.wrapping_sub(before) ^ last).wrapping_mul(inverse);
            if (u32::from(b'0')..128).contains(&end) {
                let name = [&fixed[..], tried.as_bytes(), &[byte, end as u8]].concat();
                if hasher.hash(&name).0 == target << 1 {
                    names.push(name);
                }
            }
        }
        if names.len() >= count {
            break;
        }
    }
    names
}

#[test]
fn collisions_over_many_leaves() {
    let mut v = Volume::new(PLAIN);
    v.hasher = DirHasher::new(0, false, v.geometry.hash_seed).unwrap();
    let names = colliding(14);
    let ops = |n: &[Vec<u8>], ino| -> Vec<Op> {
        n.iter().map(|n| Op::Add(n.clone(), ino, FileType::Regular)).collect()
    };
    let long = |i: u32| Op::Add(format!("{i:0220}").into_bytes(), 100 + i, FileType::Regular);
    v.apply(&(0..300).map(long).collect::<Vec<_>>());
    v.apply(&ops(&names[..6], 50));
    v.check();
    v.check_lookups();
    // One by one, so that a leaf in the middle of the hash is split.
    for name in &names[6..] {
        v.apply(&ops(std::slice::from_ref(name), 60));
        v.check();
    }
    v.check_lookups();
    // Names of leaves that continue the hash are found, not added again.
    v.apply(&ops(&names, 70));
    v.check();
    v.check_lookups();
    let gone: Vec<_> = names.iter().step_by(2).map(|n| Op::Remove(n.clone())).collect();
    v.apply(&gone);
    v.check();
    v.apply(&(300..600).map(long).collect::<Vec<_>>());
    v.apply(&ops(&names, 80));
    v.check();
    v.check_lookups();
    let root = v.raw(0);
    let root = htree::parse_root(&root, true, false, v.blocks).unwrap();
    let odd = |b: u32| htree::parse_node(&v.raw(b), true, v.blocks).map_or(0, |n| n.iter().filter(|e| e.hash & 1 == 1).count());
    let continued: usize = root.index.iter().map(|e| odd(e.block) + (e.hash & 1) as usize).sum();
    assert!(continued >= 2, "{continued}");
}

#[test]
fn an_index_of_another_hash_version() {
    let mut v = Volume::new(PLAIN);
    let default = v.hasher;
    v.hasher = DirHasher::new(2, v.geometry.unsigned_hash, v.geometry.hash_seed).unwrap();
    v.apply(&(0..2000).map(add).collect::<Vec<_>>());
    let tea = std::mem::replace(&mut v.hasher, default);
    v.apply(&(1000..4000).map(add).chain((0..500).map(remove)).collect::<Vec<_>>());
    v.check_lookups();
    v.hasher = tea;
    v.check();
}

#[test]
fn linear_blocks_stay_linear_with_dir_index() {
    let mut v = Volume::new(Kind { index: false, ..PLAIN });
    v.apply(&(0..200).map(add).collect::<Vec<_>>());
    v.geometry.features.compat.insert(Compat::DIR_INDEX);
    v.apply(&(200..400).map(add).chain((0..100).map(remove)).collect::<Vec<_>>());
    assert!(!v.indexed);
    v.check();
    v.check_lookups();
}

/// A batch may fail on hostile bytes, it may not panic or run for ever.
#[test]
fn hostile_bytes() {
    use rand_like::Rng;
    for (seed, csum) in (0..400).map(|i| (i, i % 8 == 0)) {
        let mut rng = Rng(seed);
        let mut v = Volume::new(Kind { csum, large_dir: seed % 2 == 0, ..PLAIN });
        v.apply(&(0..4000).map(add).collect::<Vec<_>>());
        for _ in 0..1 + rng.below(20) {
            let logical = if rng.below(2) == 0 { 0 } else { rng.below(v.blocks) };
            let mut block = v.raw(logical);
            for _ in 0..1 + rng.below(8) {
                let at = if rng.below(2) == 0 { rng.below(80) } else { rng.below(1024) } as usize;
                block[at] = [0, 1, 2, 0xff, rng.below(256) as u8][rng.below(5) as usize];
            }
            v.write_raw(logical, &block);
        }
        v.indexed = rng.below(4) > 0;
        v.with_reader(|r| {
            for i in 0..100 {
                let name = format!("file-{:08}", i * 40).into_bytes();
                let _ = r.lookup(&name, v.hasher.hash(&name).0);
            }
        });
        let ops: Vec<_> = (3000..5000).map(add).chain((0..1000).map(remove)).collect();
        let _ = v.try_apply(&ops, false, Some(InodeNr(5)));
        let _ = v.try_apply(&ops, false, None);
    }
}

#[test]
fn checksums_are_verified_first() {
    for logical in [0, 1, 2] {
        let mut v = Volume::new(PLAIN);
        v.apply(&(0..200).map(add).collect::<Vec<_>>());
        let mut block = v.raw(logical);
        block[45] ^= 1;
        v.write_raw(logical, &block);
        let e = v.try_apply(&(0..200).map(remove).collect::<Vec<_>>(), false, None).unwrap_err();
        let text = e.to_string();
        assert!(text.contains("checksum") && text.contains(&format!("block {}", physical(logical))), "{text}");
    }
}

/// A small generator of numbers, the same on every run.
mod rand_like {
    pub struct Rng(pub u64);
    impl Rng {
        pub fn below(&mut self, n: u32) -> u32 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 33) % u64::from(n.max(1))) as u32
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_model(
        bits in 0..32_u32,
        batches in proptest::collection::vec(
            (any::<bool>(), proptest::collection::btree_map(0..900_u32, (0..4_u32, 1..240_usize), 0..300)), 1..8),
    ) {
        let kind = Kind {
            block_size: if bits & 1 == 0 { 1024 } else { 4096 },
            csum: bits & 2 == 0,
            index: bits & 4 == 0,
            large_dir: bits & 8 == 0,
            filetype: bits & 16 == 0,
        };
        let mut v = Volume::new(kind);
        for (shrink, batch) in batches {
            let ops: Vec<_> = batch.into_iter().map(|(n, (what, _))| {
                // The length is the number's own, so that a name can come again.
                let name = format!("{n:0width$}", width = 4 + (n as usize * 37) % 236).into_bytes();
                if (what == 0) != shrink {
                    Op::Remove(name)
                } else {
                    Op::Add(name, n + what * 1000 + 11, [FileType::Regular, FileType::Directory][n as usize % 2])
                }
            }).collect();
            v.apply(&ops);
            v.check();
        }
        v.check_lookups();
    }
}

/// Times bulk and scattered adds; run in release with `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let mut v = Volume::new(Kind { block_size: 4096, ..PLAIN });
    let time = |v: &mut Volume, what: &str, ops: &[Op]| {
        let mut names: Vec<_> = ops
            .iter()
            .map(|op| {
                let Op::Add(n, ino, ftype) = op else { unreachable!() };
                let (hash, minor) = v.hasher.hash(n);
                let change = NetChange::Add(InodeNr(*ino));
                NetName { hash, minor, name: &n[..], ftype: *ftype, change }
            })
            .collect();
        names.sort_unstable_by(|a, b| (a.hash, a.minor, a.name).cmp(&(b.hash, b.minor, b.name)));
        let buffers = v.buffers();
        for l in 0..v.blocks {
            buffers.read(physical(l)).unwrap().set_verified();
        }
        let init = (v.blocks == 0).then_some(v.parent);
        let update = DirUpdate {
            ino: OWN, seed: SEED, indexed: v.indexed, init, new_parent: None, names: &names, hasher: &v.hasher,
        };
        let mut blocks = Blocks(v.blocks);
        let mut ws = Workspace::new(&v.geometry, &buffers);
        let start = std::time::Instant::now();
        let outcome = apply(&mut ws, &mut blocks, &update).unwrap();
        let took = start.elapsed();
        (v.blocks, v.indexed) = (blocks.0, outcome.indexed);
        let (changed, _) = ws.finish();
        eprintln!("{what}: {took:?}, {:?} a name, {} blocks", took / names.len() as u32, changed.len());
        for (block, image) in changed {
            v.device.write_at(block.offset(4096), &image).unwrap();
        }
    };
    let adds = |range: std::ops::Range<u32>| range.map(add).collect::<Vec<_>>();
    time(&mut v, "100k into none", &adds(0..100_000));
    time(&mut v, "900k into 100k", &adds(100_000..1_000_000));
    time(&mut v, "100k into 1M", &adds(1_000_000..1_100_000));
    time(&mut v, "100k again", &adds(1_000_000..1_100_000));
    time(&mut v, "1 into 1.1M", &adds(1_200_000..1_200_001));
    time(&mut v, "10k into 1.1M", &adds(1_300_000..1_310_000));
}
