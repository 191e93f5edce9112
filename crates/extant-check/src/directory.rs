//! Directories: their blocks in the order of the device, and the names in them.

use crate::Check;
use crate::ahead::{self, Ahead};
use crate::groups::is_directory;
use crate::index::{self, BlockUse, Index};
use crate::inode::{Subject, rule_of};
use crate::inode_table::InodeKind;
use crate::mapping::{Mapped, Run};
use crate::report::{FindingPlace, Rule};
use crate::work;
use ext4_format::dir_entry::{self, Entry};
use ext4_format::inode::inline::Inline;
use ext4_format::inode::{self, flags};
use ext4_format::{BlockNr, FileType, InodeNr, htree};
use std::sync::atomic::{AtomicU32, Ordering};

/// Blocks of a directory that are read at once.
const PIECE: u32 = 64;
/// A slow device is told of so many runs of blocks before they are read.
const AHEAD: usize = 64;

/// A directory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) ino: InodeNr,
    generation: u32,
    pub(crate) flags: u32,
    /// Blocks that are mapped.
    pub(crate) blocks: u32,
    /// The directory that has a name for it; 0 if none was found.
    pub(crate) parent: AtomicU32,
    /// The directory that its ".." leads to; 0 if it has none.
    pub(crate) dotdot: AtomicU32,
}

impl Directory {
    pub(crate) const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Seed of its blocks' checksums, if they have any.
    pub(crate) fn seed(&self, check: &Check<'_>) -> Option<u32> {
        check.volume.inode_seed(self.ino, self.generation)
    }
}

/// A run of a directory's blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryRun {
    /// The directory's inode, and its place in the list when that is made.
    pub(crate) directory: u32,
    pub(crate) run: Run,
}

/// The directories that one thread found.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    list: Vec<Directory>,
    runs: Vec<DirectoryRun>,
}

impl Builder {
    /// Adds a directory, whose size must be that of its blocks.
    pub(crate) fn add(
        &mut self,
        check: &Check<'_>,
        subject: &Subject<'_>,
        mapped: &Mapped,
        inline: Option<usize>,
    ) {
        let (findings, place) = (&check.findings, subject.place());
        let block = u64::from(check.volume.geo.block_size);
        let size = subject.core.size;
        if subject.has(flags::INLINE_DATA) {
            if inline.is_none_or(|more| (inode::I_BLOCK_SIZE + more) as u64 != size) {
                findings.add(Rule::InlineData, place, || {
                    format!("{size} bytes, and {} in its attribute", inline.unwrap_or(0))
                });
            }
        } else if !mapped.damaged {
            if !size.is_multiple_of(block) || size / block != mapped.end {
                findings.add(Rule::InodeSize, place, || {
                    format!("{size} bytes, and {} blocks", mapped.end)
                });
            }
            if mapped.unwritten > 0 {
                findings.add(Rule::Extents, place, || {
                    format!("{} blocks of a directory are unwritten", mapped.unwritten)
                });
            }
            if mapped.data < mapped.end {
                let holes = mapped.end - mapped.data;
                findings.add(Rule::DirectoryHole, place, || format!("{holes} blocks"));
            }
        }
        self.list.push(Directory {
            ino: subject.ino,
            generation: subject.core.generation,
            flags: subject.core.flags,
            blocks: mapped.data.min(u32::MAX.into()) as u32,
            parent: AtomicU32::new(0),
            dotdot: AtomicU32::new(0),
        });
        let directory = subject.ino.0;
        let runs = mapped.runs.iter();
        self.runs
            .extend(runs.map(|&run| DirectoryRun { directory, run }));
    }
}

/// All directories, by number.
#[derive(Debug)]
pub(crate) struct Directories {
    list: Vec<Directory>,
    /// The runs of all directories: by directory and logical block, and after the indexes were read by place.
    runs: Vec<DirectoryRun>,
}

impl Directories {
    pub(crate) fn of(builders: impl Iterator<Item = Builder>) -> Self {
        let (mut list, mut runs) = (Vec::new(), Vec::new());
        for mut builder in builders {
            list.append(&mut builder.list);
            runs.append(&mut builder.runs);
        }
        list.sort_unstable_by_key(|d: &Directory| d.ino);
        runs.sort_unstable_by_key(|r: &DirectoryRun| (r.directory, r.run.logical));
        Self { list, runs }
    }

    pub(crate) const fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Directory> {
        self.list.iter()
    }

    pub(crate) fn inodes(&self) -> impl Iterator<Item = InodeNr> + '_ {
        self.list.iter().map(|d| d.ino)
    }

    /// Place in the list of the directory of a number.
    pub(crate) fn position(&self, ino: InodeNr) -> Option<usize> {
        self.list.binary_search_by_key(&ino, |d| d.ino).ok()
    }

    pub(crate) fn get(&self, ino: InodeNr) -> Option<&Directory> {
        self.list.get(self.position(ino)?)
    }

    pub(crate) fn at(&self, position: usize) -> Option<&Directory> {
        self.list.get(position)
    }

    /// The runs of one directory, while they are in the order of directories.
    fn runs_of(&self, directory: &Directory) -> &[DirectoryRun] {
        let start = self.runs.partition_point(|r| r.directory < directory.ino.0);
        let rest = self.runs.get(start..).unwrap_or(&[]);
        let len = rest.partition_point(|r| r.directory == directory.ino.0);
        rest.get(..len).unwrap_or(&[])
    }

    /// Puts the runs into the order of the device, in pieces of a bounded length.
    fn order_by_place(&mut self) {
        let runs = std::mem::take(&mut self.runs);
        for mut piece in runs {
            while piece.run.len > 0 {
                let len = piece.run.len.min(PIECE);
                let run = Run { len, ..piece.run };
                self.runs.push(DirectoryRun { run, ..piece });
                piece.run.logical = piece.run.logical.saturating_add(len);
                piece.run.physical.0 += u64::from(len);
                piece.run.len -= len;
            }
        }
        self.runs.sort_unstable_by_key(|r| r.run.physical);
    }

    /// Calls `work` with each block of each directory, in the order of the device, from all threads; returns their states.
    pub(crate) fn each_block<S: Send>(
        &self,
        check: &Check<'_>,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, &Directory, u32, BlockNr, &[u8]) + Sync,
    ) -> Vec<S> {
        let volume = &check.volume;
        let ahead = Ahead::new(AHEAD, |i| {
            self.runs
                .get(i)
                .map(|DirectoryRun { run, .. }| ahead::Piece {
                    first: run.physical,
                    blocks: run.len,
                })
        });
        let states = work::each(
            check.threads,
            self.runs.len(),
            || (Vec::new(), state()),
            |(buf, state), i| {
                let Some(&DirectoryRun { directory, run }) = self.runs.get(i) else {
                    return;
                };
                let Some(directory) = self.get(InodeNr(directory)) else {
                    return;
                };
                ahead.tell(volume, i);
                buf.resize(run.len as usize * volume.block_size(), 0);
                let whole = volume.read(run.physical, buf).is_ok();
                let blocks = buf.chunks_exact_mut(volume.block_size());
                for (n, bytes) in (0u32..).zip(blocks) {
                    let at = BlockNr(run.physical.0 + u64::from(n));
                    let place = FindingPlace::inode(directory.ino);
                    if whole || volume.read_or_tell(at, bytes, place, &check.findings) {
                        work(state, directory, run.logical.saturating_add(n), at, bytes);
                    }
                }
            },
        );
        states.into_iter().map(|(_, state)| state).collect()
    }
}

/// Checks all directories; returns how many names they have.
pub(crate) fn check(check: &Check<'_>, directories: &mut Directories) -> u64 {
    let indexes = indexes(check, directories);
    directories.order_by_place();
    let directories = &*directories;
    let blocks = directories.runs.iter().map(|run| u64::from(run.run.len));
    check.steps.begin(2, blocks.sum());
    let states = directories.each_block(
        check,
        || Names::new(check, directories),
        |names, directory, logical, at, bytes| {
            let index = indexes
                .binary_search_by_key(&directory.ino, |(ino, _)| *ino)
                .ok()
                .and_then(|i| Some(&indexes.get(i)?.1));
            names.block(directory, index, (logical, at), bytes);
            check.steps.add(1);
        },
    );
    let inline: Vec<&Directory> = directories
        .iter()
        .filter(|d| d.has(flags::INLINE_DATA))
        .collect();
    let inline_states = work::each(
        check.threads,
        inline.len(),
        || Names::new(check, directories),
        |names, i| {
            if let Some(directory) = inline.get(i) {
                names.inline(directory);
            }
        },
    );
    let states = states.iter().chain(&inline_states);
    states.map(|names| names.count).sum()
}

/// The indexes of all directories that have one, by number.
fn indexes(check: &Check<'_>, directories: &Directories) -> Vec<(InodeNr, Index)> {
    let indexed: Vec<&Directory> = directories
        .iter()
        .filter(|d| d.has(flags::INDEX) && !d.has(flags::INLINE_DATA))
        .collect();
    // An index begins with the first block; the others are read later.
    let ahead = Ahead::new(AHEAD, |i| {
        let runs = directories.runs_of(indexed.get(i)?);
        runs.first().map(|DirectoryRun { run, .. }| ahead::Piece {
            first: run.physical,
            blocks: run.len.min(PIECE),
        })
    });
    let found = work::each(check.threads, indexed.len(), Vec::new, |found, i| {
        if let Some(directory) = indexed.get(i) {
            ahead.tell(&check.volume, i);
            let runs = directories.runs_of(directory);
            found.push((directory.ino, index::read(check, directory, runs)));
        }
    });
    let mut all: Vec<_> = found.into_iter().flatten().collect();
    all.sort_unstable_by_key(|(ino, _)| *ino);
    all
}

/// The names that one thread looks at.
struct Names<'c> {
    check: &'c Check<'c>,
    directories: &'c Directories,
    count: u64,
    /// Hash and offset of each name of a block.
    hashes: Vec<(u32, u32)>,
}

/// What holds for the names of one block.
struct BlockOf<'b> {
    directory: &'b Directory,
    place: FindingPlace,
    /// The block begins with "." and "..".
    first: bool,
    index: Option<&'b Index>,
    /// The hashes that the names may have.
    hashes: Option<(u32, u64)>,
}

impl<'c> Names<'c> {
    const fn new(check: &'c Check<'c>, directories: &'c Directories) -> Self {
        Self {
            check,
            directories,
            count: 0,
            hashes: Vec::new(),
        }
    }

    fn block(
        &mut self,
        directory: &Directory,
        index: Option<&Index>,
        (logical, at): (u32, BlockNr),
        bytes: &[u8],
    ) {
        let place = FindingPlace::inode(directory.ino)
            .logical(logical.into())
            .block(at);
        let usage = index.map_or(BlockUse::Linear, |index| index.usage(logical));
        if let Some(seed) = directory.seed(self.check) {
            let (rule, verified) = match usage {
                BlockUse::Unknown => (Rule::Index, Ok(())),
                BlockUse::Linear | BlockUse::Leaf(..) => {
                    (Rule::DirectoryChecksum, dir_entry::verify_tail(bytes, seed))
                }
                BlockUse::Index(kind) => (
                    Rule::IndexChecksum,
                    htree::verify_checksum(bytes, kind, seed),
                ),
            };
            if let Err(e) = verified {
                let rule = rule_of(&e, rule, Rule::Directory);
                self.check.findings.add_error(rule, place, &e);
            }
        }
        let hashes = match usage {
            BlockUse::Leaf(low, end) => Some((low, end)),
            _ => None,
        };
        let block = BlockOf {
            directory,
            place,
            first: logical == 0,
            index,
            hashes,
        };
        self.entries(&block, bytes);
    }

    fn entries(&mut self, block: &BlockOf<'_>, bytes: &[u8]) {
        let findings = &self.check.findings;
        let entries = match block.directory.has(flags::ENCRYPT) {
            true => dir_entry::encrypted_entries(bytes),
            false => dir_entry::entries(bytes),
        };
        self.hashes.clear();
        let mut dots = 0;
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    findings.add_error(Rule::Directory, block.place, &e);
                    return;
                }
            };
            if block.first && dots < 2 {
                self.dot(block, bytes, &entry, dots);
                dots += 1;
            } else {
                self.entry(block, bytes, &entry);
            }
        }
        if block.first && dots < 2 {
            findings.add(Rule::DirectoryDots, block.place, || {
                "they are missing".into()
            });
        }
        self.find_twice(block, bytes);
    }

    /// "." or "..": the first two names of a directory.
    fn dot(&self, block: &BlockOf<'_>, bytes: &[u8], entry: &Entry<'_>, n: u32) {
        let Self {
            check, directories, ..
        } = self;
        let place = block.place.offset(entry.offset);
        let tell = |what: String| check.findings.add(Rule::DirectoryDots, place, || what);
        let own = block.directory.ino;
        let (name, offset) = match n {
            0 => (&b"."[..], 0),
            _ => (&b".."[..], dir_entry::MIN_REC_LEN as u32),
        };
        if entry.name != name || entry.offset != offset {
            tell(format!("\"{}\" is missing", name.escape_ascii()));
            return;
        }
        let behind = entry.offset as usize + 8 + name.len();
        if bytes.get(behind) != Some(&0) {
            tell(format!("\"{}\" does not end with NUL", name.escape_ascii()));
        }
        self.check_type(block, bytes, entry, Some(FileType::Directory));
        if n == 0 {
            check.inodes.count_name(entry.inode);
            if entry.inode != own {
                tell(format!("\".\" leads to inode {}", entry.inode));
            }
            return;
        }
        block
            .directory
            .dotdot
            .store(entry.inode.0, Ordering::Relaxed);
        if directories.position(entry.inode).is_none() {
            tell(format!("\"..\" leads to inode {}", entry.inode));
            return;
        }
        check.inodes.count_name(entry.inode);
    }

    fn entry(&mut self, block: &BlockOf<'_>, bytes: &[u8], entry: &Entry<'_>) {
        self.count += 1;
        let (check, place) = (self.check, block.place.offset(entry.offset));
        let findings = &check.findings;
        let shown = || format!("\"{}\"", entry.name.escape_ascii());
        if matches!(entry.name, b"." | b"..") {
            findings.add(Rule::EntryName, place, shown);
        }
        let compared = check.volume.geo.comparison(block.directory.flags);
        if !compared.allows(entry.name) {
            findings.add(Rule::EntryName, place, || {
                format!("{} is not UTF-8", shown())
            });
        }
        let hash = block
            .index
            .and_then(Index::hasher)
            .map(|h| h.hash(entry.name).0);
        if let (Some(hash), Some((low, end))) = (hash, block.hashes)
            && (hash < low || u64::from(hash) >= end)
        {
            findings.add(Rule::IndexHash, place, || {
                format!(
                    "{}: {hash:#x}, and the block is for {low:#x} to {end:#x}",
                    shown()
                )
            });
        }
        let key = hash.unwrap_or_else(|| quick_hash(&compared.key(entry.name)));
        self.hashes.push((key, entry.offset));
        let known = check.inodes.count_name(entry.inode);
        let leads = |what: &str| {
            findings.add(Rule::EntryInode, place, || {
                format!("{}: inode {} {what}", shown(), entry.inode)
            });
        };
        let Some(known) = known else {
            return leads("is not in use");
        };
        match known.kind {
            InodeKind::Reserved => leads("is reserved"),
            _ if entry.inode == InodeNr::ROOT => leads("is the root"),
            InodeKind::Value => leads("holds the value of an attribute"),
            InodeKind::Broken => leads("is damaged"),
            InodeKind::File(file_type) => self.check_type(block, bytes, entry, Some(file_type)),
        }
        if is_directory(known.kind)
            && let Some(child) = self.directories.get(entry.inode)
        {
            let own = block.directory.ino.0;
            let set = child
                .parent
                .compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
            if let Err(other) = set {
                findings.add(Rule::DirectoryTwice, place, || {
                    format!(
                        "{}: inode {} has a name in directory {other}",
                        shown(),
                        entry.inode
                    )
                });
            }
        }
    }

    fn check_type(
        &self,
        block: &BlockOf<'_>,
        bytes: &[u8],
        entry: &Entry<'_>,
        is: Option<FileType>,
    ) {
        let has = self.check.volume.geo.features.has_filetype();
        let expected = if has { is } else { None };
        let byte = bytes.get(entry.offset as usize + 7).copied().unwrap_or(0);
        if entry.file_type != expected {
            let rule = match byte {
                0 => Rule::EntryTypeless,
                _ => Rule::EntryType,
            };
            let place = block.place.offset(entry.offset);
            self.check.findings.add(rule, place, || {
                let name = entry.name.escape_ascii();
                format!("\"{name}\": {:?}, and it is {is:?}", entry.file_type)
            });
        }
    }

    /// Looks for names that a block has twice.
    fn find_twice(&mut self, block: &BlockOf<'_>, bytes: &[u8]) {
        let compared = self.check.volume.geo.comparison(block.directory.flags);
        self.hashes.sort_unstable();
        let name = |offset: u32| {
            let rest = bytes.get(offset as usize..)?;
            let len = usize::from(*rest.get(6)?);
            rest.get(8..8 + len)
        };
        for (i, (hash, offset)) in self.hashes.iter().enumerate() {
            let others = self.hashes.get(i + 1..).unwrap_or(&[]).iter();
            let same_hash = others.take_while(|(other, _)| other == hash);
            for (_, other) in same_hash {
                let (Some(one), Some(two)) = (name(*offset), name(*other)) else {
                    continue;
                };
                if compared.same(one, two) {
                    let place = block.place.offset(*other);
                    self.check.findings.add(Rule::EntryTwice, place, || {
                        let (one, two) = (one.escape_ascii(), two.escape_ascii());
                        match compared.folds() {
                            true => format!("\"{one}\" and \"{two}\""),
                            false => format!("\"{one}\""),
                        }
                    });
                }
            }
        }
    }

    /// A directory whose names are in its inode: first the number of its parent, then names in two parts.
    fn inline(&mut self, directory: &Directory) {
        let check = self.check;
        let place = FindingPlace::inode(directory.ino);
        let Some(raw) = read_record(check, directory.ino) else {
            return;
        };
        // What is wrong with the attributes was told when the inode was checked.
        let Ok(inline) = Inline::undamaged_part(&raw, &check.volume.geo) else {
            return;
        };
        let parent = inline.parent();
        directory.dotdot.store(parent.0, Ordering::Relaxed);
        check.inodes.count_name(directory.ino);
        if self.directories.position(parent).is_some() {
            check.inodes.count_name(parent);
        } else {
            check.findings.add(Rule::DirectoryDots, place, || {
                format!("its parent is inode {parent}")
            });
        }
        for part in inline.records() {
            let block = BlockOf {
                directory,
                place,
                first: false,
                index: None,
                hashes: None,
            };
            self.entries(&block, part);
        }
    }
}

/// The record of an inode.
pub(crate) fn read_record(check: &Check<'_>, ino: InodeNr) -> Option<Vec<u8>> {
    let volume = &check.volume;
    let geo = &volume.geo;
    let (group, index) = geo.group_of_inode(ino)?;
    let group = check.groups.get(group.0 as usize).filter(|g| g.usable)?;
    let mut block = vec![0; volume.block_size()];
    let (at, from) = geo.inode_place(group.desc.inode_table, index);
    volume.read(at, &mut block).ok()?;
    let record = block.get(from..from + usize::from(geo.inode_size));
    record.map(<[u8]>::to_vec)
}

/// A hash by which equal names of a block are found.
fn quick_hash(name: &[u8]) -> u32 {
    let add = |hash: u32, &byte: &u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.iter().fold(0x811c_9dc5, add)
}
