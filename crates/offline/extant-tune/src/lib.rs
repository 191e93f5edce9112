#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod change;
mod checksums;
mod clean;
mod defrag;
mod dirs;
mod error;
mod features;
mod fields;
mod image;
mod journal;
mod layout;
mod mmp;
mod options;
mod orphans;
mod quota;
mod space;
mod trim;
mod values;

pub use blockdev;
pub use change::Change;
pub use defrag::{FileFragments, Fragments, defragment, fragments, map_by_extents};
pub use error::Error;
pub use ext4_format::features::Features;
pub use ext4_image::{Changes, Undo};
pub use extant_check::Report;
pub use options::{CLEARABLE, SETTABLE, TuneOptions};
pub use trim::{FreeSpace, Freed};

use blockdev::BlockDevice;
use clean::{as_it_stands, broken, require_clean_except_quotas};
use error::refused;
use ext4_image::MemOverlay;
use image::Image;

/// Plan of a change.
#[derive(Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The changes, in their order.
    pub changes: Vec<Change>,
    /// The features before.
    pub before: Features,
    /// The features after.
    pub after: Features,
    /// Result of the check; `None` if only fields of the superblock change.
    pub report: Option<Report>,
    /// Changes to write.
    pub writes: Changes,
}

/// Makes the plan of a change: it is made on an overlay in memory, and checked there. The device is only read.
///
/// # Errors
/// [`Error`] if the change cannot be made.
///
/// ```no_run
/// use extant_tune::blockdev::{Access, FileDevice};
/// use extant_tune::TuneOptions;
/// let image = FileDevice::open("disk.img", Access::ReadWrite)?;
/// let options = TuneOptions { features: "metadata_csum".into(), ..TuneOptions::default() };
/// let plan = extant_tune::plan(&image, &options)?;
/// for change in &plan.changes {
///     println!("{change}");
/// }
/// plan.writes.write(&image, None, Some("disk.img.extant-undo".as_ref()))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan(device: &dyn BlockDevice, options: &TuneOptions) -> Result<Plan, Error> {
    let structural = options.is_structural();
    if structural {
        require_clean_except_quotas(device)?;
    }
    let overlay = MemOverlay::new(device);
    let mut image = Image::open(&overlay, structural)?;
    let before = image.geo.features;
    fields::change(&mut image, options)?;
    if options.clear_mmp {
        mmp::clear(&mut image, options.now)?;
    }
    if structural {
        features::change(&mut image, options)?;
        checksums::finish(&mut image, options)?;
    }
    if !image.changes.is_empty() {
        image.sb.set_write_time(options.now);
        image.write_superblocks()?;
    }
    let (changes, after) = (image.changes, image.image.geo.features);
    let report = if structural && !changes.is_empty() {
        Some(extant_check::check(&overlay, &as_it_stands())?)
    } else {
        None
    };
    if let Some(error) = report.as_ref().and_then(broken) {
        return Err(error);
    }
    let writes = overlay.into_changes()?;
    Ok(Plan {
        changes,
        before,
        after,
        report,
        writes,
    })
}

/// Returns the new superblock of a volume in use, with changes of its fields only; `None` if nothing changes. The
/// driver that has mounted the volume must share the bytes of the device's superblock, as Linux' ext4 does.
///
/// # Errors
/// [`Error::Refused`] for changes that need more than fields of the superblock.
///
/// ```no_run
/// use extant_tune::TuneOptions;
/// use extant_tune::blockdev::UnlockedFile;
/// let device = UnlockedFile::new(std::fs::File::open("/dev/sda1")?)?;
/// let options = TuneOptions { max_mounts: Some(20), ..TuneOptions::default() };
/// let superblock = extant_tune::superblock_in_use(&device, &options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn superblock_in_use(
    device: &dyn BlockDevice,
    options: &TuneOptions,
) -> Result<Option<Vec<u8>>, Error> {
    if options.is_structural() {
        return refused(
            "while it is mounted, only fields of the superblock can be changed: unmount it first",
        );
    }
    let overlay = MemOverlay::new(device);
    let mut image = Image::read_superblock(&overlay)?;
    fields::change(&mut image, options)?;
    if image.changes.is_empty() {
        return Ok(None);
    }
    image.sb.set_write_time(options.now);
    image.sb.set_checksum();
    Ok(Some(image.sb.bytes().to_vec()))
}
