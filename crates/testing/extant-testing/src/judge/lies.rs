//! A device that lies about one flush: it reports success, and the data are not durable.
//!
//! Synced data may then be lost without a trace. But the journal's checksums reveal a transaction with a missing
//! part: opening fails, or leaves that transaction out. A volume must not open and be broken.
//!
//! Cuts are judged while only the journal and data of files are not durable. The checksum of a block at its home does
//! not distinguish the block from an older version of itself.

use super::campaign::{CampaignKind, Counts, Round};
use super::stamp::{self, CELL};
use crate::common::{self, Rng};
use blockdev::{BlockDevice, Crash, Event, MemDevice, Replayer};
use extant::VolumeOptions;
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

/// Lies in one round.
const LIES: u64 = 4;

/// Cuts after one lie.
const CUTS: u64 = 2;

/// Judges lies about some of a round's flushes.
pub fn judge(
    kind: &CampaignKind,
    round: &Round,
    rng: &mut Rng,
    counts: &mut Counts,
) -> Result<(), String> {
    let events = round.log.events();
    let flushes: Vec<usize> = (0..events.len())
        .filter(|&i| events[i] == Event::Flush)
        .collect();
    if flushes.is_empty() {
        return Ok(());
    }
    let (_, journal) = kind.base();
    let io = |e: std::io::Error| e.to_string();
    for _ in 0..LIES {
        let flush = flushes[rng.below(flushes.len() as u64) as usize];
        let next = flushes.iter().copied().find(|&f| f > flush);
        let mut replayer = round.log.replay(&round.base);
        replayer.advance_to(flush).map_err(io)?;
        if replayer.pending().len() == 0 {
            continue;
        }
        replayer.lie_once();
        let upto = next.unwrap_or(events.len());
        let at = flush + 1 + rng.below((upto - flush) as u64) as usize;
        replayer.advance_to(at.min(upto)).map_err(io)?;
        if !only_log_and_data(&replayer, &journal, kind.block) {
            continue;
        }
        for _ in 0..CUTS {
            let seed = rng.next();
            let image = replayer.crash(&Crash::new(seed)).map_err(io)?;
            counts.lies += 1;
            counts.noticed += u64::from(look(image, counts).map_err(|e| {
                format!("lie about flush {flush}, cut after event {at}, lost by {seed}: {e}")
            })?);
        }
    }
    Ok(())
}

/// Returns true if opening fails. Otherwise e2fsck must find nothing to mend.
fn look(image: MemDevice, counts: &mut Counts) -> Result<bool, String> {
    let device = Arc::new(image);
    let dynamic = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let Ok(volume) = VolumeOptions::new().background(false).open_device(dynamic) else {
        return Ok(true);
    };
    volume.close().map_err(|e| format!("does not close: {e}"))?;
    counts.checked += 1;
    common::assert_clean(&device, "after a lie");
    Ok(false)
}

fn only_log_and_data(replayer: &Replayer<'_>, journal: &BTreeSet<u64>, block: u64) -> bool {
    replayer.pending().all(|(_, event)| match event {
        Event::Write { offset, data } => {
            let is_log = journal.contains(&(offset / block));
            let mut cells = data.chunks(CELL as usize);
            is_log || cells.any(|c| stamp::parse(c).is_some_and(|v| v != 0))
        }
        Event::Discard { .. } => false,
        Event::Flush | Event::Mark(_) => true,
    })
}

/// Returns the blocks of the journal, as debugfs lists them.
pub fn journal_blocks(image: &MemDevice) -> BTreeSet<u64> {
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    common::write_image(image, &path);
    let out = Command::new("debugfs")
        .args(["-R", "blocks <8>"])
        .arg(&path)
        .output()
        .unwrap_or_else(|e| panic!("debugfs: {e}"));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let blocks: BTreeSet<u64> = text
        .split_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect();
    assert!(!blocks.is_empty(), "debugfs shows no journal: {text}");
    blocks
}
