//! Changes of images without output, for programs that print their own.

use crate::listing;
use anyhow::{Context, Result};
use ext4_format::features::Incompat;
use extant_cli_core::format::clock;
use extant_cli_core::image::{images, in_place};
use extant_tune::{Error, FreeSpace, TuneOptions};
use std::io::ErrorKind;
use std::path::Path;

/// Replays the journal of an image that was not unmounted, and deletes its orphans; returns whether anything was done.
/// The next step reports an unreadable superblock.
pub fn replay(image: &Path) -> Result<bool> {
    let sb = listing::superblock_of(image);
    let pending = sb.is_ok_and(|sb| {
        let recovers = sb.feature_incompat.get() & Incompat::NEEDS_RECOVERY.bits() != 0;
        recovers || sb.last_orphan.get() != 0
    });
    if pending {
        images::change(image, |_| Ok(()))?;
    }
    Ok(pending)
}

/// Makes changes of `extant tune`.
pub fn tune(image: &Path, options: TuneOptions) -> Result<()> {
    let name = || image.display().to_string();
    let (device, beside) = in_place::ready_if(image, false, !options.clear_mmp)?;
    let options = TuneOptions {
        now: clock::stamp()?,
        ..options
    };
    let plan = extant_tune::plan(&device, &options).with_context(name)?;
    if plan.writes.is_empty() {
        return Ok(());
    }
    let done = plan.writes.write(&device, None, beside.as_deref());
    done.map_err(|e| in_place::after_failure(image, device, e))
        .with_context(name)
}

/// Trims free blocks. A device that does not support trimming is left unchanged.
pub fn trim(image: &Path) -> Result<()> {
    let name = || image.display().to_string();
    let (device, _) = in_place::ready(image, false)?;
    let trimmed = FreeSpace::of(&device).and_then(|free| free.trim(&device));
    match trimmed {
        Err(Error::Io(e)) if e.kind() == ErrorKind::Unsupported => Ok(()),
        done => done.map(drop).with_context(name),
    }
}

/// Converts block-mapped files to extents.
pub fn map_by_extents(image: &Path) -> Result<u64> {
    let name = || image.display().to_string();
    let (device, beside) = in_place::ready(image, false)?;
    let mapped = extant_tune::map_by_extents(&device, clock::stamp()?, &mut |changes| {
        let written = changes.write(&device, None, beside.as_deref());
        written.map_err(|e| Error::Refused(e.to_string()))
    });
    mapped.with_context(name)
}
