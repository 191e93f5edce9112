//! [`MemDevice`]: sparse memory, cheap to snapshot.
//!
//! The bytes are divided into chunks. A chunk is found by its number in one of a fixed number of shards, each with its
//! own lock, so that threads working at different places seldom meet. Both the shard's table and the chunks in it are
//! reference counted and copied when written while shared. A snapshot costs one count per shard, and afterwards one
//! copy per table and chunk actually changed. A chunk that is not there reads as zeroes.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::copy::copy_bytes;
use crate::device::{BlockDevice, SECTOR, check_range};

const CHUNK: u64 = 64 << 10;
const SHARDS: u64 = 64;

type Table = HashMap<u64, Arc<[u8]>>;

#[derive(Default)]
#[repr(align(128))]
struct Shard(RwLock<Arc<Table>>);

/// A device in memory. Only chunks that were written take space.
///
/// ```
/// use extant_blockdev::{BlockDevice, MemDevice};
/// let dev = MemDevice::new(1 << 40);
/// dev.write_at(1 << 39, b"x").unwrap();
/// assert!(dev.allocated() <= 1 << 20);
/// dev.discard(0, 1 << 40).unwrap();
/// assert_eq!(dev.allocated(), 0);
/// ```
pub struct MemDevice {
    len: AtomicU64,
    shards: Box<[Shard]>,
}

impl MemDevice {
    /// Makes a device of `len` zero bytes.
    pub fn new(len: u64) -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        MemDevice {
            len: AtomicU64::new(len),
            shards,
        }
    }

    /// Makes a device holding a copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let dev = Self::new(bytes.len() as u64);
        for (nr, piece) in bytes.chunks(CHUNK as usize).enumerate() {
            if !crate::device::is_zero(piece) {
                dev.update(nr as u64, |chunk| {
                    copy_bytes(&mut chunk[..piece.len()], piece)
                });
            }
        }
        dev
    }

    /// Makes an independent device with the contents of this moment. A write that runs at the same time may be in it
    /// whole, in part or not at all.
    pub fn snapshot(&self) -> MemDevice {
        // All shards are held at once, so that a later write is never in the snapshot without a write that had returned
        // before it began.
        let held: Vec<_> = self.shards.iter().map(|s| s.0.read()).collect();
        MemDevice {
            len: AtomicU64::new(self.len()),
            shards: held
                .iter()
                .map(|t| Shard(RwLock::new(Arc::clone(t))))
                .collect(),
        }
    }

    /// Grows (with zeroes) or shrinks the device.
    pub fn set_len(&self, len: u64) {
        let old = self.len.swap(len, Ordering::AcqRel);
        if len < old {
            self.zero(len, old);
        }
    }

    /// Returns the bytes of memory behind the device, chunks shared with snapshots included.
    pub fn allocated(&self) -> u64 {
        self.shards
            .iter()
            .map(|s| s.0.read().len() as u64 * CHUNK)
            .sum()
    }

    /// Reads all bytes. Meant for small images.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.len()).map_err(io::Error::other)?];
        self.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies the contents to `dev`, chunk by chunk, without chunks that were never written; `dev` must be all
    /// zero.
    pub fn copy_to(&self, dev: &dyn BlockDevice) -> io::Result<()> {
        for shard in &self.shards {
            let table = Arc::clone(&shard.0.read());
            for (nr, chunk) in table.iter() {
                let at = nr * CHUNK;
                let n = self.len().saturating_sub(at).min(CHUNK);
                dev.write_at(at, &chunk[..n as usize])?;
            }
        }
        Ok(())
    }

    fn shard(&self, chunk: u64) -> &RwLock<Arc<Table>> {
        &self.shards[(chunk % SHARDS) as usize].0
    }

    /// Runs `change` on a chunk that no snapshot shares.
    fn update(&self, nr: u64, change: impl FnOnce(&mut [u8])) {
        let mut table = self.shard(nr).write();
        let chunk = Arc::make_mut(&mut table)
            .entry(nr)
            .or_insert_with(|| Arc::from(vec![0; CHUNK as usize]));
        change(Arc::make_mut(chunk));
    }

    fn zero(&self, start: u64, end: u64) {
        if end - start > CHUNK {
            // The range may be far longer than the memory in use, so the walk is over the tables.
            let whole = start.div_ceil(CHUNK)..end / CHUNK;
            for shard in &self.shards {
                let mut table = shard.0.write();
                if table.keys().any(|nr| whole.contains(nr)) {
                    Arc::make_mut(&mut table).retain(|nr, _| !whole.contains(nr));
                }
            }
            self.zero_part(start, end.min(whole.start * CHUNK));
            self.zero_part(start.max(whole.end * CHUNK), end);
        } else {
            self.zero_part(start, end);
        }
    }

    fn zero_part(&self, start: u64, end: u64) {
        for (nr, range, _) in pieces(start, end.saturating_sub(start)) {
            if self.shard(nr).read().contains_key(&nr) {
                self.update(nr, |chunk| chunk[range].fill(0));
            }
        }
    }
}

/// Cuts a range at chunk borders: chunk number, range inside the chunk, range inside the buffer.
fn pieces(
    offset: u64,
    len: u64,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let inside = at % CHUNK;
            let n = (CHUNK - inside).min(end - at);
            let buf_start = (at - offset) as usize;
            let piece = (
                at / CHUNK,
                inside as usize..(inside + n) as usize,
                buf_start..buf_start + n as usize,
            );
            at += n;
            piece
        })
    })
}

impl BlockDevice for MemDevice {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.len(), offset, buf.len() as u64, "read")?;
        for (nr, inside, of_buf) in pieces(offset, buf.len() as u64) {
            match self.shard(nr).read().get(&nr) {
                Some(chunk) => copy_bytes(&mut buf[of_buf], &chunk[inside]),
                None => buf[of_buf].fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        check_range(self.len(), offset, buf.len() as u64, "write")?;
        for (nr, inside, of_buf) in pieces(offset, buf.len() as u64) {
            self.update(nr, |chunk| copy_bytes(&mut chunk[inside], &buf[of_buf]));
        }
        Ok(())
    }

    fn write_unit(&self) -> u64 {
        SECTOR
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.len(), offset, len, "discard")?;
        self.zero(offset, offset + len);
        Ok(())
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.discard(offset, len)
    }

    fn extend(&self, len: u64) -> io::Result<()> {
        if len > self.len() {
            self.set_len(len);
        }
        Ok(())
    }

    fn shorten(&self, len: u64) -> io::Result<()> {
        if len < self.len() {
            self.set_len(len);
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let from = offset / CHUNK;
        let of_shard = |shard: &Shard| shard.0.read().keys().copied().filter(|n| *n >= from).min();
        let Some(first) = self.shards.iter().filter_map(of_shard).min() else {
            return Ok(None);
        };
        let mut end = first + 1;
        while self.shard(end).read().contains_key(&end) {
            end += 1;
        }
        let data = (first * CHUNK).max(offset)..(end * CHUNK).min(self.len());
        Ok((!data.is_empty()).then_some(data))
    }

    fn read_only(&self) -> bool {
        false
    }
}

impl Clone for MemDevice {
    fn clone(&self) -> Self {
        self.snapshot()
    }
}

impl std::fmt::Debug for MemDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemDevice")
            .field("len", &self.len())
            .field("allocated", &self.allocated())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_flat_buffer() {
        let len = 5 * CHUNK + 777;
        let dev = MemDevice::new(len);
        let mut flat = vec![0u8; len as usize];
        let mut x = 1u64;
        let mut next = |n: u64| {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (x >> 33) % n
        };
        for round in 0..if cfg!(miri) { 10 } else { 400u32 } {
            let at = next(len);
            let n = next(len - at + 1).min(3 * CHUNK);
            let range = at as usize..(at + n) as usize;
            if next(3) == 0 {
                dev.discard(at, n).unwrap();
                flat[range].fill(0);
            } else {
                flat[range.clone()].fill(round as u8);
                dev.write_at(at, &flat[range]).unwrap();
            }
        }
        assert_eq!(dev.to_bytes().unwrap(), flat);
        assert_eq!(MemDevice::from_bytes(&flat).to_bytes().unwrap(), flat);
        let copy = MemDevice::new(len);
        dev.copy_to(&copy).unwrap();
        assert_eq!(copy.to_bytes().unwrap(), flat);
    }

    #[test]
    fn snapshot_is_independent_both_ways() {
        let a = MemDevice::new(1 << 20);
        a.write_at(0, b"one").unwrap();
        let b = a.snapshot();
        a.write_at(0, b"two").unwrap();
        b.write_at(CHUNK, b"b").unwrap();
        let mut buf = [0; 3];
        b.read_at(0, &mut buf).unwrap();
        assert_eq!(&buf, b"one");
        a.read_at(CHUNK, &mut buf).unwrap();
        assert_eq!(buf, [0; 3]);
    }

    #[test]
    fn shrinking_forgets_and_growing_zeroes() {
        let dev = MemDevice::from_bytes(&[9; 1000]);
        dev.set_len(10);
        assert!(dev.read_at(0, &mut [0; 11]).is_err());
        dev.set_len(1000);
        let bytes = dev.to_bytes().unwrap();
        assert!(bytes[..10].iter().all(|&b| b == 9) && bytes[10..].iter().all(|&b| b == 0));
    }

    #[test]
    fn the_end_of_u64_is_not_reached() {
        let dev = MemDevice::new(u64::MAX);
        dev.write_at(u64::MAX - 4, b"last").unwrap();
        dev.discard(1, u64::MAX - 1).unwrap();
        assert_eq!(dev.allocated(), CHUNK);
    }
}
