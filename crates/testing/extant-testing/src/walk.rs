//! Reads every inode of an image through this crate, with every check and checksum it has.

use ext4_format::extent::{self, Extent, Node, NodeRules};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::hash::DirHasher;
use ext4_format::htree::{self, Index, IndexBlockKind};
use ext4_format::inode::{self, InodeCore};
use ext4_format::superblock::RawSuperblock;
use ext4_format::xattr::{self, XattrSet};
use ext4_format::{BlockNr, FileType, InodeNr, checksum, dir_entry, indirect};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub const EXTENTS: u32 = 0x8_0000;
pub const INDEX: u32 = 0x1000;
const ENCRYPTED: u32 = 0x800;

/// An image open for reading and writing.
pub struct Volume {
    pub file: File,
    pub geo: Geometry,
    pub raw_sb: RawSuperblock,
}

/// An inode as read.
pub struct Inode {
    pub nr: InodeNr,
    pub raw: Vec<u8>,
    pub core: InodeCore,
    pub seed: u32,
}

impl Volume {
    pub fn open(path: &Path) -> Self {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut bytes = vec![0; 1024];
        file.read_exact_at(&mut bytes, 1024).unwrap();
        let raw_sb = RawSuperblock::parse(&bytes).unwrap();
        let geo = Geometry::new(&raw_sb).unwrap();
        Self { file, geo, raw_sb }
    }

    pub fn has_csum(&self) -> bool {
        self.geo.features.has_metadata_csum()
    }

    pub fn block(&self, nr: BlockNr) -> Vec<u8> {
        let mut bytes = vec![0; self.geo.block_size as usize];
        self.file
            .read_exact_at(&mut bytes, nr.offset(self.geo.block_size))
            .unwrap();
        bytes
    }

    pub fn write(&self, nr: BlockNr, bytes: &[u8]) {
        self.file
            .write_all_at(bytes, nr.offset(self.geo.block_size))
            .unwrap();
    }

    fn inode_offset(&self, nr: InodeNr) -> u64 {
        let geo = &self.geo;
        let (group, index) = geo.group_of_inode(nr).unwrap();
        let (block, at) = geo.desc_location(group);
        let desc = GroupDesc::decode(&self.block(block)[at as usize..], geo, group).unwrap();
        desc.inode_table.offset(geo.block_size) + u64::from(index) * u64::from(geo.inode_size)
    }

    /// Returns the block with the record of an inode.
    pub fn inode_block(&self, nr: InodeNr) -> BlockNr {
        BlockNr(self.inode_offset(nr) / u64::from(self.geo.block_size))
    }

    pub fn inode(&self, nr: InodeNr) -> Inode {
        let mut raw = vec![0; self.geo.inode_size.into()];
        self.file
            .read_exact_at(&mut raw, self.inode_offset(nr))
            .unwrap();
        let core = inode::decode_core(&raw, &self.geo, nr).unwrap();
        let seed = checksum::inode_seed(self.geo.csum_seed, nr, core.generation);
        Inode {
            nr,
            raw,
            core,
            seed,
        }
    }

    pub fn write_inode(&self, inode: &mut Inode) {
        inode::set_checksum(&mut inode.raw, &self.geo, inode.nr);
        self.file
            .write_all_at(&inode.raw, self.inode_offset(inode.nr))
            .unwrap();
    }

    /// Returns the extent nodes outside the inode, and all extents (or mapped runs of a block map).
    pub fn map(&self, inode: &Inode) -> (Vec<BlockNr>, Vec<Extent>) {
        let (mut nodes, mut extents) = (Vec::new(), Vec::new());
        let root = inode::i_block(&inode.raw).unwrap();
        if inode.core.flags & EXTENTS != 0 {
            let rules = NodeRules::root(self.geo.blocks_count);
            self.extent_node(inode, root, &rules, &mut nodes, &mut extents);
        } else {
            let blocks = inode.core.size.div_ceil(self.geo.block_size.into());
            for logical in 0..blocks {
                let path = indirect::path(logical, self.geo.block_size).unwrap();
                let (mut block, mut nr) = (root.to_vec(), None);
                for (i, step) in path.steps().iter().enumerate() {
                    nr = indirect::get(&block, *step, self.geo.blocks_count).unwrap();
                    match nr {
                        Some(child) if i < usize::from(path.depth) => block = self.block(child),
                        Some(_) => {}
                        None => break,
                    }
                }
                if let Some(physical) = nr {
                    extents.push(Extent {
                        logical: logical as u32,
                        len: 1,
                        physical,
                        unwritten: false,
                    });
                }
            }
        }
        (nodes, extents)
    }

    fn extent_node(
        &self,
        inode: &Inode,
        bytes: &[u8],
        rules: &NodeRules,
        nodes: &mut Vec<BlockNr>,
        extents: &mut Vec<Extent>,
    ) {
        match Node::parse(bytes, rules).unwrap() {
            Node::Leaf(leaf) => extents.extend(leaf.iter()),
            Node::Index(index) => {
                for (i, e) in index.iter().enumerate() {
                    let block = self.block(e.child);
                    if self.has_csum() {
                        extent::verify_tail(&block, inode.seed).unwrap();
                    }
                    nodes.push(e.child);
                    let rules = index.child_rules(i, rules).unwrap();
                    self.extent_node(inode, &block, &rules, nodes, extents);
                }
            }
        }
    }

    /// Returns the content of a file, holes and unwritten parts as zeros.
    pub fn content(&self, inode: &Inode) -> Vec<u8> {
        let size = self.geo.block_size as usize;
        let mut out = vec![0; inode.core.size as usize];
        for e in self.map(inode).1.iter().filter(|e| !e.unwritten) {
            for i in 0..e.len {
                let at = (e.logical + i) as usize * size;
                let end = out.len().min(at + size);
                if at < end {
                    out[at..end].copy_from_slice(
                        &self.block(BlockNr(e.physical.0 + u64::from(i)))[..end - at],
                    );
                }
            }
        }
        out
    }

    /// Returns the physical blocks of a directory, in logical order.
    pub fn dir_blocks(&self, dir: &Inode) -> Vec<BlockNr> {
        let (_, extents) = self.map(dir);
        extents
            .iter()
            .flat_map(|e| (0..e.len).map(|i| e.map(e.logical + i).unwrap()))
            .collect()
    }

    pub fn hasher(&self, version: u8) -> DirHasher {
        DirHasher::new(version, self.geo.unsigned_hash, self.geo.hash_seed).unwrap()
    }

    /// Returns the names of a directory. An index is walked too: every leaf must be in it once, and every name in the
    /// leaf its hash leads to.
    pub fn names(&self, dir: &Inode) -> BTreeMap<Vec<u8>, (InodeNr, Option<FileType>)> {
        let blocks = self.dir_blocks(dir);
        let indexed = dir.core.flags & INDEX != 0;
        let encrypted = dir.core.flags & ENCRYPTED != 0;
        let mut index_blocks = vec![false; blocks.len()];
        let mut leaves = Vec::new();
        if indexed {
            index_blocks[0] = true;
            let bytes = self.block(blocks[0]);
            let large = self.geo.features.has_large_dir();
            let root =
                htree::parse_root(&bytes, self.has_csum(), large, blocks.len() as u32).unwrap();
            assert_eq!(root.own, dir.nr);
            if self.has_csum() {
                htree::verify_checksum(&bytes, IndexBlockKind::Root, dir.seed).unwrap();
            }
            self.index(
                dir,
                &blocks,
                &root.index,
                root.levels,
                0,
                u32::MAX,
                &mut index_blocks,
                &mut leaves,
            );
            let hasher = self.hasher(root.hash_version);
            leaves.iter().for_each(|(block, low, high)| {
                for e in dir_entry::entries_of(&self.block(blocks[*block as usize]), encrypted) {
                    let e = e.unwrap();
                    let (hash, _) = hasher.hash(e.name);
                    assert!(
                        (low & !1..=*high).contains(&hash),
                        "{:?} {hash:#x} {low:#x} {high:#x}",
                        e.name
                    );
                }
            });
            assert_eq!(
                leaves.len() + index_blocks.iter().filter(|b| **b).count(),
                blocks.len()
            );
        }
        let mut names = BTreeMap::new();
        for (i, nr) in blocks.iter().enumerate() {
            let block = self.block(*nr);
            if self.has_csum() && !index_blocks[i] {
                dir_entry::verify_tail(&block, dir.seed).unwrap();
                dir_entry::space(&block, true).unwrap();
            }
            for e in dir_entry::entries_of(&block, encrypted) {
                let e = e.unwrap();
                assert!(
                    names
                        .insert(e.name.to_vec(), (e.inode, e.file_type))
                        .is_none()
                );
            }
        }
        names
    }

    #[allow(clippy::too_many_arguments, reason = "a walk's state")]
    fn index(
        &self,
        dir: &Inode,
        blocks: &[BlockNr],
        index: &Index<'_>,
        levels: u8,
        low: u32,
        high: u32,
        index_blocks: &mut [bool],
        leaves: &mut Vec<(u32, u32, u32)>,
    ) {
        for (i, e) in index.iter().enumerate() {
            let low = if i == 0 { low } else { e.hash };
            let high = index.get(i + 1).map_or(high, |n| n.hash);
            if levels == 0 {
                leaves.push((e.block, low, high));
                continue;
            }
            index_blocks[e.block as usize] = true;
            let bytes = self.block(blocks[e.block as usize]);
            if self.has_csum() {
                htree::verify_checksum(&bytes, IndexBlockKind::Node, dir.seed).unwrap();
            }
            let node = htree::parse_node(&bytes, self.has_csum(), blocks.len() as u32).unwrap();
            self.index(
                dir,
                blocks,
                &node,
                levels - 1,
                low,
                high,
                index_blocks,
                leaves,
            );
        }
    }

    pub fn xattrs(&self, inode: &Inode) -> XattrSet {
        let area = inode::xattr_area(&inode.raw, &self.geo).map(|r| &inode.raw[r]);
        let nr = inode::file_acl(&inode.raw, &self.geo);
        let block = (nr.0 != 0).then(|| self.block(nr));
        if let Some(block) = block.as_ref().filter(|_| self.has_csum()) {
            xattr::verify_checksum(block, self.geo.csum_seed, nr).unwrap();
        }
        XattrSet::parse_all(area, block.as_deref()).unwrap()
    }

    /// Returns every path of the tree with its inode; reads every inode completely.
    pub fn tree(&self) -> BTreeMap<String, Inode> {
        let mut out = BTreeMap::new();
        let mut todo = vec![(String::new(), InodeNr::ROOT)];
        while let Some((path, nr)) = todo.pop() {
            let inode = self.inode(nr);
            let _ = self.xattrs(&inode);
            match FileType::from_mode(inode.core.mode) {
                Some(FileType::Directory) => {
                    for (name, (child, _)) in self.names(&inode) {
                        if name != b"." && name != b".." {
                            todo.push((
                                format!("{path}/{}", String::from_utf8_lossy(&name)),
                                child,
                            ));
                        }
                    }
                }
                Some(FileType::Regular) => drop(self.content(&inode)),
                _ => {}
            }
            out.insert(path, inode);
        }
        out
    }
}
