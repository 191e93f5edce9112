//! Single questions about single files of the running system.

use super::options::MkfsOptions;
use super::tree::{Body, Inode, Segment};
use ext4_format::FileType;
use ext4_format::inode::makedev;
use ext4_format::timestamp::Timestamp;
use rustix::fs::{Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Paths beyond this are opened in steps.
pub(super) const LONG_PATH: usize = 4000;

/// Device and inode number of a file of the running system.
pub(super) type FileId = (u64, u64);

/// Opens a directory of the tree, in steps if its path is long.
pub(super) fn open_dir(root: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (mut at, mut rest): (Option<OwnedFd>, &[u8]) = (None, path);
    loop {
        let here = at.as_ref().map_or(root, AsFd::as_fd);
        if rest.len() <= LONG_PATH {
            let last: &[u8] = if rest.is_empty() { b"." } else { rest };
            return rustix::fs::openat(here, last, flags, Mode::empty());
        }
        // A name has at most 255 bytes: there is a slash.
        let cut = rest[..LONG_PATH].iter().rposition(|b| *b == b'/');
        let (first, after) = rest.split_at(cut.ok_or(Errno::NAMETOOLONG)?);
        let next = rustix::fs::openat(here, first, flags, Mode::empty())?;
        (at, rest) = (Some(next), &after[1..]);
    }
}

/// Returns a file's identity, if it exists.
pub(super) fn file_id(path: &Path) -> Option<FileId> {
    let stat = rustix::fs::stat(path).ok()?;
    Some((crate::system::device_of(&stat), stat.st_ino))
}

/// Returns an inode without its body and attributes; `None` for an unknown type.
pub(super) fn inode_of(stat: &Stat, options: &MkfsOptions) -> Option<Inode> {
    let mode = stat.st_mode as u16; // type and permissions are the low 16 bits
    let ftype = FileType::from_mode(mode)?;
    let time = |secs, nanos| Timestamp::new(secs, u32::try_from(nanos).unwrap_or(0));
    let mtime = time(stat.st_mtime, stat.st_mtime_nsec);
    let is_device = matches!(ftype, FileType::CharDevice | FileType::BlockDevice);
    let (major, minor) = (
        rustix::fs::major(stat.st_rdev),
        rustix::fs::minor(stat.st_rdev),
    );
    Some(Inode {
        mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: if is_device { makedev(major, minor) } else { 0 },
        links: 0,
        xattrs: 0,
        size: if ftype == FileType::Regular {
            u64::try_from(stat.st_size).unwrap_or(0)
        } else {
            0
        },
        atime: match options.source_date_epoch {
            // Reading the tree may change it.
            Some(_) => mtime,
            None => time(stat.st_atime, stat.st_atime_nsec),
        },
        mtime,
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        flags: 0,
        project: 0,
        body: match ftype {
            FileType::Directory => Body::Directory(0), // the root's; others are entered later
            FileType::Regular => Body::File {
                origin: 0,
                map: None,
            },
            _ => Body::Special,
        },
    })
}

/// Opens a regular file of the tree to look at it.
pub(super) fn open_file(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Returns the ranges of a file with data, without holes and unwritten ranges; `None` if the whole file is data.
pub(super) fn data_map(fd: &OwnedFd, size: u64) -> rustix::io::Result<Option<Box<[Segment]>>> {
    let mut map = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
            Ok(start) if start < size => start,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(Errno::INVAL) => return Ok(None), // cannot tell: no holes
            Err(e) => return Err(e),
        };
        let end = rustix::fs::seek(fd, SeekFrom::Hole(start))?.min(size);
        if (start, end) == (0, size) {
            return Ok(None);
        }
        map.push(Segment {
            start,
            len: end.saturating_sub(start),
        });
        at = end.max(start + 1);
    }
    Ok(Some(map.into()))
}
