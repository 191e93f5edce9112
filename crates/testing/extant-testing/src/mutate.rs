//! Breaks a few places of an image, the rare structures as often as the frequent ones.

use crate::common::Rng;
use crate::map::{Log, Map, What};
use blockdev::{BlockDevice, MemDevice};
use ext4_format::{dir_entry, htree};
use std::collections::{BTreeMap, BTreeSet};

/// The blocks to break, by kind.
pub struct Targets<'a> {
    map: &'a Map,
    block: usize,
    kinds: Vec<Vec<u64>>,
}

impl<'a> Targets<'a> {
    /// `others` are blocks in use, of which some are on the map.
    pub fn new(map: &'a Map, block: usize, others: Vec<u64>) -> Self {
        let mut kinds: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (&nr, &what) in &map.blocks {
            kinds.entry(name(what)).or_default().push(nr);
        }
        for nr in others.into_iter().filter(|nr| !map.blocks.contains_key(nr)) {
            kinds.entry("others").or_default().push(nr);
        }
        Self {
            map,
            block,
            kinds: kinds.into_values().collect(),
        }
    }

    fn any_block(&self, rng: &mut Rng) -> u64 {
        let kind: &Vec<u64> = pick(&self.kinds, rng);
        *pick(kind, rng)
    }

    /// Returns a place in a block, mostly one that has a meaning.
    fn place(&self, device: &MemDevice, rng: &mut Rng) -> (u64, usize) {
        let block = self.any_block(rng);
        let (mut home, mut what) = (block, self.map.blocks.get(&block));
        if let Some(What::Log(Log::Image { home: of, .. })) = what {
            (home, what) = (*of, self.map.blocks.get(of));
        }
        if rng.below(3) == 0 {
            return (block, rng.below(self.block as u64) as usize);
        }
        // Headers are at the front.
        let front = rng.below(64) as usize;
        let offset = match what {
            Some(What::Superblock) => 1024 % self.block + rng.below(1024) as usize,
            Some(What::Inodes { .. }) => {
                let used: Vec<_> = self.map.inodes.iter().filter(|i| i.0 == home).collect();
                if used.is_empty() {
                    front
                } else {
                    pick(&used, rng).1 + rng.below(160) as usize
                }
            }
            Some(What::Leaf { .. }) => {
                let mut bytes = vec![0; self.block];
                device
                    .read_at(block * self.block as u64, &mut bytes)
                    .unwrap();
                let heads: Vec<usize> = dir_entry::entries(&bytes)
                    .map_while(Result::ok)
                    .map(|e| e.name.as_ptr() as usize - bytes.as_ptr() as usize - 8)
                    .collect();
                if heads.is_empty() {
                    front
                } else {
                    pick(&heads, rng) + rng.below(9) as usize
                }
            }
            _ => front,
        };
        (block, offset)
    }
}

/// Blocks of one name are one kind.
fn name(what: What) -> &'static str {
    match what {
        What::Superblock => "superblock",
        What::Descriptors { .. } => "descriptors",
        What::BlockBitmap(_) => "block bitmap",
        What::InodeBitmap(_) => "inode bitmap",
        What::Inodes { .. } => "inodes",
        What::Extents { .. } => "extents",
        What::Leaf { .. } => "directory leaf",
        What::Index {
            kind: htree::IndexBlockKind::Root,
            ..
        } => "index root",
        What::Index { .. } => "index node",
        What::Attributes => "attributes",
        What::Orphans { .. } => "orphans",
        What::JournalSuperblock => "journal superblock",
        What::Log(Log::Descriptor) => "log descriptor",
        What::Log(Log::Revokes) => "log revokes",
        What::Log(Log::Commit) => "log commit",
        What::Log(Log::Image { .. }) => "log image",
    }
}

fn pick<'a, T>(of: &'a [T], rng: &mut Rng) -> &'a T {
    &of[rng.below(of.len() as u64) as usize]
}

/// Breaks one to six places. Returns the blocks that hold them.
pub fn mutate(device: &MemDevice, targets: &Targets<'_>, rng: &mut Rng) -> BTreeSet<u64> {
    let block = targets.block as u64;
    let mut touched = BTreeSet::new();
    for _ in 0..1 + rng.below(6) {
        let (nr, offset) = targets.place(device, rng);
        let width = *pick(&[1usize, 1, 2, 4, 4, 8], rng);
        let at = nr * block + (offset.min(targets.block - 1) / width * width) as u64;
        let mut bytes = [0u8; 8];
        device.read_at(at, &mut bytes[..width]).unwrap();
        match rng.below(6) {
            0 | 1 => bytes[rng.below(width as u64) as usize] ^= 1 << rng.below(8),
            2 => bytes = rng.next().to_le_bytes(),
            3 => bytes = [0xff; 8],
            4 => bytes = [0; 8],
            _ => {
                let n = u64::from_le_bytes(bytes);
                bytes = if rng.below(2) == 0 {
                    n.wrapping_add(1)
                } else {
                    n.wrapping_sub(1)
                }
                .to_le_bytes();
            }
        }
        device.write_at(at, &bytes[..width]).unwrap();
        touched.insert(nr);
        if rng.below(12) == 0 {
            // Overwrites a whole block with other contents.
            let mut other = vec![0; targets.block];
            let (from, to) = (targets.any_block(rng), targets.any_block(rng));
            match rng.below(3) {
                0 => device.read_at(from * block, &mut other).unwrap(),
                1 => other.fill_with(|| rng.next() as u8),
                _ => {}
            }
            device.write_at(to * block, &other).unwrap();
            touched.insert(to);
        }
    }
    touched
}
