//! [`SnapshotDevice`]: a device that can keep a moment while it is written on.
//!
//! A block that is about to be overwritten for the first time since the snapshot is read and kept in memory. A reader
//! of the snapshot reads a block from the device, and then checks whether it was kept meanwhile. This is copy before
//! write, as in the kernel's dm-snapshot.

use crate::device::{BlockDevice, check_range, total_len};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Number of parts of the kept blocks, each with a lock.
const PARTS: u64 = 64;

/// A test whether the block that begins at this byte is of use to readers of a snapshot.
type IsNeeded = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// Options for taking a snapshot.
///
/// ```
/// let options = extant_blockdev::SnapshotOptions::new(4096).most(16 << 20);
/// ```
pub struct SnapshotOptions {
    block_size: u64,
    most: u64,
    is_needed: IsNeeded,
}

impl SnapshotOptions {
    /// Options to keep all blocks of this many bytes, a power of two from 512, without a limit.
    pub fn new(block_size: u32) -> Self {
        Self {
            block_size: u64::from(block_size.next_power_of_two().max(512)),
            most: u64::MAX,
            is_needed: Box::new(|_| true),
        }
    }

    /// Limits the kept bytes. A snapshot that needs more ends, and its readers get an error. Writers never wait for it.
    #[must_use]
    pub fn most(mut self, bytes: u64) -> Self {
        self.most = bytes;
        self
    }

    /// Keeps only blocks for which this returns true, by their first byte. Other blocks of the snapshot show their
    /// contents at the time of reading.
    #[must_use]
    pub fn only(mut self, is_needed: impl Fn(u64) -> bool + Send + Sync + 'static) -> Self {
        self.is_needed = Box::new(is_needed);
        self
    }
}

/// Blocks as they were when the snapshot was taken.
struct KeptBlocks {
    options: SnapshotOptions,
    parts: [Mutex<HashMap<u64, Box<[u8]>>>; PARTS as usize],
    bytes: AtomicU64,
    /// Set if the snapshot has ended: the limit was reached, or a block could not be read.
    ended: AtomicBool,
}

impl KeptBlocks {
    fn part(&self, block: u64) -> &Mutex<HashMap<u64, Box<[u8]>>> {
        // The index is below the number of parts.
        &self.parts[(block % PARTS) as usize]
    }

    /// Returns the blocks that a range touches.
    fn blocks(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        let size = self.options.block_size;
        offset / size..offset.saturating_add(len).div_ceil(size)
    }

    /// Keeps what a write to this range is about to replace.
    fn keep(&self, device: &dyn BlockDevice, offset: u64, len: u64) {
        for block in self.blocks(offset, len) {
            let at = block * self.options.block_size;
            if !(self.options.is_needed)(at) || self.ended.load(Ordering::SeqCst) {
                continue;
            }
            // Held until the block is kept. Another writer of the block waits, because its write would come too early.
            let mut part = self.part(block).lock();
            if part.contains_key(&block) {
                continue;
            }
            let size = self.options.block_size.min(device.len().saturating_sub(at));
            let bytes = self.bytes.fetch_add(size, Ordering::Relaxed) + size;
            let mut old = vec![0; size as usize].into_boxed_slice(); // a block
            if bytes > self.options.most || device.read_at(at, &mut old).is_err() {
                self.ended.store(true, Ordering::SeqCst);
                continue;
            }
            part.insert(block, old);
        }
    }

    /// Replaces bytes that were overwritten since by the kept ones.
    fn restore(&self, offset: u64, buf: &mut [u8]) {
        let size = self.options.block_size;
        for block in self.blocks(offset, buf.len() as u64) {
            let part = self.part(block).lock();
            let Some(old) = part.get(&block) else {
                continue;
            };
            let at = block * size;
            let from = offset.saturating_sub(at) as usize;
            let to = at.saturating_sub(offset) as usize;
            let old = old.get(from..).unwrap_or(&[]);
            let new = buf.get_mut(to..).unwrap_or(&mut []);
            let len = old.len().min(new.len());
            if let (Some(new), Some(old)) = (new.get_mut(..len), old.get(..len)) {
                new.copy_from_slice(old);
            }
        }
    }
}

/// A device of which snapshots can be taken, one at a time. Without a snapshot, each write costs one look at a flag.
///
/// ```
/// use std::sync::Arc;
/// use extant_blockdev::{BlockDevice, MemDevice, SnapshotDevice, SnapshotOptions};
/// let device = Arc::new(SnapshotDevice::new(Arc::new(MemDevice::new(8192))));
/// device.write_at(0, b"old")?;
/// let snapshot = device.take(SnapshotOptions::new(4096))?;
/// device.write_at(0, b"new")?;
/// let mut buf = [0; 3];
/// snapshot.read_at(0, &mut buf)?;
/// assert_eq!(&buf, b"old");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct SnapshotDevice {
    device: Arc<dyn BlockDevice>,
    /// Whether there is a snapshot.
    taken: AtomicBool,
    kept: RwLock<Option<Arc<KeptBlocks>>>,
}

impl SnapshotDevice {
    /// Makes a device over another one, which must be written through this one alone.
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device,
            taken: AtomicBool::new(false),
            kept: RwLock::new(None),
        }
    }

    /// Keeps this moment. No write may be under way: of one that is, the snapshot may have any part.
    ///
    /// # Errors
    /// `ResourceBusy` while there is another snapshot.
    pub fn take(self: &Arc<Self>, options: SnapshotOptions) -> io::Result<Snapshot> {
        let mut slot = self.kept.write();
        if slot.is_some() {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "there is another snapshot of the device",
            ));
        }
        let kept = Arc::new(KeptBlocks {
            options,
            parts: std::array::from_fn(|_| Mutex::default()),
            bytes: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        });
        *slot = Some(Arc::clone(&kept));
        self.taken.store(true, Ordering::SeqCst);
        Ok(Snapshot {
            of: Arc::downgrade(self),
            len: self.device.len(),
            kept,
        })
    }

    #[inline]
    fn before_write(&self, offset: u64, len: impl FnOnce() -> u64) {
        if self.taken.load(Ordering::Acquire) {
            self.keep(offset, len());
        }
    }

    #[cold]
    fn keep(&self, offset: u64, len: u64) {
        let kept = self.kept.read().clone();
        if let Some(kept) = kept {
            kept.keep(&*self.device, offset, len);
        }
    }
}

impl BlockDevice for SnapshotDevice {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.before_write(offset, || buf.len() as u64);
        self.device.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
        self.before_write(offset, || total_len(bufs));
        self.device.write_vectored_at(offset, bufs)
    }

    fn write_unit(&self) -> u64 {
        self.device.write_unit()
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.before_write(offset, || len);
        self.device.discard(offset, len)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.before_write(offset, || len);
        self.device.trim(offset, len)
    }

    fn extend(&self, len: u64) -> io::Result<()> {
        self.device.extend(len)
    }

    fn read_only(&self) -> bool {
        self.device.read_only()
    }
}

/// A device as it was at a moment, until this is dropped or the device closed: see [`SnapshotDevice`].
///
/// ```
/// use std::sync::Arc;
/// use extant_blockdev::{BlockDevice, MemDevice, SnapshotDevice, SnapshotOptions};
/// let device = Arc::new(SnapshotDevice::new(Arc::new(MemDevice::new(8192))));
/// let snapshot = device.take(SnapshotOptions::new(4096).most(4096))?;
/// device.write_at(0, &[1; 8192])?;
/// // Two blocks were to be kept, and one was allowed.
/// assert!(snapshot.read_at(0, &mut [0; 512]).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Snapshot {
    /// Weak, so that a forgotten snapshot does not keep the device open.
    of: Weak<SnapshotDevice>,
    len: u64,
    kept: Arc<KeptBlocks>,
}

impl Snapshot {
    /// Returns the number of bytes that are kept in memory now.
    pub fn kept_bytes(&self) -> u64 {
        self.kept.bytes.load(Ordering::Relaxed)
    }

    fn check(&self) -> io::Result<()> {
        if !self.kept.ended.load(Ordering::SeqCst) {
            return Ok(());
        }
        let most = self.kept.options.most;
        Err(io::Error::other(format!(
            "more was written over than a snapshot keeps ({most} bytes), or could not be read before"
        )))
    }
}

impl BlockDevice for Snapshot {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.len, offset, buf.len() as u64, "read")?;
        let closed = || io::Error::other("the device of the snapshot was closed");
        let of = self.of.upgrade().ok_or_else(closed)?;
        of.device.read_at(offset, buf)?;
        // Before a write that was seen in part, the block was kept, and kept blocks are read now.
        self.kept.restore(offset, buf);
        self.check()
    }

    only_read!();
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let Some(of) = self.of.upgrade() {
            of.taken.store(false, Ordering::SeqCst);
            *of.kept.write() = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;

    const BLOCKS: u64 = 256;

    fn device() -> Arc<SnapshotDevice> {
        let bytes: Vec<u8> = (0..BLOCKS).flat_map(|n| [n as u8; 1024]).collect();
        Arc::new(SnapshotDevice::new(Arc::new(MemDevice::from_bytes(&bytes))))
    }

    fn all(device: &dyn BlockDevice) -> Vec<u8> {
        let mut bytes = vec![0; device.len() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn every_kind_of_write_leaves_the_snapshot_as_it_was() {
        let device = device();
        let before = all(&device);
        let snapshot = device.take(SnapshotOptions::new(1024)).unwrap();
        device.write_at(1000, &[0xaa; 100]).unwrap();
        device
            .write_vectored_at(5000, &[&[1; 700], &[2; 900]])
            .unwrap();
        device.discard(10_000, 3000).unwrap();
        device.trim(100 * 1024, 2048).unwrap();
        device.write_at(1000, &[0xbb; 3000]).unwrap();
        assert!(all(&device) != before);
        assert!(all(&snapshot) == before);
        let mut part = [0; 1500];
        snapshot.read_at(700, &mut part).unwrap();
        assert_eq!(part[..], before[700..2200]);
        assert_eq!(snapshot.kept_bytes(), (4 + 3 + 4 + 2) * 1024);
        assert!(snapshot.write_at(0, &[1]).is_err());
        assert!(snapshot.read_at(BLOCKS * 1024, &mut [0]).is_err());
        // Only one snapshot at a time, and another one afterwards.
        let busy = device.take(SnapshotOptions::new(1024)).err().unwrap();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        drop(snapshot);
        let now = all(&device);
        let again = device.take(SnapshotOptions::new(1024)).unwrap();
        device.write_at(0, &[7; 1024]).unwrap();
        assert!(all(&again) == now);
    }

    #[test]
    fn what_is_not_needed_takes_no_room_and_too_much_ends_it() {
        let device = device();
        let before = all(&device);
        let options = SnapshotOptions::new(1024).most(2048);
        let snapshot = device.take(options.only(|at| at < 8 * 1024)).unwrap();
        device.write_at(8 * 1024, &[0xcc; 100 * 1024]).unwrap();
        device.write_at(0, &[0xcc; 2048]).unwrap();
        let mut bytes = vec![0; 8 * 1024];
        snapshot.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes[..], before[..8 * 1024]);
        device.write_at(4096, &[0xcc]).unwrap();
        let error = snapshot.read_at(0, &mut bytes).unwrap_err().to_string();
        assert!(
            error.starts_with("more was written over than a snapshot keeps (2048"),
            "{error}"
        );
        drop(device);
        assert!(snapshot.read_at(0, &mut bytes).is_err());
    }

    #[test]
    fn readers_beside_writers_see_the_moment() {
        let device = device();
        let before = all(&device);
        let snapshot = device.take(SnapshotOptions::new(1024)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let device = &device;
                scope.spawn(move || {
                    for n in 0..3000u64 {
                        let at = (n * 7919 + thread * 104_729) % (BLOCKS * 1024 - 1500);
                        device.write_at(at, &[n as u8; 1500]).unwrap();
                    }
                });
            }
            scope.spawn(|| {
                for n in 0..300 {
                    assert!(all(&snapshot) == before, "round {n}");
                }
            });
        });
        assert!(all(&snapshot) == before);
    }
}
