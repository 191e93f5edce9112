//! Inode tables: whole stretches of records at once, each with the map of its file.

use super::directory::{least_blocks, shape_of};
use super::error::{MkfsError, Result};
use super::gather::Gather;
use super::own_inodes::Records;
use super::plan::{FAST_SYMLINK, Plan};
use super::tree::{Body, ROOT, Tree};
use blockdev::BlockDevice;
use ext4_format::checksum::{crc32c, inode_seed};
use ext4_format::geometry::Geometry;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::mapping;
use ext4_format::timestamp::Timestamp;
use ext4_format::{BlockNr, InodeNr};

/// Inodes of one unit of work.
const CHUNK: u32 = 2048;

/// Writes the used parts of inode tables. Parts can be written in parallel.
pub(super) struct RecordWriter<'a> {
    pub device: &'a dyn BlockDevice,
    pub plan: &'a Plan,
    pub tree: &'a Tree,
    /// Records of the file system's own inodes, by number.
    pub special: &'a Records,
    pub crtime: Timestamp,
}

/// Returns the generation of a new inode: an arbitrary number, but the same in each run.
pub(super) fn generation(geo: &Geometry, ino: InodeNr) -> u32 {
    crc32c(crc32c(!0, &geo.uuid), &ino.0.to_le_bytes())
}

/// The records from `first` on, as many as one chunk of one group's table holds and are in use.
#[derive(Clone, Copy)]
pub(super) struct Part {
    first: u32,
    count: u32,
}

/// Returns all parts, of all groups with inodes in use.
pub(super) fn parts(plan: &Plan) -> Vec<Part> {
    let geo = &plan.layout.geometry;
    let reserved = super::numbers::Stretch {
        first: 1,
        count: geo.first_ino - 1,
    };
    let mut parts: Vec<Part> = Vec::new();
    for s in [reserved].iter().chain(&plan.stretches) {
        let (mut at, end) = (s.first, s.first + s.count);
        while at < end {
            // Chunks begin at multiples of their size from the group's first inode, and so at
            // the start of a block.
            let within = (at - 1) % geo.inodes_per_group;
            let chunk = at - within % CHUNK;
            let chunk_end = (chunk + CHUNK).min(at - within + geo.inodes_per_group);
            let stop = end.min(chunk_end);
            match parts.last_mut() {
                Some(p) if p.first == chunk => p.count = stop - chunk,
                _ => parts.push(Part {
                    first: chunk,
                    count: stop - chunk,
                }),
            }
            at = stop;
        }
    }
    parts
}

impl RecordWriter<'_> {
    /// Writes one part.
    pub fn write(&self, part: Part) -> Result<()> {
        let geo = &self.plan.layout.geometry;
        let size = usize::from(geo.inode_size);
        let per_block = geo.inodes_per_block();
        let records = (part.count.div_ceil(per_block) * per_block) as usize;
        let mut table = vec![0; records * size];
        let mut maps = Gather::new(self.device, geo.block_size);
        let mut put = |ino: InodeNr, index: u32| -> Result<()> {
            let at = (ino.0 - part.first) as usize * size;
            let raw = &mut table[at..at + size]; // ino is in the part
            self.record(ino, index, raw, &mut maps)
        };
        if part.first == 1 {
            put(InodeNr::ROOT, ROOT)?;
        }
        let order = &self.plan.order;
        let from = order.partition_point(|(ino, _)| *ino < part.first);
        let used = order[from..].iter(); // a partition point is an index
        for &(ino, index) in used.take_while(|(ino, _)| *ino - part.first < part.count) {
            put(InodeNr(ino), index)?;
        }
        for (ino, raw) in self.special {
            if let Some(i) = ino.0.checked_sub(part.first).filter(|i| *i < part.count) {
                let at = i as usize * size;
                table[at..at + size].copy_from_slice(raw);
            }
        }
        maps.flush()?;
        let (group, index) = geo
            .group_of_inode(InodeNr(part.first))
            .ok_or_else(|| MkfsError::Options("an inode outside the volume".into()))?;
        let desc = &self.plan.layout.groups[group.0 as usize];
        let block = desc.inode_table.0 + u64::from(index / per_block);
        super::gather::write(self.device, geo.block_size, block, &table)
    }

    /// Fills in one record, and hands on the blocks of its map.
    fn record(
        &self,
        ino: InodeNr,
        index: u32,
        raw: &mut [u8],
        maps: &mut Gather<'_>,
    ) -> Result<()> {
        let geo = &self.plan.layout.geometry;
        let i = &self.tree.inodes[index as usize];
        let runs = self.plan.runs[index as usize].as_slice();
        let nodes = self.plan.nodes.get(&index).map_or(&[][..], |n| n);
        let mut core = InodeCore {
            mode: i.mode,
            links: i.links,
            uid: i.uid,
            gid: i.gid,
            size: i.size,
            flags: if geo.features.has_project() {
                i.flags
            } else {
                i.flags & !flags::PROJINHERIT
            },
            generation: generation(geo, ino),
            atime: i.atime,
            mtime: i.mtime,
            ctime: i.ctime,
            crtime: self.crtime,
            dtime: 0,
            rdev: i.rdev,
            project: i.project,
        };
        let mut has_map = true;
        match &i.body {
            Body::Directory(d) => {
                let data: u64 = runs.iter().map(|r| u64::from(r.len)).sum();
                core.size = data * u64::from(geo.block_size);
                let least = least_blocks(geo, self.plan.lost_found == Some(index));
                if shape_of(geo, self.tree.names_of(*d), least).is_indexed() {
                    core.flags |= flags::INDEX;
                }
            }
            Body::File { .. } => {}
            Body::Symlink(target) => {
                core.size = target.len() as u64;
                has_map = target.len() >= FAST_SYMLINK;
            }
            Body::Special => {
                core.size = 0;
                has_map = false;
            }
        }
        if has_map && geo.features.has_extents() {
            core.flags |= flags::EXTENTS;
        }
        inode::init(raw, geo);
        inode::encode_core(&core, raw, geo);
        if has_map {
            let seed = inode_seed(geo.csum_seed, ino, core.generation);
            let root = inode::i_block_mut(raw)?;
            mapping::build(geo, runs, nodes, seed, root, &mut |nr, bytes| {
                maps.push(nr, bytes)
            })?;
        } else if let Body::Symlink(target) = &i.body {
            inode::i_block_mut(raw)?[..target.len()].copy_from_slice(target); // shorter than 60
        }
        let mut blocks = runs.iter().map(|r| u64::from(r.len)).sum::<u64>() + nodes.len() as u64;
        if let Some(block) = self.plan.xattrs.block_of(index) {
            inode::set_file_acl(raw, BlockNr(block));
            blocks += 1;
        }
        inode::set_sectors(raw, geo, blocks * u64::from(geo.sectors_per_block()))?;
        if let Some(area) = self.plan.xattrs.area(i.xattrs)
            && let Some(range) = inode::xattr_area(raw, geo)
        {
            raw[range].copy_from_slice(area); // laid out for this length
        }
        inode::set_checksum(raw, geo, ino);
        Ok(())
    }
}
