//! Journals on other devices, and where e2fsck looks for that of a volume.

use anyhow::{Context, Result, anyhow};
use blockdev::{Access, BlockDevice};
use ext4_format::superblock::RawSuperblock;
use extant_cli_core::image::store;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Exit code of e2fsck without the journal: the check failed, and errors may be left.
pub(super) const NOT_FOUND: u8 = 12;

/// Reads the superblock of an external journal; `None` if the device is another one.
pub(super) fn device_superblock(device: &dyn BlockDevice) -> Option<RawSuperblock> {
    let bytes = ext4_image::superblock_bytes(device).ok()?;
    RawSuperblock::parse_journal_device(&bytes).ok()
}

/// Finds the journal of a volume: the file of `-j`, the device with its UUID, or that of its number.
///
/// # Errors
/// The lines with which e2fsck ends, of which the last is the program's.
pub(super) fn find(sb: &RawSuperblock, given: Option<&OsStr>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => PathBuf::from(path),
        None => by_uuid(sb)
            .or_else(|| by_number(sb))
            .context("Can't find external journal")?,
    };
    let device = store::open(&path, Access::ReadOnly)?;
    let found = device_superblock(&device);
    if found.is_none_or(|found| found.uuid != sb.journal_uuid) {
        return Err(anyhow!("External journal has bad superblock"));
    }
    Ok(path)
}

fn by_uuid(sb: &RawSuperblock) -> Option<PathBuf> {
    let name = Uuid::from_bytes(sb.journal_uuid).to_string();
    let path = Path::new("/dev/disk/by-uuid").join(name);
    path.exists().then_some(path)
}

fn by_number(sb: &RawSuperblock) -> Option<PathBuf> {
    let number = sb.journal_dev.get();
    if number == 0 {
        return None;
    }
    // The new encoding of the kernel; numbers below 2^16 are the same in the old one.
    let (major, minor) = (
        (number >> 8) & 0xfff,
        (number & 0xff) | ((number >> 12) & 0xfff00),
    );
    let path = PathBuf::from(format!("/dev/block/{major}:{minor}"));
    let sysfs = format!("/sys/dev/block/{major}:{minor}/uevent");
    let named = || {
        let text = std::fs::read_to_string(sysfs).ok()?;
        let name = text
            .lines()
            .find_map(|line| line.strip_prefix("DEVNAME="))?;
        Some(Path::new("/dev").join(name))
    };
    if path.exists() { Some(path) } else { named() }
}

/// Returns the superblock of a volume whose journal is on another device.
pub(super) fn volume_with(device: &OsStr) -> Option<RawSuperblock> {
    let open = store::open(Path::new(device), Access::ReadOnly).ok()?;
    let bytes = ext4_image::superblock_bytes(&open).ok()?;
    let sb = RawSuperblock::parse(&bytes).ok()?;
    sb.has_external_journal().then_some(sb)
}
