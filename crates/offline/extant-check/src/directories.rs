//! The directories of a volume, with the names that were read early.

use crate::dir::{Directory, DirectoryRun};
use crate::index::Index;
use crate::link::Link;
use crate::prefetch::Ahead;
use crate::spread_names::SpreadNames;
use crate::state::Check;
use crate::work;
use ext4_format::{BlockNr, InodeNr};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Number of runs of blocks to announce to a slow device.
pub(crate) const AHEAD: usize = 64;

/// Indexes, by directory.
pub(crate) type Indexes = BTreeMap<InodeNr, Index>;

/// The directories that one thread found.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    pub(crate) list: Vec<Directory>,
    pub(crate) runs: Vec<DirectoryRun>,
    pub(crate) early: EarlyDirectories,
}

/// A block whose names were looked at, and where they lead.
#[derive(Debug)]
pub(crate) struct KeptBlock {
    pub(crate) directory: InodeNr,
    pub(crate) logical: u32,
    pub(crate) at: BlockNr,
    pub(crate) links: Box<[Link]>,
}

/// Links of the names of some blocks.
#[derive(Debug, Default)]
pub(crate) struct KeptLinks {
    pub(crate) blocks: Vec<KeptBlock>,
    /// Number of links.
    pub(crate) links: usize,
    /// Number of names, without "." and "..".
    pub(crate) names: u64,
    /// The names that may be in another block, too.
    pub(crate) spread: SpreadNames,
}

/// A range that was announced to the device, with the step of the announcement.
#[derive(Debug)]
pub(crate) struct AtStep<T> {
    pub(crate) step: usize,
    pub(crate) what: T,
}

/// A directory among those of its thread, and its runs there.
#[derive(Debug)]
pub(crate) struct FoundDirectories {
    pub(crate) directory: usize,
    pub(crate) runs: Range<usize>,
}

/// A run among those of its thread, and its directory there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlyRun {
    pub(crate) directory: usize,
    pub(crate) run: usize,
}

/// The directories of one thread that are read early. Each block is announced to the device before it is read: the
/// first blocks of a directory for its index, and all blocks of a batch. The blocks are read some steps later, when
/// the inode tables that were announced before them have been read.
#[derive(Debug, Default)]
pub(crate) struct EarlyDirectories {
    /// Number of directories of the thread that were seen, and of their runs.
    pub(crate) seen: (usize, usize),
    /// Pieces of inode tables that the thread has read.
    pub(crate) step: usize,
    /// Directories whose first blocks were announced, and their runs.
    pub(crate) found: VecDeque<AtStep<FoundDirectories>>,
    /// Runs of directories whose index is known.
    pub(crate) waiting: Vec<EarlyRun>,
    /// Announced batches.
    pub(crate) batches: VecDeque<AtStep<Vec<EarlyRun>>>,
    pub(crate) kept: KeptLinks,
    pub(crate) indexes: Indexes,
}

/// All directories, by number.
#[derive(Debug)]
pub(crate) struct Directories {
    pub(crate) list: Vec<Directory>,
    /// The runs of all directories, sorted by directory and logical block. Once the indexes are read, they are sorted
    /// by place, with the runs that were checked early at the end.
    pub(crate) runs: Vec<DirectoryRun>,
    pub(crate) indexes: Indexes,
    /// Links of the names that were checked early.
    pub(crate) kept: Vec<KeptLinks>,
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
    pub(crate) fn runs_of(&self, directory: &Directory) -> &[DirectoryRun] {
        let start = self.runs.partition_point(|r| r.directory < directory.ino.0);
        let rest = self.runs.get(start..).unwrap_or(&[]);
        let len = rest.partition_point(|r| r.directory == directory.ino.0);
        rest.get(..len).unwrap_or(&[])
    }

    pub(crate) fn order_by_place(&mut self) {
        self.runs
            .sort_unstable_by_key(|r| (r.early, r.run.physical));
    }

    /// Returns the runs that were not checked early, in the order of the device.
    pub(crate) fn later(&self) -> &[DirectoryRun] {
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

    pub(crate) fn each_block_of<S: Send>(
        &self,
        runs: &[DirectoryRun],
        ahead: &Ahead<impl Fn(usize) -> Option<crate::volume::Piece> + Sync>,
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
pub(crate) fn ahead_of(
    runs: &[DirectoryRun],
) -> Ahead<impl Fn(usize) -> Option<crate::volume::Piece> + Sync> {
    Ahead::new(AHEAD, |i| runs.get(i).map(DirectoryRun::piece))
}
