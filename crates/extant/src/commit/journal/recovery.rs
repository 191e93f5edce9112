//! Recovery: what the log owes the volume is written home before anything else is read.

use super::LogArea;
use crate::base::error::{Error, Result};
use crate::commit::Committer;
use blockdev::BlockDevice;
use ext4_format::BlockNr;
use ext4_format::jbd2::{self, Plan, Superblock};
use std::collections::HashSet;

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
}

impl Recovery {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            transactions: plan.transactions,
            blocks: plan.replay.len() as u64,
            revoked: plan.revoked,
        }
    }
}

/// Reads the journal's superblock.
pub fn read_superblock(area: &LogArea) -> Result<Superblock> {
    Ok(Superblock::parse(&area.read(0)?)?)
}

/// The plan of the log's replay.
pub fn plan(area: &LogArea, superblock: &Superblock, blocks_count: u64) -> Result<Plan> {
    jbd2::plan(superblock, blocks_count, |block| area.read(block))
}

/// One image of the log in its form at home.
pub fn image(area: &LogArea, replay: &jbd2::Replay) -> Result<Vec<u8>> {
    let mut bytes = area.read(replay.log_block)?;
    if replay.escaped {
        jbd2::unescape(&mut bytes);
    }
    Ok(bytes)
}

/// Writes home what the log owes, then marks it empty. Safe to repeat: a cut anywhere leaves the log
/// as it was or empty.
pub fn recover(
    area: &LogArea,
    device: &dyn BlockDevice,
    block_size: u32,
    blocks_count: u64,
    superblock: &mut Superblock,
) -> Result<Recovery> {
    let plan = plan(area, superblock, blocks_count)?;
    for replay in &plan.replay {
        let bytes = image(area, replay)?;
        device
            .write_at(replay.home.offset(block_size), &bytes)
            .map_err(|e| Error::block_io("recover", replay.home, e))?;
    }
    let flush = || {
        device.flush().map_err(|source| Error::Io {
            context: "flush".into(),
            source,
        })
    };
    flush()?;
    superblock.start = 0;
    superblock.sequence = plan.next;
    let mut block = area.read(0)?;
    superblock.write(&mut block)?;
    area.write(0, &[&block])?;
    flush()?;
    Ok(Recovery::of(&plan))
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
