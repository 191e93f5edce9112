//! The last step of a batch: bitmaps and descriptors of the groups it touched.

use super::bits::Run;
use super::workspace::Workspace;
use crate::error::Result;
use crate::groups::DescTable;
use crate::groups::first_unused;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use ext4_format::{BlockNr, FormatError, GroupNr, InodeNr, Where, bitmap};
use std::collections::BTreeSet;

/// Changes in the use of inode numbers.
#[derive(Debug, Default)]
pub(super) struct InodeBits {
    /// Numbers in use now and not before, or the other way round, by number.
    pub changed: Vec<(InodeNr, bool)>,
    /// Change of the count of directories, by the inode that came, went or changed.
    pub dirs: Vec<(InodeNr, i32)>,
}

/// Part of a run in one group.
struct Piece {
    group: GroupNr,
    bit: u32,
    len: u32,
    alloc: bool,
}

/// Bitmaps and descriptors at work.
pub(super) struct GroupImages<'g, 'a> {
    ws: &'g mut Workspace<'a>,
    descs: &'g mut DescTable,
    touched: BTreeSet<u32>,
    /// Change of the counts of free blocks and inodes.
    pub change: (i64, i64),
}

impl<'g, 'a> GroupImages<'g, 'a> {
    pub fn new(ws: &'g mut Workspace<'a>, descs: &'g mut DescTable) -> Self {
        Self {
            ws,
            descs,
            touched: BTreeSet::new(),
            change: (0, 0),
        }
    }

    fn desc(&mut self, group: GroupNr) -> Result<&mut GroupDesc> {
        self.touched.insert(group.0);
        let (geometry, images) = (self.ws.geometry, self.ws.images());
        self.descs.get_mut(geometry, images, group)
    }

    /// Sets and clears the bits of blocks.
    pub fn blocks(&mut self, runs: &[Run]) -> Result<()> {
        let mut pieces = Vec::with_capacity(runs.len());
        for run in runs {
            let mut at = run.start;
            while at < run.end {
                let (group, bit) = self.group_of(at)?;
                let geometry = self.ws.geometry;
                let border = geometry.group_first_block(group).0
                    + u64::from(geometry.blocks_in_group(group));
                let end = run.end.min(border);
                // A group has at most 2^19 blocks.
                pieces.push(Piece {
                    group,
                    bit,
                    len: (end - at) as u32,
                    alloc: run.alloc,
                });
                at = end;
            }
        }
        for pieces in pieces.chunk_by(|a, b| a.group == b.group) {
            if let Some(Piece { group, .. }) = pieces.first() {
                self.block_bits(*group, pieces)?;
            }
        }
        Ok(())
    }

    fn block_bits(&mut self, group: GroupNr, pieces: &[Piece]) -> Result<()> {
        let mut map = self.block_map(group)?;
        let mut delta = 0;
        for piece in pieces {
            let (done, what) = if piece.alloc {
                (
                    bitmap::set_range(&mut map, piece.bit, piece.len),
                    "block taken that is in use",
                )
            } else {
                (
                    bitmap::clear_range(&mut map, piece.bit, piece.len),
                    "block freed that is free",
                )
            };
            if done != piece.len {
                let block = self.ws.geometry.group_first_block(group).0 + u64::from(piece.bit);
                return Err(FormatError::corrupt(what, Where::Block(BlockNr(block), 0)).into());
            }
            delta += if piece.alloc {
                -i64::from(done)
            } else {
                i64::from(done)
            };
        }
        let blocks = self.ws.geometry.blocks_in_group(group);
        let desc = self.desc(group)?;
        desc.free_blocks = count("count of free blocks", group, desc.free_blocks, delta)
            .and_then(|free| most("count of free blocks", group, free, blocks))?;
        self.change.0 += delta;
        self.put_block_map(group, map)
    }

    fn put_block_map(&mut self, group: GroupNr, map: Vec<u8>) -> Result<()> {
        let csum = bitmap::block_bitmap_csum(&map, self.ws.geometry);
        let desc = self.desc(group)?;
        desc.block_bitmap_csum = csum.unwrap_or(desc.block_bitmap_csum);
        let block = desc.block_bitmap;
        self.ws.put(block, map);
        Ok(())
    }

    fn group_of(&self, block: u64) -> Result<(GroupNr, u32)> {
        let bad = FormatError::corrupt("block beyond the volume", Where::Block(BlockNr(block), 0));
        Ok(self.ws.geometry.group_of_block(BlockNr(block)).ok_or(bad)?)
    }

    /// Takes the block bitmap out to change it, or makes it if the group does not have one yet.
    fn block_map(&mut self, group: GroupNr) -> Result<Vec<u8>> {
        let geometry = self.ws.geometry;
        let desc = self.desc(group)?;
        if geometry.features.has_group_csum() && desc.flags & BLOCK_UNINIT != 0 {
            desc.flags &= !BLOCK_UNINIT;
            let mut map = vec![0; geometry.block_size as usize];
            bitmap::init_block_bitmap(&mut map, geometry, group, desc);
            return Ok(map);
        }
        let desc = *desc;
        if let Some(image) = self.ws.unverified(desc.block_bitmap)? {
            bitmap::verify_block_bitmap(&image, &desc, geometry, group)?;
            image.set_verified();
        }
        self.ws.take(desc.block_bitmap)
    }

    fn inode_map(&mut self, group: GroupNr) -> Result<Vec<u8>> {
        let geometry = self.ws.geometry;
        let desc = self.desc(group)?;
        if geometry.features.has_group_csum() && desc.flags & INODE_UNINIT != 0 {
            let used = first_unused(geometry, desc, group);
            desc.flags &= !INODE_UNINIT;
            desc.itable_unused = geometry.inodes_per_group - used;
            let mut map = vec![0; geometry.block_size as usize];
            bitmap::init_inode_bitmap(&mut map, geometry, used);
            return Ok(map);
        }
        let desc = *desc;
        if let Some(image) = self.ws.unverified(desc.inode_bitmap)? {
            bitmap::verify_inode_bitmap(&image, &desc, geometry, group)?;
            image.set_verified();
        }
        self.ws.take(desc.inode_bitmap)
    }

    /// Sets and clears the bits of inodes and counts directories.
    pub fn inodes(&mut self, bits: &InodeBits) -> Result<()> {
        let geometry = self.ws.geometry;
        let place = |ino: InodeNr| {
            let bad = FormatError::corrupt("inode number", Where::Inode(ino));
            geometry.group_of_inode(ino).ok_or(bad)
        };
        let mut rest = &bits.changed[..];
        while let Some(&(first, _)) = rest.first() {
            let (group, _) = place(first)?;
            let n = rest.partition_point(|(ino, _)| place(*ino).is_ok_and(|(g, _)| g == group));
            let (mine, tail) = rest.split_at(n.max(1));
            rest = tail;
            let mut map = self.inode_map(group)?;
            let mut delta = 0;
            let mut used = 0;
            for &(ino, now) in mine {
                let (_, index) = place(ino)?;
                let changed = if now {
                    bitmap::set(&mut map, index)
                } else {
                    bitmap::clear(&mut map, index)
                };
                if !changed {
                    let what = if now {
                        "inode allocated that is in use"
                    } else {
                        "inode freed that is free"
                    };
                    return Err(FormatError::corrupt(what, Where::Inode(ino)).into());
                }
                delta += if now { -1 } else { 1 };
                used = if now { used.max(index + 1) } else { used };
            }
            let csum = bitmap::inode_bitmap_csum(&map, geometry);
            let desc = self.desc(group)?;
            desc.free_inodes = count("count of free inodes", group, desc.free_inodes, delta)
                .and_then(|free| {
                    most(
                        "count of free inodes",
                        group,
                        free,
                        geometry.inodes_per_group,
                    )
                })?;
            if geometry.features.has_group_csum() {
                desc.itable_unused = desc.itable_unused.min(geometry.inodes_per_group - used);
            }
            desc.inode_bitmap_csum = csum.unwrap_or(desc.inode_bitmap_csum);
            let block = desc.inode_bitmap;
            let without = geometry.features.has_group_csum() && desc.flags & BLOCK_UNINIT != 0;
            self.change.1 += delta;
            // A group with inodes has a block bitmap, too, as with the kernel.
            self.ws.put(block, map);
            if without {
                let map = self.block_map(group)?;
                self.put_block_map(group, map)?;
            }
        }
        for &(ino, change) in &bits.dirs {
            let (group, _) = place(ino)?;
            let desc = self.desc(group)?;
            desc.used_dirs = count("count of directories", group, desc.used_dirs, change.into())
                .and_then(|dirs| {
                    most(
                        "count of directories",
                        group,
                        dirs,
                        geometry.inodes_per_group,
                    )
                })?;
        }
        Ok(())
    }

    /// Writes the descriptors of the groups touched, and returns their blocks.
    pub fn descriptors(self) -> Result<Vec<BlockNr>> {
        let geometry = self.ws.geometry;
        let mut blocks = Vec::new();
        for group in self.touched.into_iter().map(GroupNr) {
            let desc = self.descs.get(geometry, self.ws.images(), group)?;
            let (block, offset) = geometry.desc_location(group);
            let bytes = self.ws.get_mut(block)?.get_mut(offset as usize..);
            let bad = FormatError::corrupt("descriptor position", Where::Group(group));
            desc.encode(bytes.ok_or(bad)?, geometry, group)?;
            blocks.push(block);
        }
        blocks.sort_unstable();
        blocks.dedup();
        Ok(blocks)
    }
}

/// Returns the count, or an error if it exceeds `most`.
fn most(what: &'static str, group: GroupNr, count: u32, most: u32) -> Result<u32> {
    if count <= most {
        Ok(count)
    } else {
        Err(FormatError::corrupt(what, Where::Group(group)).into())
    }
}

/// Returns a descriptor's count after a change, or an error if the count leaves its range.
fn count(what: &'static str, group: GroupNr, old: u32, change: i64) -> Result<u32> {
    let new = i64::from(old)
        .checked_add(change)
        .and_then(|n| u32::try_from(n).ok());
    Ok(new.ok_or(FormatError::corrupt(what, Where::Group(group)))?)
}
