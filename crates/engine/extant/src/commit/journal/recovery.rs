//! Recovery: changes that are only in the log are written home before anything else is read.

use super::LogArea;
use super::body::Body;
use crate::base::error::{Error, Result};
use crate::commit::Committer;
use blockdev::BlockDevice;
use ext4_format::jbd2::{self, FastChange, Plan, Superblock, Tid};
use ext4_format::{BlockNr, FormatError};
use extant_formatter::image::Image;
use std::collections::HashSet;
use std::sync::Arc;

/// The result of recovery.
///
/// ```
/// let nothing = extant::Recovery::default();
/// assert_eq!(nothing.transactions, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Transactions replayed.
    pub transactions: u32,
    /// Blocks written home.
    pub blocks: u64,
    /// Images struck out by revokes.
    pub revoked: u32,
    /// Changes of fast commits that were made.
    pub fast_changes: u64,
}

impl Recovery {
    pub(crate) fn add(&mut self, plan: &Plan, fast_changes: usize) {
        self.transactions += plan.transactions;
        self.blocks += plan.replay.len() as u64;
        self.revoked += plan.revoked;
        self.fast_changes += fast_changes as u64;
    }
}

/// Reads the journal's superblock.
pub fn read_superblock(area: &LogArea) -> Result<Superblock> {
    Ok(Superblock::parse(&area.read(0)?)?)
}

/// Returns the plan of the log's replay.
pub fn plan(area: &LogArea, superblock: &Superblock, blocks_count: u64) -> Result<Plan> {
    jbd2::plan(superblock, blocks_count, |block| area.read(block))
}

/// Returns the changes of the fast commits that continue a log, if there are any.
pub fn fast_changes(
    area: &LogArea,
    superblock: &Superblock,
    plan: &Plan,
) -> Result<Vec<FastChange>> {
    match plan.fast_commits {
        Some(tid) => jbd2::fast_changes(superblock, tid, |block| area.read(block)),
        None => Ok(Vec::new()),
    }
}

/// Reads one image of the log, unescaped as it is written home.
pub fn image(area: &LogArea, replay: &jbd2::Replay) -> Result<Vec<u8>> {
    let mut bytes = area.read(replay.log_block)?;
    if replay.escaped {
        jbd2::unescape(&mut bytes);
    }
    Ok(bytes)
}

/// A log on its way to being empty. Each step may be repeated: a cut anywhere leaves the log as it was, or further on.
pub struct Recovering<'a> {
    /// The journal's blocks.
    pub area: &'a LogArea,
    /// The volume.
    pub device: &'a dyn BlockDevice,
    /// Bytes per block.
    pub block_size: u32,
}

impl Recovering<'_> {
    /// Writes home what the log owes.
    pub fn write_home(&self, plan: &Plan) -> Result<()> {
        for replay in &plan.replay {
            let bytes = image(self.area, replay)?;
            self.device
                .write_at(replay.home.offset(self.block_size), &bytes)
                .map_err(|e| Error::block_io("recover", replay.home, e))?;
        }
        self.flush()
    }

    /// Marks the log as empty, once everything is home.
    pub fn empty(&self, superblock: &mut Superblock, plan: &Plan) -> Result<()> {
        superblock.start = 0;
        superblock.sequence = plan.next;
        self.put(superblock)
    }

    /// Logs images as the transaction that replaces the fast commits: from its commit block on they are ignored.
    /// Everything in the log has been written home.
    pub fn log_batch(
        &self,
        superblock: &mut Superblock,
        (plan, tid): (&Plan, Tid),
        blocks: &[(BlockNr, Arc<Image>)],
    ) -> Result<()> {
        let format = superblock.format();
        let log = superblock.log_range();
        let descriptors = blocks.len().div_ceil(format.tags_per_block().max(1));
        if blocks.len() + descriptors + 1 > log.len() {
            let what = "fast commits that change more blocks than the log holds";
            return Err(FormatError::Incompatible(what.into()).into());
        }
        // The log starts behind its last transaction: the fast commits still continue it.
        superblock.start = plan.head;
        superblock.sequence = tid;
        self.put(superblock)?;
        let body = Body {
            area: self.area,
            format: &format,
            log,
            start: plan.head,
            tid,
        };
        let at = body.write(&[], blocks)?;
        self.flush()?;
        self.area
            .write(at, &[&super::commit_block(&format, tid)?])?;
        self.flush()
    }

    fn put(&self, superblock: &Superblock) -> Result<()> {
        self.area.write_superblock(superblock)?;
        self.flush()
    }

    /// Flushes the device.
    pub fn flush(&self) -> Result<()> {
        self.device.flush().map_err(|source| Error::Io {
            context: "flush".into(),
            source,
        })
    }
}

/// Writes home the logged versions of all blocks but those in `done`.
pub(in crate::commit) fn replay_log(
    engine: &Committer,
    area: &LogArea,
    done: &HashSet<BlockNr>,
) -> Result<()> {
    let superblock = read_superblock(area)?;
    let plan = plan(area, &superblock, engine.store.geometry.blocks_count)?;
    for replay in plan.replay.iter().filter(|r| !done.contains(&r.home)) {
        let bytes = image(area, replay)?;
        engine
            .store
            .device
            .write_at(replay.home.offset(engine.store.geometry.block_size), &bytes)
            .map_err(|e| Error::block_io("write", replay.home, e))?;
    }
    Ok(())
}
