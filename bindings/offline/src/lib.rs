//! Changes of closed images, as the bindings for C and Python call them: an interrupted change is taken back, the new
//! change is planned in memory, checked there, and written. All calls are those of the public crates; this crate has
//! their order, and the errno of each error.

#![forbid(unsafe_code)]

use ext4_format::geometry::Geometry;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_image::ImageFile;
use extant_blockdev::{Access, BlockDevice, FileDevice};
use extant_mmp::MmpError;
use extant_resize::{NewSize, ResizeOptions};
use extant_tune::TuneOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use extant_blockdev::errno_of;

/// Error number and message of a change that failed.
#[derive(Debug)]
pub struct Failure {
    /// The error number of Linux; `EUCLEAN` for an image that breaks a rule of the format.
    pub errno: i32,
    /// The message.
    pub text: String,
}

/// The number for an image that breaks a rule of the format.
pub const EUCLEAN: i32 = 117;
const EIO: i32 = 5;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

impl Failure {
    fn new(errno: i32, error: &dyn std::fmt::Display) -> Self {
        Self {
            errno,
            text: error.to_string(),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(errno_of(&error), &error)
    }
}

impl From<extant_check::Error> for Failure {
    fn from(error: extant_check::Error) -> Self {
        match error {
            extant_check::Error::Io(error) => error.into(),
            _ => Self::new(EUCLEAN, &error),
        }
    }
}

impl From<ext4_image::Error> for Failure {
    fn from(error: ext4_image::Error) -> Self {
        use ext4_image::Error as E;
        let errno = match &error {
            E::Io(source) | E::TakenBack(source) => errno_of(source),
            E::NoRoomForUndo(_) => ENOSPC,
            _ => EIO,
        };
        Self::new(errno, &error)
    }
}

impl From<extant_repair::Error> for Failure {
    fn from(error: extant_repair::Error) -> Self {
        use extant_repair::Error as E;
        let errno = match &error {
            E::Io(source) => errno_of(source),
            E::Format(_) | E::Superblock(_) | E::Check(_) | E::Descriptors(_) => EUCLEAN,
            E::InUse(_) => EBUSY,
            E::Declined => 1,
            _ => EIO,
        };
        Self::new(errno, &error)
    }
}

impl From<extant_resize::Error> for Failure {
    fn from(error: extant_resize::Error) -> Self {
        use extant_resize::Error as E;
        let errno = match &error {
            E::Io(source) => errno_of(source),
            E::Undo(_) => EIO,
            E::Check(_) | E::Damaged(_) | E::Format(_) | E::Superblock(_) | E::Unsound(_) => {
                EUCLEAN
            }
            E::NoRoom | E::NoInodes { .. } | E::Journal => ENOSPC,
            _ => EINVAL,
        };
        Self::new(errno, &error)
    }
}

impl From<extant_tune::Error> for Failure {
    fn from(error: extant_tune::Error) -> Self {
        use extant_tune::Error as E;
        let errno = match &error {
            E::Io(source) => errno_of(source),
            E::Check(_) | E::Format(_) | E::Superblock(_) | E::NotClean(_) | E::Broken(_) => {
                EUCLEAN
            }
            E::NoSpace(_) => ENOSPC,
            _ => EINVAL,
        };
        Self::new(errno, &error)
    }
}

/// How to write a change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writing<'a> {
    /// Whether the change is only planned.
    pub dry_run: bool,
    /// New file that keeps the old bytes, for `extant undo`.
    pub undo: Option<&'a Path>,
}

/// A device that is read until the caller sets a flag. Plans are made on it, so that a plan of a large image ends soon;
/// its result is thrown away then.
struct Stoppable<'a> {
    device: &'a dyn BlockDevice,
    stop: &'a AtomicBool,
}

impl BlockDevice for Stoppable<'_> {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read_only(&self) -> bool {
        self.device.read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_flag(self.stop)?;
        self.device.read_at(offset, buf)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.device.will_read(offset, len);
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.device.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }
}

/// Fails if the caller has set the flag.
fn check_flag(stop: &AtomicBool) -> io::Result<()> {
    if stop.load(Ordering::Relaxed) {
        // EINTR. A kind alone would make readers try again.
        return Err(io::Error::from_raw_os_error(4));
    }
    Ok(())
}

/// A closed image: a file, or a device of the caller's.
pub enum Image {
    /// A file or block device.
    File(FileDevice),
    /// Another device; its undo records are kept in its free blocks.
    Device(Box<dyn BlockDevice>),
}

impl Image {
    /// Opens a file, for reading only in a dry run.
    ///
    /// # Errors
    /// The errors of the file system, `EBUSY` if another process has the image open.
    pub fn open(path: &Path, dry_run: bool) -> Result<Self, Failure> {
        let access = if dry_run {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        };
        Ok(Self::File(FileDevice::open(path, access)?))
    }

    fn stoppable<'a>(&'a self, stop: &'a AtomicBool) -> Stoppable<'a> {
        let device = self.device();
        Stoppable { device, stop }
    }

    fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::File(device) => device,
            Self::Device(device) => device,
        }
    }

    /// Fails if another machine uses the volume, as its block of multiple mount protection shows.
    fn check_free(&self) -> Result<(), Failure> {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        if self.device().len() < SUPERBLOCK_OFFSET + bytes.len() as u64 {
            return Ok(());
        }
        self.device().read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        // The change itself reports a superblock that is damaged.
        let parsed = RawSuperblock::parse(&bytes).ok();
        let Some((sb, geometry)) = parsed.and_then(|sb| Some((sb, Geometry::new(&sb).ok()?)))
        else {
            return Ok(());
        };
        match extant_mmp::wait_until_free(self.device(), &sb, &geometry) {
            Ok(()) | Err(MmpError::Format(_)) => Ok(()),
            Err(MmpError::Io(error)) => Err(error.into()),
            Err(error @ MmpError::InUse { .. }) => Err(Failure::new(EBUSY, &error)),
        }
    }

    /// Takes an interrupted change back, and returns the place for the undo file of the next one.
    fn ready(&self, dry_run: bool) -> Result<Option<PathBuf>, Failure> {
        if dry_run {
            return match ext4_image::mark(self.device())? {
                Some(mark) => Err(Failure {
                    errno: EBUSY,
                    text: format!("a change was interrupted: extant undo reverts it ({mark})"),
                }),
                None => Ok(None),
            };
        }
        self.check_free()?;
        let file = match self {
            Self::File(device) => ImageFile::of(device.path(), None)?,
            Self::Device(_) => ImageFile::elsewhere(),
        };
        file.take_back(self.device())?;
        Ok(file.place_of_undo()?)
    }
}

/// Returns seconds since 1970.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

/// Checks an image, and passes each step to `tell`. The flag `stop` ends the check with `EINTR`.
///
/// # Errors
/// `EUCLEAN` if the superblock cannot be read, and I/O errors.
pub fn check(
    image: &Image,
    stop: &AtomicBool,
    tell: &(dyn Fn(extant_check::CheckStep) + Sync),
) -> Result<extant_check::Report, Failure> {
    let options = extant_check::CheckOptions::default();
    let report = extant_check::check_telling(&image.stoppable(stop), &options, tell);
    check_flag(stop)?;
    Ok(report?)
}

/// Repairs an image; with `safe_only` changes that lose anything are declined. The flag `stop` ends the planning with
/// `EINTR`; a change that is being written is finished.
///
/// # Errors
/// As [`Failure`] says; the image is as before.
pub fn repair(
    image: &Image,
    safe_only: bool,
    writing: Writing<'_>,
    stop: &AtomicBool,
    tell: &(dyn Fn(extant_check::CheckStep) + Sync),
) -> Result<extant_repair::Plan, Failure> {
    let beside = image.ready(writing.dry_run)?;
    let mut decide = |mend: &extant_repair::Mend| !safe_only || mend.is_safe();
    let now = u32::try_from(now()).unwrap_or(u32::MAX);
    let readable = image.stoppable(stop);
    let plan = extant_repair::plan_telling(&readable, now, &mut decide, tell);
    check_flag(stop)?;
    let plan = plan?;
    if !writing.dry_run && !plan.is_empty() {
        plan.write(image.device(), writing.undo, beside.as_deref())?;
    }
    Ok(plan)
}

/// Resizes an image. A file gets the length of its volume, unless `undo` needs the old length.
/// The flag `stop` ends the planning and the copying of data with `EINTR`; nothing is changed then.
///
/// # Errors
/// As [`Failure`] says; `EINVAL` for a size that the files do not fit in.
pub fn resize(
    image: &Image,
    size: NewSize,
    writing: Writing<'_>,
    stop: &AtomicBool,
) -> Result<extant_resize::Plan, Failure> {
    let beside = image.ready(writing.dry_run)?;
    let options = ResizeOptions {
        now: now(),
        ..ResizeOptions::new(size)
    };
    let device = image.device();
    let plan = extant_resize::plan(&image.stoppable(stop), &options);
    check_flag(stop)?;
    let plan = plan?;
    if writing.dry_run {
        return Ok(plan);
    }
    if matches!(image, Image::Device(_)) && plan.bytes() > device.len() {
        return Err(Failure {
            errno: ENOSPC,
            text: format!("there are {} bytes for the volume", device.len()),
        });
    }
    if !plan.is_empty() {
        plan.write_unless(device, writing.undo, beside.as_deref(), &|| {
            check_flag(stop)
        })?;
    }
    if let Image::File(file) = image
        && writing.undo.is_none()
        && file.path().is_file()
        && file.len() > plan.bytes()
    {
        file.set_len(plan.bytes())?;
    }
    Ok(plan)
}

/// Changes properties of an image; the time of `options` is set here. The flag `stop` ends the planning with `EINTR`.
///
/// # Errors
/// As [`Failure`] says; `EINVAL` for a value or a feature that cannot be set.
pub fn tune(
    image: &Image,
    options: TuneOptions,
    writing: Writing<'_>,
    stop: &AtomicBool,
) -> Result<extant_tune::Plan, Failure> {
    let beside = image.ready(writing.dry_run)?;
    let options = TuneOptions {
        now: now(),
        ..options
    };
    let plan = extant_tune::plan(&image.stoppable(stop), &options);
    check_flag(stop)?;
    let plan = plan?;
    if !writing.dry_run && !plan.writes.is_empty() {
        plan.writes
            .write(image.device(), writing.undo, beside.as_deref())?;
    }
    Ok(plan)
}
