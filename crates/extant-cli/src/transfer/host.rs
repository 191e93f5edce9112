//! A tree of the host.

use super::{Existing, Meta, Rules, Side, Sink, Source, Xattr};
use crate::address::host_path;
use anyhow::{Context, Result};
use ext4_format::inode::{dev_major, dev_minor, makedev};
use extant::{FileType, Timestamp};
use rustix::fs::{AtFlags, CWD, Gid, Mode, SeekFrom, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};

/// A tree of the host.
#[derive(Default)]
pub struct HostSide {
    root: bool,
}

impl HostSide {
    pub fn new() -> Self {
        Self {
            root: rustix::process::geteuid().is_root(),
        }
    }

    /// Whether owners and devices can be made.
    pub fn privileged(&self) -> bool {
        self.root
    }
}

/// Name spaces that an image can hold; others (of SMB shares, of other systems) stay behind.
fn kept(name: &[u8]) -> bool {
    [&b"user."[..], b"trusted.", b"security."]
        .iter()
        .any(|p| name.starts_with(p))
        || name == b"system.posix_acl_access"
        || name == b"system.posix_acl_default"
}

fn file_type(t: fs::FileType) -> FileType {
    if t.is_dir() {
        FileType::Directory
    } else if t.is_symlink() {
        FileType::Symlink
    } else if t.is_char_device() {
        FileType::CharDevice
    } else if t.is_block_device() {
        FileType::BlockDevice
    } else if t.is_fifo() {
        FileType::Fifo
    } else if t.is_socket() {
        FileType::Socket
    } else {
        FileType::Regular
    }
}

fn timestamp(secs: i64, nanos: i64) -> Timestamp {
    Timestamp::new(secs, u32::try_from(nanos).unwrap_or(0))
}

fn meta(m: &fs::Metadata) -> Meta {
    Meta {
        kind: file_type(m.file_type()),
        mode: (m.mode() & 0o7777) as u16,
        uid: m.uid(),
        gid: m.gid(),
        size: m.size(),
        rdev: makedev(rustix::fs::major(m.rdev()), rustix::fs::minor(m.rdev())),
        atime: timestamp(m.atime(), m.atime_nsec()),
        mtime: timestamp(m.mtime(), m.mtime_nsec()),
        links: m.nlink(),
        id: (m.dev(), m.ino()),
        dense: m.blocks().saturating_mul(512) >= m.size(),
    }
}

fn times(meta: &Meta) -> Timestamps {
    let spec = |t: Timestamp| Timespec {
        tv_sec: t.secs,
        tv_nsec: t.nanos.into(),
    };
    Timestamps {
        last_access: spec(meta.atime),
        last_modification: spec(meta.mtime),
    }
}

fn mode(bits: u16) -> Mode {
    Mode::from_raw_mode(bits.into())
}

impl Side for HostSide {
    fn show(&self, path: &[u8]) -> String {
        crate::show::show(path)
    }

    fn meta(&self, path: &[u8], follow: bool) -> Result<Option<Meta>> {
        let path = host_path(path);
        let found = if follow {
            path.metadata()
        } else {
            path.symlink_metadata()
        };
        match found {
            Ok(m) => Ok(Some(meta(&m))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn list(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, FileType)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(host_path(path))? {
            let entry = entry?;
            names.push((entry.file_name().into_vec(), file_type(entry.file_type()?)));
        }
        names.sort();
        Ok(names)
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        Ok(fs::read_link(host_path(path))?.into_os_string().into_vec())
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>> {
        let path = host_path(path);
        let list = match sized(|buf| rustix::fs::llistxattr(&path, buf)) {
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            other => other.context("list extended attributes")?,
        };
        let mut xattrs = Vec::new();
        for name in list.split(|&b| b == 0).filter(|n| kept(n)) {
            match sized(|buf| rustix::fs::lgetxattr(&path, name, buf)) {
                Ok(value) => xattrs.push((name.to_vec(), value)),
                // Gone, or not ours to read: what others of the kind do too.
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {}
                Err(e) => return Err(e).with_context(|| crate::show::show(name)),
            }
        }
        Ok(xattrs)
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn Source>> {
        // Not to be led astray, and not to hang, if the name changed meanwhile.
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(host_path(path))?;
        Ok(Box::new(HostFile {
            file,
            root: self.root,
        }))
    }

    fn make_dir(&self, path: &[u8], mode: u16) -> Result<()> {
        // What is to be put in needs the owner's permissions; the final ones come last.
        Ok(fs::DirBuilder::new()
            .mode(u32::from(mode) & 0o777 | 0o700)
            .create(host_path(path))?)
    }

    fn make_file(&self, path: &[u8], mode: u16, existing: Existing) -> Result<Box<dyn Sink>> {
        let path = host_path(path);
        let mut options = OpenOptions::new();
        options.write(true).mode(u32::from(mode) & 0o777);
        let file = match existing {
            Existing::Overwrite => options.create(true).truncate(true).open(&path)?,
            Existing::Replace => match options.create_new(true).open(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    fs::remove_file(&path)?;
                    options.open(&path)?
                }
                other => other?,
            },
        };
        Ok(Box::new(HostFile {
            file,
            root: self.root,
        }))
    }

    fn make_symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        Ok(std::os::unix::fs::symlink(
            host_path(target),
            host_path(path),
        )?)
    }

    fn make_special(&self, path: &[u8], meta: &Meta) -> Result<()> {
        let kind = match meta.kind {
            FileType::CharDevice => rustix::fs::FileType::CharacterDevice,
            FileType::BlockDevice => rustix::fs::FileType::BlockDevice,
            FileType::Fifo => rustix::fs::FileType::Fifo,
            _ => rustix::fs::FileType::Socket,
        };
        let dev = match meta.kind {
            FileType::CharDevice | FileType::BlockDevice => {
                rustix::fs::makedev(dev_major(meta.rdev), dev_minor(meta.rdev))
            }
            _ => 0,
        };
        Ok(rustix::fs::mknodat(
            CWD,
            host_path(path),
            kind,
            mode(meta.mode & 0o777),
            dev,
        )?)
    }

    fn make_link(&self, old: &[u8], new: &[u8]) -> Result<()> {
        // Not std's hard_link, which may follow a symbolic link.
        Ok(rustix::fs::linkat(
            CWD,
            host_path(old),
            CWD,
            host_path(new),
            AtFlags::empty(),
        )?)
    }

    fn remove(&self, path: &[u8]) -> Result<()> {
        Ok(fs::remove_file(host_path(path))?)
    }

    fn apply(&self, path: &[u8], meta: &Meta, rules: &Rules) -> Result<()> {
        let path = host_path(path);
        if rules.keep_owner {
            let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
            rustix::fs::chownat(CWD, &path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if rules.keep_mode && meta.kind != FileType::Symlink {
            rustix::fs::chmodat(CWD, &path, mode(meta.mode), AtFlags::empty())?;
        }
        if rules.keep_times {
            rustix::fs::utimensat(CWD, &path, &times(meta), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn set_xattr(&self, path: &[u8], (name, value): &Xattr) -> Result<()> {
        Ok(rustix::fs::lsetxattr(
            host_path(path),
            name.as_slice(),
            value,
            XattrFlags::empty(),
        )?)
    }
}

/// Calls with a buffer that grows until the answer fits.
fn sized(
    mut call: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    let mut buf = vec![0; 512];
    loop {
        match call(&mut buf) {
            Ok(n) => {
                buf.truncate(n);
                return Ok(buf);
            }
            // 64 KiB is the most that the kernel allows.
            Err(Errno::RANGE) if buf.len() < 1 << 17 => buf.resize(buf.len() * 4, 0),
            Err(e) => return Err(e),
        }
    }
}

struct HostFile {
    file: File,
    root: bool,
}

impl Source for HostFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(done)
    }

    fn next_data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>> {
        if offset >= size {
            return Ok(None);
        }
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // A file system that does not say: all of it is data.
            Err(Errno::INVAL) => return Ok(Some((offset, size))),
            Err(e) => return Err(e.into()),
        };
        let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start))?;
        Ok((start < size).then_some((start, end.min(size))))
    }
}

impl Sink for HostFile {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.file.write_all_at(data, offset)?)
    }

    fn set_size(&self, size: u64) -> Result<()> {
        Ok(self.file.set_len(size)?)
    }

    fn set_xattr(&self, (name, value): &Xattr) -> Result<()> {
        Ok(rustix::fs::fsetxattr(
            &self.file,
            name.as_slice(),
            value,
            XattrFlags::empty(),
        )?)
    }

    fn apply(&self, meta: &Meta, rules: &Rules) -> Result<()> {
        if rules.keep_owner {
            let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
            rustix::fs::fchown(&self.file, Some(uid), Some(gid))?;
        }
        if rules.keep_mode {
            // A set-id bit without the owner it was meant for would give the wrong user's rights.
            let bits = if rules.keep_owner || self.root {
                meta.mode
            } else {
                meta.mode & 0o1777
            };
            rustix::fs::fchmod(&self.file, mode(bits))?;
        }
        if rules.keep_times {
            rustix::fs::futimens(&self.file, &times(meta))?;
        }
        Ok(())
    }
}
