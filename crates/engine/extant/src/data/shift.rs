//! Removing a range from a file, and inserting one. The data behind the range move by a change of the mapping alone.
//!
//! The data are written back first and their pages dropped, so that the mapping is complete. If the change fits into
//! one step (see [`crate::data::step_limits`]), it is one operation, which a crash leaves undone or done. A file of very many
//! extents moves some of them at a time, as on Linux, and each step is an operation. After a crash between two steps
//! the file is sound, but part of its data has moved and part has not.

use crate::base::error::{Error, Result};
use crate::data::Data;
use crate::incore::file::{FileData, FileMap};
use crate::incore::inode::Inode;
use crate::log::{Commit, Cost};
use crate::types::credentials::Credentials;
use ext4_format::BlockNr;
use extant_formatter::extent_map::Run;
use std::sync::Arc;

/// The blocks of a file that are removed or inserted.
#[derive(Clone, Copy)]
pub(super) struct Shift {
    start: u32,
    len: u32,
    /// True if the range is removed, false if it is inserted.
    out: bool,
    /// The file's size afterwards, in bytes.
    size: u64,
}

/// The change of a part of a mapping.
struct Relocation<'r> {
    /// First block of the part.
    from: u32,
    /// One past the last block of the part.
    to: u64,
    /// Runs in it that the file loses.
    freed: &'r [Run],
    /// The runs mapped there afterwards, in order.
    new: Vec<Run>,
    /// The file's size afterwards, if it changes.
    size: Option<u64>,
}

/// Past every logical block.
const END: u64 = u32::MAX as u64;

/// Pieces moved per block of the log: a leaf holds at least 84 extents.
const PER_BLOCK: u64 = 20;
/// Blocks that any change of a mapping may touch besides.
const BASE: u64 = 8;

impl Shift {
    /// Checks a range as Linux does: it must consist of whole blocks, and lie inside the file.
    pub fn new(out: bool, offset: u64, len: u64, size: u64, most: u64, bs: u64) -> Result<Self> {
        if !offset.is_multiple_of(bs) || !len.is_multiple_of(bs) {
            return Err(Error::Invalid("range is not one of whole blocks"));
        }
        let size = match out {
            true if offset.saturating_add(len) >= size => {
                return Err(Error::Invalid(
                    "range to take out reaches the end of the file",
                ));
            }
            true => size - len,
            false if offset >= size => {
                return Err(Error::Invalid("range to put in is behind the file"));
            }
            false => size
                .checked_add(len)
                .filter(|&n| n <= most)
                .ok_or(Error::FileTooLarge)?,
        };
        let block = |bytes: u64| u32::try_from(bytes / bs).map_err(|_| Error::FileTooLarge);
        Ok(Self {
            start: block(offset)?,
            len: block(len)?,
            out,
            size,
        })
    }

    fn moved(&self, run: &Run) -> Run {
        let logical = if self.out {
            run.logical - self.len
        } else {
            run.logical + self.len
        };
        Run { logical, ..*run }
    }

    /// Returns the first block that moves.
    fn first(&self) -> u32 {
        if self.out {
            self.start + self.len
        } else {
            self.start
        }
    }
}

impl Data {
    /// Takes a range out, or puts one in; the map is held exclusively.
    pub(super) fn shift(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        file: &FileData,
        map: &mut FileMap,
        shift: &Shift,
    ) -> Result<()> {
        self.write_back_locked(inode, map)?;
        self.discard_preallocation(file);
        let first = shift.first();
        // Blocks preallocated behind the end move, too.
        let last = map.extents.last().map_or(0, Run::end);
        if !shift.out && last.max(first.into()) + u64::from(shift.len) > END {
            return Err(Error::FileTooLarge);
        }
        self.drop_pages(inode, shift.start, u32::MAX);
        let moving = map.extents.range(first, u32::MAX - first);
        let freed = if shift.out {
            map.extents.range(shift.start, shift.len)
        } else {
            Vec::new()
        };
        let weight = BASE + moving.len() as u64 / PER_BLOCK;
        if weight <= self.log.step() / 2 && (freed.is_empty() || self.in_half_a_step(inode, &freed))
        {
            let all = Relocation {
                from: shift.start,
                to: END,
                freed: &freed,
                new: moving.iter().map(|r| shift.moved(r)).collect(),
                size: Some(shift.size),
            };
            return self.relocate(who, inode, map, all);
        }
        drop(moving);
        if shift.out {
            self.take_out_in_steps(who, inode, map, shift)
        } else {
            self.put_in_in_steps(who, inode, map, shift)
        }
    }

    /// Pieces that one step moves.
    fn pieces_of_a_step(&self) -> usize {
        let blocks = (self.log.step() / 2).saturating_sub(BASE);
        (blocks * PER_BLOCK).max(1) as usize
    }

    fn only_size(&self, shift: &Shift) -> Relocation<'static> {
        Relocation {
            from: shift.start,
            to: shift.start.into(),
            freed: &[],
            new: Vec::new(),
            size: Some(shift.size),
        }
    }

    fn take_out_in_steps(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        map: &mut FileMap,
        shift: &Shift,
    ) -> Result<()> {
        self.punch_blocks(who, inode, map, shift.start, shift.first())?;
        let most = self.pieces_of_a_step();
        let mut at = shift.first();
        loop {
            let mut runs = map.extents.range(at, u32::MAX - at);
            runs.truncate(most);
            let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
                return self.relocate(who, inode, map, self.only_size(shift));
            };
            let to = last.end();
            let step = Relocation {
                from: first.logical - shift.len,
                to,
                freed: &[],
                new: runs.iter().map(|r| shift.moved(r)).collect(),
                size: None,
            };
            self.relocate(who, inode, map, step)?;
            // A run ends at 2^32 - 1 at most.
            at = to.min(END) as u32;
        }
    }

    fn put_in_in_steps(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        map: &mut FileMap,
        shift: &Shift,
    ) -> Result<()> {
        // Set the size first, so that no block is ever behind the end.
        self.relocate(who, inode, map, self.only_size(shift))?;
        let most = self.pieces_of_a_step();
        let mut upto = u32::MAX;
        while upto > shift.start {
            let runs = map.extents.range(shift.start, upto - shift.start);
            let runs = &runs[runs.len().saturating_sub(most)..];
            let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
                break;
            };
            upto = first.logical;
            let step = Relocation {
                from: first.logical,
                to: last.end() + u64::from(shift.len),
                freed: &[],
                new: runs.iter().map(|r| shift.moved(r)).collect(),
                size: None,
            };
            self.relocate(who, inode, map, step)?;
        }
        Ok(())
    }

    fn relocate(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        map: &mut FileMap,
        part: Relocation<'_>,
    ) -> Result<()> {
        self.load_bitmaps_of(part.freed)?;
        // Leaves are filled again, and leaves that become empty are freed only later.
        let cost = Cost::MAP.and(Cost::MAP.times(part.new.len() as u32 / 16));
        let tx = self.commit.begin(who, cost)?;
        let mut state = inode.state.lock();
        self.inodes.fold_overwrites(inode, &mut state);
        let (mtime, ctime) = who.times_of_change(&state.core);
        let seen = state.stamp;
        tx.commit(seen, |c| {
            for run in part.freed {
                self.log_freed(run, c);
            }
            log_mapping(inode, &part, c);
            if let Some(size) = part.size {
                state.core.size = size;
                // All data are on the device.
                state.disk_size = size;
            }
            state.core.mtime = mtime;
            state.core.ctime = ctime;
            inode.mirror(&state.core);
            self.inodes.log_core(inode, &mut state, c);
        });
        drop(state);
        map.relog = None;
        // At most 2^32 - 1.
        map.extents
            .remove(part.from, (part.to.min(END) - u64::from(part.from)) as u32);
        for run in &part.new {
            map.extents.set(*run);
        }
        self.note_tree(inode, map);
        self.count_removed(inode, part.freed);
        Ok(())
    }
}

/// Logs what a part of a mapping is now, holes and runs in their order.
fn log_mapping(inode: &Inode, part: &Relocation<'_>, c: &mut Commit<'_>) {
    let hole = |from: u64, to: u64, c: &mut Commit<'_>| {
        if from < to {
            let run = Run {
                logical: from as u32,
                len: (to - from) as u32,
                physical: BlockNr(0),
                unwritten: false,
            };
            c.map_run(inode.ino, run, false);
        }
    };
    let mut at = u64::from(part.from);
    for run in &part.new {
        hole(at, run.logical.into(), c);
        c.map_run(inode.ino, *run, false);
        at = run.end();
    }
    hole(at, part.to.min(END), c);
}
