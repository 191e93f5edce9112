//! A change of the size of an image.

use super::advice::about_image;
use super::{identity, in_place, logged_image, overlaid, remote, store};
use crate::address::{Address, Rooted, schemes};
use crate::format::clock;
use crate::format::show::{HostPath, ShowPath};
use crate::mounts::mounted::Mounted;
use crate::mounts::server_exit::open_when_free;
use anyhow::{Context, Result, anyhow, bail};
use blockdev::{Access, BlockDevice, FileDevice};
use extant_resize::{NewSize, Plan, ResizeOptions};
use extant_terminal::interrupt;
use extant_terminal::numbers::size as bytes;
use extant_terminal::progress::Progress;
use serde::Serialize;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The image to resize, its new size, and its other changes.
#[derive(clap::Args, Debug)]
pub struct ResizeArgs {
    /// Image, or directory that it is mounted on
    pub image: Rooted,
    /// New size in bytes, or with K, M, G or T; +SIZE, -SIZE and +N% are relative to the present size
    #[arg(allow_hyphen_values = true)]
    pub size: Option<SizeChange>,
    /// Shrink to the minimum that the files allow
    #[arg(short = 'M', long, conflicts_with = "size")]
    pub min: bool,
    /// Only print the minimum size; write nothing
    #[arg(short = 'P', long, conflicts_with_all = ["size", "min", "undo"])]
    pub print_min: bool,
    /// Only print the planned changes; write nothing
    #[arg(short = 'n', long, conflicts_with = "undo")]
    pub dry_run: bool,
    /// Save the old bytes in a new file, for extant undo
    #[arg(long, value_name = "FILE")]
    pub undo: Option<PathBuf>,
    /// Use 64-bit group descriptors
    #[arg(short = 'b', long = "64bit", conflicts_with = "narrow")]
    pub wide: bool,
    /// Use 32-bit group descriptors
    #[arg(short = 's', long = "no-64bit")]
    pub narrow: bool,
}

impl ResizeArgs {
    /// Returns arguments that fill the image's file or device.
    pub fn of(image: &OsStr) -> Self {
        Self {
            image: Rooted(Address::root(image)),
            size: None,
            min: false,
            print_min: false,
            dry_run: false,
            undo: None,
            wide: false,
            narrow: false,
        }
    }
}

/// A size, or a change of the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeChange {
    /// This size.
    To(u64),
    /// The present size and this much.
    More(u64),
    /// The present size without this much.
    Less(u64),
    /// The present size and this percentage.
    MorePercent(u64),
    /// The present size without this percentage.
    LessPercent(u64),
}

impl FromStr for SizeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (sign, rest) = match text.as_bytes().first() {
            Some(b'+') => (Some(true), text.get(1..).unwrap_or("")),
            Some(b'-') => (Some(false), text.get(1..).unwrap_or("")),
            _ => (None, text),
        };
        if let Some(percent) = rest.strip_suffix('%') {
            let n = percent
                .parse()
                .map_err(|_| "no such percentage".to_owned())?;
            return match sign {
                Some(true) => Ok(Self::MorePercent(n)),
                Some(false) if n < 100 => Ok(Self::LessPercent(n)),
                _ => Err("a percentage begins with + or -, and is less than all".to_owned()),
            };
        }
        let bytes = bytes(rest).map_err(|e| e.to_string())?;
        Ok(match sign {
            Some(true) => Self::More(bytes),
            Some(false) => Self::Less(bytes),
            None => Self::To(bytes),
        })
    }
}

impl SizeChange {
    fn of(self, size: u64) -> Option<u64> {
        let part = |percent: u64| u64::try_from(u128::from(size) * u128::from(percent) / 100).ok();
        match self {
            Self::To(bytes) => Some(bytes),
            Self::More(bytes) => size.checked_add(bytes),
            Self::Less(bytes) => size.checked_sub(bytes),
            Self::MorePercent(percent) => size.checked_add(part(percent)?),
            Self::LessPercent(percent) => size.checked_sub(part(percent)?),
        }
    }
}

/// The result of a resize.
#[derive(Serialize)]
pub struct Resized {
    /// Name of the image.
    pub image: HostPath,
    /// Whether the image was written to.
    pub written: bool,
    /// Block size in bytes.
    pub block_size: u32,
    /// Length before, in blocks.
    pub old_blocks: u64,
    /// Length afterwards, in blocks.
    pub new_blocks: u64,
    /// Length afterwards, in bytes.
    pub bytes: u64,
    /// Number of blocks that were moved.
    pub moved_blocks: u64,
    /// Number of inodes that were renumbered.
    pub renumbered_inodes: u64,
    /// Whether there is nothing to do.
    #[serde(skip)]
    pub same: bool,
}

/// The location of the volume.
struct ImageStore {
    device: Arc<dyn BlockDevice>,
    /// Whether the length of the device follows the volume's. The length of a block device, a partition, or a disk in another format
    /// does not change.
    is_file: bool,
}

impl ImageStore {
    fn open(image: &Path, access: Access) -> Result<Self> {
        identity::identity(image)?;
        if !store::is_plain(image) || !image.is_file() {
            let device = store::open(image, access)?;
            let device = match access {
                Access::ReadWrite => in_place::claimed(image, device)?,
                Access::ReadOnly => device,
            };
            return Ok(Self {
                device,
                is_file: false,
            });
        }
        let file = open_when_free(image, || FileDevice::open(image, access));
        let file = file.map_err(|e| about_image(image, anyhow!("{e}")))?;
        Ok(Self {
            device: logged_image::logged(image, Arc::new(file)),
            is_file: true,
        })
    }
}

/// Resizes the volume, or only computes the result if the arguments ask for that.
pub fn resize(args: &ResizeArgs) -> Result<Resized> {
    let image = &args.image.0.image;
    let name = image.shown();
    if let Some(mounted) = mounted(args) {
        return grow(args, &mounted).with_context(|| name);
    }
    let reads = args.dry_run || args.print_min;
    let access = if reads {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    let is_longer_later = schemes::is_made(image) && !overlaid::is_overlaid(image);
    if !reads && is_longer_later && store::split(image).is_none() {
        lengthen(args)?;
    }
    let place = ImageStore::open(image, access)?;
    let device: &dyn BlockDevice = &place.device;
    let beside = in_place::taken_back(image, device, reads)?;
    let options = ResizeOptions {
        size: wanted(args, device).with_context(|| name.clone())?,
        wide: (args.wide || args.narrow).then_some(args.wide),
        inode_size: None,
        now: clock::stamp()?,
    };
    let harmless = interrupt::harmless()?;
    let progress = Progress::wait(&format!("{name}: making the plan"));
    let plan = extant_resize::plan(device, &options);
    progress.done();
    let plan = plan.with_context(|| name.clone())?;
    if !place.is_file && plan.bytes() > device.len() {
        overlaid::refuse(
            image,
            "an overlay is as long as its image, so that the volume cannot become longer",
        )?;
        bail!(
            "{name}: there are {} bytes for the volume: make the device or partition larger first",
            device.len()
        );
    }
    if !reads {
        // From here on, a signal ends the copy, but the switch always completes.
        drop(harmless);
        // An undo file needs the old length.
        let shortens = place.is_file && !has_undo(args);
        let written = write(args, &plan, device, beside.as_deref(), shortens);
        if let Err(error) = &written
            && error.root_cause().to_string() == interrupt::Interrupted.to_string()
        {
            interrupt::check()?;
        }
        written
            .map_err(|e| in_place::after_failure(image, place, e))
            .with_context(|| name.clone())?;
    }
    Ok(Resized {
        image: HostPath::from(&**image),
        written: !reads && !plan.is_empty(),
        block_size: plan.block_size,
        old_blocks: plan.old_blocks,
        new_blocks: plan.new_blocks,
        bytes: plan.bytes(),
        moved_blocks: plan.moved,
        renumbered_inodes: plan.renumbered,
        same: plan.is_empty(),
    })
}

/// Makes an image of objects or of a Ceph cluster as long as the new volume.
fn lengthen(args: &ResizeArgs) -> Result<()> {
    let image = &args.image.0.image;
    let device = store::open(image, Access::ReadOnly)?;
    let (len, wanted) = (device.len(), wanted(args, &device)?);
    drop(device);
    match wanted {
        NewSize::Bytes(bytes) if bytes > len => remote::make(image, bytes),
        _ => Ok(()),
    }
}

/// Returns the mount that the arguments name, by its directory or its image.
fn mounted(args: &ResizeArgs) -> Option<Mounted> {
    let image = &args.image.0.image;
    if image.is_dir() {
        return Mounted::below(image)
            .filter(|mounted| image.canonicalize().is_ok_and(|full| full == mounted.dir()));
    }
    if overlaid::is_overlaid(image) {
        return None;
    }
    Mounted::of_image(image)
}

/// Returns whether old bytes are saved: by this command, or by the one that called it.
fn has_undo(args: &ResizeArgs) -> bool {
    args.undo.is_some() || logged_image::is_logged(&args.image.0.image)
}

/// Grows a mounted volume.
fn grow(args: &ResizeArgs, mounted: &Mounted) -> Result<Resized> {
    let has_undo = has_undo(args);
    if args.min || args.print_min || args.wide || args.narrow || has_undo {
        bail!("it is mounted: it becomes larger only; umount it first");
    }
    let mut client = mounted.client()?;
    let (old_blocks, block_size) = client.size()?;
    let size = old_blocks.saturating_mul(block_size.into());
    let too_large = "the size is less than nothing, or too large";
    let bytes = match args.size {
        Some(change) => Some(change.of(size).context(too_large)?),
        None => None,
    };
    if bytes.is_some_and(|bytes| bytes < size) {
        bail!("it is mounted, and becomes larger only; umount it to make it smaller");
    }
    let same = bytes.is_some_and(|bytes| bytes / u64::from(block_size) == old_blocks);
    let new_blocks = match (same || args.dry_run, bytes) {
        (true, bytes) => bytes.unwrap_or(size) / u64::from(block_size),
        (false, bytes) => client.grow(bytes)?.0,
    };
    Ok(Resized {
        image: HostPath::from(&*args.image.0.image),
        written: !same && !args.dry_run,
        block_size,
        old_blocks,
        new_blocks,
        bytes: new_blocks.saturating_mul(block_size.into()),
        moved_blocks: 0,
        renumbered_inodes: 0,
        same,
    })
}

fn wanted(args: &ResizeArgs, device: &dyn BlockDevice) -> Result<NewSize> {
    if args.min || args.print_min {
        return Ok(NewSize::Least);
    }
    let converts = args.wide || args.narrow;
    match args.size {
        None if converts => Ok(NewSize::Same),
        None => Ok(NewSize::Bytes(device.len())),
        Some(size) => {
            let bytes = size.of(extant_resize::size(device)?);
            Ok(NewSize::Bytes(
                bytes.context("the size is less than nothing, or too large")?,
            ))
        }
    }
}

/// Writes the new volume. If `shortens` is set, truncates the file behind the volume afterwards.
fn write(
    args: &ResizeArgs,
    plan: &Plan,
    device: &dyn BlockDevice,
    beside: Option<&Path>,
    shortens: bool,
) -> Result<()> {
    if !plan.is_empty() {
        let step = || interrupt::check().map_err(io::Error::other);
        plan.write_unless(device, args.undo.as_deref(), beside, &step)?;
    }
    if shortens {
        device.shorten(plan.bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_absolute_or_relative() {
        let of = |text: &str| text.parse::<SizeChange>().ok().and_then(|s| s.of(1000));
        assert_eq!(of("2K"), Some(2048));
        assert_eq!(of("+500"), Some(1500));
        assert_eq!(of("-400"), Some(600));
        assert_eq!(of("+20%"), Some(1200));
        assert_eq!(of("-20%"), Some(800));
        for bad in ["", "20%", "-100%", "-1K", "1X", "99999999T", "+"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
