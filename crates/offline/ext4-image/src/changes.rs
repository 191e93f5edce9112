//! Changes of an image that were made in memory first.

use crate::error::Error;
use crate::file_id::FileId;
use crate::in_place::{self, HOLE};
use crate::split_change::Pieces;
use crate::undo::Undo;
use crate::undo_area;
use blockdev::BlockDevice;
use ext4_format::change_mark::ChangeMark;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// New contents of parts of an image, by their offset in bytes.
///
/// ```
/// use ext4_image::{MemOverlay, blockdev::{BlockDevice, MemDevice}};
/// let image = MemDevice::from_bytes(&[1; 4096]);
/// let overlay = MemOverlay::new(&image);
/// overlay.write_at(0, &[2; 4096])?;
/// let changes = overlay.into_changes()?;
/// let undo = changes.undo(&image)?;
/// changes.apply(&image)?;
/// assert_eq!(image.to_bytes()?, [2; 4096]);
/// undo.take_back(&image)?;
/// assert_eq!(image.to_bytes()?, [1; 4096]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(pub(crate) BTreeMap<u64, Vec<u8>>);

impl Changes {
    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of bytes to write.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(|bytes| bytes.len() as u64).sum()
    }

    /// Returns the record that reverts the changes. It must be durable before [`Self::apply`].
    ///
    /// # Errors
    /// The errors of the device.
    pub fn undo(&self, image: &dyn BlockDevice) -> io::Result<Undo> {
        Undo::before(image, &self.0)
    }

    /// Writes the changes, and returns when they are durable. A crash leaves the old image, the new one, or one with the mark of a
    /// change: nothing mounts it, and [`Undo::take_back`] restores the old one.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn apply(&self, image: &dyn BlockDevice) -> io::Result<()> {
        let pieces = Pieces::of(image, &self.0)?;
        let undo = Undo::of_pieces(image, &pieces, image.len())?;
        write(image, &pieces, &BTreeSet::new(), &undo, Path::new(""))
    }

    /// Writes the changes and their undo files: `keep` stays, `beside` is removed after the last write. Both are durable before the
    /// first write. If neither is given, or if the host is full, the old bytes are saved inside the image until the change is complete: in
    /// free blocks, or in an empty journal. A block device needs this, because its directory does not outlive the system. If a write
    /// fails, the old image is restored at once.
    ///
    /// # Errors
    /// [`Error::Undo`], [`Error::NoRoomForUndo`] and [`Error::Io`] before the first write, [`Error::TakenBack`] after it; no undo file stays. After
    /// [`Error::Interrupted`] the undo file and the mark of the change stay, for [`ImageFile::take_back`](crate::ImageFile::take_back).
    pub fn write(
        &self,
        device: &dyn BlockDevice,
        keep: Option<&Path>,
        beside: Option<&Path>,
    ) -> Result<(), Error> {
        self.write_grown(device, device.len(), keep, beside)
    }

    /// Writes the changes as [`write`](Self::write) does, to an image that was extended for the change and had `len` bytes before. Taking the
    /// change back restores that length.
    ///
    /// # Errors
    /// The same.
    pub fn write_grown(
        &self,
        device: &dyn BlockDevice,
        len: u64,
        keep: Option<&Path>,
        beside: Option<&Path>,
    ) -> Result<(), Error> {
        write_with_undo(device, &self.0, &BTreeSet::new(), len, keep, beside)
    }

    /// Writes the changes with a temporary undo file as [`write`](Self::write) does, and frees `zeros`: ranges of 4096 bytes by their
    /// offsets that become zeros. No change may reach over the end of a range.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn write_with_holes(
        &self,
        device: &dyn BlockDevice,
        zeros: &BTreeSet<u64>,
        beside: Option<&Path>,
    ) -> Result<(), Error> {
        write_with_undo(device, &self.0, zeros, device.len(), None, beside)
    }
}

/// Writes a change, whose undo file is at a place that the mark names. The ranges `zeros` are freed where they change.
fn write(
    image: &dyn BlockDevice,
    pieces: &Pieces<'_>,
    zeros: &BTreeSet<u64>,
    undo: &Undo,
    file: &Path,
) -> io::Result<()> {
    let mark = in_place::new_mark(undo.id(), file);
    let is_zero = |(at, _): &(u64, &[u8])| zeros.contains(&(at - at % HOLE));
    let (freed, rest): (Vec<_>, Vec<_>) = pieces.rest.iter().copied().partition(is_zero);
    let mut holes: Vec<_> = freed.iter().map(|(at, _)| at - at % HOLE).collect();
    holes.dedup();
    let writes = in_place::Writes {
        pieces: &rest,
        holes: &holes,
        first: pieces.first.as_ref(),
    };
    writes.make(image, &mark)
}

/// Writes changes with their undo files, for an image that was `len` bytes long.
fn write_with_undo(
    device: &dyn BlockDevice,
    changes: &BTreeMap<u64, Vec<u8>>,
    zeros: &BTreeSet<u64>,
    len: u64,
    keep: Option<&Path>,
    beside: Option<&Path>,
) -> Result<(), Error> {
    let (mut files, mut beside): (Vec<&Path>, _) =
        (keep.into_iter().chain(beside).collect(), beside);
    let begin = |files: &[&Path], beside: Option<&Path>| -> Result<_, Error> {
        let pieces = Pieces::of(device, changes)?;
        Ok((write_undo(device, &pieces, len, files, beside)?, pieces))
    };
    let mut begun = begin(&files, beside);
    // If the host is full, save the old bytes in the image, as on a block device.
    let mut spills = false;
    if keep.is_none() && matches!(&begun, Err(Error::Io(e)) if is_full(e)) {
        (files, beside, spills) = (Vec::new(), None, true);
        begun = begin(&files, beside);
    }
    let (undo, pieces) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            // The caller needs the first error. An image that stays longer than its volume is sound.
            let _ = in_place::shorten(device, len);
            return Err(error);
        }
    };
    // The file next to the image stays there until the change is complete; the user may move the other one.
    let own;
    let mut spilled = None;
    let named = match beside.or(keep) {
        Some(file) => file,
        // If the first sector is all that changes, its write is atomic.
        None if pieces.rest.is_empty() => Path::new(""),
        None => {
            let record = undo.bytes();
            let place = undo_area::write(device, changes, &record);
            let place = place.inspect_err(|_| {
                let _ = in_place::shorten(device, len);
            })?;
            spilled = spills.then_some((place, record.len() as u64));
            own = ChangeMark::path_of_offset(place);
            Path::new(OsStr::from_bytes(&own))
        }
    };
    if let Err(error) = write(device, &pieces, zeros, &undo, named) {
        if undo.force_back(device, named).is_err() {
            return Err(Error::Interrupted {
                why: error.to_string(),
                undo: beside.or(keep).map(|file| file.display().to_string()),
            });
        }
        free_record(device, spilled);
        for file in files {
            // The caller needs the error of the write. The next change removes an undo file that stays.
            let _ = in_place::remove(file);
        }
        return Err(Error::TakenBack(error));
    }
    free_record(device, spilled);
    if let Some(file) = beside {
        in_place::remove(file).map_err(in_place::stays(file, "the change is complete"))?;
    }
    Ok(())
}

/// Discards the undo record in an image, so that a full host has its space back.
fn free_record(device: &dyn BlockDevice, record: Option<(u64, u64)>) {
    if let Some((place, len)) = record {
        // Ignore a failure: these blocks are free in the volume, so they may have any content.
        let _ = device.discard(place, len);
    }
}

/// Returns true if a write failed because the file system or the quota is full.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Writes the undo files; if one fails, none stays.
fn write_undo(
    device: &dyn BlockDevice,
    pieces: &Pieces<'_>,
    len: u64,
    files: &[&Path],
    beside: Option<&Path>,
) -> Result<Undo, Error> {
    let mut undo = Undo::of_pieces(device, pieces, len)?;
    if let Some(beside) = beside {
        undo.set_file(FileId::beside(beside));
    }
    for (i, file) in files.iter().enumerate() {
        if let Err(error) = undo.write(file) {
            for made in files.get(..i).unwrap_or_default() {
                let _ = in_place::remove(made);
            }
            return Err(error.into());
        }
    }
    Ok(undo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::MemDevice;
    use std::path::PathBuf;

    /// A device whose writes remove a file.
    struct Removing(MemDevice, PathBuf);

    impl BlockDevice for Removing {
        fn len(&self) -> u64 {
            self.0.len()
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.0.read_at(offset, buf)
        }

        fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
            let _ = std::fs::remove_file(&self.1);
            self.0.write_at(offset, buf)
        }

        fn flush(&self) -> io::Result<()> {
            self.0.flush()
        }

        fn read_only(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_complete_change_whose_undo_file_cannot_be_removed_is_said_to_be_complete() {
        let dir = tempfile::tempdir().unwrap();
        let beside = dir.path().join("undo");
        let device = Removing(MemDevice::from_bytes(&[1; 8192]), beside.clone());
        let changes = Changes([(4096, vec![2; 512])].into());
        let error = changes.write(&device, None, Some(&beside)).unwrap_err();
        assert!(
            error.to_string().contains("the change is complete, but"),
            "{error}"
        );
        let mut now = [0; 512];
        device.read_at(4096, &mut now).unwrap();
        assert_eq!(now, [2; 512]);
    }
}
