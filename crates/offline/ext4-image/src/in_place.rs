//! The protocol of a change in place: a crash at any write leaves the old image, the new one, or one that cannot be
//! mounted.
//!
//! 1. The undo file is written and flushed: the old bytes of every sector that changes, and the length of the image. Of a block device it is
//!    a record in free blocks of the device ([`area`](crate::undo_area)).
//! 2. The first sector of the superblock becomes the mark of this change ([`ChangeMark`]); flush. Linux, e2fsck and every command here
//!    refuse the image from now on, and the mark names the undo file.
//! 3. Every other sector is written; flush.
//! 4. The first sector of the superblock becomes that of the new volume; flush. The change is made.
//!
//! A change is taken back by steps 2 to 4 with the old bytes, so a crash meanwhile leaves the mark, too.

use crate::planted::{self, Fault};
use blockdev::BlockDevice;
use ext4_format::change_mark::{ChangeMark, MARK_SIZE};
use ext4_format::superblock::SUPERBLOCK_OFFSET;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Size of a hole.
pub(crate) const HOLE: u64 = 4096;
/// Largest number of adjacent pieces in one write.
const MOST_PIECES: usize = 256;

/// Reads the mark of an interrupted change from an image.
///
/// ```
/// let image = ext4_image::blockdev::MemDevice::new(8192);
/// assert_eq!(ext4_image::mark(&image)?, None);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The errors of the device.
pub fn mark(device: &dyn BlockDevice) -> io::Result<Option<ChangeMark>> {
    if device.len() < SUPERBLOCK_OFFSET + MARK_SIZE as u64 {
        return Ok(None);
    }
    let mut first = [0; MARK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut first)?;
    Ok(ChangeMark::read(&first))
}

/// Returns the mark of the change with this identity and undo file. The path is empty if the undo record is not in a
/// file.
pub(crate) fn new_mark(id: u64, file: &Path) -> ChangeMark {
    // The file may have been named from the current directory.
    let path = file.canonicalize();
    let path = path.as_deref().unwrap_or(file);
    ChangeMark::new(id, path.as_os_str().as_bytes())
}

/// Everything that a change writes.
pub(crate) struct Writes<'w> {
    /// Bytes by their offset, without the first sector of the superblock.
    pub(crate) pieces: &'w [(u64, &'w [u8])],
    /// Offsets of ranges of 4096 bytes that become zeros, and need no space.
    pub(crate) holes: &'w [u64],
    /// The first sector of the superblock, if the image has one.
    pub(crate) first: Option<&'w [u8; MARK_SIZE]>,
}

impl Writes<'_> {
    /// Makes the change under a mark, the first sector of the superblock last.
    pub(crate) fn make(&self, image: &dyn BlockDevice, mark: &ChangeMark) -> io::Result<()> {
        // If the first sector is all that changes, its write is atomic.
        let is_one_sector = self.pieces.is_empty() && self.holes.is_empty();
        if let Some(first) = self.first.filter(|_| !is_one_sector) {
            if planted::is(Fault::SuperblockFirst) {
                image.write_at(SUPERBLOCK_OFFSET, first)?;
            } else {
                put_mark(image, first, mark)?;
            }
        }
        for run in self.holes.chunk_by(|a, b| a + HOLE == *b) {
            let start = run.first().copied().unwrap_or_default();
            image.discard(start, run.len() as u64 * HOLE)?;
        }
        write_pieces(image, self.pieces)?;
        if let Some(first) = self.first {
            if !is_one_sector {
                image.flush()?;
            }
            image.write_at(SUPERBLOCK_OFFSET, first)?;
        }
        image.flush()
    }
}

/// Marks the image, unless it has the mark of this change.
fn put_mark(image: &dyn BlockDevice, first: &[u8; MARK_SIZE], mark: &ChangeMark) -> io::Result<()> {
    let mut now = [0; MARK_SIZE];
    image.read_at(SUPERBLOCK_OFFSET, &mut now)?;
    if ChangeMark::read(&now).is_some_and(|now| now.id() == mark.id()) {
        return Ok(());
    }
    image.write_at(SUPERBLOCK_OFFSET, &mark.over(first))?;
    image.flush()
}

fn write_pieces(image: &dyn BlockDevice, pieces: &[(u64, &[u8])]) -> io::Result<()> {
    let mut run: Vec<&[u8]> = Vec::new();
    let (mut start, mut end) = (0, 0);
    for (at, bytes) in pieces {
        if *at != end || run.len() == MOST_PIECES {
            image.write_vectored_at(start, &run)?;
            run.clear();
            start = *at;
        }
        run.push(bytes);
        end = at + bytes.len() as u64;
    }
    image.write_vectored_at(start, &run)
}

/// Shortens an image to its old length, if the device can be shortened.
pub(crate) fn shorten(image: &dyn BlockDevice, len: u64) -> io::Result<()> {
    if image.len() <= len {
        return Ok(());
    }
    match image.shorten(len) {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(e) => Err(e),
        Ok(()) => image.flush(),
    }
}

/// Removes an undo file that has no more use.
pub(crate) fn remove(file: &Path) -> io::Result<()> {
    std::fs::remove_file(file)?;
    sync_folder(file)
}

/// Removes the file that is open as `opened`. If its path leads to another file by now, that file stays: the owner of a directory of
/// the path may replace it by a link.
pub(crate) fn remove_opened(path: &Path, opened: &File) -> io::Result<()> {
    let Some(name) = path.file_name() else {
        return Ok(());
    };
    let folder = folder_of(path);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags | OFlags::DIRECTORY, Mode::empty())?;
    let there = rustix::fs::openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
    let id = |meta: Metadata| (meta.dev(), meta.ino());
    if id(File::from(there).metadata()?) == id(opened.metadata()?) {
        rustix::fs::unlinkat(&folder, name, AtFlags::empty())?;
        rustix::fs::fsync(&folder)?;
    }
    Ok(())
}

/// Returns the directory of a path that is not empty.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Returns the error for an undo file that cannot be removed, although the rest is `done`.
pub(crate) fn stays<'f>(file: &'f Path, done: &'f str) -> impl Fn(io::Error) -> io::Error + 'f {
    move |e| {
        let file = file.display();
        io::Error::new(
            e.kind(),
            format!("{done}, but its undo file cannot be removed: {file}: {e}"),
        )
    }
}

/// Makes the name of a new file durable, where a folder can be flushed.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    match File::open(folder_of(path)) {
        Ok(folder) => folder.sync_all(),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_took_the_place_of_an_undo_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["theirs", "system"] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::write(at(name).join("shadow"), name).unwrap();
        }
        let undo = at("theirs").join("shadow");
        let opened = File::open(&undo).unwrap();
        std::fs::rename(at("theirs"), at("moved")).unwrap();
        std::os::unix::fs::symlink(at("system"), at("theirs")).unwrap();
        remove_opened(&undo, &opened).unwrap();
        assert!(at("system").join("shadow").exists());
        assert!(at("moved").join("shadow").exists());
        remove_opened(&at("moved").join("shadow"), &opened).unwrap();
        assert!(!at("moved").join("shadow").exists());
    }
}
