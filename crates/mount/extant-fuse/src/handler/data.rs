//! File data.

use super::Filesystem;
use super::names::open_flags;
use crate::nodes::HeldNode;
use extant::unstable::{OpenFlags, Seek};
use extant::{Credentials, Fallocate};
use fuse_server::{Answer, Errno};
use rustix::fs::{FileType, OFlags};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// `whence` of lseek.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Largest number of requests that wait at the same time for the kernel's write-back. Serving the write-back needs
/// threads, too, and a queue has at most twice as many threads.
const MOST_WAITING: u32 = 64;
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Largest number of bytes copied for one request. The kernel asks for the rest, unless the copying program has ended.
const MOST_COPIED: u64 = 256 << 20;

impl Filesystem {
    /// Returns the caller with the rights of a writer of data: with write-back, the kernel records the times itself.
    pub(super) fn changing_data(&self, who: &Credentials) -> Credentials {
        if self.writes_back() {
            who.clone().keeping_times()
        } else {
            who.clone()
        }
    }

    pub(super) fn read(
        &self,
        held: &HeldNode,
        (offset, size, flags): (u64, u32, u32),
        answer: &mut Answer<'_>,
    ) -> Result<u64, Errno> {
        // Cache here only the data that the kernel reads without its page cache.
        let direct = OFlags::from_bits_retain(flags).contains(OFlags::DIRECT);
        if !direct && !held.pages_read.load(Relaxed) {
            held.pages_read.store(true, Relaxed);
        }
        let mut n = 0;
        answer.fill(size as usize, |buf| {
            n = self.tried(if direct {
                held.node.read_at(buf, offset)
            } else {
                held.node.read_cached(buf, offset)
            })?;
            Ok(n)
        })?;
        Ok(n as u64)
    }

    pub(super) fn write(
        &self,
        (number, held): (u64, &HeldNode),
        who: &Credentials,
        (data, flags): ((u64, &[u8]), u32),
        answer: &mut Answer<'_>,
    ) -> Result<u64, Errno> {
        let who = self.changing_data(who);
        let write = |at: u64, data: &[u8]| held.node.write_at(&who, data, at);
        let direct = OFlags::from_bits_retain(flags).contains(OFlags::DIRECT);
        // Linux returns EIO for a partly stored direct write.
        let written = self.write_by(write, data, !direct, answer)?;
        if direct && held.pages_read.load(Relaxed) && held.pages_read.swap(false, Relaxed) {
            // Linux drops pages before a direct write, and after a synchronous one, but not after an asynchronous one.
            // Pages read in between would stay and be stale.
            self.drop_pages(number, data.0, written);
        }
        Ok(written)
    }

    /// Makes the kernel drop a file's unchanged pages; it writes changed ones back first.
    fn drop_pages(&self, number: u64, offset: u64, len: u64) {
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else {
            return;
        };
        // The call also waits for requests that need a thread.
        let others = WAITING.fetch_add(1, Relaxed);
        if let Some(notifier) = self.notifier.get().filter(|_| others < MOST_WAITING) {
            // Without a listener it has no effect.
            let _ = notifier.inval_inode(number, offset, len);
        }
        WAITING.fetch_sub(1, Relaxed);
    }

    /// Makes the kernel ask for a file's attributes before it writes to the file again, or shows them.
    pub(super) fn have_it_ask(&self, number: u64) {
        if let Some(notifier) = self.notifier.get() {
            // With a negative offset no data are dropped, so the call waits for nothing. Without a listener it has no
            // effect.
            let _ = notifier.inval_inode(number, -1, 0);
        }
    }

    /// Makes the kernel write back its dirty data of a file, which it does when the file is invalidated. If the
    /// notification fails, the data stored here count.
    pub(super) fn have_written_back(&self, number: u64) {
        self.drop_pages(number, 0, 0);
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
            // The sums do not exceed the largest size, because the first write is checked against it.
            match write(offset.saturating_add(done as u64), &data[done..]) {
                Ok(n) => done += n,
                // The stored part counts; the next write will fail.
                Err(_) if done > 0 && part_counts => break,
                Err(e) => return self.tried(Err(e)),
            }
        }
        // A request holds less than 4 GiB.
        answer.written(done as u32);
        Ok(done as u64)
    }

    /// Stores data that the kernel wrote back: the writing program has already seen the write succeed.
    pub(super) fn write_cached(
        &self,
        (number, held): (u64, &HeldNode),
        (offset, data): (u64, &[u8]),
        answer: &mut Answer<'_>,
    ) -> Result<u64, Errno> {
        let write = |at: u64, data: &[u8]| held.node.write_cached(data, at);
        // Linux ignores the stored length, and considers all data written.
        let written = if self.leaves_lost_data_before(held, offset)? {
            Err(Errno::NOSPC)
        } else {
            self.write_by(write, (offset, data), false, answer)
        };
        if written == Err(Errno::NOSPC) {
            held.failed.store(true, Relaxed);
            held.cut_short.store(true, Relaxed);
            self.have_it_ask(number);
        }
        if written.is_ok() && !self.writes_back() {
            self.note_mapped_write(number, held);
        }
        written
    }

    /// Returns whether a write at `offset` would extend the file beyond its stored data: data before `offset` were
    /// lost, and no write has reported that yet.
    fn leaves_lost_data_before(&self, held: &HeldNode, offset: u64) -> Result<bool, Errno> {
        Ok(held.failed.load(Relaxed) && offset > self.tried(held.node.metadata())?.len())
    }

    pub(super) fn release(
        &self,
        (number, held): (u64, &HeldNode),
        flags: u32,
    ) -> Result<(), Errno> {
        if !open_flags(flags).contains(OpenFlags::WRITE) {
            return Ok(());
        }
        // Never below zero, whatever the kernel sends.
        let less = |n: u32| n.checked_sub(1);
        let before = held.writers.fetch_update(Relaxed, Relaxed, less);
        if before == Ok(1) && held.cut_short.swap(false, Relaxed) {
            self.have_size_read_again(number);
        }
        self.tried(held.node.finish_writing())
    }

    /// Makes the kernel forget an inode that no program has open, because the kernel uses its own larger size until
    /// then. Before Linux 6.18 the kernel shows that size until it evicts the inode itself.
    fn have_size_read_again(&self, number: u64) {
        // The kernel releases the name shortly after it has sent the request, and a name in use is not dropped.
        std::thread::sleep(Duration::from_millis(1));
        if let Some(notifier) = self.notifier.get() {
            // An error means that the kernel does not support the notification.
            let _ = notifier.prune(number);
        }
    }

    /// Returns the position of a file's block on the device, for FIBMAP and swap files. The kernel sends this request
    /// only if it has the block device (`fuseblk`).
    pub(super) fn block_of(
        &self,
        held: &HeldNode,
        (block, block_size): (u64, u32),
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let size = u64::from(block_size.max(1));
        let at = block.checked_mul(size).ok_or(Errno::INVAL)?;
        // Delayed data have no blocks yet.
        self.tried(held.node.fsync(true))?;
        let extents = self.tried(held.node.extents())?;
        let after = extents.partition_point(|e| e.offset <= at);
        let found = extents[..after].last();
        // Data inside an inode have no block.
        let found = found.filter(|e| at - e.offset < e.len && !e.inline);
        // Preallocated blocks count: a swap file may consist of them. 0 is a hole.
        answer.block(found.map_or(0, |e| (e.physical + (at - e.offset)) / size));
        Ok(())
    }

    pub(super) fn fallocate(
        &self,
        held: &HeldNode,
        who: &Credentials,
        (offset, length, mode): (u64, u64, u32),
    ) -> Result<(), Errno> {
        let how = Fallocate::from_mode(mode).ok_or(Errno::OPNOTSUPP)?;
        if !who.is_privileged() {
            // For this operation the kernel does not request the removal of set-id bits.
            self.strip_privileges(&held.node, who)?;
        }
        let who = self.changing_data(who);
        self.tried(held.node.fallocate(&who, how, offset, length))
    }

    pub(super) fn seek(
        &self,
        node: u64,
        held: &HeldNode,
        (offset, whence): (u64, u32),
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        if held.writers.load(Relaxed) > 0 {
            // The kernel may have dirty data that it has not written back.
            self.have_written_back(node);
        }
        let found = self.tried(held.node.seek(offset, what))?;
        answer.offset(found);
        Ok(())
    }

    pub(super) fn copy_range(
        &self,
        held: &HeldNode,
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

/// Returns the type of an inode as `d_type` of directory entries shows it.
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
