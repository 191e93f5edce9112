#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

#[cfg(test)]
extern crate self as extant_resize;
#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;

mod error;
mod inodes;
mod journal;
mod mapping;
mod names;
mod old;
mod options;
mod places;
mod quota;
mod quota_files;
mod room;
mod session;
mod target;
mod view;
mod write;

pub use blockdev;
pub use error::Error;
pub use options::{NewSize, ResizeOptions};

use blockdev::BlockDevice;
use ext4_image::{Changes, MemOverlay};
use extant_check::CheckOptions;
use old::Old;
use session::Session;
use std::io;
use std::path::Path;
use target::{Conversion, Shape};
use view::{Moves, View};

/// Plan of a change of size.
#[derive(Debug)]
#[non_exhaustive]
pub struct Plan {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks before.
    pub old_blocks: u64,
    /// Blocks after it.
    pub new_blocks: u64,
    /// Blocks that move.
    pub moved: u64,
    /// Inodes that get another number.
    pub renumbered: u64,
    moves: Moves,
    changes: Changes,
}

impl Plan {
    /// Returns the size of the new volume in bytes.
    pub const fn bytes(&self) -> u64 {
        self.new_blocks * self.block_size as u64
    }

    /// Returns whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.moves.is_empty()
    }

    /// Extends the device if it is too short, copies blocks that move to free places, and then switches to the new
    /// volume, with undo files as in [`Changes::write`]. The new length is durable before all other writes. The
    /// device is not shortened.
    ///
    /// # Errors
    /// [`Error::Io`] and those of [`Changes::write`]; the old volume and the old length are restored.
    pub fn write(
        &self,
        device: &dyn BlockDevice,
        keep: Option<&Path>,
        beside: Option<&Path>,
    ) -> Result<(), Error> {
        self.write_unless(device, keep, beside, &|| Ok(()))
    }

    /// Like [`write`](Self::write), but ends with the error of `step` if that fails. `step` is called before each
    /// piece that is copied, and once before the switch.
    ///
    /// # Errors
    /// As of [`write`](Self::write), and [`Error::Io`] with the error of `step`.
    pub fn write_unless(
        &self,
        device: &dyn BlockDevice,
        keep: Option<&Path>,
        beside: Option<&Path>,
        step: &dyn Fn() -> io::Result<()>,
    ) -> Result<(), Error> {
        let len = device.len();
        if len < self.bytes() {
            device.extend(self.bytes())?;
            device.flush()?;
        }
        let copied = self.moves.copy(device, self.block_size.into(), step);
        if let Err(error) = copied.and_then(|()| step()) {
            // Writes went to free blocks only. An image that stays longer than its volume is sound.
            let _ = device.shorten(len);
            return Err(error.into());
        }
        Ok(self.changes.write_grown(device, len, keep, beside)?)
    }
}

/// Returns the size of the volume on a device in bytes.
///
/// # Errors
/// [`Error`] if the device does not hold a volume that can be resized.
pub fn size(device: &dyn BlockDevice) -> Result<u64, Error> {
    let geo = old::shape(device)?.geo;
    Ok(geo.blocks_count.saturating_mul(geo.block_size.into()))
}

/// Makes the plan of a change of size: the new volume is made on an overlay in memory, and checked there. The device is only read;
/// it may be shorter than the new size.
///
/// # Errors
/// [`Error`] if the image is damaged or cannot have that size.
///
/// ```no_run
/// use extant_resize::{NewSize, ResizeOptions, blockdev::{Access, FileDevice}};
/// let image = FileDevice::open("disk.img", Access::ReadWrite)?;
/// let plan = extant_resize::plan(&image, &ResizeOptions::new(NewSize::Least))?;
/// plan.write(&image, None, Some("disk.img.extant-undo".as_ref()))?;
/// image.set_len(plan.bytes())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan(device: &dyn BlockDevice, options: &ResizeOptions) -> Result<Plan, Error> {
    let shape = old::shape(device)?;
    let before = extant_check::check(device, &CheckOptions::default())?;
    if let Some(finding) = before.findings.iter().find(|_| !before.is_clean()) {
        return Err(Error::Damaged(finding.to_string()));
    }
    let old = Old::read(device, shape)?;
    let conversion = Conversion::of(options, &old.shape.geo)?;
    let block = u64::from(old.shape.geo.block_size);
    match options.size {
        NewSize::Same => attempt(
            device,
            &old,
            old.shape.with(old.shape.geo.blocks_count, conversion)?,
            options,
        ),
        NewSize::Bytes(bytes) => attempt(
            device,
            &old,
            old.shape.with(bytes / block, conversion)?,
            options,
        ),
        NewSize::Least => least(device, &old, conversion, options),
    }
}

/// Finds the smallest plan by attempts, because mappings that become more fragmented need more blocks.
fn least(
    device: &dyn BlockDevice,
    old: &Old,
    conversion: Conversion,
    options: &ResizeOptions,
) -> Result<Plan, Error> {
    let (files, inodes) = (old.files().count(), old.inodes_in_use());
    let shape = |spare| old.shape.smallest(files + spare, inodes, conversion);
    let is_last = |shape: &Shape| shape.geo.blocks_count >= old.shape.geo.blocks_count;
    let mut spare = least_spare(|spare| {
        let shape = shape(spare)?;
        match session::Layout::new(old, &shape.geo, &[]) {
            Err(Error::NoRoom) if !is_last(&shape) => Ok(false),
            layout => layout.map(|_| true),
        }
    })?;
    let mut more = 8;
    loop {
        let shape = shape(spare)?;
        let last = is_last(&shape);
        match attempt(device, old, shape, options) {
            Err(Error::NoRoom) if !last => (spare, more) = (spare + more, more * 2),
            plan => return plan,
        }
    }
}

/// Returns the least number for which `fits` is true, if larger numbers fit where smaller ones do.
fn least_spare(fits: impl Fn(u64) -> Result<bool, Error>) -> Result<u64, Error> {
    if fits(0)? {
        return Ok(0);
    }
    let (mut small, mut large) = (0, 8);
    while !fits(large)? {
        (small, large) = (large, large * 2);
    }
    while large - small > 1 {
        let middle = small.midpoint(large);
        if fits(middle)? {
            large = middle;
        } else {
            small = middle;
        }
    }
    Ok(large)
}

fn attempt(
    device: &dyn BlockDevice,
    old: &Old,
    shape: Shape,
    options: &ResizeOptions,
) -> Result<Plan, Error> {
    let used = old.inodes_in_use();
    if used > shape.geo.inodes_count {
        return Err(Error::NoInodes {
            used,
            there: shape.geo.inodes_count,
        });
    }
    let geo = shape.geo.clone();
    let mut plan = Plan {
        block_size: geo.block_size,
        old_blocks: old.shape.geo.blocks_count,
        new_blocks: geo.blocks_count,
        moved: 0,
        renumbered: 0,
        moves: Moves::default(),
        changes: Changes::default(),
    };
    if shape.sb.bytes() == old.shape.sb.bytes() {
        return Ok(plan);
    }
    let layout = session::Layout::new(old, &geo, &journal::empty_log(device, old))?;
    let view = View {
        device,
        len: device.len().max(plan.bytes()),
        block_size: geo.block_size.into(),
        moves: layout.moves.clone(),
    };
    let overlay = MemOverlay::with_grain(&view, geo.block_size);
    let mut session = Session::new(old, shape, &view, &overlay, layout);
    session.copy_late()?;
    session.move_tables()?;
    session.number()?;
    let directories = inodes::make(&mut session)?;
    names::make(&session, &directories)?;
    quota_files::write(&session)?;
    write::make(&mut session, options.now)?;
    plan.renumbered = session.renumbered();
    let as_it_is = CheckOptions {
        replay: false,
        ..CheckOptions::default()
    };
    let after = extant_check::check(&overlay, &as_it_is)?;
    if let Some(finding) = after.findings.iter().find(|_| !after.is_clean()) {
        return Err(Error::Unsound(finding.to_string()));
    }
    plan.changes = overlay.into_changes()?;
    plan.moved = view.moves.blocks();
    plan.moves = view.moves;
    Ok(plan)
}
