//! The block of multiple mount protection (`mmp`): a repair refuses a volume that is in use, and writes the block if it is damaged
//! or stale.

use crate::error::Error;
use crate::session::Session;
use blockdev::BlockDevice;
use ext4_format::BlockNr;
use ext4_format::geometry::Geometry;
use ext4_format::mmp::{self, MmpState};
use ext4_format::superblock::RawSuperblock;
use std::time::Duration;

/// Fails if the volume is in use. If the block holds the number of a mount, waits long enough for a live mount to change it.
pub(crate) fn wait_for_others(dev: &dyn BlockDevice) -> Result<(), Error> {
    let Ok(sb) = RawSuperblock::parse(&ext4_image::superblock_bytes(dev)?) else {
        return Ok(());
    };
    let Some((geo, block)) = Geometry::new(&sb).ok().and_then(|geo| place(&sb, geo)) else {
        return Ok(());
    };
    let read = || {
        let mut bytes = vec![0; geo.block_size as usize];
        dev.read_at(block.offset(geo.block_size), &mut bytes)
            .map(|()| bytes)
    };
    let first = read()?;
    // A damaged block has no information on whether the volume is in use.
    match mmp::state(&first, None) {
        Ok(MmpState::Checked) => Err(Error::InUse("a checker")),
        Ok(MmpState::Mounted(_)) => {
            let seconds = u64::from(mmp::interval(&first)) * 2 + 1;
            std::thread::sleep(Duration::from_secs(seconds));
            if read()? == first {
                Ok(())
            } else {
                Err(Error::InUse("a mount"))
            }
        }
        Ok(MmpState::Clean) | Err(_) => Ok(()),
    }
}

fn place(sb: &RawSuperblock, geo: Geometry) -> Option<(Geometry, BlockNr)> {
    let block = BlockNr(sb.mmp_block.get());
    let there = geo.features.has_mmp() && geo.is_valid_data_range(block, 1);
    there.then_some((geo, block))
}

/// Writes the block if it is damaged, or if an interrupted mount left its number there.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let Some((geo, block)) = place(&session.sb, session.geo.clone()) else {
        return Ok(());
    };
    let seed = session.has_csum().then_some(geo.csum_seed);
    let bytes = session.read(block)?;
    let text = match mmp::state(&bytes, seed) {
        Ok(MmpState::Clean) => return Ok(()),
        Ok(_) => "its block says that nobody has the volume",
        Err(_) => "its block is rewritten",
    };
    if !session.ask("mmp", text, None) {
        return Ok(());
    }
    let bytes = mmp::clean_block(bytes.len(), session.now.into(), seed);
    Ok(session.write(block, &bytes)?)
}
