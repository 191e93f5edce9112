//! The host's side of a copy.

use super::side::{Data, Meta, Side, Xattr, check_name};
use crate::base::error::{Error, Result};
use crate::base::system;
use ext4_format::FileType;
use ext4_format::inode::makedev;
use ext4_format::timestamp::Timestamp;
use rustix::fs::{AtFlags, CWD, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};
use std::path::{Path, PathBuf};

pub(super) struct HostSide {
    top: PathBuf,
}

impl HostSide {
    pub(super) fn new(top: &Path) -> Self {
        Self {
            top: top.to_path_buf(),
        }
    }
}

/// Converts an error of the host. Errors that concern the tree become the ones that a volume returns.
fn failed(source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::NotFound => Error::NotFound,
        io::ErrorKind::AlreadyExists => Error::Exists,
        io::ErrorKind::NotADirectory => Error::NotDirectory,
        _ => Error::Io {
            context: "host".into(),
            source,
        },
    }
}

/// Returns true if only root may do this, or the file system cannot.
fn is_refused(errno: Errno) -> bool {
    [Errno::PERM, Errno::ACCESS, Errno::OPNOTSUPP].contains(&errno)
}

/// Counts refused calls.
fn counted(result: rustix::io::Result<()>) -> Result<u64> {
    match result {
        Ok(()) => Ok(0),
        Err(errno) if is_refused(errno) => Ok(1),
        Err(errno) => Err(failed(errno.into())),
    }
}

fn file_type(found: fs::FileType) -> FileType {
    match found {
        t if t.is_dir() => FileType::Directory,
        t if t.is_symlink() => FileType::Symlink,
        t if t.is_char_device() => FileType::CharDevice,
        t if t.is_block_device() => FileType::BlockDevice,
        t if t.is_fifo() => FileType::Fifo,
        t if t.is_socket() => FileType::Socket,
        _ => FileType::Regular,
    }
}

fn timestamp(secs: i64, nanos: i64) -> Timestamp {
    Timestamp::new(secs, u32::try_from(nanos).unwrap_or(0))
}

impl Side for HostSide {
    fn top(&self) -> &Path {
        &self.top
    }

    fn meta(&self, path: &Path) -> Result<Meta> {
        let found = fs::symlink_metadata(self.at(path)).map_err(failed)?;
        let device = found.rdev();
        Ok(Meta {
            file_type: file_type(found.file_type()),
            mode: found.mode() & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
            size: found.len(),
            rdev: makedev(rustix::fs::major(device), rustix::fs::minor(device)),
            atime: timestamp(found.atime(), found.atime_nsec()),
            mtime: timestamp(found.mtime(), found.mtime_nsec()),
            links: found.nlink(),
            id: (found.dev(), found.ino()),
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<(OsString, FileType)>> {
        let name = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.map_err(failed)?;
            check_name(&entry.file_name())?;
            Ok((
                entry.file_name(),
                file_type(entry.file_type().map_err(failed)?),
            ))
        };
        fs::read_dir(self.at(dir))
            .map_err(failed)?
            .map(name)
            .collect()
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        fs::read_link(self.at(path)).map_err(failed)
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>> {
        system::xattrs(&self.at(path)).map_err(|errno| failed(errno.into()))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Data>> {
        // A link or a FIFO that replaced the name meanwhile is neither opened nor waited for.
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let opened = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(self.at(path));
        Ok(Box::new(opened.map_err(failed)?))
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        let made = fs::DirBuilder::new().mode(0o700).create(self.at(path));
        made.map_err(failed)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn Data>> {
        let mut new = fs::OpenOptions::new();
        let made = new
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.at(path));
        Ok(Box::new(made.map_err(failed)?))
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        std::os::unix::fs::symlink(target, self.at(path)).map_err(failed)
    }

    fn special(&self, path: &Path, meta: &Meta) -> Result<bool> {
        match system::mknod(&self.at(path), meta.file_type, meta.mode, meta.rdev) {
            Ok(()) => Ok(true),
            Err(errno) if is_refused(errno) => Ok(false),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    fn link(&self, old: &Path, new: &Path) -> Result<()> {
        // The hard_link of std follows a symbolic link on some systems.
        let linked = rustix::fs::linkat(CWD, self.at(old), CWD, self.at(new), AtFlags::empty());
        linked.map_err(|errno| failed(errno.into()))
    }

    fn keep(&self, path: &Path, meta: &Meta, owners: bool, xattrs: &[Xattr]) -> Result<u64> {
        let path = self.at(path);
        let mut refused = 0;
        if owners {
            let (uid, gid) = (Some(meta.uid), Some(meta.gid));
            match std::os::unix::fs::lchown(&path, uid, gid) {
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => refused += 1,
                other => other.map_err(failed)?,
            }
        }
        if meta.file_type != FileType::Symlink {
            // If the owner was refused, a set-id program would run as another user.
            let mask = if refused > 0 { 0o1777 } else { 0o7777 };
            let permissions = Permissions::from_mode(meta.mode & mask);
            fs::set_permissions(&path, permissions).map_err(failed)?;
        }
        for (name, value) in xattrs {
            refused += counted(system::set_xattr(&path, name, value))?;
        }
        let spec = |t: Timestamp| Timespec {
            tv_sec: t.secs(),
            tv_nsec: t.nanos().into(),
        };
        let times = Timestamps {
            last_access: spec(meta.atime),
            last_modification: spec(meta.mtime),
        };
        let set = rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW);
        set.map_err(|errno| failed(errno.into()))?;
        Ok(refused)
    }
}

impl Data for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match FileExt::read_at(self, &mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(done)
    }

    fn next_data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>> {
        if offset >= size {
            return Ok(None);
        }
        let seek = |to| rustix::fs::seek(self, to);
        match seek(SeekFrom::Data(offset)) {
            Ok(start) if start < size => {
                let end = seek(SeekFrom::Hole(start)).map_err(|e| failed(e.into()))?;
                Ok(Some((start, end.min(size))))
            }
            Ok(_) | Err(Errno::NXIO) => Ok(None),
            // The file system has no holes.
            Err(Errno::INVAL) => Ok(Some((offset, size))),
            Err(e) => Err(failed(e.into())),
        }
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        FileExt::write_all_at(self, data, offset).map_err(failed)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        File::set_len(self, len).map_err(failed)
    }
}
