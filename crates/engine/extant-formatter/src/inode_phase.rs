//! The first step of a batch: inode records, and through them mappings, directories and attributes.
//! Inodes come by number, so each block of an inode table is opened once.

use super::batch::{Fate, InodeChanges, NamesSum};
use super::directory::{self, DirUpdate, NetName};
use super::ledger::Ledger;
use super::mapping::{self, DirFile};
use super::orphans::OrphanChange;
use super::owner::Owner;
use super::record::{LARGE, add_sectors, first_core, next_core, put_target};
use super::unit::{BlockChange, InodesDone, Published, Shared};
use super::workspace::Workspace;
use super::{map_changes, xattrs};
use crate::block_memory;
use crate::error::{Error, Result};
use crate::groups::first_unused;
use crate::item::{InodeItem, MiscEvent};
use ext4_format::features::{Compat, RoCompat};
use ext4_format::group_desc::{GroupDesc, INODE_ZEROED};
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::xattr::{self, XattrSet};
use ext4_format::{BlockNr, FileType, FormatError, GroupNr, InodeNr, Where, extent};
use std::sync::Arc;

/// The inodes of one unit of a batch at work.
pub(super) struct InodePhase<'p, 's, 'a, 'i> {
    ws: &'p mut Workspace<'a>,
    ledger: &'p mut Ledger<'a>,
    shared: &'p Shared<'s, 'a>,
    done: InodesDone,
    /// The block of an inode table that is open. A block that was never in use is as long as the records written until
    /// now.
    table: Option<Table>,
    /// A group, and its inode table.
    tables: Option<(GroupNr, BlockNr)>,
    /// Group, and first block of its table that is still unused.
    unused: (GroupNr, u32),
    net: Vec<NetName<'i>>,
}

/// A block of an inode table.
struct Table {
    block: BlockNr,
    bytes: Vec<u8>,
    /// The records whose checksums are right, a bit for each of the first 64.
    sound: u64,
}

/// Fields of an inode's core that freeing needs.
#[derive(Clone, Copy)]
struct FormerInode {
    file_type: Option<FileType>,
    flags: u32,
    generation: u32,
}

impl FormerInode {
    #[inline]
    fn of(core: &InodeCore) -> Self {
        Self {
            file_type: core.file_type(),
            flags: core.flags,
            generation: core.generation,
        }
    }
}

/// The position of an inode's record.
struct RecordPlace {
    group: GroupNr,
    index: u32,
    block: BlockNr,
    offset: usize,
    /// The record's bit in [`Table::sound`], if it has one.
    bit: u64,
}

/// An inode's record in its block.
struct RecordBytes<'r> {
    raw: &'r mut [u8],
    /// The record's checksum was verified, or made, since the record was read.
    is_sound: bool,
    /// The record is all zeros.
    is_blank: bool,
}

/// The net effect of one inode's misc items.
#[derive(Default)]
struct MiscChanges<'i> {
    parent: Option<InodeNr>,
    init: bool,
    target: Option<&'i [u8]>,
    xattrs: Option<&'i Arc<XattrSet>>,
    orphan: Option<OrphanChange>,
}

impl<'p, 's, 'a, 'i> InodePhase<'p, 's, 'a, 'i> {
    pub fn new(
        ws: &'p mut Workspace<'a>,
        ledger: &'p mut Ledger<'a>,
        shared: &'p Shared<'s, 'a>,
    ) -> Self {
        let unused = (GroupNr(u32::MAX), 0);
        Self {
            ws,
            ledger,
            shared,
            done: InodesDone::default(),
            table: None,
            tables: None,
            unused,
            net: Vec::new(),
        }
    }

    /// Formats one inode. Numbers must grow from call to call.
    pub fn inode(&mut self, changes: &InodeChanges<'_, 'i>) -> Result<()> {
        if matches!(changes.fate, Fate::Nothing) {
            return Ok(());
        }
        let place = self.place(changes.ino)?;
        self.open(&place, !changes.was_used)?;
        let Some(mut table) = self.table.take() else {
            return Ok(());
        };
        let end = place.offset + usize::from(self.ws.geometry.inode_size);
        let is_blank = table.bytes.len() <= place.offset;
        if table.bytes.len() < end {
            table.bytes.resize(end, 0);
        }
        let raw = table.bytes.get_mut(place.offset..end);
        let raw = raw.ok_or_else(|| Error::corrupt_inode("inode position", changes.ino))?;
        let is_sound = table.sound & place.bit != 0;
        let record = RecordBytes {
            raw,
            is_sound,
            is_blank,
        };
        match changes.fate {
            Fate::Nothing => {}
            Fate::Freed(item) => self.free(record, changes.ino, item)?,
            Fate::Lives { init, core } => self.live(record, changes, init, core)?,
        }
        inode::set_checksum(raw, self.ws.geometry, changes.ino);
        table.sound |= place.bit;
        self.table = Some(table);
        Ok(())
    }

    /// Closes the last table block.
    pub fn finish(mut self) -> InodesDone {
        self.close();
        self.done
    }

    fn close(&mut self) {
        if let Some(mut table) = self.table.take() {
            let size = self.ws.geometry.block_size as usize;
            table.bytes.resize(size, 0);
            self.ws.put_sound(table.block, table.bytes, table.sound);
        }
    }

    /// Returns the descriptor of a group as of the last batch.
    fn desc(&self, group: GroupNr) -> Result<&'p GroupDesc> {
        let (geometry, images) = (self.ws.geometry, self.ws.images());
        self.shared.descs.get(geometry, images, group)
    }

    fn place(&mut self, ino: InodeNr) -> Result<RecordPlace> {
        let geometry = self.ws.geometry;
        let bad = || Error::corrupt_inode("inode number", ino);
        let (group, index) = geometry.group_of_inode(ino).ok_or_else(bad)?;
        let table = match self.tables {
            Some((known, table)) if known == group => table,
            _ => {
                let table = self.desc(group)?.inode_table;
                self.tables = Some((group, table));
                table
            }
        };
        let per_block = geometry.inodes_per_block();
        let nth = index % per_block;
        Ok(RecordPlace {
            group,
            index,
            block: BlockNr(table.0 + u64::from(index / per_block)),
            offset: nth as usize * usize::from(geometry.inode_size),
            bit: 1u64.checked_shl(nth).unwrap_or(0),
        })
    }

    /// Opens the table block of a record. Blocks that were never in use are not read, because the device may hold any
    /// bytes there.
    fn open(&mut self, place: &RecordPlace, newborn: bool) -> Result<()> {
        if self
            .table
            .as_ref()
            .is_some_and(|open| open.block == place.block)
        {
            return Ok(());
        }
        self.close();
        let geometry = self.ws.geometry;
        let desc = self.desc(place.group)?;
        let per_block = geometry.inodes_per_block();
        let nth = place.index / per_block;
        let unused = first_unused(geometry, desc, place.group);
        let (bytes, sound) = if nth * per_block >= unused {
            if !newborn {
                let at = Where::Inode(geometry.inode_nr(place.group, place.index));
                return Err(
                    FormatError::corrupt("inode in the unused part of its table", at).into(),
                );
            }
            if self.unused.0 != place.group {
                self.unused = (place.group, unused.div_ceil(per_block));
            }
            let first = self.unused.1;
            if first < nth && desc.flags & INODE_ZEROED == 0 {
                let gap = (BlockNr(desc.inode_table.0 + u64::from(first)), nth - first);
                self.shared.gaps.lock().add(gap.0, gap.1);
                self.done.zeroed.push(gap);
            }
            self.unused.1 = nth + 1;
            (block_memory::empty(geometry.block_size as usize), 0)
        } else if self.shared.gaps.lock().take(place.block) {
            (block_memory::empty(geometry.block_size as usize), 0)
        } else {
            let (mut bytes, sound) = self.ws.take_table(place.block)?;
            if unused < (nth + 1) * per_block {
                let from = (unused - nth * per_block) as usize * usize::from(geometry.inode_size);
                if let Some(rest) = bytes.get_mut(from..) {
                    rest.fill(0);
                }
            }
            (bytes, sound)
        };
        self.table = Some(Table {
            block: place.block,
            bytes,
            sound,
        });
        Ok(())
    }

    /// Decodes the old record, or fails if no inode is there. The record's flag is set if its checksum is known to be
    /// right.
    #[inline(always)]
    fn old(&self, record: &RecordBytes<'_>, ino: InodeNr) -> Result<InodeCore> {
        if !record.is_sound {
            inode::decode_core(record.raw, self.ws.geometry, ino)?;
        }
        // Inlined, so that fields which the caller does not use are not read.
        let core = inode::decode_verified(record.raw, self.ws.geometry, ino)?;
        if core.mode == 0 {
            return Err(Error::corrupt_inode("inode in use without a mode", ino));
        }
        Ok(core)
    }

    fn free(&mut self, record: RecordBytes<'_>, ino: InodeNr, item: &InodeItem) -> Result<()> {
        let old = FormerInode::of(&self.old(&record, ino)?);
        let raw = record.raw;
        self.free_metadata(raw, old, ino)?;
        self.done.bits.changed.push((ino, false));
        self.done.freed.push(ino);
        self.done.orphans.push((ino, OrphanChange::Freed));
        let ctime = item.core.ctime;
        // 0 would mean "never deleted".
        let dtime = match item.core.dtime {
            0 => (ctime.secs() as u32).max(1),
            given => given,
        };
        inode::encode_freed(raw, self.ws.geometry, ctime, dtime);
        *inode::i_block_mut(raw)? = match old.flags & flags::EXTENTS {
            0 => [0; _],
            // As the kernel leaves it, because e2fsck takes a block of records without one for garbage.
            _ => extent::EMPTY_ROOT,
        };
        Ok(())
    }

    /// Frees the metadata that hangs on a record: a directory's blocks, the mapping's own, the
    /// attribute block.
    fn free_metadata(&mut self, raw: &[u8], old: FormerInode, ino: InodeNr) -> Result<()> {
        let geometry = self.ws.geometry;
        let acl = inode::file_acl(raw, geometry);
        let is_dir = old.file_type == Some(FileType::Directory);
        if acl.0 == 0 && !is_dir && is_unmapped(raw, old.flags) {
            return Ok(());
        }
        let acl_sectors = if acl.0 != 0 {
            u64::from(geometry.sectors_per_block())
        } else {
            0
        };
        let mapped = match old.file_type {
            Some(FileType::Regular | FileType::Directory) => true,
            Some(FileType::Symlink) => inode::sectors(raw, geometry) > acl_sectors,
            _ => false,
        };
        if mapped && old.flags & flags::INLINE_DATA == 0 && !is_unmapped(raw, old.flags) {
            let owner = Owner::new(geometry, ino, old.generation, old.flags);
            mapping::free(self.ws, self.ledger, &owner, inode::i_block(raw)?, is_dir)?;
        }
        if acl.0 != 0 {
            self.done.attributes.push(BlockChange::Release(acl));
        }
        if is_dir {
            self.done.bits.dirs.push((ino, -1));
        }
        Ok(())
    }

    fn live(
        &mut self,
        mut record: RecordBytes<'_>,
        changes: &InodeChanges<'_, 'i>,
        init: Option<&InodeItem>,
        last: Option<&InodeItem>,
    ) -> Result<()> {
        let geometry = self.ws.geometry;
        let ino = changes.ino;
        let misc = misc_changes(changes);
        let has_names = changes.has_names();
        let names = if has_names {
            changes.names(&mut self.net)
        } else {
            NamesSum::default()
        };
        let (mut core, links) = self.core(&mut record, changes, (init, last), &misc)?;
        let raw = record.raw;
        if let Some(target) = misc.target {
            put_target(raw, target, ino)?;
        }
        let is_dir = core.file_type() == Some(FileType::Directory);
        if !is_dir && (has_names || misc.parent.is_some()) {
            return Err(Error::corrupt_inode(
                "names in what is not a directory",
                ino,
            ));
        }
        let owner = |core: &InodeCore| Owner::new(geometry, ino, core.generation, core.flags);
        let balance = self.ledger.balance;
        let mut blocks = 0;
        let mut new_size = None;
        if is_dir {
            let stated = last.map(|last| last.core.links);
            core.links = directory_links(links, stated, names.links);
            if has_names || misc.parent.is_some() {
                let size = core.size;
                self.directory(raw, &owner(&core), &mut core, &misc)?;
                new_size = Some(core.size).filter(|s| *s != size);
            }
            if let Some(time) = names.newest {
                core.mtime = time;
                core.ctime = core.ctime.max(time);
            }
        } else if !changes.is_unmapped() {
            blocks = self.mapping(raw, changes, &core, &owner(&core))?;
        }
        let meta = self.ledger.balance - balance;
        let tree_delta = if is_dir { 0 } else { meta };
        inode::encode_core(&core, raw, geometry);
        if core.size >= LARGE {
            self.done.needs.ro_compat |= RoCompat::LARGE_FILE;
        }
        if let Some(set) = misc.xattrs {
            self.set_xattrs(raw, set, &owner(&core))?;
        }
        add_sectors(raw, geometry, ino, blocks + meta)?;
        if meta != 0 || new_size.is_some() {
            self.done.published.push(Published {
                ino,
                size: new_size,
                sectors_delta: meta * i64::from(geometry.sectors_per_block()),
                tree_delta,
            });
        }
        if let Some(orphan) = misc.orphan {
            self.done.orphans.push((ino, orphan));
        }
        Ok(())
    }

    /// Returns the core that an inode gets, and the links that it had. A new inode is initialised.
    fn core(
        &mut self,
        record: &mut RecordBytes<'_>,
        changes: &InodeChanges<'_, 'i>,
        (init, last): (Option<&InodeItem>, Option<&InodeItem>),
        misc: &MiscChanges<'_>,
    ) -> Result<(InodeCore, u32)> {
        let geometry = self.ws.geometry;
        let ino = changes.ino;
        let Some(init) = init else {
            let old = self.old(record, ino)?;
            let links = old.links;
            return Ok((
                last.map_or(Ok(old), |last| next_core(last, &old, geometry))?,
                links,
            ));
        };
        if changes.was_used {
            let old = FormerInode::of(&self.old(record, ino)?);
            self.free_metadata(record.raw, old, ino)?;
            self.done.orphans.push((ino, OrphanChange::Remove));
        } else {
            self.done.bits.changed.push((ino, true));
        }
        let by_extents = geometry.features.has_extents();
        let born = first_core(
            last.unwrap_or(init),
            init,
            misc.target.is_some(),
            by_extents,
        );
        if record.is_blank {
            inode::init_blank(record.raw, geometry);
        } else {
            inode::init(record.raw, geometry);
        }
        if born.flags & flags::EXTENTS != 0 {
            *inode::i_block_mut(record.raw)? = extent::EMPTY_ROOT;
        }
        if born.file_type() == Some(FileType::Directory) {
            self.done.bits.dirs.push((ino, 1));
        }
        Ok((born, 2))
    }

    /// Changes the mapping of an inode that is not a directory. Returns how many data blocks were added.
    fn mapping(
        &mut self,
        raw: &mut [u8],
        changes: &InodeChanges<'_, 'i>,
        core: &InodeCore,
        owner: &Owner,
    ) -> Result<i64> {
        let maps = map_changes::net(changes.maps());
        if maps.is_empty() {
            return Ok(0);
        }
        if core.flags & flags::INLINE_DATA != 0 {
            return Err(Error::Unsupported("mapping of an inode with inline data"));
        }
        let root = inode::i_block_mut(raw)?;
        mapping::apply(self.ws, self.ledger, owner, root, &maps)
    }

    /// Sets all attributes. A block of attributes is any inode's, so that it is changed when all units are formatted.
    fn set_xattrs(&mut self, raw: &mut [u8], set: &Arc<XattrSet>, owner: &Owner) -> Result<()> {
        let geometry = self.ws.geometry;
        if !set.is_empty() {
            self.done.needs.compat |= Compat::EXT_ATTR;
        }
        let room = inode::xattr_area(raw, geometry).unwrap_or(0..0);
        let (area, block) = xattr::place(set, room.len(), geometry.block_size as usize)?;
        if block.is_some() || inode::file_acl(raw, geometry).0 != 0 {
            self.done.attributes.push(BlockChange::Set {
                ino: owner.ino,
                set: Arc::clone(set),
                goal: owner.goal,
            });
            return Ok(());
        }
        xattrs::put_area(raw, room, area);
        Ok(())
    }

    /// Applies the names in `net` and what else changes in a directory's blocks.
    fn directory(
        &mut self,
        raw: &mut [u8],
        owner: &Owner,
        core: &mut InodeCore,
        misc: &MiscChanges<'_>,
    ) -> Result<()> {
        let block_size = u64::from(self.ws.geometry.block_size);
        let bad = || Error::corrupt_inode("directory size", owner.ino);
        let blocks = u32::try_from(core.size / block_size).map_err(|_| bad())?;
        if !core.size.is_multiple_of(block_size)
            || (blocks == 0) != misc.init
            || core.flags & flags::INLINE_DATA != 0
        {
            return Err(bad());
        }
        let root = *inode::i_block(raw)?;
        let mut dir = DirFile::new(self.ledger, owner, root, blocks);
        let (init, new_parent) = if misc.init {
            (misc.parent, None)
        } else {
            (None, misc.parent)
        };
        let compared = self.ws.geometry.comparison(core.flags);
        let hasher = self.shared.hasher.comparing(compared);
        let update = DirUpdate {
            ino: owner.ino,
            seed: owner.seed(),
            indexed: core.flags & flags::INDEX != 0,
            init,
            new_parent,
            keeps_room: self.shared.keeps_room,
            names: &self.net,
            hasher: &hasher,
            crew: &self.shared.crew,
        };
        let outcome = directory::apply(self.ws, &mut dir, &update)?;
        *inode::i_block_mut(raw)? = dir.root;
        core.size = u64::from(dir.blocks) * block_size;
        core.flags = core.flags & !flags::INDEX | if outcome.indexed { flags::INDEX } else { 0 };
        self.net.clear();
        Ok(())
    }
}

/// Returns true if the root of a mapping by extents is empty.
#[inline]
fn is_unmapped(raw: &[u8], inode_flags: u32) -> bool {
    inode_flags & flags::EXTENTS != 0
        && inode::i_block(raw)
            .and_then(|root| extent::ExtentHeader::parse(root))
            .is_ok_and(|root| root.entries == 0 && root.depth == 0)
}

fn misc_changes<'i>(changes: &InodeChanges<'_, 'i>) -> MiscChanges<'i> {
    let mut all = MiscChanges::default();
    for event in changes.misc() {
        match event {
            MiscEvent::DirInit { parent } => {
                all.init = true;
                all.parent = Some(*parent);
            }
            MiscEvent::DirParent { parent } => all.parent = Some(*parent),
            MiscEvent::SymlinkTarget(target) => all.target = Some(target),
            MiscEvent::Xattrs(set) => all.xattrs = Some(set),
            MiscEvent::OrphanAdd => all.orphan = Some(OrphanChange::Add),
            MiscEvent::OrphanRemove => all.orphan = Some(OrphanChange::Remove),
        }
    }
    all
}

/// Returns the links of a directory that had `before`, from the links in its last core and the change by its names.
fn directory_links(before: u32, stated: Option<u32>, subdirectories: i64) -> u32 {
    match stated {
        Some(removed_or_uncounted @ 0..=1) => removed_or_uncounted,
        // Blocks of an image that had the wrong count already keep it: counting from a wrong count is useless.
        _ if before < 2 => before,
        _ => match i64::from(before).saturating_add(subdirectories) {
            // More than it can hold only if the image's own count was wrong.
            links if links > i64::from(inode::LINK_MAX) => 1,
            links => links.max(2) as u32,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_directories() {
        let max = inode::LINK_MAX;
        for (before, stated, more, links) in [
            (2, None, 3, 5),
            (5, Some(2), -1, 4),
            (max - 1, None, 1, max),
            (max, None, 1, 1),
            (7, Some(1), 1, 1),
            (1, Some(2), 5, 1),
            (1, None, -5, 1),
            (3, Some(0), -1, 0),
            (2, None, -1, 2),
            (u32::MAX, None, i64::MAX, 1),
        ] {
            assert_eq!(
                directory_links(before, stated, more),
                links,
                "{before} {stated:?} {more}"
            );
        }
    }
}
