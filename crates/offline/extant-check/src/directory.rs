//! Directories: their blocks, read in the order of the device, and their indexes.

use crate::dir::{Directory, DirectoryRun};
use crate::directories::{AHEAD, Builder, Directories, ahead_of};
use crate::links::{Block, Follower};
use crate::mapping::{Mapped, Run};
use crate::names::NameReader;
use crate::prefetch::Ahead;
use crate::repeated;
use crate::report::Rule;
use crate::spread_names::SpreadNames;
use crate::state::{Check, read_record};
use crate::subject::Subject;
use crate::{groups, index, work};
use ext4_format::inode::inline::Inline;
use ext4_format::inode::{self, flags};
use std::sync::atomic::AtomicU32;

/// Blocks of a directory that are read at once.
const PIECE: u32 = 64;

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

/// Checks all directories; returns the number of their names.
pub(crate) fn check(check: &Check<'_>, directories: &mut Directories) -> u64 {
    read_indexes(check, directories);
    directories.order_by_place();
    let mut kept = std::mem::take(&mut directories.kept);
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
    let mut spread = SpreadNames::default();
    kept.iter_mut()
        .for_each(|kept| spread.append(std::mem::take(&mut kept.spread)));
    drop(kept);
    let later = follow_blocks(&follower, later, &ahead, &mut spread);
    repeated::check(check, directories, spread);
    early + later + follow_inline(&follower)
}

/// Looks at the names of these runs, and where they lead. Returns their number.
fn follow_blocks(
    follower: &Follower<'_>,
    runs: &[DirectoryRun],
    ahead: &Ahead<impl Fn(usize) -> Option<crate::volume::Piece> + Sync>,
    spread: &mut SpreadNames,
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
    let count = |(names, _): (NameReader<'_>, _)| {
        spread.append(names.spread);
        names.count
    };
    states.into_iter().map(count).sum()
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
