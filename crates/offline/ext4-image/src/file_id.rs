//! Names of undo files, and the identity of the image file that an undo file belongs to.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

const SUFFIX: &[u8] = b".extant-undo";

/// Returns the name of the undo file that accompanies an image while it is changed.
///
/// ```
/// let path = ext4_image::file_beside("dir/disk.img".as_ref());
/// assert_eq!(path, std::path::Path::new("dir/disk.img.extant-undo"));
/// ```
pub fn file_beside(image: &Path) -> PathBuf {
    let mut name = OsString::from(image);
    name.push(OsStr::from_bytes(SUFFIX));
    name.into()
}

/// Identity of a file, whatever its name. Inode numbers are reused, so the time of birth is part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) ino: u64,
    /// The low half of the time of birth, in nanoseconds; 0 if the file system does not record it.
    pub(crate) born: u32,
}

impl FileId {
    pub(crate) fn of(meta: &Metadata) -> Self {
        let born = meta.created().ok();
        let born = born.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self {
            ino: meta.ino(),
            born: born.map_or(0, |time| time.as_nanos() as u32), // the low half
        }
    }

    /// Returns the identity of the image that an undo file is named after; the default if that image does not exist.
    pub(crate) fn beside(undo: &Path) -> Self {
        let name = undo.as_os_str().as_bytes();
        let end = name.windows(SUFFIX.len()).rposition(|part| part == SUFFIX);
        let mut name = name.get(..end.unwrap_or(0)).unwrap_or_default();
        loop {
            if let Ok(meta) = Path::new(OsStr::from_bytes(name)).metadata() {
                return Self::of(&meta);
            }
            // The name of a partitioned disk is followed by the offset of the partition.
            let Some(at) = name.iter().rposition(|&b| b == b'@') else {
                return Self::default();
            };
            name = name.get(..at).unwrap_or_default();
        }
    }
}
