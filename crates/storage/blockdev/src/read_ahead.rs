//! [`reading_ahead`]: threads that read announced ranges, past the system's cache.
//!
//! The cache of the system costs more than a fast disk takes: pages are allocated and filed, and read in requests that
//! grow slowly. So a large range that is read once is read directly into separate memory instead, by threads that do
//! nothing else.

use crate::device::{BlockDevice, check_range};
use crate::threads::start_threads;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Once};
use std::thread::{self, Scope};

/// Smaller ranges are left to the system, which reads many of them at once.
const LARGE: u64 = 128 << 10;
/// Bytes of a piece, which one thread reads at once.
const PIECE: u64 = 1 << 20;
/// Pieces that were read and are still wanted.
const MOST_HELD: usize = 12;
/// Threads that read: a disk that answers late is asked for several pieces at a time.
const READERS: usize = 4;
/// Places on a device, lengths and addresses in memory that suit every disk.
const ALIGN: u64 = 4096;

/// Runs `work` with a device that begins to read large ranges when they are announced
/// ([`will_read`](BlockDevice::will_read)), if the device can read past the cache
/// ([`read_uncached`](BlockDevice::read_uncached)); with the device itself otherwise. Each announced range should be
/// read once. Nothing may write to the device meanwhile, because ranges read ahead would not show the write.
///
/// ```
/// use extant_blockdev::{Access, BlockDevice, FileDevice, reading_ahead};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("disk.img");
/// # std::fs::write(&path, vec![7; 1 << 20]).unwrap();
/// let device = FileDevice::open(&path, Access::ReadOnly).unwrap();
/// let sum = reading_ahead(&device, |device| {
///     device.will_read(0, 1 << 20);
///     // Other work here.
///     let mut bytes = vec![0; 1 << 20];
///     device.read_at(0, &mut bytes).map(|()| bytes.iter().map(|&b| u64::from(b)).sum::<u64>())
/// });
/// assert_eq!(sum.unwrap(), 7 << 20);
/// ```
pub fn reading_ahead<R>(device: &dyn BlockDevice, work: impl FnOnce(&dyn BlockDevice) -> R) -> R {
    if !matches!(device.read_uncached(0, &mut []), Ok(true)) {
        return work(device);
    }
    let readers = Readers {
        device,
        pieces: Mutex::default(),
        told: Condvar::new(),
        read: Condvar::new(),
    };
    thread::scope(|scope| {
        let _ended = Ended(&readers);
        work(&ReadAhead {
            readers: &readers,
            scope,
            started: Once::new(),
        })
    })
}

/// Ends the threads, also when the work panics.
struct Ended<'a, 'd>(&'a Readers<'d>);

impl Drop for Ended<'_, '_> {
    fn drop(&mut self) {
        self.0.pieces.lock().ended = true;
        self.0.told.notify_all();
    }
}

/// The device that is lent.
struct ReadAhead<'scope, 'env> {
    readers: &'scope Readers<'env>,
    scope: &'scope Scope<'scope, 'env>,
    /// Starts the threads. A device that has everything in memory gets no announcements and needs no threads.
    started: Once,
}

/// State that the device shares with its threads.
struct Readers<'d> {
    device: &'d dyn BlockDevice,
    pieces: Mutex<Pieces>,
    /// Threads wait here for pieces, and for room.
    told: Condvar,
    /// A piece that somebody was reading is there, or cannot be had.
    read: Condvar,
}

#[derive(Default)]
struct Pieces {
    /// Pieces by the offset at which they begin. They do not overlap.
    by_start: BTreeMap<u64, Piece>,
    /// Pieces that no thread reads yet, in the order of their announcements, and some that are gone.
    waiting: VecDeque<u64>,
    /// Number of pieces that are held or being read.
    taken: usize,
    /// Memory of pieces that are gone.
    spare: Vec<Aligned>,
    ended: bool,
}

struct Piece {
    len: u64,
    progress: Progress,
}

enum Progress {
    Waiting,
    Reading,
    Held(Held),
}

struct Held {
    memory: Arc<Aligned>,
    /// Number of its bytes that were not asked for yet.
    wanted: u64,
}

/// Memory whose address suits every disk.
#[derive(Default)]
struct Aligned {
    bytes: Vec<u8>,
    skip: usize,
}

impl Aligned {
    /// Returns the first bytes, to be read into.
    fn first(&mut self, len: u64) -> &mut [u8] {
        if self.bytes.is_empty() {
            self.bytes = vec![0; (PIECE + 3 * ALIGN) as usize];
            self.skip = self.bytes.as_ptr().align_offset(ALIGN as usize);
        }
        let end = self.skip + len as usize;
        self.bytes.get_mut(self.skip..end).unwrap_or_default()
    }

    fn get(&self, range: Range<u64>) -> &[u8] {
        let [start, end] = [range.start, range.end].map(|at| self.skip + at as usize);
        self.bytes.get(start..end).unwrap_or_default()
    }
}

/// State of an offset.
enum Found {
    /// The memory of a piece, and the bytes of it that are asked for.
    Held(Arc<Aligned>, Range<u64>),
    /// A piece that the caller reads now.
    Begun(Range<u64>),
    /// A piece that somebody is reading.
    Reading,
    /// Nothing up to here.
    Nothing(u64),
}

impl Pieces {
    /// Finds the piece that holds the byte at an offset.
    fn piece_at(&mut self, offset: u64) -> Option<(u64, &mut Piece)> {
        let (&start, piece) = self.by_start.range_mut(..=offset).next_back()?;
        (offset - start < piece.len).then_some((start, piece))
    }

    /// Returns the start of the first piece behind an offset.
    fn next_start(&self, offset: u64) -> u64 {
        let next = self.by_start.range(offset..).next();
        next.map_or(u64::MAX, |(&start, _)| start)
    }

    /// Notes a range in pieces, except the parts that are noted already.
    fn note(&mut self, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            if let Some((start, piece)) = self.piece_at(at) {
                at = start + piece.len;
                continue;
            }
            let len = (range.end.min(self.next_start(at)) - at).min(PIECE);
            let progress = Progress::Waiting;
            self.by_start.insert(at, Piece { len, progress });
            self.waiting.push_back(at);
            at += len;
        }
    }

    /// Takes the next piece that nobody reads yet.
    fn take_waiting(&mut self) -> Option<Range<u64>> {
        while let Some(start) = self.waiting.pop_front() {
            let begun = self.begin(start);
            if begun.is_some() {
                return begun;
            }
        }
        None
    }

    /// Takes a piece that is to be read now, if it waits for that.
    fn begin(&mut self, start: u64) -> Option<Range<u64>> {
        let piece = self.by_start.get_mut(&start)?;
        matches!(piece.progress, Progress::Waiting).then(|| {
            piece.progress = Progress::Reading;
            self.taken += 1;
            start..start + piece.len
        })
    }

    /// Returns the state of the first bytes of a requested range.
    fn find(&mut self, range: &Range<u64>) -> Found {
        let Some((start, piece)) = self.piece_at(range.start) else {
            return Found::Nothing(self.next_start(range.start).min(range.end));
        };
        let end = range.end.min(start + piece.len);
        if let Progress::Held(held) = &mut piece.progress {
            held.wanted = held.wanted.saturating_sub(end - range.start);
            let (memory, gone) = (held.memory.clone(), held.wanted == 0);
            if gone {
                self.forget(start);
            }
            let begin = start - start % ALIGN;
            return Found::Held(memory, range.start - begin..end - begin);
        }
        let Some(begun) = self.begin(start) else {
            return Found::Reading;
        };
        self.make_room();
        Found::Begun(begun)
    }

    /// Forgets a piece that was being read or held.
    fn forget(&mut self, start: u64) {
        self.by_start.remove(&start);
        self.taken -= 1;
    }

    /// Frees the first held piece if the memory is full, because no reader asks for pieces that stay.
    fn make_room(&mut self) {
        let held = |piece: &Piece| matches!(piece.progress, Progress::Held(_));
        if self.taken > MOST_HELD
            && let Some((&start, _)) = self.by_start.iter().find(|(_, piece)| held(piece))
        {
            self.forget(start);
        }
    }
}

/// A reader that asks for a waiting piece reads it itself, and waits only for a piece that is being read. So threads
/// that have no room, or have ended, keep no reader waiting.
impl Readers<'_> {
    /// Reads announced ranges until the end.
    fn serve(&self) {
        let mut pieces = self.pieces.lock();
        while !pieces.ended {
            let next = if pieces.taken < MOST_HELD {
                pieces.take_waiting()
            } else {
                None
            };
            match next {
                Some(piece) => MutexGuard::unlocked(&mut pieces, || self.fetch(&piece)),
                None => self.told.wait(&mut pieces),
            }
        }
    }

    /// Reads a piece.
    fn fetch(&self, piece: &Range<u64>) {
        let Range { start, end } = *piece;
        let mut memory = self.pieces.lock().spare.pop().unwrap_or_default();
        let begin = start - start % ALIGN;
        let behind = end.next_multiple_of(ALIGN).min(self.device.len());
        let read = self
            .device
            .read_uncached(begin, memory.first(behind - begin));
        let had = matches!(read, Ok(true));
        let mut pieces = self.pieces.lock();
        match pieces.by_start.get_mut(&start) {
            Some(piece) if had => {
                let (memory, wanted) = (Arc::new(memory), end - start);
                piece.progress = Progress::Held(Held { memory, wanted });
            }
            // The reader that asks for the piece reads the device, and gets its error.
            _ => {
                pieces.forget(start);
                pieces.spare.push(memory);
            }
        }
        drop(pieces);
        self.read.notify_all();
        if !had {
            self.device.will_read(start, end - start);
        }
    }

    /// Reads the first bytes of a range, some of them at least, and returns how many.
    fn read_first(&self, range: &Range<u64>, buf: &mut [u8]) -> io::Result<u64> {
        let mut pieces = self.pieces.lock();
        loop {
            match pieces.find(range) {
                Found::Reading => self.read.wait(&mut pieces),
                Found::Begun(piece) => {
                    MutexGuard::unlocked(&mut pieces, || self.fetch(&piece));
                }
                Found::Nothing(end) => {
                    drop(pieces);
                    let len = end - range.start;
                    let buf = buf.get_mut(..len as usize).unwrap_or_default();
                    return self.device.read_at(range.start, buf).map(|()| len);
                }
                Found::Held(memory, place) => {
                    drop(pieces);
                    let len = place.end - place.start;
                    let to = buf.get_mut(..len as usize).unwrap_or_default();
                    // Both have the same length, because the range ends within `buf`, and memory has room for any
                    // piece.
                    to.copy_from_slice(memory.get(place));
                    self.recycle(memory);
                    return Ok(len);
                }
            }
        }
    }

    /// Releases memory that was copied from. The last holder keeps it for another piece.
    fn recycle(&self, memory: Arc<Aligned>) {
        if let Some(memory) = Arc::into_inner(memory) {
            self.pieces.lock().spare.push(memory);
            self.told.notify_one();
        }
    }
}

impl BlockDevice for ReadAhead<'_, '_> {
    fn len(&self) -> u64 {
        self.readers.device.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.len(), offset, buf.len() as u64, "read")?;
        let mut range = offset..offset + buf.len() as u64;
        let mut rest = buf;
        while !range.is_empty() {
            let len = self.readers.read_first(&range, rest)?;
            range.start += len;
            rest = rest.split_at_mut(len as usize).1;
        }
        Ok(())
    }

    fn will_read(&self, offset: u64, len: u64) {
        let Self { readers, scope, .. } = *self;
        if len < LARGE || check_range(self.len(), offset, len, "read").is_err() {
            return readers.device.will_read(offset, len);
        }
        // If no reader starts, the device itself reads the announced ranges.
        self.started.call_once(|| {
            start_threads(scope, 0..READERS, |_| readers.serve());
        });
        readers.pieces.lock().note(offset..offset + len);
        readers.told.notify_all();
    }

    only_read!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Memory that is read as a disk is, and counts how.
    struct Disk {
        inner: MemDevice,
        /// The device has everything in memory, and reads nothing past it.
        cached: bool,
        /// Reads past the cache fail from here on.
        broken: u64,
        uncached: AtomicUsize,
        cached_reads: AtomicUsize,
        told: AtomicUsize,
    }

    const LEN: u64 = 48 << 20;

    impl Disk {
        fn new() -> Self {
            let inner = MemDevice::new(LEN);
            for at in (0..LEN).step_by(512) {
                inner.write_at(at, &(at ^ 0xa5a5).to_le_bytes()).unwrap();
            }
            Self {
                inner,
                cached: false,
                broken: LEN,
                uncached: AtomicUsize::new(0),
                cached_reads: AtomicUsize::new(0),
                told: AtomicUsize::new(0),
            }
        }

        fn counts(&self) -> [usize; 3] {
            [&self.uncached, &self.cached_reads, &self.told].map(|n| n.load(Ordering::Relaxed))
        }

        fn expect(&self, device: &dyn BlockDevice, at: u64, len: usize) {
            let (mut got, mut wanted) = (vec![0; len], vec![0; len]);
            device.read_at(at, &mut got).unwrap();
            self.inner.read_at(at, &mut wanted).unwrap();
            assert!(got == wanted, "{len} bytes at {at}");
        }
    }

    impl BlockDevice for Disk {
        fn len(&self) -> u64 {
            LEN
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.cached_reads.fetch_add(1, Ordering::Relaxed);
            self.inner.read_at(offset, buf)
        }

        fn will_read(&self, _: u64, _: u64) {
            self.told.fetch_add(1, Ordering::Relaxed);
        }

        fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
            if buf.is_empty() {
                return Ok(true);
            }
            assert!(offset.is_multiple_of(ALIGN) && buf.len().is_multiple_of(ALIGN as usize));
            assert!(buf.as_ptr().addr().is_multiple_of(ALIGN as usize));
            if offset >= self.broken {
                return Err(io::Error::other("broken"));
            }
            self.uncached.fetch_add(1, Ordering::Relaxed);
            self.inner.read_at(offset, buf)?;
            Ok(!self.cached)
        }

        fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
            self.inner.write_at(offset, buf)
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }

        fn read_only(&self) -> bool {
            false
        }
    }

    #[test]
    fn large_ranges_are_read_once_and_past_the_cache() {
        let disk = Disk::new();
        reading_ahead(&disk, |device| {
            let (first, len) = (1000, 20 << 20);
            device.will_read(first, len);
            device.will_read(first + (1 << 20), 1 << 20);
            for at in (first..first + len).step_by(64 << 10) {
                disk.expect(device, at, 64 << 10);
            }
        });
        assert_eq!(disk.counts(), [20, 0, 0]);
    }

    #[test]
    fn small_ranges_are_left_to_the_device() {
        let disk = Disk::new();
        reading_ahead(&disk, |device| {
            device.will_read(4096, LARGE - 1);
            disk.expect(device, 4096, 4096);
        });
        assert_eq!(disk.counts(), [0, 1, 1]);
    }

    #[test]
    fn what_was_not_told_is_read_from_the_device() {
        let disk = Disk::new();
        reading_ahead(&disk, |device| {
            device.will_read(8 << 20, 1 << 20);
            disk.expect(device, (8 << 20) - 5000, 10_000);
            disk.expect(device, (9 << 20) - 5000, 10_000);
            let past = device.read_at(LEN - 10, &mut [0; 11]);
            assert_eq!(past.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            device.will_read(u64::MAX, LARGE);
            device.will_read(LEN - 10, LARGE);
        });
        assert_eq!(disk.counts()[..2], [1, 2]);
    }

    #[test]
    fn pieces_that_nobody_reads_keep_nobody_waiting() {
        let disk = Disk::new();
        reading_ahead(&disk, |device| {
            device.will_read(0, LEN);
            for at in (0..LEN).rev().step_by(1 << 20).map(|end| end & !0xf_ffff) {
                disk.expect(device, at, 4096);
            }
        });
    }

    #[test]
    fn a_device_that_has_all_in_memory_is_read_from_there() {
        let mut disk = Disk::new();
        disk.cached = true;
        reading_ahead(&disk, |device| {
            device.will_read(0, 4 << 20);
            disk.expect(device, 0, 4 << 20);
        });
        let [_, cached_reads, _] = disk.counts();
        assert!(cached_reads > 0);
    }

    #[test]
    fn who_reads_has_the_error_of_the_device() {
        let mut disk = Disk::new();
        disk.broken = 0;
        reading_ahead(&disk, |device| {
            device.will_read(0, 4 << 20);
            disk.expect(device, 0, 4 << 20);
        });
        let [uncached, cached_reads, _] = disk.counts();
        assert!(uncached == 0 && cached_reads > 0);
    }

    #[test]
    fn many_threads_read_what_is_there() {
        let disk = Disk::new();
        reading_ahead(&disk, |device| {
            thread::scope(|scope| {
                for t in 0..8u64 {
                    let disk = &disk;
                    scope.spawn(move || {
                        for n in 0..200u64 {
                            let at = (n * 7919 + t * 104_729) * 1021 % (LEN - (600 << 10));
                            if n % 3 == 0 {
                                device.will_read(at, (n + 1) * 2000);
                            }
                            disk.expect(device, at, (n as usize % 40 + 1) * 5000);
                        }
                    });
                }
            });
        });
    }

    #[test]
    fn threads_end_when_the_work_panics() {
        let disk = Disk::new();
        let work = || {
            reading_ahead(&disk, |device| {
                device.will_read(0, 4 << 20);
                panic!("as it should")
            })
        };
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        assert!(ended.is_err());
    }

    #[test]
    fn nothing_is_written() {
        let disk = Disk::new();
        reading_ahead(&disk, |device| {
            assert!(device.read_only());
            let refused = device.write_at(0, &[1]).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
        });
    }
}
