//! The interface that a copy needs on either side.

use crate::base::error::{Error, Result};
use ext4_format::FileType;
use ext4_format::timestamp::Timestamp;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The attributes of an inode that a copy keeps.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub(super) file_type: FileType,
    /// Permissions, set-id and sticky bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    /// Device number, as `ext4_format::inode::makedev` makes it.
    pub(super) rdev: u32,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) links: u64,
    /// File system and inode.
    pub(super) id: (u64, u64),
}

/// Name and value of an extended attribute.
pub(super) type Xattr = (OsString, Vec<u8>);

/// A tree to be read or made. All paths are relative to its top, which is the empty path.
pub(super) trait Side: Sync {
    /// Returns the top's path.
    fn top(&self) -> &Path;
    /// Returns a path with the top before it.
    fn at(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() {
            self.top().to_path_buf()
        } else {
            self.top().join(path)
        }
    }
    /// Returns the inode at a path. A link is not followed.
    fn meta(&self, path: &Path) -> Result<Meta>;
    /// Returns the names of a directory.
    fn list(&self, dir: &Path) -> Result<Vec<(OsString, FileType)>>;
    fn read_link(&self, path: &Path) -> Result<PathBuf>;
    /// Returns the extended attributes that an ext4 file system holds. A link is not followed.
    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>>;
    fn open(&self, path: &Path) -> Result<Box<dyn Data>>;

    /// Makes a directory that must not exist, open to its owner.
    fn make_dir(&self, path: &Path) -> Result<()>;
    /// Makes a file that must not exist.
    fn create(&self, path: &Path) -> Result<Box<dyn Data>>;
    fn symlink(&self, target: &Path, path: &Path) -> Result<()>;
    /// Makes a device, FIFO or socket. False: it is refused to this caller.
    fn special(&self, path: &Path, meta: &Meta) -> Result<bool>;
    fn link(&self, old: &Path, new: &Path) -> Result<()>;
    /// Sets owner, permissions, extended attributes and times, in the order in which none undoes another. Returns how
    /// many of them are refused to this caller.
    fn keep(&self, path: &Path, meta: &Meta, owners: bool, xattrs: &[Xattr]) -> Result<u64>;
}

/// An open file.
pub(super) trait Data {
    /// Reads at an offset. Returns fewer bytes than asked only at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;
    /// Returns the start and end of the first data at or after an offset below `size`.
    fn next_data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>>;
    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()>;
    fn set_len(&self, len: u64) -> Result<()>;
}

/// Fails for a name that would lead out of its directory: those of a damaged volume are not trusted.
pub(super) fn check_name(name: &OsStr) -> Result<()> {
    let bytes = name.as_encoded_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        Err(Error::Invalid("a name that cannot be one"))
    } else {
        Ok(())
    }
}
