//! Copying from file to file inside the engine.

use crate::base::error::{Error, Result};
use crate::data::Data;
use crate::data::fallocate::{Fallocate, Seek};
use crate::data::read_write::Keep;
use crate::incore::inode::Inode;
use crate::types::credentials::Credentials;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes copied at once.
const PIECE: u64 = 1 << 20;

impl Data {
    /// Copies `len` bytes, or as many as there are up to the end of the source, through the page cache. Holes of the
    /// source become holes. Returns how many bytes were copied: fewer if the space ran out after a part. The copy is
    /// not atomic towards other writers of the files.
    pub(crate) fn copy_range(
        &self,
        who: &Credentials,
        (from, offset): (&Arc<Inode>, u64),
        (to, to_offset): (&Arc<Inode>, u64),
        len: u64,
    ) -> Result<u64> {
        self.store.check_writable()?;
        if from.file().is_none() || to.file().is_none() {
            return Err(Error::Invalid("not a regular file"));
        }
        let size = from.size.load(Ordering::Acquire);
        let len = len.min(size.saturating_sub(offset));
        if len == 0 {
            return Ok(0);
        }
        let (end, to_end) = (
            offset + len,
            to_offset.checked_add(len).ok_or(Error::FileTooLarge)?,
        );
        if from.ino == to.ino && offset < to_end && to_offset < end {
            return Err(Error::Invalid("ranges of one file that overlap"));
        }
        let mut buf = vec![0; len.min(PIECE) as usize];
        let mut at = offset;
        while at < end {
            let place = to_offset + (at - offset);
            let data = match self.seek(from, at, Seek::Data) {
                Ok(data) => data.min(end),
                // The rest of the source is a hole, or it was cut short meanwhile.
                Err(Error::NoSuchOffset) => end,
                Err(e) => return done_or(at - offset, e),
            };
            let done = if data > at {
                self.copy_hole(who, to, place, data - at, data == end)
            } else {
                self.copy_data(who, (from, at), (to, place), end - at, &mut buf)
            };
            match done {
                Ok(0) => break,
                Ok(n) => at += n,
                Err(e) => return done_or(at - offset, e),
            }
        }
        Ok(at - offset)
    }

    fn copy_data(
        &self,
        who: &Credentials,
        (from, at): (&Arc<Inode>, u64),
        (to, place): (&Arc<Inode>, u64),
        most: u64,
        buf: &mut [u8],
    ) -> Result<u64> {
        let hole = match self.seek(from, at, Seek::Hole) {
            Err(Error::NoSuchOffset) => return Ok(0),
            other => other?,
        };
        let n = most.min(hole.saturating_sub(at)).min(buf.len() as u64) as usize;
        let n = self.read(from, at, &mut buf[..n], Keep::Pages)?;
        if n == 0 {
            return Ok(0);
        }
        let written = self.write(who, to, Some(place), &buf[..n])?;
        Ok(written.end - written.start)
    }

    /// Makes a range read as zeros: a hole where the file is, nothing where it will reach over it. The last one is
    /// what the file reaches to.
    fn copy_hole(
        &self,
        who: &Credentials,
        to: &Arc<Inode>,
        place: u64,
        len: u64,
        last: bool,
    ) -> Result<u64> {
        let size = to.size.load(Ordering::Acquire);
        if place < size {
            let inside = len.min(size - place);
            self.fallocate(who, to, Fallocate::PunchHole, place, inside)?;
        }
        if last && place + len > size {
            // Write the last byte instead of setting the size, which might cut off another caller's append.
            let tail = len.min(u64::from(self.store.geometry.block_size)) as usize;
            let start = place + len - tail as u64;
            let written = self.write(who, to, Some(start), &vec![0; tail])?;
            return Ok(written.end.saturating_sub(place));
        }
        Ok(len)
    }
}

/// Returns the number of copied bytes, or the error if nothing was copied.
fn done_or(done: u64, error: Error) -> Result<u64> {
    match done {
        0 => Err(error),
        n => Ok(n),
    }
}
