#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

#[cfg(test)]
extern crate self as extant_repair;
#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;

mod attributes;
mod connect;
mod dir_blocks;
mod dir_names;
mod directory_mode;
mod dirs;
mod encryption;
mod error;
mod fast_commits;
mod groups;
mod inline_data;
mod inline_dirs;
mod inode_map;
mod inodes;
mod journal;
mod journal_map;
mod mapping;
mod mmp;
mod names;
mod orphans;
mod quota;
mod record;
mod resize;
mod salvage;
mod session;
mod superblock;

pub use blockdev;
pub use error::Error;
pub use ext4_image::{Changes, Undo};
pub use extant_check::{CheckStep, Report};
pub use session::Mend;

use blockdev::BlockDevice;
use ext4_format::features::RoCompat;
use ext4_format::superblock::{RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET};
use ext4_image::MemOverlay;
use extant_check::CheckOptions;
use session::{Decisions, Session};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Maximum of rounds; damage that remains afterwards stays.
const ROUNDS: u32 = 5;

/// Beginnings of a round: one more after each of three: the first inode is set, the journal is replayed, unread inodes are found.
const PASSES: u32 = 4;

/// Plan of a repair.
#[derive(Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The mends, in their order.
    pub mends: Vec<Mend>,
    /// Mends that were declined.
    pub declined: Vec<Mend>,
    /// Result of the check before the repair.
    pub before: Report,
    /// Result of the check after the repair.
    pub after: Report,
    changes: Changes,
}

impl Plan {
    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the number of bytes to write.
    pub fn bytes(&self) -> u64 {
        self.changes.bytes()
    }

    /// Returns the record that reverts the plan. It must be durable before [`Self::apply`].
    ///
    /// # Errors
    /// The errors of the device.
    pub fn undo(&self, image: &dyn BlockDevice) -> io::Result<Undo> {
        self.changes.undo(image)
    }

    /// Writes the plan, and returns when it is durable. A cut in the middle is for [`Undo::take_back`].
    ///
    /// # Errors
    /// The errors of the device.
    pub fn apply(&self, image: &dyn BlockDevice) -> io::Result<()> {
        self.changes.apply(image)
    }

    /// Writes the plan with undo files: see [`Changes::write`].
    ///
    /// # Errors
    /// The same.
    pub fn write(
        &self,
        device: &dyn BlockDevice,
        keep: Option<&Path>,
        beside: Option<&Path>,
    ) -> Result<(), ext4_image::Error> {
        self.changes.write(device, keep, beside)
    }
}

/// Makes the plan of a repair: the image is mended on an overlay in memory, and checked there again until it is clean
/// or no mend is left. The device is only read. `now`, in seconds, is the time of deletion of deleted inodes;
/// `decide` is called for each mend.
///
/// # Errors
/// [`Error`] if the image cannot be repaired at all.
///
/// ```no_run
/// use extant_repair::blockdev::{Access, FileDevice};
/// let image = FileDevice::open("disk.img", Access::ReadWrite)?;
/// let plan = extant_repair::plan(&image, 1_700_000_000, &mut |mend| mend.is_safe())?;
/// for mend in &plan.mends {
///     println!("{mend}");
/// }
/// plan.undo(&image)?.write("disk.undo".as_ref())?;
/// plan.apply(&image)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan<'d>(
    device: &'d dyn BlockDevice,
    now: u32,
    decide: &'d mut dyn FnMut(&Mend) -> bool,
) -> Result<Plan, Error> {
    plan_telling(device, now, decide, &|_| {})
}

/// Like [`plan`], and reports the progress of the first check to `tell`. If the image cannot be checked before its
/// first mends, this is the check after them. The function is called from several threads.
///
/// # Errors
/// The same.
///
/// ```no_run
/// use extant_repair::blockdev::{Access, FileDevice};
/// let image = FileDevice::open("disk.img", Access::ReadWrite)?;
/// let tell = |step: extant_repair::CheckStep| eprintln!("{}: {} of {}", step.pass_name(), step.done, step.total);
/// let plan = extant_repair::plan_telling(&image, 1_700_000_000, &mut |mend| mend.is_safe(), &tell)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan_telling<'d>(
    device: &'d dyn BlockDevice,
    now: u32,
    decide: &'d mut dyn FnMut(&Mend) -> bool,
    tell: &(dyn Fn(CheckStep) + Sync),
) -> Result<Plan, Error> {
    plan_over(device, MemOverlay::new(device), now, decide, tell)
}

/// Like [`plan_telling`], for a volume with the feature `shared_blocks`, which is removed: each file that shares
/// blocks with another gets copies of them.
///
/// # Errors
/// The same.
///
/// ```no_run
/// use extant_repair::blockdev::{Access, FileDevice};
/// let image = FileDevice::open("system.img", Access::ReadWrite)?;
/// let plan = extant_repair::plan_unshared(&image, 1_700_000_000, &mut |_| true, &|_| {})?;
/// assert!(plan.mends.iter().all(|mend| mend.loses.is_none()), "there is room for all copies");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan_unshared<'d>(
    device: &'d dyn BlockDevice,
    now: u32,
    decide: &'d mut dyn FnMut(&Mend) -> bool,
    tell: &(dyn Fn(CheckStep) + Sync),
) -> Result<Plan, Error> {
    let overlay = MemOverlay::new(device);
    let mut sb = ext4_image::superblock(&overlay)?;
    let kept = sb.feature_ro_compat.get() & !RoCompat::SHARED_BLOCKS.bits();
    sb.feature_ro_compat.set(kept);
    sb.set_checksum();
    overlay.write_at(SUPERBLOCK_OFFSET, sb.bytes())?;
    plan_over(device, overlay, now, decide, tell)
}

fn plan_over<'d>(
    device: &'d dyn BlockDevice,
    overlay: MemOverlay<'d>,
    now: u32,
    decide: &'d mut dyn FnMut(&Mend) -> bool,
    tell: &(dyn Fn(CheckStep) + Sync),
) -> Result<Plan, Error> {
    mmp::wait_for_others(device)?;
    let options = CheckOptions::default();
    let mut decisions = Decisions {
        decide,
        done: Vec::new(),
        declined: Vec::new(),
    };
    // An image that cannot be checked at all is reported by its first mend.
    let as_it_is = CheckOptions {
        replay: false,
        ..options.clone()
    };
    let first = extant_check::check_telling(&overlay, &as_it_is, tell);
    let mut is_told = first.is_ok();
    let before = first.unwrap_or_default();
    let mut report = before.clone();
    let mut whole_tables = BTreeSet::new();
    for _ in 0..ROUNDS {
        if before.inodes > 0 && report.findings.is_empty() {
            break;
        }
        let made = decisions.done.len();
        round(&overlay, &mut decisions, &mut whole_tables, now)?;
        let tell_once = |step| {
            if !is_told {
                tell(step);
            }
        };
        report = extant_check::check_telling(&overlay, &as_it_is, &tell_once)?;
        is_told = true;
        let resting = decisions.done.len() == made;
        if resting || (report.findings.is_empty() && before.inodes > 0) {
            break;
        }
    }
    if report.findings.is_empty() {
        mark_clean(&overlay, &mut decisions)?;
    }
    stamp(&overlay, now)?;
    let Decisions { done, declined, .. } = decisions;
    Ok(Plan {
        mends: done,
        declined,
        before,
        after: report,
        changes: overlay.into_changes()?,
    })
}

/// Marks an image as clean that was found to be so, and whose superblock says otherwise: it was not unmounted, and had no journal.
fn mark_clean(overlay: &MemOverlay<'_>, decisions: &mut Decisions<'_>) -> Result<(), Error> {
    let bytes = ext4_image::superblock_bytes(overlay)?;
    let Ok(mut sb) = RawSuperblock::parse(&bytes) else {
        return Ok(());
    };
    if sb.state.get() & STATE_VALID != 0
        || !decisions.ask("superblock", "it is marked as clean", None)
    {
        return Ok(());
    }
    sb.state.set(sb.state.get() | STATE_VALID);
    sb.set_checksum();
    Ok(overlay.write_at(SUPERBLOCK_OFFSET, sb.bytes())?)
}

/// Notes the time of the write in the superblock of an image that changes, as e2fsck does.
fn stamp(overlay: &MemOverlay<'_>, now: u32) -> Result<(), Error> {
    if overlay.differs()?
        && let Ok(mut sb) = ext4_image::superblock(overlay)
    {
        sb.set_write_time(now.into());
        sb.set_checksum();
        overlay.write_at(SUPERBLOCK_OFFSET, sb.bytes())?;
    }
    Ok(())
}

fn round<'d>(
    dev: &MemOverlay<'d>,
    decisions: &mut Decisions<'d>,
    whole_tables: &mut BTreeSet<u32>,
    now: u32,
) -> Result<(), Error> {
    for _ in 0..PASSES {
        let sb = superblock::read(dev, decisions)?;
        let mut session = Session::new(dev, decisions, sb, whole_tables.clone(), now)?;
        superblock::mend(&mut session)?;
        groups::read(&mut session)?;
        if superblock::free_first_inodes(&mut session)? {
            *whole_tables = session.whole_tables;
            continue;
        }
        if journal::mend(&mut session)? {
            continue;
        }
        orphans::mend(&mut session)?;
        let rewrites = inodes::mend(&mut session)?;
        if dirs::survey(&mut session)? {
            *whole_tables = session.whole_tables;
            continue;
        }
        inodes::rewrite(&mut session, rewrites)?;
        dirs::mend(&mut session)?;
        connect::mend(&mut session)?;
        resize::mend(&mut session)?;
        quota::mend(&mut session)?;
        mmp::mend(&mut session)?;
        groups::write(&mut session)?;
        superblock::mend_backups(&mut session)?;
        return Ok(());
    }
    Ok(())
}
