//! A tree of the host, through handles of its directories.
//!
//! System calls take paths of up to 4095 bytes, but trees have longer ones. A directory found on a walk is opened
//! once, in steps if its path is long, and its entries are reached from there by name. No symbolic link is followed on
//! the way, because the walk found none. A link that is there now is a race or an attack.

use crate::host_attributes::{keep_in_order, mode};
use crate::host_file::HostFile;
use crate::meta::{Meta, Xattr};
use crate::paths::{join, show};
use crate::side::{Existing, Keep, Side, SidePath, Sink, Source};
use crate::system;
use anyhow::Result;
use ext4_format::FileType;
use ext4_format::inode::makedev;
use ext4_format::timestamp::Timestamp;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Longer paths are opened in steps. Names have up to 255 bytes, so every step makes progress.
const LONG_PATH: usize = 4000;

/// A tree of the host.
pub struct HostSide {
    root: bool,
    /// Start of relative paths, or `None` for the working directory.
    dir: Option<OwnedFd>,
    /// Path of `dir`, for messages and for calls that take only paths.
    path: Vec<u8>,
}

impl Default for HostSide {
    fn default() -> Self {
        Self::new()
    }
}

impl HostSide {
    /// Creates a side whose relative paths start at the working directory.
    pub fn new() -> Self {
        Self {
            root: rustix::process::geteuid().is_root(),
            dir: None,
            path: Vec::new(),
        }
    }

    /// Returns true if the process may set owners and create devices.
    pub fn privileged(&self) -> bool {
        self.root
    }

    fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(CWD, AsFd::as_fd)
    }

    /// Returns a directory to start a path at, and a remaining path that is short enough.
    fn start<'p>(&self, path: &'p [u8]) -> rustix::io::Result<(Start<'_>, &'p [u8])> {
        if path.len() <= LONG_PATH {
            return Ok((Start::Here(self.dir()), path));
        }
        let slash = path.iter().rposition(|&b| b == b'/');
        let slash = slash.ok_or(Errno::NAMETOOLONG)?;
        let dir = step(self.dir(), &path[..slash], false)?;
        Ok((Start::There(dir), &path[slash + 1..]))
    }

    /// Returns a path that starts at the working directory, for calls that take only paths. The path is valid while
    /// the returned start lives.
    fn whole<'s>(&'s self, path: &[u8]) -> rustix::io::Result<(Option<Start<'s>>, Vec<u8>)> {
        let whole = join(&self.path, path);
        if whole.len() <= LONG_PATH {
            return Ok((None, whole));
        }
        let (dir, rest) = self.start(path)?;
        let mut whole = format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).into_bytes();
        whole.extend_from_slice(rest);
        Ok((Some(dir), whole))
    }
}

/// The directory at which a path starts.
enum Start<'a> {
    Here(BorrowedFd<'a>),
    There(OwnedFd),
}

impl AsFd for Start<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Here(fd) => *fd,
            Self::There(fd) => fd.as_fd(),
        }
    }
}

/// Opens a directory as a place to start from, in steps if its path is long.
fn step(start: BorrowedFd<'_>, path: &[u8], follow: bool) -> rustix::io::Result<OwnedFd> {
    let flags = system::SEARCH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |dir: BorrowedFd<'_>, path: &[u8]| {
        let path = if path.is_empty() { b"." } else { path };
        if follow {
            rustix::fs::openat(dir, path, flags, Mode::empty())
        } else {
            system::open_without_links(dir, path, flags)
        }
    };
    let (mut at, mut rest): (Option<OwnedFd>, &[u8]) = (None, path);
    loop {
        let here = at.as_ref().map_or(start, AsFd::as_fd);
        if rest.len() <= LONG_PATH {
            return open(here, rest);
        }
        let cut = rest[..LONG_PATH].iter().rposition(|&b| b == b'/');
        let cut = cut.filter(|&cut| cut > 0).ok_or(Errno::NAMETOOLONG)?;
        let next = open(here, &rest[..cut])?;
        (at, rest) = (Some(next), &rest[cut + 1..]);
    }
}

fn file_type(t: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as T;
    match t {
        T::Directory => FileType::Directory,
        T::Symlink => FileType::Symlink,
        T::CharacterDevice => FileType::CharDevice,
        T::BlockDevice => FileType::BlockDevice,
        T::Fifo => FileType::Fifo,
        T::Socket => FileType::Socket,
        T::RegularFile | T::Unknown => FileType::Regular,
    }
}

fn timestamp(secs: i64, nanos: impl TryInto<u32>) -> Timestamp {
    Timestamp::new(secs, nanos.try_into().unwrap_or(0))
}

// The widths of these numbers differ between architectures.
#[allow(clippy::useless_conversion)]
fn meta(s: &Stat) -> Meta {
    let size = u64::try_from(s.st_size).unwrap_or(0);
    let held = u64::try_from(s.st_blocks).unwrap_or(0).saturating_mul(512);
    let (major, minor) = (rustix::fs::major(s.st_rdev), rustix::fs::minor(s.st_rdev));
    Meta {
        kind: file_type(rustix::fs::FileType::from_raw_mode(s.st_mode)),
        mode: (s.st_mode & 0o7777) as u16,
        uid: s.st_uid,
        gid: s.st_gid,
        size,
        rdev: makedev(major, minor),
        atime: timestamp(s.st_atime, s.st_atime_nsec),
        mtime: timestamp(s.st_mtime, s.st_mtime_nsec),
        links: s.st_nlink.into(),
        id: (s.st_dev, s.st_ino),
        dense: held >= size,
        flags: 0,
    }
}

impl Side for HostSide {
    fn place(&self, path: &[u8]) -> SidePath {
        let path = match path {
            b"." => self.path.clone(),
            _ => join(&self.path, path),
        };
        SidePath::new(show(&path), &path)
    }

    fn missing(&self, _path: &[u8]) -> Option<String> {
        Some("paths in an image begin with IMAGE:/, others are the host's".into())
    }

    fn directory(&self, path: &[u8], follow: bool) -> Result<Box<dyn Side>> {
        Ok(Box::new(Self {
            root: self.root,
            dir: Some(step(self.dir(), path, follow)?),
            path: join(&self.path, path),
        }))
    }

    fn meta(&self, path: &[u8], follow: bool) -> Result<Option<Meta>> {
        let (dir, path) = match self.start(path) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let flags = if follow {
            AtFlags::empty()
        } else {
            AtFlags::SYMLINK_NOFOLLOW
        };
        match rustix::fs::statat(dir, path, flags) {
            Ok(stat) => Ok(Some(meta(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn list(&self) -> Result<Vec<(Vec<u8>, FileType)>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(self.dir(), ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::new(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not report the type.
                rustix::fs::FileType::Unknown => match self.meta(name, false)? {
                    Some(meta) => meta.kind,
                    None => continue,
                },
                known => file_type(known),
            };
            names.push((name.to_vec(), kind));
        }
        names.sort();
        Ok(names)
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        let (dir, path) = self.start(path)?;
        Ok(rustix::fs::readlinkat(dir, path, Vec::new())?.into_bytes())
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>> {
        let (_dir, path) = self.whole(path)?;
        system::xattrs(&path)
    }

    fn open(&self, path: &[u8], follow: bool) -> Result<Box<dyn Source>> {
        // Do not block if a FIFO has replaced the file.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let more = if follow {
            OFlags::empty()
        } else {
            OFlags::NOFOLLOW
        };
        let (dir, path) = self.start(path)?;
        let file = rustix::fs::openat(dir, path, flags | more, Mode::empty())?;
        Ok(Box::new(HostFile(file.into())))
    }

    fn make_dir(&self, path: &[u8], bits: u16) -> Result<()> {
        let (dir, path) = self.start(path)?;
        // Give the owner full access while the directory is filled. The final permissions are set last.
        Ok(rustix::fs::mkdirat(dir, path, mode(bits & 0o777 | 0o700))?)
    }

    fn make_file(&self, path: &[u8], bits: u16, existing: Existing) -> Result<Box<dyn Sink>> {
        let (dir, path) = self.start(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let open = |more| -> rustix::io::Result<File> {
            let fd = rustix::fs::openat(&dir, path, flags | more, mode(bits & 0o777))?;
            Ok(fd.into())
        };
        let file = match existing {
            Existing::Overwrite => open(OFlags::TRUNC)?,
            Existing::Replace => match open(OFlags::EXCL) {
                Err(Errno::EXIST) => {
                    rustix::fs::unlinkat(&dir, path, AtFlags::empty())?;
                    open(OFlags::EXCL)?
                }
                other => other?,
            },
        };
        Ok(Box::new(HostFile(file)))
    }

    fn make_symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        let (dir, path) = self.start(path)?;
        Ok(rustix::fs::symlinkat(target, dir, path)?)
    }

    fn make_special(&self, path: &[u8], meta: &Meta) -> Result<()> {
        let (dir, path) = self.start(path)?;
        Ok(system::make_special(dir.as_fd(), path, meta)?)
    }

    fn make_link(&self, old: &[u8], new: &[u8]) -> Result<()> {
        let ((old_dir, old), (new_dir, new)) = (self.start(old)?, self.start(new)?);
        // std's hard_link may follow a symbolic link.
        let flags = AtFlags::empty();
        Ok(rustix::fs::linkat(old_dir, old, new_dir, new, flags)?)
    }

    fn remove(&self, path: &[u8]) -> Result<()> {
        let (dir, path) = self.start(path)?;
        Ok(rustix::fs::unlinkat(dir, path, AtFlags::empty())?)
    }

    fn remove_dir(&self, path: &[u8]) -> Result<()> {
        let (dir, path) = self.start(path)?;
        Ok(rustix::fs::unlinkat(dir, path, AtFlags::REMOVEDIR)?)
    }

    fn keep(&self, path: &[u8], keep: &mut Keep<'_>) -> Result<()> {
        let (dir, short) = self.start(path)?;
        let only_link = AtFlags::SYMLINK_NOFOLLOW;
        let set = keep_in_order(
            keep,
            |uid, gid| rustix::fs::chownat(&dir, short, Some(uid), Some(gid), only_link),
            |xattr| {
                let (_dir, whole) = self.whole(path)?;
                system::set_xattr(&whole, xattr)
            },
            |mode| rustix::fs::chmodat(&dir, short, mode, AtFlags::empty()),
            |times| rustix::fs::utimensat(&dir, short, times, only_link),
        );
        Ok(set?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_a_path_are_followed_only_on_request() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(top.path().join("real/sub")).unwrap();
        std::os::unix::fs::symlink("real", top.path().join("link")).unwrap();
        let path = top.path().as_os_str().as_encoded_bytes();
        let top = HostSide::new().directory(path, true).unwrap();
        assert!(top.directory(b"link/sub", true).is_ok());
        assert!(top.directory(b"real/sub", false).is_ok());
        let Err(refused) = top.directory(b"link/sub", false) else {
            panic!("a link was followed")
        };
        assert_eq!(refused.downcast_ref(), Some(&Errno::LOOP));
    }
}
