//! An attempt at a new shape: the places of all blocks, and the order of the steps.

use crate::error::Error;
use crate::journal;
use crate::old::Old;
use crate::places::Places;
use crate::quota::Quota;
use crate::room::Room;
use crate::target::Shape;
use crate::view::{Move, Moves, View};
use blockdev::BlockDevice;
use ext4_format::geometry::Geometry;
use ext4_format::inode::GOOD_OLD_SIZE;
use ext4_format::{BlockNr, GroupNr, InodeNr, bitmap, inode};
use ext4_image::{ClusterSet, Image, MemOverlay};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

/// Places of all blocks.
pub(crate) struct Layout {
    pub(crate) places: Places,
    pub(crate) moves: Moves,
    /// Clusters of files in the new volume.
    pub(crate) files: ClusterSet,
    room: Room,
}

impl Layout {
    /// Plans the places. The contents of the clusters of `blank` are not copied.
    pub(crate) fn new(old: &Old, geo: &Geometry, blank: &[(u64, u64)]) -> Result<Self, Error> {
        let mut files = old.files();
        let places = Places::new(old, geo, &files)?;
        files.grow(geo.groups);
        let end = geo.group_first_block(GroupNr(0));
        let end = geo.clusters_of(end, geo.blocks_count - end.0).end;
        let old_end = old.shape.geo.blocks_count;
        let displaced = files.runs_in(&places.fixed, end);
        let mut room = Room::new(geo, &old.used, &files, &places.fixed);
        let mut moves = Moves::default();
        for (start, len) in displaced {
            files.remove(start..start + len);
            let mut done = 0;
            while done < len {
                let from = geo.cluster_start(start + done).0;
                let (alike, blank) = journal::alike(blank, start + done, len - done);
                let (to, n, early) = room.take(alike).ok_or(Error::NoRoom)?;
                files.insert(to..to + n);
                done += n;
                moves.insert(Move {
                    from,
                    // The last cluster of the old volume may be short.
                    len: geo.cluster_start(start + done).0.min(old_end) - from,
                    to: geo.cluster_start(to).0,
                    early,
                    blank,
                });
            }
        }
        Ok(Self {
            places,
            moves,
            files,
            room,
        })
    }
}

/// The new volume while it is made.
pub(crate) struct Session<'s, 'd> {
    pub(crate) image: Image<&'s MemOverlay<'s>>,
    pub(crate) old: &'s Old,
    pub(crate) view: &'s View<'d>,
    pub(crate) layout: Layout,
    /// New numbers of inodes.
    pub(crate) numbers: BTreeMap<u32, u32>,
    /// Bitmaps of inodes of the new volume.
    pub(crate) inodes: Vec<Option<Vec<u8>>>,
    /// Number of directories that move to a group.
    pub(crate) new_dirs: BTreeMap<u32, u32>,
    /// End of the records in use, for groups that get inodes.
    pub(crate) ends: BTreeMap<u32, u32>,
    /// Blocks of attributes that have moved.
    pub(crate) attributes: BTreeSet<u64>,
    /// Quota files, and the use that changes.
    pub(crate) quota: Quota,
}

impl<'s> Deref for Session<'s, '_> {
    type Target = Image<&'s MemOverlay<'s>>;

    fn deref(&self) -> &Self::Target {
        &self.image
    }
}

impl DerefMut for Session<'_, '_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.image
    }
}

impl<'s, 'd> Session<'s, 'd> {
    pub(crate) fn new(
        old: &'s Old,
        shape: Shape,
        view: &'s View<'d>,
        overlay: &'s MemOverlay<'s>,
        mut layout: Layout,
    ) -> Self {
        Self {
            image: Image {
                dev: overlay,
                sb: shape.sb,
                geo: shape.geo,
                descs: std::mem::take(&mut layout.places.descs),
            },
            inodes: old.inodes.clone(),
            old,
            view,
            layout,
            numbers: BTreeMap::new(),
            new_dirs: BTreeMap::new(),
            ends: BTreeMap::new(),
            attributes: BTreeSet::new(),
            quota: Quota::default(),
        }
    }

    pub(crate) fn renumbered(&self) -> u64 {
        self.numbers.len() as u64
    }

    /// Copies to places that old groups released.
    pub(crate) fn copy_late(&self) -> Result<(), Error> {
        let size = u64::from(self.geo.block_size);
        for run in self.view.moves.late() {
            let mut bytes = vec![0; size as usize];
            for i in 0..run.len {
                if !run.blank {
                    self.view.read_old((run.from + i) * size, &mut bytes)?;
                }
                self.dev.write_at((run.to + i) * size, &bytes)?;
            }
        }
        Ok(())
    }

    pub(crate) fn move_tables(&self) -> Result<(), Error> {
        for &group in &self.layout.places.moved_tables {
            let from = self.old.descs.get(group as usize);
            let to = self.descs.get(group as usize);
            let (Some(from), Some(to)) = (from, to) else {
                continue;
            };
            if self.geo.inode_size != self.old.shape.geo.inode_size {
                self.widen_table(group, from.inode_table, to.inode_table)?;
                continue;
            }
            let mut bytes = vec![0; self.geo.block_size as usize];
            let used = self
                .old
                .records(group as usize)
                .div_ceil(self.geo.inodes_per_block());
            for i in 0..u64::from(used) {
                let source = BlockNr(from.inode_table.0 + i).offset(self.geo.block_size);
                self.view.read_old(source, &mut bytes)?;
                self.write(BlockNr(to.inode_table.0 + i), &bytes)?;
            }
        }
        Ok(())
    }

    /// Writes the possibly used records of a group with their new size. All other records of the table are zeros, or
    /// marked as unused.
    fn widen_table(&self, group: u32, from: BlockNr, to: BlockNr) -> Result<(), Error> {
        let old = &self.old.shape.geo;
        let size = usize::from(old.inode_size);
        let per_block = self.geo.inodes_per_block().max(1);
        let used = self.old.records(group as usize);
        let mut records = vec![0; per_block as usize * size];
        for (nth, first) in (0..).zip((0..used).step_by(per_block as usize)) {
            let count = per_block.min(used - first) as usize;
            let some = records.get_mut(..count * size).unwrap_or_default();
            let at = from.offset(old.block_size) + u64::from(first) * size as u64;
            self.view.read_old(at, some)?;
            let mut block = vec![0; self.geo.block_size as usize];
            let wide = block.chunks_exact_mut(self.geo.inode_size.into());
            for ((index, narrow), wide) in (first..).zip(some.chunks_exact(size)).zip(wide) {
                let ino = self.geo.inode_nr(GroupNr(group), index);
                let mut raw = self.widened(narrow);
                if raw.iter().any(|&b| b != 0) {
                    inode::set_checksum(&mut raw, &self.geo, ino);
                }
                wide.copy_from_slice(&raw);
            }
            self.write(BlockNr(to.0 + nth), &block)?;
        }
        Ok(())
    }

    /// Returns a record of the old volume with the length that it has in the new one. A first part behind the 128
    /// bytes of old gets its length; times in it are zeros.
    pub(crate) fn widened(&self, old: &[u8]) -> Vec<u8> {
        let mut raw = old.to_vec();
        if raw.len() >= self.geo.inode_size.into() {
            return raw;
        }
        raw.resize(self.geo.inode_size.into(), 0);
        if self.old.shape.geo.inode_size == GOOD_OLD_SIZE as u16 && old.iter().any(|&b| b != 0) {
            inode::init_blank(&mut raw, &self.geo);
        }
        raw
    }

    /// Gives the inodes of groups that go away numbers in those that stay.
    pub(crate) fn number(&mut self) -> Result<(), Error> {
        let (per, groups) = (self.geo.inodes_per_group, self.geo.groups as usize);
        let (mut group, mut at) = (0, 0);
        for (gone, map) in self.old.inodes.iter().enumerate().skip(groups) {
            let Some(map) = map else { continue };
            let mut index = 0;
            while let Some(found) = bitmap::find_one(map, index, per) {
                index = found + 1;
                let new = loop {
                    if group >= groups {
                        return Err(Error::NoRoom);
                    }
                    let slot = self.inodes.get_mut(group);
                    let block = self.image.geo.block_size;
                    let map = slot.map(|slot| {
                        slot.get_or_insert_with(|| {
                            let mut map = vec![0; block as usize];
                            bitmap::pad(&mut map, per);
                            map
                        })
                    });
                    let Some(map) = map else {
                        return Err(Error::NoRoom);
                    };
                    match bitmap::find_zero(map, at, per) {
                        Some(free) => {
                            bitmap::set(map, free);
                            at = free + 1;
                            break free;
                        }
                        None => (group, at) = (group + 1, 0),
                    }
                };
                let end = self.ends.entry(group as u32).or_default();
                *end = (*end).max(new + 1);
                let old_nr = self.old.shape.geo.inode_nr(GroupNr(gone as u32), found);
                let new_nr = self.geo.inode_nr(GroupNr(group as u32), new);
                self.numbers.insert(old_nr.0, new_nr.0);
            }
        }
        self.clear_records()
    }

    /// Clears the records between those in use and the new ones.
    fn clear_records(&self) -> Result<(), Error> {
        let size = usize::from(self.geo.inode_size);
        for (&group, &end) in &self.ends {
            for index in self.old.records(group as usize)..end {
                let ino = self.geo.inode_nr(GroupNr(group), index);
                self.write_record(ino, &mut vec![0; size])?;
            }
        }
        Ok(())
    }

    pub(crate) fn number_of(&self, ino: InodeNr) -> InodeNr {
        InodeNr(self.numbers.get(&ino.0).copied().unwrap_or(ino.0))
    }

    /// Allocates a free cluster for one block of a file's metadata.
    pub(crate) fn allocate(&mut self) -> Option<BlockNr> {
        let (cluster, ..) = self.layout.room.take(1)?;
        self.layout.files.insert(cluster..cluster + 1);
        Some(self.geo.cluster_start(cluster))
    }
}
