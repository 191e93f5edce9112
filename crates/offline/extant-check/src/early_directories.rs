//! Directories that are read together with inode tables: their names are checked while a slow device reads on. The
//! links of the names are kept until all inodes are known.

use crate::dir::DirectoryRun;
use crate::directories::{
    AtStep, Builder, EarlyDirectories, EarlyRun, FoundDirectories, KeptBlock, KeptLinks,
};
use crate::links::{Block, Follower};
use crate::names::NameReader;
use crate::state::Check;
use crate::{index, prefetch, work};
use std::collections::VecDeque;

/// Bytes of directories that are read together, so that a disk does not seek for each.
const BATCH: usize = 2 << 20;
/// Maximum of kept names, of eight bytes each. A block takes as much as six.
const MOST_LINKS: usize = 4 << 20;
const BLOCK_LINKS: usize = 6;
/// Runs that wait at a thread. If directories are larger than the inode tables, most of them are read later.
const MOST_WAITING: usize = 4096;

impl KeptLinks {
    /// Follows the links, once all inodes are known; returns the number of names.
    pub(crate) fn follow(&self, follower: &Follower<'_>) -> u64 {
        let Follower { check, directories } = *follower;
        work::each(
            check.threads,
            self.blocks.len(),
            || (),
            |(), i| {
                if let Some(kept) = self.blocks.get(i)
                    && let Some(directory) = directories.get(kept.directory)
                {
                    let block = Block::of(directory, kept.logical, kept.at);
                    follower.follow(&block, &kept.links);
                }
                check.steps.add(1);
            },
        );
        self.names
    }
}

/// Removes the first entry if it was announced before a step.
fn take_before<T>(queue: &mut VecDeque<AtStep<T>>, step: usize) -> Option<T> {
    queue.front().filter(|told| told.step < step)?;
    queue.pop_front().map(|told| told.what)
}

impl EarlyDirectories {
    fn is_full(&self, check: &Check<'_>) -> bool {
        let kept = self.kept.links + self.kept.blocks.len() * BLOCK_LINKS;
        kept > MOST_LINKS / check.threads.max(1)
    }
}

impl Builder {
    /// Continues after a piece of the inode tables was read, of which `ahead` pieces are announced at a time. Reads
    /// the blocks that were announced long enough ago, and announces the next ones. At the `last` pieces everything
    /// is announced, and nothing waits.
    pub(crate) fn read_early(&mut self, check: &Check<'_>, ahead: usize, last: bool) {
        if !check.volume.is_slow() || self.early.is_full(check) {
            return;
        }
        self.early.step += 1;
        let wait = if last {
            0
        } else {
            ahead / check.threads.max(1)
        };
        let through = self.early.step.saturating_sub(wait);
        if let Some(batch) = take_before(&mut self.early.batches, through) {
            self.read_batch(check, &batch);
        }
        while let Some(found) = take_before(&mut self.early.found, through) {
            self.read_index(check, found);
        }
        self.tell_found(check);
        self.tell_batch(check, last);
    }

    /// Reads a batch and looks at its names.
    fn read_batch(&mut self, check: &Check<'_>, batch: &[EarlyRun]) {
        let Self { list, runs, early } = self;
        let mut names = NameReader::new(check);
        let (mut buf, mut links) = (Vec::new(), Vec::new());
        for &EarlyRun { directory, run } in batch {
            let (Some(directory), Some(run)) = (list.get(directory), runs.get_mut(run)) else {
                continue;
            };
            let index = early.indexes.get(&directory.ino);
            run.read(check, &mut buf, |logical, at, bytes| {
                links.clear();
                names.block(directory, index, (logical, at), bytes, &mut links);
                early.kept.links += links.len();
                early.kept.blocks.push(KeptBlock {
                    directory: directory.ino,
                    logical,
                    at,
                    links: links.as_slice().into(),
                });
            });
            run.early = true;
        }
        early.kept.names += names.count;
        early.kept.spread.append(names.spread);
    }

    /// Reads the index of a directory, if it has one; all its runs wait then.
    fn read_index(
        &mut self,
        check: &Check<'_>,
        FoundDirectories { directory, runs }: FoundDirectories,
    ) {
        let own = self.runs.get(runs.clone()).unwrap_or(&[]);
        if let Some(indexed) = self.list.get(directory).filter(|d| d.is_indexed()) {
            let index = index::read(check, indexed, own);
            self.early.indexes.insert(indexed.ino, index);
        }
        let waiting = runs.map(|run| EarlyRun { directory, run });
        self.early.waiting.extend(waiting);
    }

    /// Announces the first blocks of new directories to the device.
    fn tell_found(&mut self, check: &Check<'_>) {
        let (mut from, mut first) = self.early.seen;
        while let Some(directory) = self.list.get(from) {
            let rest = self.runs.get(first..).unwrap_or(&[]);
            let own = |run: &&DirectoryRun| run.directory == directory.ino.0;
            let end = first + rest.iter().take_while(own).count();
            if self.early.found.len() + self.early.waiting.len() > MOST_WAITING {
                (from, first) = (from + 1, end);
                continue;
            }
            if let Some(run) = rest.first().filter(|_| end > first) {
                check.volume.tell(run.piece());
            }
            self.early.found.push_back(AtStep {
                step: self.early.step,
                what: FoundDirectories {
                    directory: from,
                    runs: first..end,
                },
            });
            (from, first) = (from + 1, end);
        }
        self.early.seen = (from, first);
    }

    /// Announces a batch to the device when it is large enough; announces the last batch in any case.
    fn tell_batch(&mut self, check: &Check<'_>, last: bool) {
        let most = (BATCH / check.volume.block_size()) as u64;
        let EarlyDirectories {
            waiting,
            batches,
            step,
            ..
        } = &mut self.early;
        let run = |early: &EarlyRun| self.runs.get(early.run).map(|run| run.run);
        waiting.sort_unstable_by_key(|early| run(early).map(|run| run.physical));
        let mut blocks = 0;
        let full = waiting.iter().position(|early| {
            blocks += run(early).map_or(0, |run| u64::from(run.len));
            blocks >= most
        });
        let runs = match full {
            Some(at) => at + 1,
            None if last => waiting.len(),
            None => 0,
        };
        if runs == 0 {
            return;
        }
        let batch: Vec<_> = waiting.drain(..runs).collect();
        let runs = batch.iter().filter_map(|early| self.runs.get(early.run));
        prefetch::tell_all(&check.volume, runs.map(DirectoryRun::piece));
        batches.push_back(AtStep {
            step: *step,
            what: batch,
        });
    }
}
