//! Loop devices: the file that a device shows, and the devices that show a file.
//!
//! Linux lets any number of loop devices show one file, and ignores locks on the file. So an opener that writes a file
//! looks for loop devices over it, and an opener of a loop device locks the file below.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a sector in sysfs.
const SECTOR: u64 = 512;

/// A loop device as sysfs describes it.
struct LoopDevice {
    name: String,
    /// The file that it shows.
    backing: PathBuf,
    /// Bytes of that file that it shows, first and behind the last.
    shown: (u64, u64),
}

impl LoopDevice {
    /// Reads the directory of a block device in sysfs; `None` if it is not a loop device that shows a file.
    fn of(dir: &Path) -> Option<Self> {
        let name = dir.file_name()?.to_str()?.to_owned();
        let backing = std::fs::read(dir.join("loop/backing_file")).ok()?;
        let backing = backing.strip_suffix(b"\n").unwrap_or(&backing);
        let number = |file: &str| {
            let text = std::fs::read_to_string(dir.join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let from = number("loop/offset").unwrap_or(0);
        let limit = number("loop/sizelimit").filter(|limit| *limit != 0);
        Some(Self {
            name,
            backing: std::ffi::OsStr::from_bytes(backing).into(),
            shown: (
                from,
                limit.map_or(u64::MAX, |limit| from.saturating_add(limit)),
            ),
        })
    }

    /// Returns the loop device that a block device is, or whose partition it is.
    fn opened(device: &File) -> Option<Self> {
        let meta = device
            .metadata()
            .ok()
            .filter(|m| m.file_type().is_block_device())?;
        let (major, minor) = (
            rustix::fs::major(meta.rdev()),
            rustix::fs::minor(meta.rdev()),
        );
        let dir = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        if let Some(whole) = Self::of(&dir) {
            return Some(whole);
        }
        let mut part = Self::of(dir.parent()?)?;
        let sectors = |file: &str| {
            let text = std::fs::read_to_string(dir.join(file)).ok()?;
            text.trim().parse::<u64>().ok()?.checked_mul(SECTOR)
        };
        let from = part.shown.0.saturating_add(sectors("start")?);
        part.shown = (from, from.saturating_add(sectors("size")?));
        Some(part)
    }

    /// Returns the device and inode number of the shown file, if it has a path here.
    fn file(&self) -> Option<(u64, u64)> {
        let meta = std::fs::metadata(&self.backing).ok()?;
        Some((meta.dev(), meta.ino()))
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.shown.0 < other.shown.1 && other.shown.0 < self.shown.1
    }
}

/// Returns all loop devices that show a file. Without sysfs nothing can be known.
fn all() -> impl Iterator<Item = LoopDevice> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten();
    devices
        .flatten()
        .filter(|device| device.file_name().as_bytes().starts_with(b"loop"))
        .filter_map(|device| LoopDevice::of(&device.path()))
}

/// Fails if a loop device shows this file.
pub(crate) fn refuse_loop(file: &File, path: &Path) -> io::Result<()> {
    let meta = file.metadata()?;
    let file = Some((meta.dev(), meta.ino()));
    refuse_while(path, || all().find(|device| device.file() == file))
}

/// Locks the file below a loop device that was opened, to keep others from opening the file for writing. Fails if the
/// file is open for writing, or if another loop device shows the same bytes and `writes` is set. The lock lasts until
/// the returned file is dropped. Returns `None` if the device is not a loop device, or its file has no path here.
pub(crate) fn lock_backing(device: &File, path: &Path, writes: bool) -> io::Result<Option<File>> {
    let Some(opened) = LoopDevice::opened(device) else {
        return Ok(None);
    };
    let shown = opened.file();
    if writes && shown.is_some() {
        let is_other = |other: &LoopDevice| {
            other.name != opened.name && other.file() == shown && other.overlaps(&opened)
        };
        refuse_while(path, || all().find(is_other))?;
    }
    let Ok(backing) = File::open(&opened.backing) else {
        return Ok(None);
    };
    match backing.try_lock_shared() {
        Ok(()) => Ok(Some(backing)),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!(
                "{}: in use by another process: it has {} open, which this device shows",
                path.display(),
                opened.backing.display()
            ),
        )),
        // The file system has no locks, so the file's other users hold no locks.
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Fails if `find` still finds a loop device after several tries, because a device may just be being removed.
fn refuse_while(path: &Path, find: impl Fn() -> Option<LoopDevice>) -> io::Result<()> {
    for wait in [5, 20, 50, 100, 0] {
        let Some(device) = find() else {
            return Ok(());
        };
        if wait == 0 {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!(
                    "{}: in use by the kernel: the loop device /dev/{} shows it",
                    path.display(),
                    device.name
                ),
            ));
        }
        std::thread::sleep(Duration::from_millis(wait));
    }
    Ok(())
}
