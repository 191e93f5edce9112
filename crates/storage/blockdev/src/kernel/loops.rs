//! Loop devices: the file that a device shows, and the devices that show a file.
//!
//! Linux lets any number of loop devices show one file, and ignores locks on the file. So an opener that writes a file
//! looks for loop devices over it, and an opener of a loop device locks the file below.

use rustix::fs::OFlags;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a sector in sysfs.
const SECTOR: u64 = 512;

/// Most loop devices on each other; Linux has this limit.
const DEEPEST: usize = 10;

/// Milliseconds between tries, because a device may just be being removed.
const WAITS: [u64; 5] = [5, 20, 50, 100, 0];

/// A loop device as sysfs describes it.
struct LoopDevice {
    name: String,
    /// Its directory in sysfs.
    dir: PathBuf,
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
            dir: dir.to_path_buf(),
            backing: std::ffi::OsStr::from_bytes(backing).into(),
            shown: (
                from,
                limit.map_or(u64::MAX, |limit| from.saturating_add(limit)),
            ),
        })
    }

    /// Returns all bytes that are written with this device.
    fn below(&self) -> Vec<Extent> {
        extents(&self.dir)
    }
}

/// Bytes of a file or block device.
struct Extent {
    /// A block device by its number, or a file by its device and inode number.
    node: Node,
    path: PathBuf,
    /// First byte, and the byte behind the last.
    bytes: (u64, u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Block(u64),
    File(u64, u64),
}

impl Node {
    fn of(meta: &Metadata) -> Self {
        if meta.file_type().is_block_device() {
            Self::Block(meta.rdev())
        } else {
            Self::File(meta.dev(), meta.ino())
        }
    }
}

impl Extent {
    fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (self.bytes, other.bytes);
        self.node == other.node && a.0 < b.1 && b.0 < a.1
    }
}

/// Returns the directory of an open block device in sysfs.
fn dir_of(meta: &Metadata) -> Option<PathBuf> {
    let (major, minor) = (
        rustix::fs::major(meta.rdev()),
        rustix::fs::minor(meta.rdev()),
    );
    std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// Returns the bytes of the block device with this directory in sysfs: as bytes of the whole device, and, below loop devices, of the
/// device or file that each of them shows.
fn extents(dir: &Path) -> Vec<Extent> {
    let mut found = Vec::new();
    let mut dir = dir.to_path_buf();
    let mut bytes = (0, u64::MAX);
    for _ in 0..DEEPEST {
        let number = |file: &str| {
            let text = std::fs::read_to_string(dir.join(file)).ok()?;
            text.trim().parse::<u64>().ok()?.checked_mul(SECTOR)
        };
        if dir.join("partition").exists() {
            let (Some(start), Some(size)) = (number("start"), number("size")) else {
                break;
            };
            bytes = within((start, start.saturating_add(size)), bytes);
            dir.pop();
        }
        let Some(node) = block_node(&dir) else { break };
        let name = dir.file_name().unwrap_or_default();
        found.push(Extent {
            node,
            path: Path::new("/dev").join(name),
            bytes,
        });
        let Some(shown) = LoopDevice::of(&dir) else {
            break;
        };
        bytes = within(shown.shown, bytes);
        let Ok(meta) = std::fs::metadata(&shown.backing) else {
            break;
        };
        if meta.file_type().is_block_device() {
            let Some(next) = dir_of(&meta) else { break };
            dir = next;
            continue;
        }
        found.push(Extent {
            node: Node::of(&meta),
            path: shown.backing,
            bytes,
        });
        break;
    }
    found
}

/// Returns bytes of a part as bytes of what the part belongs to.
fn within(part: (u64, u64), bytes: (u64, u64)) -> (u64, u64) {
    let place = |at: u64| part.0.saturating_add(at).min(part.1);
    (place(bytes.0), place(bytes.1))
}

/// Returns the number of the block device with this directory in sysfs.
fn block_node(dir: &Path) -> Option<Node> {
    let text = std::fs::read_to_string(dir.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    Some(Node::Block(number))
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
    let node = Node::of(&file.metadata()?);
    refuse_while(path, || {
        let mut devices = all();
        let found = devices.find(|device| device.below().iter().any(|extent| extent.node == node));
        found.as_ref().map(showing)
    })
}

/// Locks the files and devices below a block device that was opened, to keep others from opening them for writing. Fails if
/// one of them is open for writing. With `writes`, also fails if another loop device shows the same bytes, or if a
/// device below is mounted. The locked files are added to `locked`, also before a failure. Files without a path here are left out.
pub(crate) fn lock_backing(
    device: &File,
    path: &Path,
    writes: bool,
    locked: &mut Vec<File>,
) -> io::Result<()> {
    let meta = device.metadata()?;
    let Some(dir) = Some(meta)
        .filter(|meta| meta.file_type().is_block_device())
        .as_ref()
        .and_then(dir_of)
    else {
        return Ok(());
    };
    let opened = extents(&dir);
    if writes {
        let is_opened = |node| opened.iter().any(|extent| extent.node == node);
        let shows = |other: &LoopDevice| {
            // The devices below this one show its bytes, too.
            block_node(&other.dir).is_some_and(|node| !is_opened(node))
                && other
                    .below()
                    .iter()
                    .any(|a| opened.iter().any(|b| a.overlaps(b)))
        };
        refuse_while(path, || all().find(shows).as_ref().map(showing))?;
    }
    for below in opened.iter().skip(1) {
        if writes && matches!(below.node, Node::Block(_)) {
            refuse_held(below, path)?;
        }
        locked.extend(lock(below, path)?);
    }
    Ok(())
}

/// Locks a file or device below a loop device. Returns `None` if it cannot be opened or locked.
fn lock(below: &Extent, path: &Path) -> io::Result<Option<File>> {
    let Ok(backing) = File::open(&below.path) else {
        return Ok(None);
    };
    match backing.try_lock_shared() {
        Ok(()) => Ok(Some(backing)),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!(
                "{}: in use by another process: it has {} open, which this device shows",
                path.display(),
                below.path.display()
            ),
        )),
        // The file system has no locks, so the file's other users hold no locks.
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Fails if a block device below a loop device is mounted, which an exclusive open shows. The device is closed again, because
/// other loop devices may show other bytes of it.
fn refuse_held(below: &Extent, path: &Path) -> io::Result<()> {
    refuse_while(path, || {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::EXCL.bits() as i32);
        // A device that may not be opened is taken for a free one.
        let error = options.open(&below.path).err()?;
        let held = error.kind() == io::ErrorKind::ResourceBusy;
        let shown = below.path.display();
        held.then(|| format!("{shown}, which this device shows, is mounted or open"))
    })
}

/// Fails if `find` still finds a use by the kernel after several tries, because a device may just be being removed.
fn refuse_while(path: &Path, find: impl Fn() -> Option<String>) -> io::Result<()> {
    for wait in WAITS {
        let Some(found) = find() else {
            return Ok(());
        };
        if wait == 0 {
            let text = format!("{}: in use by the kernel: {found}", path.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        std::thread::sleep(Duration::from_millis(wait));
    }
    Ok(())
}

/// Returns how a loop device uses a file or device.
fn showing(device: &LoopDevice) -> String {
    format!("the loop device /dev/{} shows it", device.name)
}
