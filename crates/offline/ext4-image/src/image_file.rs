//! The file that holds an image: the places of its undo files, and the rules for trusting them.
//!
//! The bytes of an undo file are written into the image. So an undo file is trusted only if it belongs to the owner of the image or to
//! the user of this process, and if no other user may write to it. Symbolic links are not followed. The open file is checked,
//! not its name.

use crate::error::Error;
use crate::file_id::{FileId, file_beside};
use crate::in_place::{self, folder_of};
use crate::undo::Undo;
use blockdev::BlockDevice;
use ext4_format::change_mark::ChangeMark;
use rustix::fs::{Access, AtFlags, CWD, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Maximum of undo files next to one image: those of other images may block names.
const MOST_BESIDE: u32 = 9;

/// The file or block device that holds an image.
///
/// ```
/// use ext4_image::{ImageFile, blockdev::MemDevice};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("disk.img");
/// # std::fs::write(&path, [1; 8192])?;
/// let file = ImageFile::of(&path, None)?;
/// let image = MemDevice::from_bytes(&[1; 8192]);
/// assert!(file.take_back(&image)?.is_none(), "no change was interrupted");
/// let undo = file.place_of_undo()?.expect("a file has a place beside it");
/// assert!(undo.ends_with("disk.img.extant-undo"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ImageFile {
    /// Names that undo files derive from: the canonical name of the image, and of the backing file of a loop device.
    names: Vec<PathBuf>,
    owners: Vec<u32>,
    id: FileId,
    is_device: bool,
}

impl ImageFile {
    /// Reads the owner and identity of a file. `part` is the offset of the image in bytes, if it is a part of the file.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn of(file: &Path, part: Option<u64>) -> io::Result<Self> {
        let meta = file.metadata()?;
        let is_device = meta.file_type().is_block_device();
        // A link leads to the file that is written.
        let mut found = vec![(file.canonicalize()?, meta.uid())];
        if is_device {
            found.extend(behind_loop(&meta));
        }
        let names = found.iter().map(|(name, _)| {
            let mut name = OsString::from(name);
            if let Some(part) = part {
                // A partition has several names and one place.
                name.push(format!("@{part}"));
            }
            name.into()
        });
        Ok(Self {
            names: names.collect(),
            owners: found.iter().map(|(_, owner)| *owner).collect(),
            id: FileId::of(&meta),
            is_device,
        })
    }

    /// Creates an image outside of this system's files, such as an export of a server. Its undo records are kept like
    /// those of a block device, in free blocks of the image.
    pub fn elsewhere() -> Self {
        Self {
            names: Vec::new(),
            owners: Vec::new(),
            id: FileId::default(),
            is_device: true,
        }
    }

    /// Returns a path for a new undo file next to the image. `None` for a block device, whose directory does not outlive the
    /// system, and if no file with such a name can be made there: the name would be too long, or the directory is not
    /// writable. The image must not carry a mark. Then an undo file that an earlier change of the same image left is
    /// removed. An undo file of another image stays, and the path gets a number.
    ///
    /// # Errors
    /// The errors of the file system; [`io::ErrorKind::AlreadyExists`] if all nine names are taken.
    pub fn place_of_undo(&self) -> io::Result<Option<PathBuf>> {
        match self.names.first() {
            Some(name) if !self.is_device && is_writable(folder_of(name)) => {
                match self.free_place(file_beside(name)) {
                    Err(e) if e.kind() == io::ErrorKind::InvalidFilename => Ok(None),
                    place => place.map(Some),
                }
            }
            _ => Ok(None),
        }
    }

    /// Returns the first free path among the variants of this one.
    fn free_place(&self, first: PathBuf) -> io::Result<PathBuf> {
        let places = numbered(&first);
        for place in &places {
            if let Some(left_over) = self.left_over(place) {
                in_place::remove_opened(place, &left_over)?;
            }
            match place.symlink_metadata() {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(place.clone()),
                Err(e) => return Err(e),
                Ok(_) => {}
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!(
                "{}: too many undo files of other images have this name and a number: move them away",
                first.display()
            ),
        ))
    }

    /// Returns this undo file if no image needs it: its change never began, or it belongs to this image, which
    /// carries no mark.
    fn left_over(&self, place: &Path) -> Option<File> {
        let (undo, file) = self.read_open(place).ok()?;
        let is_left_over = match undo {
            Some(undo) => undo.is_of(self.id),
            // Its writer holds a lock, so it may be of a change that begins.
            None => !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)),
        };
        is_left_over.then_some(file)
    }

    /// Returns the paths at which an undo file of the image may be.
    fn places(&self) -> Vec<PathBuf> {
        let firsts = self.names.iter().map(|name| file_beside(name));
        firsts.flat_map(|first| numbered(&first)).collect()
    }

    /// Reads an undo file if it is trusted. `None` if the file is unfinished; then the image was not written to.
    ///
    /// # Errors
    /// [`Error::Untrusted`]; those of [`Undo::read`].
    pub fn read(&self, undo: &Path) -> Result<Option<Undo>, Error> {
        Ok(self.read_open(undo)?.0)
    }

    /// Reads an undo file as [`read`](Self::read) does, and returns the open file, too.
    fn read_open(&self, undo: &Path) -> Result<(Option<Undo>, File), Error> {
        let file = self.open(undo)?;
        Ok((Undo::read_from(file.try_clone()?)?, file))
    }

    /// Opens an undo file of either format for [`Undo::of_file`], if the file is trusted.
    ///
    /// # Errors
    /// [`Error::Untrusted`], and [`Error::Io`].
    pub fn open(&self, undo: &Path) -> Result<File, Error> {
        let untrusted = |why: String| Error::Untrusted {
            undo: undo.display().to_string(),
            why,
        };
        let mut options = OpenOptions::new();
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.read(true).custom_flags(flags.bits() as i32);
        let file = options
            .open(undo)
            .map_err(|e| match undo.symlink_metadata() {
                Ok(meta) if meta.is_symlink() => untrusted("it is a symbolic link".into()),
                _ => Error::Io(io::Error::new(e.kind(), format!("{}: {e}", undo.display()))),
            })?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(untrusted("it is not a regular file".into()));
        }
        let me = rustix::process::geteuid().as_raw();
        if meta.uid() != me && !self.owners.contains(&meta.uid()) {
            let text = "it belongs to user {}, who neither owns the image nor runs this command";
            return Err(untrusted(text.replace("{}", &meta.uid().to_string())));
        }
        if meta.permissions().mode() & 0o022 != 0 {
            return Err(untrusted("others may write to it".into()));
        }
        Ok(file)
    }

    /// Reverts the change whose mark the image carries, and returns the undo file; `None` if the image has no mark.
    /// The undo file is searched for next to the image, and then at the path in the mark. A temporary undo file of
    /// this image is removed afterwards.
    ///
    /// # Errors
    /// [`Error::NoUndo`] if no trusted undo file of the change is found; those of [`Undo::take_back`].
    pub fn take_back(&self, device: &dyn BlockDevice) -> Result<Option<PathBuf>, Error> {
        let Some(mark) = in_place::mark(device)? else {
            return Ok(None);
        };
        let (undo, file, opened) = match mark.offset() {
            Some(offset) => (
                in_image(device, &mark, offset)?,
                PathBuf::from(OsStr::from_bytes(mark.path())),
                None,
            ),
            None => {
                let (undo, file, opened) = self.find(&mark)?;
                (undo, file, Some(opened))
            }
        };
        undo.take_back_by(device, &file)?;
        // A device has no identity here: its undo file is the user's.
        if let Some(opened) = opened.filter(|_| undo.is_of(self.id)) {
            in_place::remove_opened(&file, &opened)
                .map_err(in_place::stays(&file, "the change was reverted"))?;
        }
        Ok(Some(file))
    }

    /// Finds the undo file of a mark.
    fn find(&self, mark: &ChangeMark) -> Result<(Undo, PathBuf, File), Error> {
        let mut refused = None;
        for place in self.places().into_iter().chain(named(mark, &self.names)) {
            match self.read_open(&place) {
                Ok((Some(undo), opened)) if undo.id() == mark.id() => {
                    return Ok((undo, place, opened));
                }
                Err(Error::Io(e)) if e.kind() == io::ErrorKind::NotFound => {}
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        Err(Error::NoUndo {
            undo: mark.to_string(),
            why: refused.map_or("it is not there".into(), |error| error.to_string()),
        })
    }
}

/// Returns the undo record that the mark says is in the image itself.
fn in_image(device: &dyn BlockDevice, mark: &ChangeMark, offset: u64) -> Result<Undo, Error> {
    let no_undo = |why: String| Error::NoUndo {
        undo: mark.to_string(),
        why,
    };
    let undo = Undo::read_in(device, offset).map_err(|error| no_undo(error.to_string()))?;
    if undo.id() != mark.id() {
        return Err(no_undo("it is of another change".into()));
    }
    Ok(undo)
}

/// Returns the path and those with a number behind it.
fn numbered(first: &Path) -> Vec<PathBuf> {
    let mut places = vec![first.to_path_buf()];
    places.extend((2..=MOST_BESIDE).map(|n| {
        let mut numbered = OsString::from(first);
        numbered.push(format!(".{n}"));
        PathBuf::from(numbered)
    }));
    places
}

/// Returns the path in the mark, and the path of a file with that name in the directory of the image, as both may have been moved. Of a
/// long name the mark has the end, so several files may have it.
fn named(mark: &ChangeMark, names: &[PathBuf]) -> Vec<PathBuf> {
    let path = Path::new(OsStr::from_bytes(mark.path()));
    let mut places = Vec::new();
    if mark.is_path_whole() && path.is_absolute() {
        places.push(path.to_path_buf());
    }
    let Some(file) = path.file_name() else {
        return places;
    };
    let is_name_whole = mark.is_path_whole() || path.as_os_str() != file;
    for name in names {
        if is_name_whole {
            places.push(name.with_file_name(file));
            continue;
        }
        let entries = std::fs::read_dir(folder_of(name)).into_iter().flatten();
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        places.extend(paths.filter(|path| path.as_os_str().as_bytes().ends_with(file.as_bytes())));
    }
    places
}

/// Returns whether this process may create files in a directory.
fn is_writable(folder: &Path) -> bool {
    rustix::fs::accessat(CWD, folder, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// Takes back the change whose mark an image carries, and removes the undo file; returns whether the image had a mark. This is for devices
/// without a file; for others [`ImageFile::take_back`] finds the undo file and checks its owner.
///
/// # Errors
/// [`Error::Undo`] if the file is damaged or of another image; [`Error::Io`].
pub fn take_back_interrupted(device: &dyn BlockDevice, file: &Path) -> Result<bool, Error> {
    let undo = match Undo::read(file) {
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        undo => undo?,
    };
    let is_marked = in_place::mark(device)?.is_some();
    if let Some(undo) = undo.filter(|_| is_marked) {
        undo.take_back_by(device, file)?;
    }
    in_place::remove(file)?;
    Ok(is_marked)
}

/// Returns the backing file of a loop device or of a partition of one, and its owner.
fn behind_loop(device: &Metadata) -> Option<(PathBuf, u32)> {
    let (major, minor) = (
        rustix::fs::major(device.rdev()),
        rustix::fs::minor(device.rdev()),
    );
    let places = ["loop/backing_file", "../loop/backing_file"];
    let mut said = places
        .iter()
        .filter_map(|place| std::fs::read(format!("/sys/dev/block/{major}:{minor}/{place}")).ok());
    let said = said.next()?;
    let path = Path::new(OsStr::from_bytes(said.strip_suffix(b"\n").unwrap_or(&said)));
    Some((path.to_path_buf(), path.metadata().ok()?.uid()))
}
