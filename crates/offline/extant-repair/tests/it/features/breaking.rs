//! Breaks images by their structures, and makes checksums good again, so that broken structures are read and not only refused.

use crate::it::common::Rng;
use blockdev::{BlockDevice, MemDevice};
use ext4_format::extent::{self, Node, NodeRules};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::superblock::RawSuperblock;
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr, checksum, dir_entry, indirect, mmp, xattr};

/// Kind of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Superblock,
    Descriptor(GroupNr),
    Bitmap,
    Inode(InodeNr),
    Directory(u32),
    Mapping(u32),
    Attributes,
    Journal,
    Log,
    Mmp,
}

/// Structure of an image: offset and length in bytes, and kind.
#[derive(Clone, Copy, Debug)]
struct Part {
    at: u64,
    len: usize,
    what: What,
}

/// The structures of an image.
pub struct Parts {
    geo: Geometry,
    all: Vec<Part>,
}

fn read(device: &MemDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read_at(at, &mut bytes).unwrap();
    bytes
}

impl Parts {
    pub fn of(device: &MemDevice) -> Self {
        let sb = RawSuperblock::parse(&read(device, 1024, 1024)).unwrap();
        let geo = Geometry::new(&sb).unwrap();
        let mut parts = Self {
            geo: geo.clone(),
            all: Vec::new(),
        };
        parts.add(1024, 1024, What::Superblock);
        let mmp = sb.mmp_block.get();
        if geo.features.has_mmp() {
            parts.add(mmp * u64::from(geo.block_size), 128, What::Mmp);
        }
        for group in (0..geo.groups).map(GroupNr) {
            parts.add_group(device, group);
        }
        parts
    }

    fn add(&mut self, at: u64, len: usize, what: What) {
        self.all.push(Part { at, len, what });
    }

    fn add_block(&mut self, block: BlockNr, what: What) {
        let size = self.geo.block_size;
        self.add(block.offset(size), size as usize, what);
    }

    fn add_group(&mut self, device: &MemDevice, group: GroupNr) {
        let geo = self.geo.clone();
        let (block, offset) = geo.desc_location(group);
        let at = block.offset(geo.block_size) + u64::from(offset);
        let desc_len = usize::from(geo.desc_size);
        let desc = GroupDesc::decode_unchecked(&read(device, at, desc_len)).unwrap();
        self.add(at, desc_len, What::Descriptor(group));
        self.add_block(desc.block_bitmap, What::Bitmap);
        self.add_block(desc.inode_bitmap, What::Bitmap);
        for index in 0..geo.inodes_per_group {
            let ino = geo.inode_nr(group, index);
            let (block, within) = geo.inode_place(desc.inode_table, index);
            let at = block.offset(geo.block_size) + within as u64;
            let raw = read(device, at, geo.inode_size.into());
            let Ok(core) = inode::decode_core(&raw, &geo, ino) else {
                continue;
            };
            if core.links > 0 && core.mode != 0 {
                self.add(at, raw.len(), What::Inode(ino));
                self.add_inode(device, ino, &raw, &core);
            }
        }
    }

    fn add_inode(&mut self, device: &MemDevice, ino: InodeNr, raw: &[u8], core: &InodeCore) {
        let geo = self.geo.clone();
        let attributes = inode::file_acl(raw, &geo);
        if attributes.0 != 0 {
            self.add_block(attributes, What::Attributes);
        }
        let seed = checksum::inode_seed(geo.csum_seed, ino, core.generation);
        let mapped = matches!(
            core.file_type(),
            Some(FileType::Regular | FileType::Directory)
        );
        if !mapped || core.flags & flags::INLINE_DATA != 0 {
            return;
        }
        let root = inode::i_block(raw).unwrap();
        let mut blocks = Vec::new();
        if core.flags & flags::EXTENTS != 0 {
            self.add_tree(device, root, seed, &mut blocks);
        } else {
            for slot in 0..indirect::DIRECT + 1 {
                if let Ok(Some(block)) = indirect::get(root, slot, geo.blocks_count) {
                    if slot < indirect::DIRECT {
                        blocks.push(block)
                    } else {
                        self.add_block(block, What::Mapping(seed))
                    }
                }
            }
        }
        if core.file_type() == Some(FileType::Directory) {
            for block in blocks {
                self.add_block(block, What::Directory(seed));
            }
        } else if ino == InodeNr::JOURNAL {
            for (n, block) in blocks.into_iter().take(80).enumerate() {
                self.add_block(block, if n == 0 { What::Journal } else { What::Log });
            }
        }
    }

    fn add_tree(&mut self, device: &MemDevice, node: &[u8], seed: u32, to: &mut Vec<BlockNr>) {
        let size = self.geo.block_size;
        match Node::parse(node, &NodeRules::root(self.geo.blocks_count)).unwrap() {
            Node::Leaf(leaf) => {
                for extent in leaf.iter() {
                    to.extend(
                        (0..extent.len.min(100)).filter_map(|i| extent.map(extent.logical + i)),
                    );
                }
            }
            Node::Index(index) => {
                for child in index.iter() {
                    self.add_block(child.child, What::Mapping(seed));
                    let bytes = read(device, child.child.offset(size), size as usize);
                    self.add_tree(device, &bytes, seed, to);
                }
            }
        }
    }

    /// Breaks one to three places, and mostly makes the checksums good again. Returns the broken places.
    pub fn damage(&self, device: &MemDevice, rng: &mut Rng) -> Vec<String> {
        let mut kinds: Vec<u8> = self.all.iter().map(|part| kind(part.what)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let sealed = rng.below(8) != 0;
        let mut told = Vec::new();
        for _ in 0..=rng.below(3) {
            let wanted = kinds[rng.below(kinds.len() as u64) as usize];
            let of_kind: Vec<&Part> = self.all.iter().filter(|p| kind(p.what) == wanted).collect();
            let part = of_kind[rng.below(of_kind.len() as u64) as usize];
            let mut bytes = read(device, part.at, part.len);
            let front = match part.what {
                What::Inode(_) => part.len.min(256),
                _ => part.len.min(96),
            };
            let within = match rng.below(4) {
                0 => rng.below(part.len as u64) as usize,
                _ => rng.below(front as u64) as usize,
            };
            change(&mut bytes, within, rng);
            if sealed {
                self.seal(&mut bytes, part);
            }
            device.write_at(part.at, &bytes).unwrap();
            told.push(format!("{:?} at byte {within}", part.what));
        }
        told
    }

    fn seal(&self, bytes: &mut [u8], part: &Part) {
        let geo = &self.geo;
        match part.what {
            What::Superblock => {
                let csum = geo.features.has_metadata_csum();
                if let Some((body, sum)) = bytes.split_last_chunk_mut::<4>().filter(|_| csum) {
                    *sum = checksum::crc32c(!0, body).to_le_bytes();
                }
            }
            What::Descriptor(group) => {
                if let Some(desc) = GroupDesc::decode_unchecked(bytes) {
                    let _ = desc.encode(bytes, geo, group);
                }
            }
            What::Inode(ino) => inode::set_checksum(bytes, geo, ino),
            _ if !geo.features.has_metadata_csum() => {}
            What::Directory(seed) if dir_entry::verify_tail(bytes, seed).is_err() => {
                // A block of an index has no such tail.
                if dir_entry::space(bytes, true).is_ok() {
                    dir_entry::set_tail(bytes, seed);
                }
            }
            What::Mapping(seed) => drop(extent::set_tail(bytes, seed)),
            What::Attributes => {
                let block = BlockNr(part.at / u64::from(geo.block_size));
                xattr::set_checksum(bytes, geo.csum_seed, block);
            }
            What::Mmp => mmp::set_checksum(bytes, geo.csum_seed),
            What::Directory(_) | What::Bitmap | What::Journal | What::Log => {}
        }
    }
}

const fn kind(what: What) -> u8 {
    match what {
        What::Superblock => 0,
        What::Descriptor(_) => 1,
        What::Bitmap => 2,
        What::Inode(_) => 3,
        What::Directory(_) => 4,
        What::Mapping(_) => 5,
        What::Attributes => 6,
        What::Journal => 7,
        What::Log => 8,
        What::Mmp => 9,
    }
}

fn change(bytes: &mut [u8], at: usize, rng: &mut Rng) {
    let word = at & !3;
    let random = rng.next();
    match rng.below(6) {
        0 => bytes[at] ^= 1 << (random % 8),
        1 => bytes[at] = [0, 0xff, 1, 0x80][random as usize % 4],
        2 => bytes[at] = random as u8,
        3 => bytes[word..word + 4].copy_from_slice(&(random as u32 % 64).to_le_bytes()),
        4 => bytes[word..word + 4].copy_from_slice(&(random as u32).to_le_bytes()),
        _ => {
            let from = (random as usize % (bytes.len() / 4)) * 4;
            bytes.copy_within(from..from + 4, word);
        }
    }
}
