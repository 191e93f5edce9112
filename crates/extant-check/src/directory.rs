//! Directories: their blocks, read in the order of the device, and their indexes.

use crate::Check;
use crate::ahead::{self, Ahead};
use crate::early::{Early, Kept};
use crate::groups;
use crate::index::{self, Index};
use crate::inode::Subject;
use crate::links::{Block, Follower};
use crate::mapping::{Mapped, Run};
use crate::names::NameReader;
use crate::report::{FindingPlace, Rule};
use crate::work;
use ext4_format::inode::inline::Inline;
use ext4_format::inode::{self, flags};
use ext4_format::{BlockNr, InodeNr};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU32;

/// Blocks of a directory that are read at once.
const PIECE: u32 = 64;
/// Number of runs of blocks to announce to a slow device.
const AHEAD: usize = 64;

/// A directory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) ino: InodeNr,
    generation: u32,
    pub(crate) flags: u32,
    /// Blocks that are mapped.
    pub(crate) blocks: u32,
    /// The directory with its name; 0 if no name was found.
    pub(crate) parent: AtomicU32,
    /// Inode number in its ".."; 0 if ".." is missing.
    pub(crate) dotdot: AtomicU32,
}

impl Directory {
    pub(crate) const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Its blocks begin with an index.
    pub(crate) const fn is_indexed(&self) -> bool {
        self.has(flags::INDEX) && !self.has(flags::INLINE_DATA)
    }

    /// Returns the seed of its blocks' checksums, if blocks have checksums.
    pub(crate) fn seed(&self, check: &Check<'_>) -> Option<u32> {
        check.volume.inode_seed(self.ino, self.generation)
    }
}

/// A run of a directory's blocks, no longer than one read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryRun {
    /// The directory's inode.
    pub(crate) directory: u32,
    pub(crate) run: Run,
    /// Its names were checked before all inodes were known.
    pub(crate) early: bool,
}

impl DirectoryRun {
    pub(crate) const fn piece(&self) -> ahead::Piece {
        ahead::Piece {
            first: self.run.physical,
            blocks: self.run.len,
        }
    }

    /// Reads the run into `buf` and calls `work` with each of its blocks that can be read.
    pub(crate) fn read(
        &self,
        check: &Check<'_>,
        buf: &mut Vec<u8>,
        mut work: impl FnMut(u32, BlockNr, &[u8]),
    ) {
        let (volume, run) = (&check.volume, &self.run);
        buf.resize(run.len as usize * volume.block_size(), 0);
        let whole = volume.read(run.physical, buf).is_ok();
        let blocks = buf.chunks_exact_mut(volume.block_size());
        for (n, bytes) in (0u32..).zip(blocks) {
            let at = BlockNr(run.physical.0 + u64::from(n));
            let place = FindingPlace::inode(InodeNr(self.directory));
            if whole || volume.read_or_tell(at, bytes, place, &check.findings) {
                work(run.logical.saturating_add(n), at, bytes);
            }
        }
    }
}

/// Indexes, by directory.
pub(crate) type Indexes = BTreeMap<InodeNr, Index>;

/// The directories that one thread found.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    pub(crate) list: Vec<Directory>,
    pub(crate) runs: Vec<DirectoryRun>,
    pub(crate) early: Early,
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
        mapped.runs.iter().for_each(|&run| self.add_run(run));
    }

    /// Adds a run of the last directory, in pieces.
    fn add_run(&mut self, mut run: Run) {
        let directory = self.list.last().map_or(0, |d| d.ino.0);
        while run.len > 0 {
            let len = run.len.min(PIECE);
            self.runs.push(DirectoryRun {
                directory,
                run: Run { len, ..run },
                early: false,
            });
            run.logical = run.logical.saturating_add(len);
            run.physical.0 += u64::from(len);
            run.len -= len;
        }
    }
}

/// All directories, by number.
#[derive(Debug)]
pub(crate) struct Directories {
    list: Vec<Directory>,
    /// The runs of all directories, sorted by directory and logical block. Once the indexes are read, they are sorted
    /// by place, with the runs that were checked early at the end.
    runs: Vec<DirectoryRun>,
    indexes: Indexes,
    /// Links of the names that were checked early.
    kept: Vec<Kept>,
}

impl Directories {
    pub(crate) fn of(builders: impl Iterator<Item = Builder>) -> Self {
        let mut all = Self {
            list: Vec::new(),
            runs: Vec::new(),
            indexes: Indexes::new(),
            kept: Vec::new(),
        };
        for mut builder in builders {
            all.list.append(&mut builder.list);
            all.runs.append(&mut builder.runs);
            all.indexes.extend(builder.early.indexes);
            all.kept.push(builder.early.kept);
        }
        all.list.sort_unstable_by_key(|d: &Directory| d.ino);
        all.runs
            .sort_unstable_by_key(|r: &DirectoryRun| (r.directory, r.run.logical));
        all
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

    /// Returns the index of the directory with an inode number.
    pub(crate) fn position(&self, ino: InodeNr) -> Option<usize> {
        self.list.binary_search_by_key(&ino, |d| d.ino).ok()
    }

    pub(crate) fn get(&self, ino: InodeNr) -> Option<&Directory> {
        self.list.get(self.position(ino)?)
    }

    pub(crate) fn at(&self, position: usize) -> Option<&Directory> {
        self.list.get(position)
    }

    /// Returns the runs of a directory. The runs must still be sorted by directory.
    fn runs_of(&self, directory: &Directory) -> &[DirectoryRun] {
        let start = self.runs.partition_point(|r| r.directory < directory.ino.0);
        let rest = self.runs.get(start..).unwrap_or(&[]);
        let len = rest.partition_point(|r| r.directory == directory.ino.0);
        rest.get(..len).unwrap_or(&[])
    }

    fn order_by_place(&mut self) {
        self.runs
            .sort_unstable_by_key(|r| (r.early, r.run.physical));
    }

    /// Returns the runs that were not checked early, in the order of the device.
    fn later(&self) -> &[DirectoryRun] {
        let len = self.runs.partition_point(|r| !r.early);
        self.runs.get(..len).unwrap_or(&[])
    }

    /// Calls `work` with each block of each directory, in the order of the device, from all threads; returns their states.
    pub(crate) fn each_block<S: Send>(
        &self,
        check: &Check<'_>,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, &Directory, u32, BlockNr, &[u8]) + Sync,
    ) -> Vec<S> {
        self.each_block_of(&self.runs, &ahead_of(&self.runs), check, state, work)
    }

    fn each_block_of<S: Send>(
        &self,
        runs: &[DirectoryRun],
        ahead: &Ahead<impl Fn(usize) -> Option<ahead::Piece> + Sync>,
        check: &Check<'_>,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, &Directory, u32, BlockNr, &[u8]) + Sync,
    ) -> Vec<S> {
        let states = work::each(
            check.threads,
            runs.len(),
            || (Vec::new(), state()),
            |(buf, state), i| {
                let Some(run) = runs.get(i) else {
                    return;
                };
                let Some(directory) = self.get(InodeNr(run.directory)) else {
                    return;
                };
                ahead.tell(&check.volume, i);
                run.read(check, buf, |logical, at, bytes| {
                    work(state, directory, logical, at, bytes);
                });
            },
        );
        states.into_iter().map(|(_, state)| state).collect()
    }
}

/// Returns the announcer of these runs for a slow device.
fn ahead_of(runs: &[DirectoryRun]) -> Ahead<impl Fn(usize) -> Option<ahead::Piece> + Sync> {
    Ahead::new(AHEAD, |i| runs.get(i).map(DirectoryRun::piece))
}

/// Checks all directories; returns the number of their names.
pub(crate) fn check(check: &Check<'_>, directories: &mut Directories) -> u64 {
    read_indexes(check, directories);
    directories.order_by_place();
    let kept = std::mem::take(&mut directories.kept);
    let directories = &*directories;
    let blocks = directories.runs.iter().map(|run| u64::from(run.run.len));
    check.steps.begin(2, blocks.sum());
    let later = directories.later();
    // While the names that were checked early are followed, the device reads the later runs.
    let ahead = ahead_of(later);
    ahead.tell_first(&check.volume);
    groups::tell_bitmaps(check, 0..groups::TOLD);
    let follower = Follower { check, directories };
    let early: u64 = kept.iter().map(|kept| kept.follow(&follower)).sum();
    drop(kept);
    early + follow_blocks(&follower, later, &ahead) + follow_inline(&follower)
}

/// Looks at the names of these runs, and where they lead.
fn follow_blocks(
    follower: &Follower<'_>,
    runs: &[DirectoryRun],
    ahead: &Ahead<impl Fn(usize) -> Option<ahead::Piece> + Sync>,
) -> u64 {
    let Follower { check, directories } = *follower;
    let states = directories.each_block_of(
        runs,
        ahead,
        check,
        || (NameReader::new(check), Vec::new()),
        |(names, links), directory, logical, at, bytes| {
            let index = directories.indexes.get(&directory.ino);
            links.clear();
            names.block(directory, index, (logical, at), bytes, links);
            let block = Block::of(directory, logical, at);
            follower.follow(&block.holding(bytes), links);
            check.steps.add(1);
        },
    );
    states.iter().map(|(names, _)| names.count).sum()
}

/// Like [`check`] for directories with names in their inodes.
fn follow_inline(follower: &Follower<'_>) -> u64 {
    let Follower { check, directories } = *follower;
    let inline = directories.iter().filter(|d| d.has(flags::INLINE_DATA));
    let inline: Vec<&Directory> = inline.collect();
    let states = work::each(
        check.threads,
        inline.len(),
        || (NameReader::new(check), Vec::new()),
        |(names, links), i| {
            let Some(directory) = inline.get(i) else {
                return;
            };
            let Some(raw) = read_record(check, directory.ino) else {
                return;
            };
            // Damage of the attributes was reported when the inode was checked.
            let Ok(inline) = Inline::undamaged_part(&raw, &check.volume.geo) else {
                return;
            };
            follower.follow_inline_parent(directory, inline.parent());
            for part in inline.records() {
                links.clear();
                names.part(directory, part, links);
                follower.follow(&Block::inline(directory, part), links);
            }
        },
    );
    states.iter().map(|(names, _)| names.count).sum()
}

/// Reads the indexes of all indexed directories that were not read early.
fn read_indexes(check: &Check<'_>, directories: &mut Directories) {
    let indexed = directories.iter().filter(|d| d.is_indexed());
    let indexed = indexed.filter(|d| !directories.indexes.contains_key(&d.ino));
    let indexed: Vec<&Directory> = indexed.collect();
    // An index begins with the first block; the others are read later.
    let ahead = Ahead::new(AHEAD, |i| {
        let runs = directories.runs_of(indexed.get(i)?);
        runs.first().map(DirectoryRun::piece)
    });
    let found = work::each(check.threads, indexed.len(), Vec::new, |found, i| {
        if let Some(directory) = indexed.get(i) {
            ahead.tell(&check.volume, i);
            let runs = directories.runs_of(directory);
            found.push((directory.ino, index::read(check, directory, runs)));
        }
    });
    directories.indexes.extend(found.into_iter().flatten());
}

/// Returns the record of an inode.
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
