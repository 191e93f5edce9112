//! Quota files in the format that Linux calls `vfsv1`: a header, and a tree in blocks of 1 KiB that maps the number
//! of a user, group or project to its use and limits. Each level of the tree takes a byte of the number, the highest
//! first.

use crate::error::{FormatError, Result, Where};
use crate::geometry::Geometry;
use crate::inode::{self, InodeCore};
use crate::superblock::RawSuperblock;
use crate::types::{FileType, InodeNr};
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a block of the tree, whatever the volume's blocks have.
pub const QUOTA_BLOCK: usize = 1024;
/// Where the information about the tree is, behind magic number and version.
const INFO_AT: usize = 8;
/// The only version that is read and written.
const VERSION: u32 = 1;
/// The block of the root.
const ROOT: u32 = 1;
/// Levels from the root to the blocks of records.
const DEPTH: u32 = 4;
/// Bytes of a sector, in which inodes count their blocks.
const SECTOR: u64 = 512;
/// Default seconds for which use above a soft limit is allowed.
const GRACE: u32 = 7 * 24 * 60 * 60;
/// Records of a block.
const RECORDS: usize = (QUOTA_BLOCK - size_of::<RawHead>()) / size_of::<RawRecord>();

/// Whose use a file counts.
///
/// ```
/// use ext4_format::quota::QuotaKind;
/// assert_eq!(QuotaKind::ALL.map(QuotaKind::name), ["user", "group", "project"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaKind {
    /// Owners.
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

impl QuotaKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// Returns the name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        }
    }

    const fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }

    /// Returns the inode in a superblock, or 0.
    pub const fn inode(self, sb: &RawSuperblock) -> u32 {
        match self {
            Self::User => sb.usr_quota_inum.get(),
            Self::Group => sb.grp_quota_inum.get(),
            Self::Project => sb.prj_quota_inum.get(),
        }
    }

    /// Sets the inode that a superblock names for this kind.
    pub const fn set_inode(self, sb: &mut RawSuperblock, ino: u32) {
        match self {
            Self::User => sb.usr_quota_inum = U32::new(ino),
            Self::Group => sb.grp_quota_inum = U32::new(ino),
            Self::Project => sb.prj_quota_inum = U32::new(ino),
        }
    }
}

/// Use by a user, group or project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUse {
    /// Bytes of blocks.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

impl QuotaUse {
    /// Adds `inodes` inodes whose blocks have `bytes` bytes.
    pub const fn add(&mut self, bytes: u64, inodes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.inodes = self.inodes.saturating_add(inodes);
    }
}

/// Use by kind and number: the sum over the inodes of a volume.
///
/// ```
/// use ext4_format::quota::{QuotaKind, QuotaSums};
/// assert!(QuotaSums::default().of(QuotaKind::User).is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct QuotaSums {
    counted: [BTreeMap<u32, QuotaUse>; 3],
    /// Use by symbolic links inside their inodes as inline data. Linux and tune2fs count them, but e2fsck does not.
    inline_links: [BTreeMap<u32, QuotaUse>; 3],
}

impl QuotaSums {
    /// Returns the use by number, without the symbolic links whose targets are inline data (`inline_data`), as e2fsck
    /// counts it.
    pub const fn of(&self, kind: QuotaKind) -> &BTreeMap<u32, QuotaUse> {
        Self::one(&self.counted, kind)
    }

    /// Returns whether `said` is the use of a number with all, none, or some of the symbolic links whose targets are inline data: Linux
    /// counts new ones also after e2fsck has left out the others.
    pub fn agrees(&self, kind: QuotaKind, id: u32, said: QuotaUse) -> bool {
        let now = self.of(kind).get(&id).copied().unwrap_or_default();
        let links = Self::one(&self.inline_links, kind).get(&id);
        let mut all = now;
        links.inspect(|links| all.add(links.bytes, links.inodes));
        (now.bytes..=all.bytes).contains(&said.bytes)
            && (now.inodes..=all.inodes).contains(&said.inodes)
    }

    const fn one(sums: &[BTreeMap<u32, QuotaUse>; 3], kind: QuotaKind) -> &BTreeMap<u32, QuotaUse> {
        let [user, group, project] = sums;
        match kind {
            QuotaKind::User => user,
            QuotaKind::Group => group,
            QuotaKind::Project => project,
        }
    }

    /// Adds an inode in use. `values` is the number of its attributes whose values are in inodes (`ea_inode`): each
    /// counts as an inode of the owner, and its blocks are part of the owner's count, however many inodes share it.
    /// Inodes of values are not counted. Inodes of the volume itself are not counted either: the reserved ones, the
    /// quota file of projects and the orphan file.
    pub fn add(
        &mut self,
        sb: &RawSuperblock,
        geo: &Geometry,
        ino: InodeNr,
        raw: &[u8],
        core: &InodeCore,
        values: u64,
    ) {
        let own = ino.0 < geo.first_ino && ino != InodeNr::ROOT
            || ino.0 == sb.prj_quota_inum.get()
            || geo.features.has_orphan_file() && ino.0 == geo.orphan_file_ino;
        let value = geo.features.has_ea_inode() && core.flags & inode::flags::EA_INODE != 0;
        if own || value {
            return;
        }
        let bytes = inode::sectors(raw, geo).saturating_mul(SECTOR);
        let project = if geo.features.has_project() {
            inode::project(raw)
        } else {
            0
        };
        let inline = core.flags & inode::flags::INLINE_DATA != 0
            && core.file_type() == Some(FileType::Symlink);
        let sums = if inline {
            &mut self.inline_links
        } else {
            &mut self.counted
        };
        for (used, id) in sums.iter_mut().zip([core.uid, core.gid, project]) {
            used.entry(id).or_default().add(bytes, 1 + values);
        }
    }
}

/// The record of one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaRecord {
    /// The use.
    pub used: QuotaUse,
    /// Hard and soft limit of inodes; 0: no limit.
    pub inode_limits: [u64; 2],
    /// Hard and soft limit of blocks of 1 KiB; 0: no limit.
    pub block_limits: [u64; 2],
    /// End of the grace period for blocks and for inodes.
    pub times: [u64; 2],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawInfo {
    block_grace: U32,
    inode_grace: U32,
    flags: U32,
    blocks: U32,
    free_block: U32,
    free_entry: U32,
}

/// The beginning of a block of records.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    next_free: U32,
    prev_free: U32,
    entries: U16,
    pad: [u8; 6],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRecord {
    id: U32,
    pad: U32,
    inode_hard: U64,
    inode_soft: U64,
    inodes: U64,
    block_hard: U64,
    block_soft: U64,
    bytes: U64,
    block_time: U64,
    inode_time: U64,
}

const _: () = assert!(size_of::<RawHead>() == 16 && size_of::<RawRecord>() == 72 && RECORDS == 14);

impl RawRecord {
    fn is_free(&self) -> bool {
        self.as_bytes().iter().all(|&byte| byte == 0)
    }

    fn record(&self) -> QuotaRecord {
        let mut record = QuotaRecord {
            used: QuotaUse {
                bytes: self.bytes.get(),
                inodes: self.inodes.get(),
            },
            inode_limits: [self.inode_hard.get(), self.inode_soft.get()],
            block_limits: [self.block_hard.get(), self.block_soft.get()],
            times: [self.block_time.get(), self.inode_time.get()],
        };
        let only_marked = QuotaRecord {
            times: [0, 1],
            ..QuotaRecord::default()
        };
        if record == only_marked {
            record.times = [0, 0];
        }
        record
    }

    fn of(id: u32, record: &QuotaRecord) -> Self {
        let mut raw = Self {
            id: id.into(),
            pad: 0.into(),
            inode_hard: record.inode_limits[0].into(),
            inode_soft: record.inode_limits[1].into(),
            inodes: record.used.inodes.into(),
            block_hard: record.block_limits[0].into(),
            block_soft: record.block_limits[1].into(),
            bytes: record.used.bytes.into(),
            block_time: record.times[0].into(),
            inode_time: record.times[1].into(),
        };
        if raw.is_free() {
            // A record of zeros counts as unused, so a time marks the record of number 0.
            raw.inode_time = 1.into();
        }
        raw
    }
}

/// A quota file.
///
/// ```
/// use ext4_format::quota::{QUOTA_BLOCK, QuotaFile, QuotaKind, QuotaUse};
/// let mut file = QuotaFile::default();
/// file.records.entry(1000).or_default().used = QuotaUse { bytes: 4096, inodes: 1 };
/// let bytes = file.to_bytes(QuotaKind::User);
/// let read = QuotaFile::read(QuotaKind::User, bytes.len() as u64, &mut |block, buf| {
///     let at = block as usize * QUOTA_BLOCK;
///     buf.copy_from_slice(&bytes[at..at + QUOTA_BLOCK]);
///     Ok(())
/// });
/// assert_eq!(read.unwrap(), file);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaFile {
    /// Seconds above a soft limit, for blocks and for inodes.
    pub grace: [u32; 2],
    /// Flags of the file.
    pub flags: u32,
    /// Records by number.
    pub records: BTreeMap<u32, QuotaRecord>,
}

impl Default for QuotaFile {
    fn default() -> Self {
        Self {
            grace: [GRACE, GRACE],
            flags: 0,
            records: BTreeMap::new(),
        }
    }
}

/// Reads blocks of a quota file, each of the tree once at most.
struct Reader<'r> {
    read: &'r mut dyn FnMut(u32, &mut [u8; QUOTA_BLOCK]) -> Result<()>,
    blocks: u32,
    seen: BTreeSet<u32>,
    /// The block of records that was read last: neighbours are mostly together.
    last: Option<(u32, [u8; QUOTA_BLOCK])>,
    records: BTreeMap<u32, QuotaRecord>,
    /// Blocks of records that were visited, each with the numbers that the tree has not yet led to.
    alone: BTreeMap<u32, BTreeSet<u32>>,
}

fn corrupt(what: &'static str, block: u32) -> FormatError {
    FormatError::corrupt(
        what,
        Where::Buffer(block.saturating_mul(QUOTA_BLOCK as u32)),
    )
}

impl Reader<'_> {
    fn block(&mut self, block: u32) -> Result<[u8; QUOTA_BLOCK]> {
        let mut bytes = [0; QUOTA_BLOCK];
        if block >= self.blocks {
            return Err(corrupt("the tree of a quota file leads out of it", block));
        }
        (self.read)(block, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads the subtree of a node at a level; `id` has the bytes of the levels above.
    fn node(&mut self, block: u32, level: u32, id: u32) -> Result<()> {
        if !self.seen.insert(block) {
            return Err(corrupt(
                "the tree of a quota file meets a node twice",
                block,
            ));
        }
        let bytes = self.block(block)?;
        for (index, child) in (0u32..).zip(bytes.as_chunks::<4>().0) {
            let child = u32::from_le_bytes(*child);
            if child == 0 {
                continue;
            }
            if child <= ROOT {
                return Err(corrupt(
                    "the tree of a quota file leads to its beginning",
                    block,
                ));
            }
            let id = id << 8 | index;
            if level + 1 < DEPTH {
                self.node(child, level + 1, id)?;
            } else {
                self.record(child, id)?;
            }
        }
        Ok(())
    }

    fn record(&mut self, block: u32, id: u32) -> Result<()> {
        if self.seen.contains(&block) {
            return Err(corrupt(
                "a node of a quota file's tree is one of records too",
                block,
            ));
        }
        let bytes = match self.last {
            Some((last, bytes)) if last == block => bytes,
            _ => self.block(block)?,
        };
        self.last = Some((block, bytes));
        let records = bytes.get(size_of::<RawHead>()..).unwrap_or_default();
        let records = records.chunks_exact(size_of::<RawRecord>());
        let raw = records.filter_map(|raw| RawRecord::read_from_bytes(raw).ok());
        let raw: Vec<_> = raw.filter(|raw| !raw.is_free()).collect();
        let all = || raw.iter().map(|raw| raw.id.get()).collect::<BTreeSet<_>>();
        let alone = self.alone.entry(block).or_insert_with(all);
        let mut found = raw.iter().filter(|raw| raw.id.get() == id);
        let (Some(record), None, true) = (found.next(), found.next(), alone.remove(&id)) else {
            return Err(corrupt(
                "a number of a quota file has not one record",
                block,
            ));
        };
        self.records.insert(id, record.record());
        Ok(())
    }
}

/// A quota file that is written.
struct Writer {
    blocks: Vec<[u8; QUOTA_BLOCK]>,
    /// The block of records that is not full, and its records.
    open: Option<(u32, usize)>,
}

impl Writer {
    fn add(&mut self) -> u32 {
        self.blocks.push([0; QUOTA_BLOCK]);
        self.blocks.len() as u32 - 1 // no tree over 32 bits has more
    }

    fn put(&mut self, block: u32, at: usize, bytes: &[u8]) {
        let to = self.blocks.get_mut(block as usize);
        if let Some(to) = to.and_then(|b| b.get_mut(at..at + bytes.len())) {
            to.copy_from_slice(bytes);
        }
    }

    fn child(&self, block: u32, at: usize) -> u32 {
        let bytes = self.blocks.get(block as usize);
        let bytes = bytes
            .and_then(|b| b.get(at..))
            .and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |b| u32::from_le_bytes(*b))
    }

    fn insert(&mut self, id: u32, record: &QuotaRecord) {
        let path = id.to_be_bytes().map(|byte| usize::from(byte) * 4);
        let (last, above) = (path[3], &path[..3]);
        let mut node = ROOT;
        for &at in above {
            node = match self.child(node, at) {
                0 => {
                    let child = self.add();
                    self.put(node, at, &child.to_le_bytes());
                    child
                }
                child => child,
            };
        }
        let (block, count) = match self.open {
            Some((block, count)) if count < RECORDS => (block, count),
            _ => (self.add(), 0),
        };
        self.open = Some((block, count + 1));
        self.put(node, last, &block.to_le_bytes());
        let at = size_of::<RawHead>() + count * size_of::<RawRecord>();
        self.put(block, at, RawRecord::of(id, record).as_bytes());
        let mut head = RawHead::new_zeroed();
        head.entries.set(count as u16 + 1); // at most RECORDS
        self.put(block, 0, head.as_bytes());
    }
}

impl QuotaFile {
    /// Reads a file of `len` bytes through a function that reads one of its blocks, which fails on a hole.
    ///
    /// # Errors
    /// The file is not of this kind, or its tree is damaged; errors of `read`.
    pub fn read(
        kind: QuotaKind,
        len: u64,
        read: &mut dyn FnMut(u32, &mut [u8; QUOTA_BLOCK]) -> Result<()>,
    ) -> Result<Self> {
        let there = u32::try_from(len / QUOTA_BLOCK as u64).unwrap_or(u32::MAX);
        let mut reader = Reader {
            read,
            blocks: there,
            seen: BTreeSet::new(),
            last: None,
            records: BTreeMap::new(),
            alone: BTreeMap::new(),
        };
        let first = reader.block(0)?;
        let [a, b, c, d, e, f, g, h, ..] = first;
        let (magic, version) = (
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
        );
        if magic != kind.magic() {
            return Err(corrupt("the magic number of a quota file", 0));
        }
        if version != VERSION {
            return Err(corrupt("the version of a quota file", 0));
        }
        let info = first.get(INFO_AT..).unwrap_or_default();
        let (info, _) = RawInfo::read_from_prefix(info)
            .map_err(|_| corrupt("the information about a quota file", 0))?;
        let blocks = info.blocks.get();
        let free = info.free_block.get().max(info.free_entry.get());
        if blocks > there || free >= blocks {
            return Err(corrupt("the blocks of a quota file", 0));
        }
        reader.node(ROOT, 0, 0)?;
        if let Some((&block, _)) = reader.alone.iter().find(|(_, ids)| !ids.is_empty()) {
            return Err(corrupt("nothing leads to a record of a quota file", block));
        }
        Ok(Self {
            grace: [info.block_grace.get(), info.inode_grace.get()],
            flags: info.flags.get(),
            records: reader.records,
        })
    }

    /// Like [`read`](Self::read) for a volume with blocks of `block_size` bytes; `read` returns a block by its number
    /// in the file.
    ///
    /// # Errors
    /// As of [`read`](Self::read).
    pub fn read_from(
        kind: QuotaKind,
        len: u64,
        block_size: usize,
        mut read: impl FnMut(u32) -> Result<Vec<u8>>,
    ) -> Result<Self> {
        let per_block = (block_size / QUOTA_BLOCK).max(1);
        let mut last: Option<(u32, Vec<u8>)> = None;
        Self::read(kind, len, &mut |block, to| {
            let logical = block / per_block as u32; // 64 at most
            let bytes = match last.take() {
                Some((there, bytes)) if there == logical => bytes,
                _ => read(logical)?,
            };
            let within = (block as usize % per_block) * QUOTA_BLOCK;
            let part = bytes.get(within..).and_then(<[u8]>::first_chunk);
            *to = *part.ok_or_else(|| corrupt("a short block of a quota file", block))?;
            last = Some((logical, bytes));
            Ok(())
        })
    }

    /// Returns the bytes of the file, whole blocks.
    pub fn to_bytes(&self, kind: QuotaKind) -> Vec<u8> {
        let mut writer = Writer {
            blocks: vec![[0; QUOTA_BLOCK]; 2],
            open: None,
        };
        for (id, record) in &self.records {
            writer.insert(*id, record);
        }
        let mut info = RawInfo::new_zeroed();
        info.block_grace.set(self.grace[0]);
        info.inode_grace.set(self.grace[1]);
        info.flags.set(self.flags);
        info.blocks.set(writer.blocks.len() as u32);
        // Blocks of records are filled in order, so that at most one has room.
        let open = writer.open.filter(|(_, count)| *count < RECORDS);
        info.free_entry.set(open.map_or(0, |(block, _)| block));
        writer.put(0, 0, &kind.magic().to_le_bytes());
        writer.put(0, 4, &VERSION.to_le_bytes());
        writer.put(0, INFO_AT, info.as_bytes());
        writer.blocks.concat()
    }

    /// Sets the use in the records, and keeps the limits. Records without use and limits stay. Records that
    /// [agree](QuotaSums::agrees) with the sums stay, too. Returns the numbers of the changed records, with the old use.
    pub fn set_use(&mut self, kind: QuotaKind, sums: &QuotaSums) -> Vec<(u32, QuotaUse)> {
        let mut changed = Vec::new();
        let used = sums.of(kind);
        for (&id, record) in &mut self.records {
            if !sums.agrees(kind, id, record.used) {
                changed.push((id, record.used));
                record.used = used.get(&id).copied().unwrap_or_default();
            }
        }
        for (&id, &now) in used {
            self.records.entry(id).or_insert_with(|| {
                changed.push((id, QuotaUse::default()));
                QuotaRecord {
                    used: now,
                    ..QuotaRecord::default()
                }
            });
        }
        changed.sort_unstable_by_key(|(id, _)| *id);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn of(bytes: u64, inodes: u64) -> QuotaUse {
        QuotaUse { bytes, inodes }
    }

    fn read(bytes: &[u8]) -> Result<QuotaFile> {
        QuotaFile::read(QuotaKind::User, bytes.len() as u64, &mut |block, buf| {
            let at = block as usize * QUOTA_BLOCK;
            buf.copy_from_slice(&bytes[at..at + QUOTA_BLOCK]);
            Ok(())
        })
    }

    fn with(ids: impl IntoIterator<Item = u32>) -> QuotaFile {
        let mut file = QuotaFile::default();
        for id in ids {
            file.records.insert(
                id,
                QuotaRecord {
                    used: of(u64::from(id) * 1024, u64::from(id % 7)),
                    ..QuotaRecord::default()
                },
            );
        }
        file
    }

    #[test]
    fn the_first_file_is_that_of_mke2fs() {
        let file = with([0]);
        let bytes = file.to_bytes(QuotaKind::User);
        assert_eq!(bytes.len(), 6 * QUOTA_BLOCK);
        assert_eq!(bytes[..8], [0x11, 0x1f, 0xc0, 0xd9, 1, 0, 0, 0]);
        assert_eq!(bytes[20], 6);
        assert_eq!(bytes[28], 5);
        for block in 1..5 {
            assert_eq!(usize::from(bytes[block * QUOTA_BLOCK]), block + 1);
        }
        assert_eq!(read(&bytes).unwrap(), file);
    }

    #[test]
    fn loops_and_ways_out_are_errors() {
        let whole = with([0, 1, 256, 70_000, u32::MAX]).to_bytes(QuotaKind::User);
        for (block, to) in [
            (1, 1),
            (2, 1),
            (2, 2),
            (3, 2),
            (1, u32::MAX),
            (4, 3),
            (3, 6),
        ] {
            let mut bytes = whole.clone();
            let at = block * QUOTA_BLOCK;
            bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(to));
            assert!(read(&bytes).is_err(), "{block}: {to}");
        }
        assert!(read(&whole[..QUOTA_BLOCK * 3]).is_err());
        assert!(read(&[]).is_err());
    }

    #[test]
    fn limits_stay_when_use_changes() {
        let mut file = with([1, 2]);
        file.records.get_mut(&1).unwrap().block_limits = [100, 50];
        let mut sums = QuotaSums::default();
        sums.counted[0] = BTreeMap::from([(2, of(2048, 2)), (9, of(1, 1))]);
        let changed = file.set_use(QuotaKind::User, &sums);
        assert_eq!(changed.iter().map(|c| c.0).collect::<Vec<_>>(), [1, 9]);
        assert_eq!(file.records[&1].block_limits, [100, 50]);
        assert_eq!(file.records[&1].used, QuotaUse::default());
        assert!(file.set_use(QuotaKind::User, &sums).is_empty());
    }

    #[test]
    fn records_with_and_without_inline_links_agree() {
        let mut sums = QuotaSums::default();
        sums.counted[0] = BTreeMap::from([(7, of(4096, 2))]);
        sums.inline_links[0] = BTreeMap::from([(7, of(1024, 3))]);
        let agree = [
            of(4096, 2),
            of(5120, 5),
            of(4096, 3),
            of(4095, 2),
            of(4096, 6),
        ]
        .map(|said| sums.agrees(QuotaKind::User, 7, said));
        assert_eq!(agree, [true, true, true, false, false]);
    }

    proptest! {
        #[test]
        fn any_records_are_read_as_written(ids in proptest::collection::btree_set(any::<u32>(), 0..200)) {
            let file = with(ids);
            prop_assert_eq!(read(&file.to_bytes(QuotaKind::User)).unwrap(), file);
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            changes in proptest::collection::vec((0usize..8 * QUOTA_BLOCK, any::<u8>()), 1..20),
        ) {
            let mut bytes = with([0, 1, 300]).to_bytes(QuotaKind::User);
            bytes.resize(8 * QUOTA_BLOCK, 0);
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            let _ = read(&bytes);
        }
    }
}
