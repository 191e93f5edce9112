//! Moves the data of a file that is in use into fewer extents, as with Linux' `EXT4_IOC_MOVE_EXT`.
//!
//! A *stretch* of the file gets a contiguous run of free blocks, and is moved there in chunks. A chunk is copied on the
//! device with no lock held: readers, writers and programs that have the file mapped continue. Then, with the file's
//! map held exclusively, one transaction replaces the mapping, provided that the copied blocks still belong to the file
//! and nothing was written to them meanwhile. Otherwise the chunk is copied again. Pages in memory are not touched.
//! Dirty pages are newer than either place, and write-back writes them to the new one.
//!
//! The push that commits the new mapping flushes the copy before its commit block, and the old blocks stay busy until
//! that commit is durable. So a cut leaves each chunk mapped to its old place or to its new one, with the same bytes.

use crate::base::error::{Error, Result};
use crate::base::planted::{self, Fault};
use crate::base::schedule::{self, Point};
use crate::data::Data;
use crate::incore::file::{FileData, FileMap};
use crate::incore::inode::Inode;
use crate::log::Cost;
use crate::log::transaction::Transaction;
use crate::space::guards::PlacedRuns;
use crate::space::search::Request;
use crate::types::credentials::Credentials;
use ext4_format::BlockNr;
use ext4_format::extent::MAX_INIT_LEN;
use ext4_format::inode::flags;
use extant_formatter::extent_map::{Found, Run, extents_of};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a chunk. Other users of the file may have to wait for the time of copying one chunk.
const CHUNK: u64 = 1 << 20;
/// Most runs that a chunk consists of.
const RUNS: usize = 64;
/// Blocks that its change of the mapping may need: its runs are neighbours.
const COST: Cost = Cost::MAP.times(1 + RUNS as u32 / 16);
/// Copies of a chunk that are made without a lock before one is made with the map held.
const TRIES: u32 = 3;

/// Number of extents of a file.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// let file = volume.create_new_file("/f")?;
/// file.write_all_at(&[1; 10_000], 0)?;
/// // Blocks have their place from now on.
/// file.sync_all()?;
/// let done = file.defragment()?;
/// assert_eq!((done.before, done.after, done.least), (1, 1, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Defragmented {
    /// Extents before.
    pub before: u64,
    /// Extents now.
    pub after: u64,
    /// Smallest number of extents that the file needs. Data without a hole need one for each 128 MiB, in blocks of 4
    /// KiB. Blocks that were set aside and not written have separate extents.
    pub least: u64,
    /// Blocks that the file has.
    pub blocks: u64,
    /// Blocks that were moved.
    pub moved: u64,
}

/// A part of a file without holes.
struct DataRun {
    first: u32,
    len: u32,
}

impl DataRun {
    /// Returns one past the last block. A file's blocks have numbers of 32 bits.
    fn end(&self) -> u32 {
        self.first.saturating_add(self.len)
    }
}

/// A part of a stretch, as it is mapped at a moment.
struct Chunk {
    /// Runs of the chunk, one behind the other.
    old: Vec<Run>,
    /// The writes to the file until then.
    writes: u32,
}

/// Returns true if one run continues another in the file.
fn follows(before: &Run, run: &Run) -> bool {
    before.end() == u64::from(run.logical)
}

/// Returns true if one run continues another in the file and on the device.
fn goes_on(before: &Run, run: &Run) -> bool {
    follows(before, run) && before.physical.0 + u64::from(before.len) == run.physical.0
}

/// Returns the least number of extents that runs need, wherever they lie.
fn least(runs: impl Iterator<Item = Run>) -> u64 {
    let (mut sum, mut last) = (0, None::<Run>);
    for run in runs {
        match &mut last {
            Some(l) if follows(l, &run) && l.unwritten == run.unwritten => l.len += run.len,
            _ => sum += last.replace(run).as_ref().map_or(0, extents_of),
        }
    }
    sum + last.as_ref().map_or(0, extents_of)
}

/// Returns the runs of a chunk at its new place, which begins at a block.
fn at_place(old: &[Run], place: BlockNr) -> Vec<Run> {
    let mut physical = place.0;
    let moved = old.iter().map(|run| {
        let here = BlockNr(physical);
        physical += u64::from(run.len);
        Run {
            physical: here,
            ..*run
        }
    });
    moved.collect()
}

impl Data {
    /// Counts the extents of a file.
    pub(crate) fn fragmentation(&self, inode: &Inode) -> Result<Defragmented> {
        let file = inode.file().ok_or(Error::Invalid("not a regular file"))?;
        let map = self.loaded_map(inode, file)?;
        let now = map.extents.extents();
        Ok(Defragmented {
            before: now,
            after: now,
            least: least(map.extents.iter().copied()),
            blocks: map.extents.iter().map(|run| u64::from(run.len)).sum(),
            moved: 0,
        })
    }

    /// Moves the data of a file into fewer extents, as far as there are free runs for them.
    pub(crate) fn defragment(&self, who: &Credentials, inode: &Arc<Inode>) -> Result<Defragmented> {
        let before = self.fragmentation(inode)?.before;
        let (mut at, mut moved) = (Some(0), 0);
        while let Some(from) = at {
            let (next, blocks) = self.defragment_from(who, inode, from)?;
            (at, moved) = (next, moved + blocks);
        }
        Ok(Defragmented {
            before,
            moved,
            ..self.fragmentation(inode)?
        })
    }

    /// Defragments the next stretch of the file from block `from` on. Returns the block to continue at, and the number
    /// of moved blocks.
    pub(crate) fn defragment_from(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        from: u32,
    ) -> Result<(Option<u32>, u64)> {
        let _span = lockmeter::span!("defragment");
        self.store.check_writable()?;
        let file = inode.file().ok_or(Error::Invalid("not a regular file"))?;
        if inode.has_flag(flags::IMMUTABLE) || inode.has_flag(flags::APPEND) {
            return Err(Error::NotPermitted);
        }
        if !inode.has_flag(flags::EXTENTS) {
            return Err(Error::Unsupported("moving a file without extents"));
        }
        if from == 0 {
            // Place dirty data that have no blocks yet.
            let _pass = self.store.gate.enter();
            let mut map = file.map.write();
            self.load_map(inode, &mut map)?;
            self.write_back_locked(inode, &mut map)?;
        }
        if let Some(stretch) = self.next_stretch(inode, file, from)? {
            let (next, moved) = self.move_stretch(who, inode, file, &stretch)?;
            return Ok((Some(next).filter(|next| *next > from), moved));
        }
        // Blocks that the file grows by must follow its new place.
        self.discard_preallocation(file);
        Ok((None, 0))
    }

    /// Finds the next part of the file without holes, no longer than one extent or a group.
    fn next_stretch(&self, inode: &Inode, file: &FileData, at: u32) -> Result<Option<DataRun>> {
        let map = self.loaded_map(inode, file)?;
        let mut first = at;
        if let Found::Hole(n) = map.extents.at(at) {
            match at.checked_add(n) {
                Some(next) if n < u32::MAX => first = next,
                _ => return Ok(None),
            }
        }
        let most = self.store.geometry.blocks_per_group.min(MAX_INIT_LEN);
        let mut len = 0;
        for run in map.extents.range(first, most) {
            if u64::from(first) + u64::from(len) != u64::from(run.logical) {
                break;
            }
            len += run.len;
        }
        Ok((len > 0).then_some(DataRun { first, len }))
    }

    /// Extents saved if the blocks `[first, first + len)` move to a contiguous run at `place`.
    fn gain(&self, map: &FileMap, first: u32, len: u32, place: BlockNr) -> i64 {
        let (from, before) = match first.checked_sub(1) {
            Some(from) => (from, 1),
            None => (first, 0),
        };
        // A file has fewer blocks than 2^32.
        let old = map.extents.range(from, len.saturating_add(before + 1));
        let new: Vec<Run> = old.iter().flat_map(|run| split(run, first, len)).collect();
        let at = |run: &Run| match (run.logical.checked_sub(first), run.logical < first) {
            (Some(within), false) if within < len => BlockNr(place.0 + u64::from(within)),
            _ => run.physical,
        };
        let new: Vec<Run> = new
            .iter()
            .map(|run| Run {
                physical: at(run),
                ..*run
            })
            .collect();
        let count = |runs: &[Run]| {
            let joined = |pair: &&[Run]| match pair {
                [a, b] => goes_on(a, b) && a.unwritten == b.unwritten,
                _ => false,
            };
            runs.len() as i64 - runs.windows(2).filter(joined).count() as i64
        };
        count(&old) - count(&new)
    }

    /// Moves a stretch, or the first part of it that one free run can hold, if that saves extents. Returns one past the
    /// last block dealt with, and the number of moved blocks.
    fn move_stretch(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        file: &FileData,
        stretch: &DataRun,
    ) -> Result<(u32, u64)> {
        let first = stretch.first;
        let goal = {
            let map = self.loaded_map(inode, file)?;
            let runs = map.extents.range(first, stretch.len);
            if runs
                .windows(2)
                .all(|pair| matches!(pair, [a, b] if goes_on(a, b)))
            {
                return Ok((stretch.end(), 0));
            }
            self.goal_at(inode, &map, first, &[])
        };
        let Some((place, len)) = self.find_run(who, goal, stretch.len)? else {
            return Ok((u32::MAX, 0));
        };
        let mut placing = self.space.placing();
        placing.runs.push(Run {
            logical: first,
            len,
            physical: place,
            unwritten: false,
        });
        let gain = {
            let map = self.loaded_map(inode, file)?;
            self.gain(&map, first, len, place)
        };
        if gain <= 0 {
            return Ok((stretch.end(), 0));
        }
        let moved = self.move_to(who, inode, file, &mut placing)?;
        Ok((first.saturating_add(len), moved))
    }

    /// Takes a run of up to `want` free blocks. It takes at most half of the free blocks, so that other threads do not
    /// find the volume full. Returns `None` if half is zero.
    fn find_run(
        &self,
        who: &Credentials,
        goal: BlockNr,
        want: u32,
    ) -> Result<Option<(BlockNr, u32)>> {
        let room = || self.space.counts.free().1 / 2;
        if room() < u64::from(want) {
            // Blocks left behind by earlier stretches can be taken after a push.
            self.commit.push_and_release()?;
        }
        let want = room().min(u64::from(want));
        let mut taken = self.space.reserved(self.space.counts.take_up_to(who, want));
        // The number is at most `want`.
        let most = taken.blocks() as u32;
        if most == 0 {
            return Ok(None);
        }
        let request = Request::near(goal, most);
        let found = self.space.blocks.allocate(&request, &*self.space);
        match self.store.heed(found) {
            Ok((block, len)) => {
                taken.spend(u64::from(len));
                Ok(Some((block, len)))
            }
            Err(Error::NoSpace(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Moves the file's blocks chunk by chunk into a run that was taken for them. Stops at a hole.
    fn move_to(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        file: &FileData,
        placing: &mut PlacedRuns<'_>,
    ) -> Result<u64> {
        let mut moved = 0;
        while let Some(place) = placing.runs.first().copied() {
            let done = self.move_chunk(who, inode, file, &place)?;
            moved += u64::from(done);
            match placing.runs.first_mut() {
                Some(run) if done > 0 && done < run.len => {
                    run.logical += done;
                    run.physical.0 += u64::from(done);
                    run.len -= done;
                }
                // The whole run was moved.
                Some(_) if done > 0 => placing.keep_first(1),
                // The file has a hole here now, so the rest of the run is returned.
                _ => break,
            }
        }
        Ok(moved)
    }

    /// Moves one chunk to the start of a run; returns its length, 0 if there is a hole.
    fn move_chunk(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        file: &FileData,
        place: &Run,
    ) -> Result<u32> {
        let _pass = self.store.gate.enter();
        for _ in 0..TRIES {
            let chunk = {
                let map = self.loaded_map(inode, file)?;
                self.chunk(file, &map, place)
            };
            let new = at_place(&chunk.old, place.physical);
            if new.is_empty() {
                return Ok(0);
            }
            self.load_bitmaps_of(&chunk.old)?;
            self.copy_runs(file, &chunk.old, &new)?;
            schedule::reached(Point::Copied);
            let tx = self.commit.begin(who, COST)?;
            let mut map = file.map.write();
            self.load_map(inode, &mut map)?;
            if planted::is(Fault::MovedBlindly) || self.is_as_copied(file, &map, &chunk, place) {
                return self.switch_mapping(inode, &mut map, tx, &chunk.old, &new);
            }
        }
        // The file is written all the time, so make the last copy while no thread can write.
        let tx = self.commit.begin(who, COST)?;
        let mut map = file.map.write();
        self.load_map(inode, &mut map)?;
        let chunk = self.chunk(file, &map, place);
        let new = at_place(&chunk.old, place.physical);
        if new.is_empty() {
            return Ok(0);
        }
        self.load_bitmaps_of(&chunk.old)?;
        self.copy_runs(file, &chunk.old, &new)?;
        self.switch_mapping(inode, &mut map, tx, &chunk.old, &new)
    }

    /// Returns the mapping of the next chunk: up to a hole, and no more than one operation may change.
    fn chunk(&self, file: &FileData, map: &FileMap, place: &Run) -> Chunk {
        let most = (CHUNK / u64::from(self.store.geometry.block_size)).max(1);
        let len = u64::from(place.len).min(most) as u32;
        let mut old: Vec<Run> = Vec::new();
        for run in map.extents.range(place.logical, len) {
            let at = old.last().map_or(place.logical.into(), Run::end);
            old.push(run);
            let too_much = || old.len() > RUNS || self.log_blocks(&old) > self.log.step() / 2;
            if at != u64::from(run.logical) || old.len() > 1 && too_much() {
                old.pop();
                break;
            }
        }
        Chunk {
            old,
            writes: file.writes.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of log blocks that moving these runs to one place may change: bitmap and descriptor of each
    /// group, and the blocks of the mapping, where they are neighbours.
    fn log_blocks(&self, old: &[Run]) -> u64 {
        let group = |block: u64| self.store.geometry.group_of_block(BlockNr(block));
        let mut groups: Vec<_> = old
            .iter()
            .flat_map(|run| [run.physical.0, run.physical.0 + u64::from(run.len) - 1])
            .filter_map(|block| group(block).map(|(group, _)| group.0))
            .collect();
        groups.sort_unstable();
        groups.dedup();
        2 * (groups.len() as u64 + 1) + 8 + old.len() as u64 / 16
    }

    /// Returns true if the mapping leads to the blocks that were copied, and nothing was written to them since.
    fn is_as_copied(&self, file: &FileData, map: &FileMap, chunk: &Chunk, place: &Run) -> bool {
        let len = chunk.old.iter().map(|run| run.len).sum();
        chunk.writes == file.writes.load(Ordering::Relaxed)
            && map.extents.range(place.logical, len) == chunk.old
    }

    /// Copies blocks on the device, except unwritten runs, which hold no data.
    fn copy_runs(&self, file: &FileData, old: &[Run], new: &[Run]) -> Result<()> {
        let bs = self.store.geometry.block_size;
        for (from, to) in old.iter().zip(new).filter(|(from, _)| !from.unwritten) {
            // A chunk's length at most.
            let mut bytes = vec![0; from.len as usize * bs as usize];
            self.store.read_data(from.physical, 0, &mut bytes)?;
            let written = self.store.device.write_at(to.physical.offset(bs), &bytes);
            written.map_err(|e| Error::block_io("write", to.physical, e))?;
        }
        self.note_flush_due(file);
        Ok(())
    }

    /// Replaces the mapping of a chunk in one transaction; size and times stay.
    fn switch_mapping(
        &self,
        inode: &Inode,
        map: &mut FileMap,
        tx: Transaction<'_>,
        old: &[Run],
        new: &[Run],
    ) -> Result<u32> {
        let mut state = inode.state.lock();
        if state.freed {
            return Err(Error::BadHandle("the file was removed"));
        }
        let seen = state.stamp;
        tx.commit(seen, |c| {
            for run in old {
                self.log_freed(run, c);
            }
            for run in new {
                c.map_run(inode.ino, *run, true);
            }
            self.inodes.log_core(inode, &mut state, c);
        });
        drop(state);
        map.relog = None;
        for run in new {
            map.extents.set(*run);
        }
        self.note_tree(inode, map);
        Ok(new.iter().map(|run| run.len).sum())
    }
}

/// Splits a run at the borders of `[first, first + len)`.
fn split(run: &Run, first: u32, len: u32) -> Vec<Run> {
    let (start, end) = (u64::from(run.logical), run.end());
    let (first, last) = (u64::from(first), u64::from(first) + u64::from(len));
    let mut cuts = vec![start];
    cuts.extend([first, last].into_iter().filter(|c| start < *c && *c < end));
    cuts.push(end);
    let part = |pair: &[u64]| match pair {
        // Inside a run, whose numbers have 32 bits.
        [from, to] => Some(Run {
            logical: *from as u32,
            len: (to - from) as u32,
            physical: BlockNr(run.physical.0 + (from - start)),
            unwritten: run.unwritten,
        }),
        _ => None,
    };
    cuts.windows(2).filter_map(part).collect()
}
