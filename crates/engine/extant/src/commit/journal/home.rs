//! Writing images home, to their place on the device.

use super::LogArea;
use crate::base::error::{Error, Result};
use crate::base::invariants::insist;
use crate::base::parallel;
use crate::commit::Committer;
use blockdev::BlockDevice;
use ext4_format::BlockNr;
use extant_formatter::image::Image;
use extant_formatter::superblock_location;
use std::collections::HashSet;
use std::sync::Arc;

/// Blocks written by one call.
const RUN: usize = 1024;

/// Smallest number of images that is worth another thread.
const IMAGES: usize = 1024;

/// Writes images home, neighbours together, and marks them clean. They must be sorted by block.
pub(crate) fn write_home(engine: &Committer, images: &[(BlockNr, Arc<Image>)]) -> Result<()> {
    insist!(!engine.store.gate.is_shut(), FrozenIsStill, "writing home");
    let follows = |a: &(BlockNr, _), b: &(BlockNr, _)| a.0.0 + 1 == b.0.0;
    let runs: Vec<_> = images
        .chunk_by(follows)
        .flat_map(|run| run.chunks(RUN))
        .collect();
    let threads = parallel::threads_for(images.len(), IMAGES);
    parallel::for_each(threads, &runs, |_, run| {
        let bytes: Vec<&[u8]> = run.iter().map(|(_, image)| &***image).collect();
        // Held so that no other thread reads the superblock from the device, adds findings, and overwrites this one.
        let own = superblock_location(&engine.store.geometry).0;
        let holds_superblock = run[0].0 <= own && own.0 < run[0].0.0 + run.len() as u64;
        let _place = holds_superblock.then(|| engine.store.superblock_io.lock());
        engine
            .store
            .device
            .write_vectored_at(run[0].0.offset(engine.store.geometry.block_size), &bytes)
            .map_err(|e| Error::block_io("write", run[0].0, e))?;
        if holds_superblock {
            // Damage found since the image was made.
            engine.store.write_errors_locked();
        }
        Ok(())
    })?;
    engine.store.buffers.mark_clean(images);
    Ok(())
}

/// Writes zeros over inode table blocks that are about to be used.
pub(crate) fn zero(
    device: &dyn BlockDevice,
    block_size: u32,
    (start, len): (BlockNr, u32),
) -> Result<()> {
    let zeros = vec![0; block_size as usize];
    for block in (start.0..start.0 + u64::from(len)).map(BlockNr) {
        device
            .write_at(block.offset(block_size), &zeros)
            .map_err(|e| Error::block_io("zero", block, e))?;
    }
    Ok(())
}

/// Writes home everything the log holds. Dirty images of durable contexts come from memory. If a context that is not
/// yet durable has changed or freed a block again, the block's durable version is only in the log, and is read back
/// from there.
pub(in crate::commit) fn write_durable(
    engine: &Committer,
    area: &LogArea,
    durable: u64,
    all_durable: bool,
) -> Result<()> {
    let images = engine.store.buffers.dirty(durable);
    write_home(engine, &images)?;
    if all_durable {
        return Ok(());
    }
    let done: HashSet<BlockNr> = images.iter().map(|(b, _)| *b).collect();
    super::recovery::replay_log(engine, area, &done)
}
