//! Reads the metadata of an image once, in order on the device, and does nothing with it: no check that reads all
//! metadata can be faster on a disk.

use anyhow::{Context, Result};
use blockdev::{Access, BlockDevice, FileDevice};
use extant_check::{CheckOptions, check};
use rustix::fs::Advice;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Runs with a smaller gap between them are read as one, because a disk takes no longer for the gap.
const GAP: u64 = 64 << 10;
/// Largest read.
const PIECE: usize = 1 << 20;

/// Records the ranges that are read.
struct Noting {
    device: FileDevice,
    read: Mutex<Vec<Range<u64>>>,
}

impl BlockDevice for Noting {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.push(offset..offset + buf.len() as u64);
        drop(read);
        self.device.read_at(offset, buf)
    }

    blockdev::only_read!();
}

/// Returns the runs of an image that a check reads, in order, without small gaps.
///
/// # Errors
/// The check fails.
pub fn runs(image: &Path) -> Result<Vec<Range<u64>>> {
    let noting = Noting {
        device: FileDevice::open(image, Access::ReadOnly)?,
        read: Mutex::default(),
    };
    check(&noting, &CheckOptions::default())?;
    let read = noting.read.into_inner();
    Ok(joined(read.unwrap_or_else(PoisonError::into_inner)))
}

fn joined(mut runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
    runs.sort_unstable_by_key(|run| run.start);
    let mut all: Vec<Range<u64>> = Vec::new();
    for run in runs {
        match all.last_mut().filter(|last| run.start <= last.end + GAP) {
            Some(last) => last.end = last.end.max(run.end),
            None => all.push(run),
        }
    }
    all
}

/// Reads the runs one after the other.
///
/// # Errors
/// Reading the file fails.
pub fn read(image: &Path, runs: &[Range<u64>]) -> Result<()> {
    let device = FileDevice::open(image, Access::ReadOnly)?;
    let mut piece = vec![0; PIECE];
    for run in runs {
        for at in run.clone().step_by(PIECE) {
            let len = (run.end - at).min(PIECE as u64) as usize;
            device.read_at(at, &mut piece[..len])?;
        }
    }
    Ok(())
}

/// Makes the system drop its cache of a file, whose contents are durable.
///
/// # Errors
/// Opening or syncing the file fails.
pub fn forget(image: &Path) -> Result<()> {
    let file = File::open(image).with_context(|| image.display().to_string())?;
    file.sync_all()?;
    let whole: Option<NonZeroU64> = None;
    Ok(rustix::fs::fadvise(&file, 0, whole, Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_in_order_and_without_small_gaps() {
        let far = 10 * GAP;
        let runs = joined(vec![far..far + 5, 8..16, 0..8, 100..200, 4..12]);
        assert_eq!(runs, [0..200, far..far + 5]);
    }

    #[test]
    fn what_a_check_reads_is_the_metadata() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let options = extant::mkfs::MkfsOptions {
            size: Some(16 << 20),
            ..Default::default()
        };
        let device = FileDevice::create(&image, 16 << 20).unwrap();
        extant::mkfs::format(&device, &options).unwrap();
        drop(device);
        let runs = runs(&image).unwrap();
        let bytes: u64 = runs.iter().map(|run| run.end - run.start).sum();
        assert!(
            runs[0].start <= 1024 && bytes > 8192 && bytes < 8 << 20,
            "{runs:?}"
        );
        read(&image, &runs).unwrap();
        forget(&image).unwrap();
    }
}
