//! Undo files that grow while an image changes: a [`LoggedDevice`] saves the old bytes of each block before the first write
//! to it. The [`UndoLog`] writes them in the format of e2fsprogs ([`e2undo`](crate::e2undo)), and completes the header when all
//! changes are made. Several devices may share a log, one after another, so that a log can cover several changes.

use crate::e2undo::{
    BLOCK, FINISHED, HAS_OFFSET, HEAD, KEY, KEYS_HEAD, KEYS_MAGIC, LONGEST, MAGIC, NEW_LENGTH,
    OLD_LENGTH, invert_magic,
};
use blockdev::BlockDevice;
use ext4_format::checksum::crc32c;
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes each number at its offset. Numbers that do not fit are left out.
fn put<const N: usize>(bytes: &mut [u8], numbers: impl IntoIterator<Item = (usize, [u8; N])>) {
    for (at, number) in numbers {
        if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *place = number;
        }
    }
}

/// Disjoint ranges.
#[derive(Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Returns the ranges that overlap a range or touch it.
    fn near(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.0.range(..range.start).next_back();
        let first = before.filter(|(_, end)| **end >= range.start);
        let first = first.map_or(range.start, |(start, _)| *start);
        let near = self.0.range(first..=range.end);
        near.map(|(start, end)| *start..*end).collect()
    }

    /// Returns the parts of a range that are absent.
    fn absent(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let (mut at, mut absent) = (range.start, Vec::new());
        for present in self.near(range) {
            absent.push(at..present.start);
            at = at.max(present.end);
        }
        absent.push(at..range.end);
        absent.retain(|part| part.start < part.end);
        absent
    }

    fn insert(&mut self, range: Range<u64>) {
        let mut whole = range.clone();
        for present in self.near(&range) {
            whole = whole.start.min(present.start)..whole.end.max(present.end);
            self.0.remove(&present.start);
        }
        self.0.insert(whole.start, whole.end);
    }
}

/// The file, as far as it is written.
struct Writer {
    path: PathBuf,
    file: File,
    /// End of the written blocks.
    end: u64,
    /// The last block of keys, and its offset.
    keys: (Vec<u8>, u64),
    count: u64,
    saved: Ranges,
    /// Length of the image before the first write.
    old_len: Option<u64>,
    /// Whether the host reported that written bytes are lost. It reports a loss once.
    lost: bool,
}

impl Writer {
    /// Saves the old bytes of the blocks in a range that were not saved before.
    fn save(&mut self, image: &dyn BlockDevice, offset: u64, len: u64) -> io::Result<()> {
        let image_len = image.len();
        self.old_len.get_or_insert(image_len);
        let end = offset.saturating_add(len).min(image_len);
        let end = end.checked_next_multiple_of(BLOCK).unwrap_or(end);
        let start = offset / BLOCK * BLOCK;
        if start >= end {
            return Ok(());
        }
        for absent in self.saved.absent(&(start..end)) {
            for at in absent.clone().step_by(LONGEST) {
                let end = absent.end.min(at + LONGEST as u64);
                // The last block of an image may be short.
                let len = end.min(image_len).saturating_sub(at);
                let mut old = vec![0; len as usize]; // at most LONGEST
                image.read_at(at, &mut old)?;
                self.add(at, &old)?;
                self.saved.insert(at..end);
            }
        }
        Ok(())
    }

    /// Adds a key, and writes its bytes. An error leaves the keys as they were, so that the file can be completed without the new key.
    fn add(&mut self, at: u64, old: &[u8]) -> io::Result<()> {
        if self.keys.0.len() + KEY > BLOCK as usize {
            self.write_keys()?;
            self.keys.0.clear();
        }
        if self.keys.0.is_empty() {
            // Take the space now, because the host may be full when the block is complete.
            self.write_at(&[0; BLOCK as usize], self.end)?;
            self.keys = (vec![0; KEYS_HEAD], self.end);
            self.end += BLOCK;
        }
        // Zeros become a hole.
        if old.iter().any(|byte| *byte != 0) {
            self.write_at(old, self.end).inspect_err(|_| {
                // A part may have been written, and the next key may have a hole there. A failure is met by the next write.
                let _ = self.file.set_len(self.end);
            })?;
        }
        let keys = &mut self.keys.0;
        keys.extend((at / BLOCK).to_le_bytes());
        keys.extend(crc32c(!0, old).to_le_bytes());
        keys.extend((old.len() as u32).to_le_bytes()); // at most LONGEST
        self.count += 1;
        self.end += (old.len() as u64).next_multiple_of(BLOCK);
        Ok(())
    }

    /// Writes the last block of keys.
    fn write_keys(&self) -> io::Result<()> {
        let (keys, at) = &self.keys;
        if keys.len() <= KEYS_HEAD {
            return Ok(());
        }
        let mut keys = keys.clone();
        keys.resize(BLOCK as usize, 0);
        put(&mut keys, [(0, KEYS_MAGIC.to_le_bytes())]);
        let sum = crc32c(!0, &keys);
        put(&mut keys, [(4, sum.to_le_bytes())]);
        self.write_at(&keys, *at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        named(&self.path, self.file.write_all_at(bytes, at))
    }

    /// Makes the written bytes durable.
    fn sync(&mut self) -> io::Result<()> {
        if self.lost {
            let text = "an earlier write did not reach the disk";
            return named(&self.path, Err(io::Error::other(text)));
        }
        let done = self.file.sync_all();
        self.lost = done.is_err();
        named(&self.path, done)
    }

    /// Writes the superblock of the changed image, and the header that completes the file.
    fn finish(&mut self, image: &dyn BlockDevice, offset: u64) -> io::Result<()> {
        self.write_keys()?;
        let mut superblock = vec![0; SUPERBLOCK_SIZE];
        if image.len() >= SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
            image.read_at(SUPERBLOCK_OFFSET, &mut superblock)?;
        }
        let sum = crc32c(!0, &superblock);
        invert_magic(&mut superblock);
        self.write_at(&superblock, BLOCK)?;
        named(&self.path, self.file.set_len(self.end))?;
        self.sync()?;
        let old_len = self.old_len.unwrap_or(image.len());
        let longs = [
            (8, self.count),
            (64, offset),
            (NEW_LENGTH, image.len()),
            (OLD_LENGTH, old_len),
        ];
        let has_offset = if offset > 0 { HAS_OFFSET } else { 0 };
        let words = [(40, sum), (44, FINISHED), (48, has_offset)];
        self.write_at(&header(&longs, &words), 0)?;
        self.sync()
    }
}

/// Names the undo file in an error, because the user has also named the image.
fn named<T>(path: &Path, done: io::Result<T>) -> io::Result<T> {
    done.map_err(|e| {
        let text = format!("{}: undo file: {e}", path.display());
        io::Error::new(e.kind(), text)
    })
}

/// Returns a header with these fields and those that all files have in common. Without the state in `words`, the header is the one
/// of an unfinished file.
fn header(longs: &[(usize, u64)], words: &[(usize, u32)]) -> Vec<u8> {
    let mut head = vec![0; HEAD];
    let longs = [(16, 1), (24, 2)].iter().chain(longs);
    let words = [(32, BLOCK as u32), (36, BLOCK as u32)].iter().chain(words);
    put(&mut head, [(0, *MAGIC)]);
    put(&mut head, longs.map(|(at, n)| (*at, n.to_le_bytes())));
    put(&mut head, words.map(|(at, n)| (*at, n.to_le_bytes())));
    let sum = crc32c(!0, head.get(..HEAD - 4).unwrap_or_default());
    put(&mut head, [(HEAD - 4, sum.to_le_bytes())]);
    head
}

/// An undo file that is being written.
///
/// ```
/// use ext4_image::{E2Undo, LoggedDevice, UndoLog, blockdev::{BlockDevice, MemDevice}};
/// use std::sync::Arc;
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("undo");
/// let image = Arc::new(MemDevice::from_bytes(&[1; 8192]));
/// let log = Arc::new(UndoLog::create(&path)?);
/// LoggedDevice::new(image.clone(), Arc::clone(&log)).write_at(4000, &[2; 500])?;
/// log.finish(&image, 0)?;
/// let undo = E2Undo::read(std::fs::File::open(&path)?)?.unwrap();
/// // A crash during the undo is undone by this file.
/// undo.take_back(&image, false, Some(&dir.path().join("record")))?;
/// assert_eq!(image.to_bytes()?, [1; 8192]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UndoLog(Mutex<Writer>);

impl UndoLog {
    /// Creates the file, for the owner only, because it contains old data of the image.
    ///
    /// # Errors
    /// The file exists, or cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        // Take the space of the header and the superblock.
        file.write_all_at(&[0; 2 * BLOCK as usize], 0)?;
        file.write_all_at(&header(&[], &[]), 0)?;
        Ok(Self(Mutex::new(Writer {
            path: path.to_path_buf(),
            file,
            end: 2 * BLOCK,
            keys: (Vec::new(), 0),
            count: 0,
            saved: Ranges::default(),
            old_len: None,
            lost: false,
        })))
    }

    /// Returns whether nothing was written to the image.
    pub fn is_empty(&self) -> bool {
        self.0.lock().count == 0
    }

    /// Completes the file for the changed image, which starts `offset` bytes after the start of its disk. The file is also complete
    /// if a write to the image was refused because the file had no room for its old bytes.
    ///
    /// # Errors
    /// The image cannot be read, or the file cannot be written.
    pub fn finish(&self, image: &dyn BlockDevice, offset: u64) -> io::Result<()> {
        self.0.lock().finish(image, offset)
    }
}

/// A device whose old bytes are saved in an [`UndoLog`] before they are overwritten.
pub struct LoggedDevice {
    image: Arc<dyn BlockDevice>,
    log: Arc<UndoLog>,
}

impl LoggedDevice {
    /// Saves the old bytes of `image` in `log` from now on.
    pub fn new(image: Arc<dyn BlockDevice>, log: Arc<UndoLog>) -> Self {
        Self { image, log }
    }

    fn save(&self, offset: u64, len: u64) -> io::Result<()> {
        self.log.0.lock().save(&self.image, offset, len)
    }
}

impl BlockDevice for LoggedDevice {
    fn len(&self) -> u64 {
        self.image.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.image.read_at(offset, buf)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.image.will_read(offset, len);
    }

    fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        self.image.read_uncached(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.save(offset, buf.len() as u64)?;
        self.image.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
        self.save(offset, bufs.iter().map(|buf| buf.len() as u64).sum())?;
        self.image.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.log.0.lock().sync()?;
        self.image.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.save(offset, len)?;
        self.image.discard(offset, len)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.save(offset, len)?;
        self.image.trim(offset, len)
    }

    fn extend(&self, len: u64) -> io::Result<()> {
        self.log.0.lock().old_len.get_or_insert(self.image.len());
        self.image.extend(len)
    }

    fn shorten(&self, len: u64) -> io::Result<()> {
        self.save(len, self.image.len().saturating_sub(len))?;
        self.image.shorten(len)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.image.next_data(offset)
    }

    fn read_only(&self) -> bool {
        self.image.read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::E2Undo;
    use blockdev::MemDevice;

    #[test]
    fn a_range_is_absent_once() {
        let mut ranges = Ranges::default();
        let mut absent = |start, end| {
            let absent = ranges.absent(&(start..end));
            ranges.insert(start..end);
            let pairs = absent.iter().map(|range| (range.start, range.end));
            pairs.collect::<Vec<_>>()
        };
        assert_eq!(absent(10, 20), [(10, 20)]);
        assert_eq!(absent(30, 40), [(30, 40)]);
        assert_eq!(absent(12, 18), []);
        assert_eq!(absent(5, 35), [(5, 10), (20, 30)]);
        assert_eq!(absent(40, 45), [(40, 45)]);
        assert_eq!(absent(0, 50), [(0, 5), (45, 50)]);
        assert_eq!(ranges.0, [(0, 50)].into());
    }

    #[test]
    fn every_kind_of_write_is_reverted() {
        let dir = tempfile::tempdir().unwrap();
        // The last block is short.
        let old: Vec<u8> = (0..3_000_300_u32).map(|n| (n / 7) as u8).collect();
        let image = Arc::new(MemDevice::from_bytes(&old));
        let path = dir.path().join("undo");
        let log = Arc::new(UndoLog::create(&path).unwrap());
        assert!(UndoLog::create(&path).is_err());
        // Two devices share the log, like the steps of a command.
        for fill in [1, 2] {
            let device = LoggedDevice::new(image.clone(), Arc::clone(&log));
            for at in (0..140_000).step_by(2048) {
                device.write_at(at, &[fill; 100]).unwrap();
            }
            device
                .write_vectored_at(500_000, &[&[fill; 9], &[fill; 2000]])
                .unwrap();
            device.discard(1_000_000, 1_500_000).unwrap();
            device.write_at(3_000_290, &[fill; 10]).unwrap();
            device.flush().unwrap();
            device.shorten(3_000_100).unwrap();
            device.extend(3_100_000).unwrap();
        }
        // An unfinished file is refused.
        let error = E2Undo::read(File::open(&path).unwrap()).unwrap_err();
        assert!(error.to_string().contains("unfinished"), "{error}");
        log.finish(&image, 0).unwrap();
        let undo = E2Undo::read(File::open(&path).unwrap()).unwrap().unwrap();
        let beside = dir.path().join("beside");
        undo.take_back(&image, false, Some(&beside)).unwrap();
        assert!(image.to_bytes().unwrap()[..old.len()] == old);
    }

    #[test]
    fn a_full_host_leaves_a_file_that_can_be_completed() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let full = || OpenOptions::new().write(true).open(full).unwrap();
        let swap = |log: &UndoLog, file| std::mem::replace(&mut log.0.lock().file, file);
        let old: Vec<u8> = (0..200_000_u32).map(|n| (n / 9) as u8 | 1).collect();
        // The host is full when the bytes of a key, or a block of keys, do not fit.
        for written in [0, 5, 63, 64] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("undo");
            let log = Arc::new(UndoLog::create(&path).unwrap());
            let image = Arc::new(MemDevice::from_bytes(&old));
            let device = LoggedDevice::new(image.clone(), Arc::clone(&log));
            let write = |n: u64| device.write_at(2048 * n, &[2; 512]);
            (0..written).for_each(|n| write(n).unwrap());
            let file = swap(&log, full());
            let before = image.to_bytes().unwrap();
            for n in [written, written, written + 7] {
                let error = write(n).unwrap_err().to_string();
                assert!(error.contains("undo file"), "{error}");
            }
            assert!(image.to_bytes().unwrap() == before);
            swap(&log, file);
            // Saved blocks may still be written, as when a change reverts itself.
            (0..written).for_each(|n| write(n).unwrap());
            log.finish(&image, 0).unwrap();
            let undo = E2Undo::read(File::open(&path).unwrap()).unwrap().unwrap();
            assert_eq!(undo.keys(), written);
            let record = dir.path().join("record");
            undo.take_back(&image, false, Some(&record)).unwrap();
            assert!(image.to_bytes().unwrap() == old);
        }
    }

    /// The error of a read names no undo file.
    #[test]
    fn errors_name_the_file_that_failed() {
        struct Unreadable;
        impl BlockDevice for Unreadable {
            fn len(&self) -> u64 {
                4096
            }
            fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
                Err(io::Error::other("bad sector"))
            }
            fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
                Ok(())
            }
            fn flush(&self) -> io::Result<()> {
                Ok(())
            }
            fn read_only(&self) -> bool {
                false
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let log = UndoLog::create(&dir.path().join("undo")).unwrap();
        let device = LoggedDevice::new(Arc::new(Unreadable), Arc::new(log));
        let error = device.write_at(0, &[2; 512]).unwrap_err();
        assert_eq!(error.to_string(), "bad sector");
    }
}
