//! File data.

use super::Filesystem;
use super::names::open_flags;
use crate::nodes::Held;
use extant::{Credentials, Fallocate, OpenFlags, Seek};
use fuse_server::{Answer, Errno};
use rustix::fs::{FallocateFlags, FileType, OFlags};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// `whence` of lseek.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// So many seeks at most wait at a time for what the kernel writes back: who serves that needs a thread too, and a
/// queue has twice as many at most.
const MOST_SEEKS: u32 = 64;
static SEEKS: AtomicU32 = AtomicU32::new(0);

/// Bytes of a file copied for one request at most. The kernel asks for the rest, if whoever copies is still there.
const MOST_COPIED: u64 = 256 << 20;

impl Filesystem {
    /// The caller as one who changes data: the kernel notes the times itself where it writes back.
    pub(super) fn changing_data(&self, who: &Credentials) -> Credentials {
        if self.writes_back() {
            who.clone().keeping_times()
        } else {
            who.clone()
        }
    }

    pub(super) fn read(
        &self,
        held: &Held,
        (offset, size, flags): (u64, u32, u32),
        answer: &mut Answer<'_>,
    ) -> Result<u64, Errno> {
        // Only what the kernel reads past its own memory is worth keeping here.
        let direct = OFlags::from_bits_retain(flags).contains(OFlags::DIRECT);
        let mut n = 0;
        answer.fill(size as usize, |buf| {
            n = self.tried(if direct {
                held.node.read_at(offset, buf)
            } else {
                held.node.read_cached(offset, buf)
            })?;
            Ok(n)
        })?;
        Ok(n as u64)
    }

    pub(super) fn write(
        &self,
        held: &Held,
        who: &Credentials,
        (data, flags): ((u64, &[u8]), u32),
        answer: &mut Answer<'_>,
    ) -> Result<u64, Errno> {
        let who = self.changing_data(who);
        let write = |at: u64, data: &[u8]| held.node.write_at(&who, at, data);
        // Of a direct write that was stored in part Linux says EIO.
        let part = !OFlags::from_bits_retain(flags).contains(OFlags::DIRECT);
        self.write_by(write, data, part, answer)
    }

    fn write_by(
        &self,
        write: impl Fn(u64, &[u8]) -> extant::Result<usize>,
        (offset, data): (u64, &[u8]),
        part_counts: bool,
        answer: &mut Answer<'_>,
    ) -> Result<u64, Errno> {
        let mut done = 0;
        while done < data.len() {
            // No sum of these is beyond the largest size, which the first write is checked against.
            match write(offset.saturating_add(done as u64), &data[done..]) {
                Ok(n) => done += n,
                // What is stored counts; the next write will fail.
                Err(_) if done > 0 && part_counts => break,
                Err(e) => return self.tried(Err(e)),
            }
        }
        // A request holds less than 4 GiB.
        answer.written(done as u32);
        Ok(done as u64)
    }

    /// Data that the kernel kept back: whoever wrote it has been told that it is written.
    pub(super) fn write_cached(
        &self,
        held: &Held,
        (offset, data): (u64, &[u8]),
        answer: &mut Answer<'_>,
    ) -> Result<u64, Errno> {
        let write = |at: u64, data: &[u8]| held.node.write_cached(at, data);
        // Linux does not look how much was stored, and takes all for written.
        self.write_by(write, (offset, data), false, answer)
    }

    pub(super) fn release(held: &Held, flags: u32) {
        if open_flags(flags).contains(OpenFlags::WRITE) {
            // Never below nothing, whatever the kernel says.
            let less = |n: u32| n.checked_sub(1);
            let _ = held.writers.fetch_update(Relaxed, Relaxed, less);
        }
    }

    pub(super) fn fallocate(
        &self,
        held: &Held,
        who: &Credentials,
        (offset, length, mode): (u64, u64, u32),
    ) -> Result<(), Errno> {
        type F = FallocateFlags;
        let mode = F::from_bits(mode).ok_or(Errno::OPNOTSUPP)?;
        let keep_size = mode.contains(F::KEEP_SIZE);
        let how = match mode.difference(F::KEEP_SIZE) {
            m if m.is_empty() => Fallocate::Allocate { keep_size },
            F::PUNCH_HOLE if keep_size => Fallocate::PunchHole,
            F::ZERO_RANGE => Fallocate::ZeroRange { keep_size },
            // Linux refuses both before it asks; another kernel may not.
            F::COLLAPSE_RANGE if !keep_size => Fallocate::CollapseRange,
            F::INSERT_RANGE if !keep_size => Fallocate::InsertRange,
            _ => return Err(Errno::OPNOTSUPP),
        };
        if !who.is_privileged() {
            // For this the kernel does not say when it is due.
            self.strip_privileges(&held.node, who)?;
        }
        let who = self.changing_data(who);
        self.tried(held.node.fallocate(&who, how, offset, length))
    }

    pub(super) fn seek(
        &self,
        node: u64,
        held: &Held,
        (offset, whence): (u64, u32),
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        if held.writers.load(Relaxed) > 0 {
            // The kernel may hold data here that it has not written back. It does so when it is told that the
            // file changed; if that cannot be told, the answer is of what is here.
            let others = SEEKS.fetch_add(1, Relaxed);
            if let Some(notifier) = self.notifier.get().filter(|_| others < MOST_SEEKS) {
                let _ = notifier.inval_inode(node, 0, 0);
            }
            SEEKS.fetch_sub(1, Relaxed);
        }
        let found = self.tried(held.node.seek(offset, what))?;
        answer.offset(found);
        Ok(())
    }

    pub(super) fn copy_range(
        &self,
        held: &Held,
        who: &Credentials,
        (offset, to, to_offset, length): (u64, u64, u64, u64),
    ) -> Result<u64, Errno> {
        let to = self.shared.nodes.get(to)?;
        if !who.is_privileged() {
            self.strip_privileges(&to.node, who)?;
        }
        let who = self.changing_data(who);
        let length = length.min(MOST_COPIED);
        let copied = held
            .node
            .copy_range(&who, offset, &to.node, to_offset, length);
        self.tried(copied)
    }
}

/// The type of an inode as `d_type` of directory entries shows it.
pub(super) fn type_bits(kind: extant::FileType) -> u32 {
    use extant::FileType as F;
    let kind = match kind {
        F::Regular => FileType::RegularFile,
        F::Directory => FileType::Directory,
        F::Symlink => FileType::Symlink,
        F::CharDevice => FileType::CharacterDevice,
        F::BlockDevice => FileType::BlockDevice,
        F::Fifo => FileType::Fifo,
        F::Socket => FileType::Socket,
    };
    kind.as_raw_mode() >> 12
}
