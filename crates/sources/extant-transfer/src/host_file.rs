//! An open file of the host.

use crate::host_attributes::keep_in_order;
use crate::meta::Xattr;
use crate::side::{Keep, Sink, Source};
use crate::system;
use anyhow::Result;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// An open file of the host.
pub(crate) struct HostFile(pub(crate) File);

impl Source for HostFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.0.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(done)
    }

    fn xattrs(&self) -> Result<Vec<Xattr>> {
        system::xattrs_of(&self.0)
    }

    fn next_data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>> {
        if offset >= size {
            return Ok(None);
        }
        let start = match rustix::fs::seek(&self.0, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // The file system does not report holes: treat the whole file as data.
            Err(Errno::INVAL) => return Ok(Some((offset, size))),
            Err(e) => return Err(e.into()),
        };
        let end = rustix::fs::seek(&self.0, SeekFrom::Hole(start))?;
        Ok((start < size).then_some((start, end.min(size))))
    }
}

impl Sink for HostFile {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.0.write_all_at(data, offset)?)
    }

    fn set_size(&self, size: u64) -> Result<()> {
        Ok(self.0.set_len(size)?)
    }

    fn keep(&self, keep: &mut Keep<'_>) -> Result<()> {
        let file = &self.0;
        let set = keep_in_order(
            keep,
            |uid, gid| rustix::fs::fchown(file, Some(uid), Some(gid)),
            |xattr| system::set_xattr_of(file, xattr),
            |mode| rustix::fs::fchmod(file, mode),
            |times| rustix::fs::futimens(file, times),
        );
        Ok(set?)
    }
}
