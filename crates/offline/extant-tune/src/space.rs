//! Blocks and inode numbers taken and freed, with bitmaps and counts.

use crate::error::{Error, refused};
use crate::image::Image;
use blockdev::BlockDevice;
use ext4_format::group_desc::{BLOCK_UNINIT, INODE_UNINIT};
use ext4_format::mapping::Run;
use ext4_format::{BlockNr, GroupNr, InodeNr, bitmap};

impl Image<'_, '_> {
    /// Fails on volumes whose bitmaps count clusters.
    pub(crate) fn needs_blocks(&self, what: &str) -> Result<(), Error> {
        match self.geo.cluster_ratio {
            1 => Ok(()),
            _ => refused(format!("{what} is not changed on a volume with bigalloc")),
        }
    }

    /// Fails on volumes with quota, because the use is not recounted.
    pub(crate) fn needs_no_quota(&self, what: &str) -> Result<(), Error> {
        if self.geo.features.has_quota() {
            refused(format!("with quota {what}"))
        } else {
            Ok(())
        }
    }

    /// Returns the block bitmap of a group; a bitmap that was never written is that of the old layout.
    pub(crate) fn block_map(&mut self, group: GroupNr) -> Result<&mut Vec<u8>, Error> {
        if !self.block_maps.contains_key(&group.0) {
            let mut desc = self.desc(group)?;
            let mut map = vec![0; self.block_size()];
            if desc.flags & BLOCK_UNINIT != 0 {
                bitmap::init_block_bitmap(&mut map, &self.old, group, &desc);
                desc.flags &= !BLOCK_UNINIT;
                if let Some(kept) = self.descs.get_mut(group.0 as usize) {
                    *kept = desc;
                }
            } else {
                let at = desc.block_bitmap.offset(self.geo.block_size);
                self.dev.read_at(at, &mut map)?;
            }
            self.block_maps.insert(group.0, map);
        }
        Ok(self.block_maps.entry(group.0).or_default())
    }

    /// Returns the inode bitmap of a group.
    pub(crate) fn inode_map(&mut self, group: GroupNr) -> Result<&mut Vec<u8>, Error> {
        if !self.inode_maps.contains_key(&group.0) {
            let desc = self.desc(group)?;
            let mut map = vec![0; self.block_size()];
            if desc.flags & INODE_UNINIT != 0 {
                bitmap::init_inode_bitmap(&mut map, &self.geo, 0);
            } else {
                let at = desc.inode_bitmap.offset(self.geo.block_size);
                self.dev.read_at(at, &mut map)?;
            }
            self.inode_maps.insert(group.0, map);
        }
        Ok(self.inode_maps.entry(group.0).or_default())
    }

    /// Sets or clears the bits of a run of blocks, and counts those that changed. Bits stand for whole clusters, also at
    /// the ends of the run.
    pub(crate) fn mark(&mut self, first: BlockNr, len: u64, used: bool) -> Result<(), Error> {
        let mut at = first.0;
        let end = at.saturating_add(len);
        while at < end {
            let Some((group, bit)) = self.geo.group_of_block(BlockNr(at)) else {
                return refused(format!("there is no block {at}"));
            };
            let ratio = u64::from(self.geo.cluster_ratio);
            let next = self.geo.group_first_block(group).0 + u64::from(self.geo.blocks_per_group);
            let stop = end.min(next);
            let clusters = self.geo.clusters_of(BlockNr(at), stop - at);
            let bits = (clusters.end - clusters.start) as u32; // of one group
            let map = self.block_map(group)?;
            let changed = if used {
                bitmap::set_range(map, bit, bits)
            } else {
                bitmap::clear_range(map, bit, bits)
            };
            let free = self.sb.free_blocks();
            let Some(desc) = self.descs.get_mut(group.0 as usize) else {
                return refused(format!("there is no group {group}"));
            };
            // The superblock counts blocks.
            let all = u64::from(changed) * ratio;
            if used {
                desc.free_blocks = desc.free_blocks.saturating_sub(changed);
                self.sb.set_free_blocks(free.saturating_sub(all));
            } else {
                desc.free_blocks = desc.free_blocks.saturating_add(changed);
                self.sb.set_free_blocks(free.saturating_add(all));
            }
            at = stop;
        }
        Ok(())
    }

    /// Frees blocks.
    pub(crate) fn free(&mut self, first: BlockNr, len: u64) -> Result<(), Error> {
        self.mark(first, len, false)
    }

    /// Returns the free runs of the volume of at least `least` blocks, from the front. They begin with a cluster, and
    /// all but one at the volume's end have whole clusters.
    pub(crate) fn free_runs(&mut self, least: u32) -> Result<Vec<(u64, u64)>, Error> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for group in (0..self.geo.groups).map(GroupNr) {
            if self.desc(group)?.free_blocks < least.min(1) {
                continue;
            }
            let (first, bits) = (
                self.geo.group_first_block(group).0,
                self.geo.bits_in_group(group),
            );
            let known = self.block_maps.contains_key(&group.0);
            let (desc, map) = (self.desc(group)?, self.block_map(group)?.clone());
            let mut bit = 0;
            while let Some(start) = bitmap::find_zero(&map, bit, bits) {
                let end = bitmap::find_one(&map, start, bits).unwrap_or(bits);
                let ratio = u64::from(self.geo.cluster_ratio);
                let start = first + u64::from(start) * ratio;
                let end64 = (first + u64::from(end) * ratio).min(self.geo.blocks_count);
                match runs.last_mut() {
                    Some(last) if last.0 + last.1 == start => last.1 += end64 - start,
                    _ => runs.push((start, end64 - start)),
                }
                bit = end;
            }
            if !known {
                // The bitmap is only read, not changed.
                self.block_maps.remove(&group.0);
                if let Some(kept) = self.descs.get_mut(group.0 as usize) {
                    *kept = desc;
                }
            }
        }
        runs.retain(|run| run.1 >= u64::from(least));
        Ok(runs)
    }

    /// Takes blocks: in one run if one is long enough, preferably at or behind the goal; otherwise the longest runs. Every
    /// run begins with a cluster. The last one leaves the rest of its last cluster to the file.
    pub(crate) fn allocate(
        &mut self,
        blocks: u32,
        goal: u64,
        what: &'static str,
    ) -> Result<Vec<Run>, Error> {
        let mut runs = self.free_runs(1)?;
        // A run behind a part of a cluster would not be aligned.
        let ratio = u64::from(self.geo.cluster_ratio);
        runs.iter_mut().for_each(|run| run.1 -= run.1 % ratio);
        let need = u64::from(blocks);
        let fits = |run: &&(u64, u64)| run.1 >= need;
        let behind = runs.iter().filter(fits).find(|run| run.0 >= goal);
        let whole = behind.or_else(|| runs.iter().find(fits)).copied();
        let chosen = match whole {
            Some((start, _)) => vec![(start, need)],
            None => {
                runs.sort_by_key(|run| std::cmp::Reverse(run.1));
                runs
            }
        };
        let (mut taken, mut logical) = (Vec::new(), 0u32);
        for (physical, len) in chosen {
            let len = len.min(u64::from(blocks - logical)) as u32;
            if len == 0 {
                break;
            }
            taken.push(Run {
                logical,
                len,
                physical,
            });
            logical += len;
        }
        if logical < blocks {
            return Err(Error::NoSpace(what));
        }
        for run in &taken {
            self.mark(BlockNr(run.physical), run.len.into(), true)?;
        }
        Ok(taken)
    }

    /// Takes single blocks for the nodes of a map, each in a separate cluster.
    pub(crate) fn allocate_nodes(&mut self, count: u32, goal: u64) -> Result<Vec<u64>, Error> {
        let ratio = self.geo.cluster_ratio;
        let runs = self.allocate(count.saturating_mul(ratio), goal, "a mapping")?;
        let blocks = runs.iter();
        Ok(blocks
            .flat_map(|run| run.physical..run.physical + u64::from(run.len))
            .step_by(ratio as usize)
            .collect())
    }

    /// Takes the first free inode number.
    pub(crate) fn take_inode(&mut self) -> Result<InodeNr, Error> {
        for group in (0..self.geo.groups).map(GroupNr) {
            let desc = self.desc(group)?;
            if desc.free_inodes == 0 {
                continue;
            }
            let (geo, unused) = (self.geo.clone(), desc.itable_unused);
            let from = geo.reserved_inodes(group);
            let map = self.inode_map(group)?;
            let Some(index) = bitmap::find_zero(map, from, geo.inodes_per_group) else {
                continue;
            };
            bitmap::set(map, index);
            // The record was never used where the table is not written yet.
            let ino = geo.inode_nr(group, index);
            let fresh = geo.inodes_per_group.saturating_sub(unused);
            for skipped in fresh..index {
                self.write_record(
                    geo.inode_nr(group, skipped),
                    &mut vec![0; geo.inode_size.into()],
                )?;
            }
            if let Some(desc) = self.descs.get_mut(group.0 as usize) {
                desc.free_inodes -= 1; // above zero, see above
                desc.flags &= !INODE_UNINIT;
                if geo.features.has_group_csum() {
                    desc.itable_unused = unused.min(geo.inodes_per_group - index - 1);
                }
            }
            let free = self.sb.free_inodes_count.get();
            self.sb.free_inodes_count.set(free.saturating_sub(1));
            return Ok(ino);
        }
        Err(Error::NoSpace("an inode"))
    }

    /// Frees an inode number.
    pub(crate) fn give_inode(&mut self, ino: InodeNr) -> Result<(), Error> {
        let Some((group, index)) = self.geo.group_of_inode(ino) else {
            return refused(format!("there is no inode {ino}"));
        };
        if bitmap::clear(self.inode_map(group)?, index) {
            if let Some(desc) = self.descs.get_mut(group.0 as usize) {
                desc.free_inodes = desc.free_inodes.saturating_add(1);
            }
            let free = self.sb.free_inodes_count.get();
            self.sb.free_inodes_count.set(free.saturating_add(1));
        }
        let mut zeros = vec![0; self.geo.inode_size.into()];
        Ok(self.write_record(ino, &mut zeros)?)
    }
}
