//! Location of an image: a file, a block device, an export of an NBD server, a file of a web server, objects of a store, or an image of a Ceph cluster
//! ([`crate::image::remote`]). Parts of these have addresses as well: `disk.img@p2`, `@label=NAME`, `@uuid=UUID`, `@offset=1M,size=2G`.
//! Behind any of these, `@verity=ROOTHASH` ([`crate::image::verified`]) verifies each block that is read.
//!
//! A file of the host with exactly that name takes precedence.

use crate::address::schemes::{is_remote, is_served};
use crate::format::show::ShowPath;
use crate::image::failed_open::about_open;
use crate::image::silent_servers::SilentServers;
use crate::image::{io_timeout, logged_image, overlaid, remote, streams, verified};
use crate::messages::advised::advised;
use crate::mounts::server_exit::open_when_free;
use anyhow::{Context, Result, anyhow, bail};
use blockdev::{Access, BlockDevice, FileDevice, PartDevice, UnlockedFile};
use extant_disk::{Error, Format, Part, Table, Unpacking};
use extant_nbd::{NbdDevice, NbdUrl};
use extant_terminal::interrupt;
use extant_terminal::numbers::size;
use extant_terminal::output::one_line;
use extant_terminal::progress::Progress;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lockmeter::{Mutex, lock_class};

lock_class!(
    /// The disks that are open for writing.
    Disks = "open disks"
);

/// Time after which a command does not ask a server again, unless the user sets another one.
const SILENCE: Duration = Duration::from_secs(30);

/// Threads that copy from and to servers.
const REMOTE_THREADS: usize = 16;

/// An export, by its address.
type Export = (PathBuf, Weak<dyn BlockDevice>);

/// Exports of servers.
struct Exports {
    open: Vec<Export>,
    silent: SilentServers,
}

static EXPORTS: Mutex<Exports, Disks> = Mutex::new(Exports {
    open: Vec::new(),
    silent: SilentServers::new(),
});

/// Returns the number of threads that copy. Zero stands for the number of CPUs, or for more where an image is on a server: each thread
/// then waits for a reply most of the time.
pub fn threads<'p>(threads: usize, images: impl IntoIterator<Item = &'p Path>) -> usize {
    if threads > 0 {
        return threads;
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if images.into_iter().any(is_remote) {
        cpus.max(REMOTE_THREADS)
    } else {
        cpus
    }
}

/// Parses the value of `--threads`.
pub fn threads_given(text: &str) -> Result<usize, String> {
    let given = text.parse().ok().filter(|threads| *threads <= 1024);
    given.ok_or_else(|| format!("'{text}' is not a number of threads (0 to 1024)"))
}

/// Returns a substitute for device and inode of an export: two different addresses count as two images.
pub fn remote_id(address: &Path) -> FileId {
    let bytes = address.as_os_str().as_bytes();
    (
        u64::MAX,
        u64::from(ext4_format::checksum::crc32c(!0, bytes)),
    )
}

/// Opens the export of a server. All users of one address in this process share a connection. A command looks at its image several times, but
/// waits only once for a server that does not answer.
fn export(address: &Path, access: Access) -> Result<Arc<dyn BlockDevice>> {
    let mut exports = EXPORTS.lock();
    exports.open.retain(|(_, device)| device.strong_count() > 0);
    if let Some(error) = exports.silent.error(address) {
        bail!("{error}");
    }
    let writes = access == Access::ReadWrite;
    let served = is_served(address);
    let known = exports.open.iter().filter(|(known, _)| known == address);
    let known = known.filter_map(|(_, device)| device.upgrade());
    // An image of objects or of a Ceph cluster is claimed only for writing.
    let device = match known
        .into_iter()
        .find(|d| !(writes && served && d.read_only()))
    {
        Some(device) => device,
        None => {
            let began = Instant::now();
            let device = connect(address, access).inspect_err(|error| {
                let waited = began.elapsed();
                let is_silent = waited >= io_timeout::get().unwrap_or(SILENCE);
                // An interrupt says nothing about the server.
                if is_silent && interrupt::check().is_ok() {
                    exports.silent.add(address, one_line(error), waited);
                }
            })?;
            exports.open.push((address.into(), Arc::downgrade(&device)));
            device
        }
    };
    if access == Access::ReadWrite && device.read_only() {
        bail!("{}: the server exports it read-only", address.shown());
    }
    Ok(device)
}

/// Connects to a server. A file with a seek table of zstd is the disk in it.
fn connect(address: &Path, access: Access) -> Result<Arc<dyn BlockDevice>> {
    let text = address
        .to_str()
        .context("the address of a server is text")?;
    let device = if is_served(address) || io_timeout::needs_other_process() {
        remote::connect(text, access)?
    } else {
        NbdDevice::connect(
            &NbdUrl::parse(text)?,
            &io_timeout::options(text, remote::NBD_AT_END),
        )?
    };
    if !device.read_only() || Format::of(&device) != Format::Zstd {
        return Ok(Arc::new(device));
    }
    let disk = extant_disk::seekable(Arc::new(device)).with_context(|| text.to_owned())?;
    disk.ok_or_else(|| {
        advised(
            format_args!("{text}: compressed in one piece, which cannot be read in parts"),
            "extant mkfs and extant disk write .zst with a seek table",
        )
    })
}

/// The character before the name of a part.
const AT: u8 = b'@';

/// Splits the name of an image into its file and the part of the file, if the name has a part.
pub fn split(image: &Path) -> Option<(&Path, Result<Part>)> {
    let image = unverified(image);
    let bytes = image.as_os_str().as_bytes();
    let ats = (1..bytes.len()).filter(|&at| bytes.get(at) == Some(&AT));
    let mut ats = ats.peekable();
    // Most names have no `@`, so the file is not looked up.
    if ats.peek().is_none() || image.symlink_metadata().is_ok() {
        return None;
    }
    ats.find_map(|at| {
        let file = Path::new(OsStr::from_bytes(bytes.get(..at)?));
        let rest = bytes.get(at + 1..)?;
        // Labels may contain slashes, but a directory whose name looks like a part is more likely.
        let whole = !rest.contains(&b'/') || file.metadata().is_ok_and(|m| !m.is_dir());
        let part = parse(&String::from_utf8_lossy(rest)).filter(|_| whole)?;
        Some((file, part))
    })
}

/// Parses the text after the `@`; `None` if it does not name a part.
fn parse(text: &str) -> Option<Result<Part>> {
    if let Some(digits) = text.strip_prefix('p') {
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        // A number that is too large becomes a partition that no disk has.
        return plain.then(|| Ok(Part::Number(digits.parse().unwrap_or(u32::MAX))));
    }
    if let Some(label) = text.strip_prefix("label=") {
        return Some(Ok(Part::Label(label.into())));
    }
    if let Some(uuid) = text.strip_prefix("uuid=") {
        return Some(Ok(Part::Uuid(uuid.into())));
    }
    let known = text.starts_with("offset=") || text.starts_with("size=");
    known.then(|| bytes(text))
}

/// Parses `offset=1M,size=2G`, either or both.
fn bytes(text: &str) -> Result<Part> {
    let (mut offset, mut len) = (None, None);
    for field in text.split(',') {
        let (slot, number) = match field.split_once('=') {
            Some(("offset", number)) => (&mut offset, number),
            Some(("size", number)) => (&mut len, number),
            _ => bail!("@{text}: write @offset=1M,size=2G"),
        };
        if slot.replace(size(number)?).is_some() {
            bail!("@{text}: {field} is given twice");
        }
    }
    Ok(Part::Bytes {
        offset: offset.unwrap_or(0),
        size: len,
    })
}

/// Returns whether an address names more than a file, a device or a place on a server.
pub fn has_suffix(image: &Path) -> bool {
    split(image).is_some() || verified::split(image).is_some()
}

/// Returns an address without what verifies the image.
fn unverified(image: &Path) -> &Path {
    verified::split(image).map_or(image, |(image, _)| image)
}

/// Returns the file or block device that holds the image.
pub fn file(image: &Path) -> &Path {
    let image = unverified(image);
    split(image).map_or(image, |(file, _)| file)
}

/// Resolves links and dots in the name.
pub fn canonical(image: &Path) -> io::Result<PathBuf> {
    if is_remote(image) {
        return Ok(image.into());
    }
    let file = file(image);
    let mut name = OsString::from(file.canonicalize()?);
    let bytes = image.as_os_str().as_bytes();
    let part = bytes.get(file.as_os_str().len()..).unwrap_or_default();
    name.push(OsStr::from_bytes(part));
    Ok(name.into())
}

/// Turns an error of opening a part into a message with advice.
fn told(image: &Path, file: &Path, error: Error) -> anyhow::Error {
    let (name, shown) = (file.shown(), image.shown());
    match error {
        Error::NotFound(_) | Error::Several(_) => advised(
            format_args!(
                "{shown}: there is {}",
                match &error {
                    Error::NotFound(_) => error.to_string(),
                    _ => format!("more than one: {error}"),
                }
            ),
            format_args!("see extant info {name}"),
        ),
        Error::NoTable => advised(
            format_args!("{shown}: {error}"),
            format_args!("without @... it is the whole of {name}"),
        ),
        _ => anyhow!("{shown}: {error}"),
    }
}

/// A disk, by its file.
type OpenImage = (FileId, Weak<dyn BlockDevice>);

/// Disks that are open for writing; other users may open other parts of them.
static OPEN: Mutex<Vec<OpenImage>, Disks> = Mutex::new(Vec::new());

/// Compressed disks, kept so that they are decompressed once and not at each use.
static UNPACKED: Mutex<Vec<Arc<dyn BlockDevice>>, Disks> = Mutex::new(Vec::new());

/// Device and inode of a file.
pub type FileId = (u64, u64);

/// Returns whether the image is a whole file or block device, byte by byte.
pub fn is_plain(image: &Path) -> bool {
    !is_remote(image)
        && !overlaid::is_overlaid(image)
        && verified::split(image).is_none()
        && split(image).is_none()
        && format(image) == Format::Raw
}

/// Returns the format of a file; raw if the file cannot be read.
pub fn format(file: &Path) -> Format {
    unlocked(unverified(file)).map_or(Format::Raw, |file| Format::of(&file))
}

/// Returns why an image in this file cannot be changed: write protection of the file, or its format. A format that
/// cannot be read needs no refusal here, because opening the file fails.
pub fn write_protection(image: &Path) -> io::Result<Option<&'static str>> {
    if overlaid::is_overlaid(image) {
        return Ok(None);
    }
    if verified::split(image).is_some() {
        return Ok(Some(verified::ONLY_READ));
    }
    let file = file(image);
    if is_remote(file) {
        return Ok(None);
    }
    let read = || Some(format(file)).filter(|&format| format != Format::Vhdx);
    Ok(blockdev::write_protection(file)?.or_else(|| read()?.why_read_only()))
}

/// Opens the disk in a file. A disk that this process has open for writing is shared; a compressed disk is always
/// shared.
fn disk(file: &Path, access: Access) -> Result<Arc<dyn BlockDevice>> {
    if is_remote(file) {
        return export(file, access);
    }
    let id = file.metadata().map(|m| (m.dev(), m.ino())).ok();
    let mut disks = OPEN.lock();
    disks.retain(|(_, disk)| disk.strong_count() > 0);
    let known = disks.iter().find(|(known, _)| Some(*known) == id);
    if let Some(disk) = known.and_then(|(_, disk)| disk.upgrade())
        && !(access == Access::ReadWrite && disk.read_only())
    {
        return Ok(disk);
    }
    let compressed = format(file).is_compressed();
    let unpacking = || Unpacking {
        step: Arc::new(|| interrupt::check().map_err(io::Error::other)),
        ..Unpacking::default()
    };
    let disk = open_when_free(file, || extant_disk::open_with(file, access, unpacking()))
        .map_err(|e| about_open(file, anyhow!("{e}")))?;
    if let Some(id) = id.filter(|_| access == Access::ReadWrite || compressed) {
        disks.push((id, Arc::downgrade(&disk)));
    }
    if compressed {
        UNPACKED.lock().push(Arc::clone(&disk));
    }
    Ok(disk)
}

/// Decompresses a disk that must be decompressed as a whole, with a progress line.
fn unpack(file: &Path, disk: &dyn BlockDevice) -> Result<()> {
    let progress = Progress::wait(&format!("{}: decompressing", file.shown()));
    let done = disk.read_at(0, &mut []);
    progress.done();
    // After Ctrl-C the image is opened again to complete its undo file. So an interrupt is an error only if decompression failed.
    done.or_else(|e| {
        interrupt::check()?;
        Err(about_open(file, anyhow!("{e}")))
    })
}

/// Opens the device that holds the image, whole or in part.
pub fn open(image: &Path, access: Access) -> Result<Arc<dyn BlockDevice>> {
    let device = open_unread(image, access)?;
    if !is_remote(image) && !overlaid::is_overlaid(image) {
        unpack(file(image), &device)?;
    }
    Ok(device)
}

/// Opens the image itself, without an overlay over it.
fn open_below(image: &Path, access: Access) -> Result<Arc<dyn BlockDevice>> {
    let device = open_below_unread(image, access)?;
    if !is_remote(image) {
        unpack(file(image), &device)?;
    }
    Ok(device)
}

/// Opens the device like [`open`], for callers that confine themselves first: a disk that must be decompressed as a
/// whole is decompressed at the first read, unless an overlay is over it.
pub fn open_unread(image: &Path, access: Access) -> Result<Arc<dyn BlockDevice>> {
    let device = if overlaid::is_overlaid(image) {
        overlaid::open(file(image), access, || open_below(image, Access::ReadOnly))?
    } else {
        open_below_unread(image, access)?
    };
    Ok(match access {
        Access::ReadOnly => device,
        Access::ReadWrite => logged_image::logged(image, device),
    })
}

fn open_below_unread(image: &Path, access: Access) -> Result<Arc<dyn BlockDevice>> {
    if let Some((inner, proof)) = verified::split(image) {
        let name = || image.shown();
        let (root, tree) = proof.with_context(name)?;
        if access == Access::ReadWrite {
            bail!("{}: {}", image.shown(), verified::ONLY_READ);
        }
        let tree = tree.map(|tree| open(&tree, access)).transpose()?;
        let device = open(inner, access)?;
        let verified = verified::device(&device, tree, root).with_context(name)?;
        return Ok(Arc::new(verified));
    }
    if !is_remote(image) && split(image).is_none() && format(image) == Format::Raw {
        let file = open_when_free(image, || FileDevice::open(image, access))
            .map_err(|e| about_open(image, anyhow!("{e}")));
        return Ok(Arc::new(file?));
    }
    let Some((file, part)) = split(image) else {
        return disk(image, access);
    };
    let part = part.with_context(|| file.shown())?;
    let disk = disk(file, access)?;
    let range = extant_disk::part(&disk, &part).map_err(|e| told(image, file, e))?;
    Ok(Arc::new(PartDevice::new(disk, range)?))
}

/// Opens the disk in a file for inspection, even if another process has locked the file.
fn look(file: &Path) -> Result<Arc<dyn BlockDevice>> {
    if is_remote(file) {
        return export(file, Access::ReadOnly);
    }
    let raw = unlocked(file)?;
    if Format::of(&raw) == Format::Raw {
        return Ok(Arc::new(raw));
    }
    // Lock the disk, because its tables must not change meanwhile.
    let disk = disk(file, Access::ReadOnly)?;
    unpack(file, &disk)?;
    Ok(disk)
}

/// Opens a file for inspection, even if another process has locked the file.
fn unlocked(file: &Path) -> io::Result<UnlockedFile> {
    // Opening a pipe would wait for its writer.
    if streams::is_pipe(file) {
        let text = "neither a regular file nor a block device";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    UnlockedFile::new(File::open(file)?)
}

/// Returns the bytes of the file that the image occupies; for an image that is not a part, the largest range.
pub fn range(image: &Path) -> Result<Range<u64>> {
    let image = unverified(image);
    let Some((file, part)) = split(image) else {
        if is_remote(image) {
            // Report the server's error.
            export(image, Access::ReadOnly)?;
        }
        return Ok(0..u64::MAX);
    };
    let name = || file.shown();
    let part = part.with_context(name)?;
    let disk = look(file).with_context(name)?;
    extant_disk::part(&disk, &part).map_err(|e| told(image, file, e))
}

/// Returns the first bytes of the image, at most `most`. A compressed file is decompressed only that far.
pub fn head(image: &Path, most: usize) -> io::Result<Vec<u8>> {
    if overlaid::is_overlaid(image) {
        let device = open(image, Access::ReadOnly).map_err(io::Error::other)?;
        let mut head = vec![0; device.len().min(most as u64) as usize]; // at most `most`
        device.read_at(0, &mut head)?;
        return Ok(head);
    }
    let image = unverified(image);
    if split(image).is_none() && format(image).is_compressed() {
        let head = extant_disk::decompressed_head(unlocked(image)?, most);
        // A damaged file is reported as its apparent format.
        return head.or_else(|_| raw_head(image, most));
    }
    let range = range(image).map_err(io::Error::other)?;
    let disk = look(file(image)).map_err(io::Error::other)?;
    let end = range.end.min(disk.len());
    let len = end.saturating_sub(range.start).min(most as u64);
    let mut head = vec![0; len as usize]; // at most `most`
    disk.read_at(range.start, &mut head)?;
    Ok(head)
}

/// Returns the first bytes of a file, without decoding any format.
fn raw_head(file: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(file)?.take(most as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// Returns the partition table of a disk that is not itself an image.
pub fn table(image: &Path) -> Result<Option<(Table, u64)>> {
    if split(image).is_some() {
        return Ok(None);
    }
    let disk = look(image)?;
    let table = Table::read(&disk).map_err(|e| anyhow!("{}: {e}", image.shown()))?;
    Ok(table.map(|table| (table, disk.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(image: &str) -> Option<(String, Option<Part>)> {
        let (file, part) = split(Path::new(image))?;
        Some((file.shown(), part.ok()))
    }

    #[test]
    fn parts_are_split_from_files() {
        let is = |image: &str, file: &str, p: Part| {
            assert_eq!(part(image), Some((file.into(), Some(p))), "{image}");
        };
        is("no.img@p2", "no.img", Part::Number(2));
        is("a@b.img@p12", "a@b.img", Part::Number(12));
        is("no.img@p99999999999", "no.img", Part::Number(u32::MAX));
        is("d/no.img@label=a b", "d/no.img", Part::Label("a b".into()));
        is("no.img@uuid=1-2", "no.img", Part::Uuid("1-2".into()));
        let range = |offset, size| Part::Bytes { offset, size };
        is("no.img@offset=1M", "no.img", range(1 << 20, None));
        is(
            "no.img@offset=1M,size=2K",
            "no.img",
            range(1 << 20, Some(2048)),
        );
        is("no.img@size=2K", "no.img", range(0, Some(2048)));
        for whole in [
            "no.img",
            "@p2",
            "no.img@",
            "no.img@p",
            "no.img@p2x",
            "no@p2/x.img",
            "no.img@px",
        ] {
            assert_eq!(part(whole), None, "{whole}");
        }
        for wrong in [
            "no.img@offset=x",
            "no.img@offset=1,offset=2",
            "no.img@offset=1,x=2",
        ] {
            assert_eq!(part(wrong), Some(("no.img".into(), None)), "{wrong}");
        }
    }

    #[test]
    fn a_file_of_that_name_wins() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("odd@p1");
        assert!(split(&odd).is_some());
        std::fs::write(&odd, "").unwrap();
        assert!(split(&odd).is_none());
    }
}
