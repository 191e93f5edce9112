//! The kind of every metadata block of an image, and the repair of its checksum after the block was broken, so that
//! broken blocks are parsed and not only refused.

use crate::walk;
use blockdev::{BlockDevice, MemDevice};
use ext4_format::checksum::crc32c;
use ext4_format::extent;
use ext4_format::group_desc::GroupDesc;
use ext4_format::htree;
use ext4_format::inode;
use ext4_format::jbd2::{self, BlockType, Checksums};
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr};
use ext4_format::{bitmap, dir_entry, orphan_file, xattr};
use std::collections::{BTreeMap, BTreeSet};

/// The content of a block. A seed belongs to the inode that owns the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Superblock,
    Descriptors {
        first: GroupNr,
    },
    BlockBitmap(GroupNr),
    InodeBitmap(GroupNr),
    Inodes {
        first: InodeNr,
    },
    Extents {
        seed: u32,
    },
    Leaf {
        seed: u32,
    },
    Index {
        seed: u32,
        kind: htree::IndexBlockKind,
    },
    Attributes,
    Orphans {
        seed: u32,
    },
    JournalSuperblock,
    Log(Log),
}

/// The content of a block of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    Descriptor,
    Revokes,
    Commit,
    /// An image of `home`; the tag that names it is number `tag` of the descriptor in block `by`.
    Image {
        home: u64,
        by: u64,
        tag: usize,
        tid: jbd2::Tid,
    },
}

pub struct Map {
    pub blocks: BTreeMap<u64, What>,
    /// Inodes in use, in their tables' blocks.
    pub inodes: Vec<(u64, usize)>,
    geo: ext4_format::geometry::Geometry,
    log: jbd2::Format,
    /// The last image in the log of a block, if it has one.
    pub newest: BTreeMap<u64, u64>,
}

impl Map {
    /// The shape of the image.
    pub fn geometry(&self) -> &ext4_format::geometry::Geometry {
        &self.geo
    }

    /// Maps an image; `replayed` is the same image with its journal replayed.
    pub fn new(image: &MemDevice, replayed: &MemDevice) -> Self {
        let dir = needs::memory_dir();
        let path = dir.path().join("image");
        crate::common::write_image(replayed, &path);
        let volume = walk::Volume::open(&path);
        let mut map = Self {
            blocks: BTreeMap::new(),
            inodes: Vec::new(),
            geo: volume.geo.clone(),
            log: jbd2::Superblock::new(
                volume.geo.block_size,
                jbd2::MIN_BLOCKS,
                jbd2::Features::default(),
                [0; 16],
            )
            .format(),
            newest: BTreeMap::new(),
        };
        map.add_groups(&volume);
        let mut inodes: BTreeMap<u32, walk::Inode> = volume
            .tree()
            .into_values()
            .map(|inode| (inode.nr.0, inode))
            .collect();
        let orphans = volume.raw_sb.orphan_file_inum.get();
        if volume.geo.features.has_orphan_file() {
            inodes.insert(orphans, volume.inode(InodeNr(orphans)));
        }
        for inode in inodes.values() {
            map.add_inode(&volume, inode, inode.nr.0 == orphans);
        }
        if volume.geo.features.has_journal() {
            let journal = volume.inode(InodeNr::JOURNAL);
            map.add_place(&volume, journal.nr);
            map.add_log(image, &volume.dir_blocks(&journal));
        }
        map
    }

    fn add_groups(&mut self, volume: &walk::Volume) {
        let geo = &volume.geo;
        self.blocks
            .insert(1024 / u64::from(geo.block_size), What::Superblock);
        for group in (0..geo.groups).map(GroupNr) {
            let (block, at) = geo.desc_location(group);
            let desc = GroupDesc::decode(&volume.block(block)[at as usize..], geo, group).unwrap();
            if at == 0 {
                self.blocks
                    .insert(block.0, What::Descriptors { first: group });
            }
            self.blocks
                .insert(desc.block_bitmap.0, What::BlockBitmap(group));
            self.blocks
                .insert(desc.inode_bitmap.0, What::InodeBitmap(group));
            for i in 0..geo.itable_blocks() {
                let first = geo.inode_nr(group, i * geo.inodes_per_block());
                self.blocks
                    .insert(desc.inode_table.0 + u64::from(i), What::Inodes { first });
            }
        }
    }

    fn add_place(&mut self, volume: &walk::Volume, ino: InodeNr) {
        let geo = &volume.geo;
        let (group, index) = geo.group_of_inode(ino).unwrap();
        let (block, at) = geo.desc_location(group);
        let desc = GroupDesc::decode(&volume.block(block)[at as usize..], geo, group).unwrap();
        self.inodes.push((
            desc.inode_table.0 + u64::from(index / geo.inodes_per_block()),
            (index % geo.inodes_per_block()) as usize * usize::from(geo.inode_size),
        ));
    }

    fn add_inode(&mut self, volume: &walk::Volume, inode: &walk::Inode, orphans: bool) {
        self.add_place(volume, inode.nr);
        let seed = inode.seed;
        let kind = inode.core.file_type();
        let attributes = inode::file_acl(&inode.raw, &self.geo).0;
        if attributes != 0 {
            self.blocks.insert(attributes, What::Attributes);
        }
        let has_map = match kind {
            Some(FileType::Directory | FileType::Regular) => true,
            Some(FileType::Symlink) => inode.core.size >= inode::I_BLOCK_SIZE as u64,
            _ => false,
        };
        if !has_map {
            return;
        }
        for node in volume.map(inode).0 {
            self.blocks.insert(node.0, What::Extents { seed });
        }
        if orphans {
            for block in volume.dir_blocks(inode) {
                self.blocks.insert(block.0, What::Orphans { seed });
            }
        }
        if kind == Some(FileType::Directory) {
            let indexed = inode.core.flags & inode::flags::INDEX != 0;
            for (n, nr) in volume.dir_blocks(inode).into_iter().enumerate() {
                let block = volume.block(nr);
                // A node begins with an entry that takes the whole block and names nothing.
                let rec_len = u16::from_le_bytes([block[4], block[5]]);
                let whole = dir_entry::decode_rec_len(rec_len, block.len()) == block.len();
                let empty = block[..4] == [0; 4] && block[6..8] == [0; 2];
                let what = match (indexed, n) {
                    (true, 0) => What::Index {
                        seed,
                        kind: htree::IndexBlockKind::Root,
                    },
                    (true, _) if whole && empty => What::Index {
                        seed,
                        kind: htree::IndexBlockKind::Node,
                    },
                    _ => What::Leaf { seed },
                };
                self.blocks.insert(nr.0, what);
            }
        }
    }

    fn add_log(&mut self, image: &MemDevice, blocks: &[BlockNr]) {
        let read = |nr: BlockNr| read_block(image, nr.0, self.geo.block_size as usize);
        self.blocks.insert(blocks[0].0, What::JournalSuperblock);
        let sb = jbd2::Superblock::parse(&read(blocks[0])).unwrap();
        self.log = sb.format();
        let (mut at, mut tid) = (sb.start, sb.sequence);
        if at == 0 {
            return;
        }
        let mut found = Vec::new();
        while let Some((kind, found_tid)) = jbd2::header(&read(blocks[at as usize])) {
            if found_tid != tid {
                break;
            }
            let here = blocks[at as usize];
            at = sb.next_block(at);
            match kind {
                BlockType::Descriptor => {
                    found.push((here.0, Log::Descriptor));
                    let tags = self.log.tags(&read(here)).unwrap();
                    for (tag, t) in tags.iter().enumerate() {
                        let image = Log::Image {
                            home: t.home.0,
                            by: here.0,
                            tag,
                            tid,
                        };
                        found.push((blocks[at as usize].0, image));
                        at = sb.next_block(at);
                    }
                }
                BlockType::Revoke => found.push((here.0, Log::Revokes)),
                BlockType::Commit => {
                    found.push((here.0, Log::Commit));
                    tid = tid.next();
                }
                _ => break,
            }
        }
        for (block, what) in found {
            self.blocks.insert(block, What::Log(what));
            if let Log::Image { home, .. } = what {
                self.newest.insert(home, block);
            }
        }
    }

    /// Repairs the checksums of these blocks, and the ones above that cover them.
    pub fn seal(&self, device: &MemDevice, touched: &BTreeSet<u64>) {
        let mut sums = BTreeSet::new();
        for &block in touched {
            self.seal_block(device, block, &mut sums);
        }
        // A bitmap's checksum stands in a descriptor, an image's in the descriptor of the log.
        let mut logs = BTreeSet::new();
        for &block in &sums {
            self.seal_block(device, block, &mut logs);
        }
        for &block in &logs {
            self.seal_block(device, block, &mut BTreeSet::new());
        }
    }

    fn seal_block(&self, device: &MemDevice, block: u64, above: &mut BTreeSet<u64>) {
        let size = self.geo.block_size as usize;
        let Some(&what) = self.blocks.get(&block) else {
            return;
        };
        let mut bytes = read_block(device, block, size);
        match what {
            What::Log(Log::Image { home, by, tag, tid }) => {
                if let Some(&inner) = self.blocks.get(&home) {
                    self.seal_bytes(device, &mut bytes, inner, home, above);
                }
                if self.log.checksums == Checksums::V3 {
                    let sum = self.log.image_checksum(tid, &bytes).to_be_bytes();
                    // Tags of 16 bytes; the journal's UUID stands behind the first.
                    let at = 12 + tag * 16 + if tag > 0 { 16 } else { 0 } + 12;
                    device.write_at(by * size as u64 + at as u64, &sum).unwrap();
                    above.insert(by);
                }
            }
            _ => self.seal_bytes(device, &mut bytes, what, block, above),
        }
        device.write_at(block * size as u64, &bytes).unwrap();
    }

    /// The checksum inside a block that is to stand at `nr`.
    fn seal_bytes(
        &self,
        device: &MemDevice,
        bytes: &mut [u8],
        what: What,
        nr: u64,
        above: &mut BTreeSet<u64>,
    ) {
        let geo = &self.geo;
        let size = bytes.len();
        if !geo.features.has_metadata_csum() {
            return;
        }
        match what {
            What::Superblock => {
                let at = 1024 % size;
                let sum = crc32c(!0, &bytes[at..at + 1020]);
                bytes[at + 1020..at + 1024].copy_from_slice(&sum.to_le_bytes());
            }
            What::Descriptors { first } => {
                let descs = bytes.chunks_exact_mut(geo.desc_size.into());
                for (group, desc) in (first.0..geo.groups).zip(descs) {
                    let sum = crc32c(geo.csum_seed, &group.to_le_bytes());
                    let sum = crc32c(crc32c(sum, &desc[..0x1e]), &[0; 2]);
                    let sum = crc32c(sum, &desc[0x20..]) as u16;
                    desc[0x1e..0x20].copy_from_slice(&sum.to_le_bytes());
                }
            }
            What::BlockBitmap(group) => {
                let sum = bitmap::block_bitmap_csum(bytes, geo).unwrap();
                self.put_bitmap_sum(device, group, [0x18, 0x38], sum, above);
            }
            What::InodeBitmap(group) => {
                let sum = bitmap::inode_bitmap_csum(bytes, geo).unwrap();
                self.put_bitmap_sum(device, group, [0x1a, 0x3a], sum, above);
            }
            What::Inodes { first } => {
                let records = bytes.chunks_exact_mut(geo.inode_size.into());
                for (ino, raw) in (first.0..).zip(records) {
                    // An inode that was never written has no checksum.
                    if raw.iter().any(|&b| b != 0) {
                        inode::set_checksum(raw, geo, InodeNr(ino));
                    }
                }
            }
            // No checksum can be right if the header leaves no place for it.
            What::Extents { seed } => drop(extent::set_tail(bytes, seed)),
            What::Index { seed, kind } => drop(htree::set_checksum(bytes, kind, seed)),
            What::Leaf { seed } => dir_entry::set_tail(bytes, seed),
            What::Attributes => xattr::set_checksum(bytes, geo.csum_seed, BlockNr(nr)),
            What::Orphans { seed } => orphan_file::set_checksum(bytes, seed, BlockNr(nr)),
            What::JournalSuperblock if self.log.checksums.in_blocks() => {
                // Over the structure's 1024 bytes, itself as zero.
                let sum = crc32c(crc32c(!0, &bytes[..0xfc]), &[0; 4]);
                let sum = crc32c(sum, &bytes[0x100..1024]);
                bytes[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
            }
            What::Log(Log::Descriptor | Log::Revokes) => {
                let sum = crc32c(crc32c(self.log.seed, &bytes[..size - 4]), &[0; 4]);
                bytes[size - 4..].copy_from_slice(&sum.to_be_bytes());
            }
            What::Log(Log::Commit) => {
                let sum = crc32c(crc32c(self.log.seed, &bytes[..16]), &[0; 4]);
                let sum = crc32c(sum, &bytes[20..]);
                bytes[16..20].copy_from_slice(&sum.to_be_bytes());
            }
            // Images are sealed like the blocks that they replace.
            What::JournalSuperblock | What::Log(Log::Image { .. }) => {}
        }
    }

    /// Into the newest image of the group's descriptor.
    fn put_bitmap_sum(
        &self,
        device: &MemDevice,
        group: GroupNr,
        at: [u64; 2],
        sum: u32,
        above: &mut BTreeSet<u64>,
    ) {
        let (home, offset) = self.geo.desc_location(group);
        let block = self.newest.get(&home.0).copied().unwrap_or(home.0);
        let desc = block * u64::from(self.geo.block_size) + u64::from(offset);
        device
            .write_at(desc + at[0], &(sum as u16).to_le_bytes())
            .unwrap();
        if self.geo.desc_size >= 64 {
            device
                .write_at(desc + at[1], &((sum >> 16) as u16).to_le_bytes())
                .unwrap();
        }
        above.insert(block);
    }
}

fn read_block(device: &MemDevice, block: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    device.read_at(block * size as u64, &mut bytes).unwrap();
    bytes
}
