//! An open file of the host.

use super::host::{attributes, times};
use super::{Meta, Rules, Sink, Source, Xattr};
use anyhow::Result;
use rustix::fs::{Gid, Mode, SeekFrom, Uid, XattrFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// An open file of the host.
pub(super) struct HostFile {
    pub file: File,
    /// Whether the process runs as root.
    pub root: bool,
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

    fn xattrs(&self) -> Result<Vec<Xattr>> {
        attributes(
            |buf| rustix::fs::flistxattr(&self.file, buf),
            |name, buf| rustix::fs::fgetxattr(&self.file, name, buf),
        )
    }

    fn next_data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>> {
        if offset >= size {
            return Ok(None);
        }
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // The file system does not report holes: treat everything as data.
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
            // Without its intended owner, a set-id bit would grant the wrong user's rights.
            let bits = if rules.keep_owner || self.root {
                meta.mode
            } else {
                meta.mode & 0o1777
            };
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(bits.into()))?;
        }
        if rules.keep_times {
            rustix::fs::futimens(&self.file, &times(meta))?;
        }
        Ok(())
    }
}
