//! Undo files in the format of e2fsprogs, read and written.
//!
//! All numbers are little-endian. Checksums are CRC-32C with an initial value of all ones. The file consists of blocks of
//! one size. A key describes a run of old bytes. Blocks of keys alternate with the old bytes of these keys, and the bytes
//! of each key start at a block boundary. The superblock in the file is the one that the change wrote, so that the file
//! applies to one state of one image.
//!
//! | offset | bytes | header |
//! |---|---|---|
//! | 0 | 8 | magic, `E2UNDO02` |
//! | 8, 16, 24 | 8 | number of keys; block numbers of the superblock and of the first block of keys |
//! | 32, 36 | 4 | block size of the file; block size of the volume, the unit of keys |
//! | 40, 44 | 4 | checksum of the superblock; state: 1 if complete |
//! | 48, 52, 56 | 4 | features: compatible (1: the header has an offset), incompatible, read-only |
//! | 64 | 8 | bytes in front of the volume |
//! | 492, 500 | 8 | lengths of the image after and before the change; only Extant writes them, and e2fsprogs writes zeros |
//! | 508 | 4 | checksum of the preceding bytes of the header |
//!
//! | offset | bytes | block of keys |
//! |---|---|---|
//! | 0, 4, 8 | 4, 4, 8 | magic; checksum of the block, computed with zeros in this field; zeros |
//! | from 16 | 8, 4, 4 | for each key: block of the volume; checksum of the old bytes; number of old bytes |

use crate::changes::Changes;
use crate::error::Error;
use crate::in_place::{self, HOLE};
use crate::undo::{Undo, UndoRecord, zero_grains};
use blockdev::BlockDevice;
use ext4_format::change_mark::MARK_SIZE;
use ext4_format::checksum::crc32c;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

/// Magic number of an undo file of e2fsprogs.
pub const MAGIC: &[u8; 8] = b"E2UNDO02";
pub(crate) const HEAD: usize = 512;
pub(crate) const NEW_LENGTH: usize = 492;
pub(crate) const OLD_LENGTH: usize = 500;
pub(crate) const KEYS_MAGIC: u32 = 0xcade_cade;
pub(crate) const KEYS_HEAD: usize = 16;
pub(crate) const KEY: usize = 16;
pub(crate) const FINISHED: u32 = 1;
/// Feature: the head has an offset.
pub(crate) const HAS_OFFSET: u32 = 1;
/// Size of blocks in written files; the superblock is the second one of a volume.
pub(crate) const BLOCK: u64 = 1024;
/// Largest number of old bytes per key in written files.
pub(crate) const LONGEST: usize = 1 << 19;
/// Largest supported block size of a file.
const LARGEST_BLOCK: u32 = 4 << 20;
/// Offset of the magic number in a superblock. The number is inverted in an undo file, so that no program mistakes the file for an image.
const SUPER_MAGIC: usize = 56;

fn bad(what: &str) -> Error {
    Error::Undo(what.to_owned())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(<[u8]>::first_chunk);
    four.map_or(0, |four| u32::from_le_bytes(*four))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

pub(crate) fn invert_magic(superblock: &mut [u8]) {
    let magic = superblock.iter_mut().skip(SUPER_MAGIC).take(2);
    magic.for_each(|byte| *byte = !*byte);
}

/// An undo file of e2fsprogs.
#[derive(Clone, Debug)]
pub struct E2Undo {
    offset: u64,
    /// The superblock after the change.
    superblock: Vec<u8>,
    /// Old bytes by their offset in the volume.
    old: BTreeMap<u64, Vec<u8>>,
    /// Each run of old bytes, in the order of the file: its length, its block in the file, and its block in the volume.
    runs: Vec<(u32, u64, u64)>,
    head: Vec<u8>,
}

impl E2Undo {
    /// Size of the largest file that can be read, in bytes: all old bytes are kept in memory.
    pub const LARGEST_FILE: u64 = 16 << 30;

    /// Reads an undo file. Returns `None` if the file does not have the format of e2fsprogs.
    ///
    /// # Errors
    /// [`Error::Undo`] for a file that is damaged or unfinished, and [`Error::Io`].
    pub fn read(mut file: File) -> Result<Option<Self>, Error> {
        let mut bytes = Vec::new();
        file.by_ref().take(HEAD as u64).read_to_end(&mut bytes)?;
        if !bytes.starts_with(MAGIC) {
            return Ok(None);
        }
        // Check the numbers in the header before the rest is read.
        let size = file.metadata()?.len();
        check_head(&bytes, size)?;
        let rest = size.saturating_sub(HEAD as u64);
        file.take(rest).read_to_end(&mut bytes)?;
        Self::parse(&bytes).map(Some)
    }

    /// Parses a file whose header is valid.
    fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let cut = || bad("the file is truncated");
        let (head, _) = bytes.split_first_chunk::<HEAD>().ok_or_else(cut)?;
        let (block, unit) = (word(head, 32), word(head, 36));
        let mut reader = Reader {
            bytes,
            block: u64::from(block),
            at: 0,
            runs: Vec::new(),
        };
        reader.at = long(head, 16);
        let mut superblock = reader
            .take(SUPERBLOCK_SIZE as u64)
            .ok_or_else(cut)?
            .to_vec();
        invert_magic(&mut superblock);
        reader.at = long(head, 24);
        let keys = long(head, 8);
        Ok(Self {
            offset: if word(head, 48) & HAS_OFFSET != 0 {
                long(head, 64)
            } else {
                0
            },
            old: reader.keys(keys, u64::from(unit))?,
            superblock,
            runs: reader.runs,
            head: head.to_vec(),
        })
    }

    /// Number of runs of old bytes.
    pub const fn keys(&self) -> u64 {
        self.runs.len() as u64
    }

    /// Returns a line for each run of old bytes, as `e2undo -v` prints them.
    pub fn replayed(&self) -> String {
        let mut runs = self.runs.clone();
        runs.sort_by_key(|&(.., to)| to);
        let line = |(len, from, to): &(u32, u64, u64)| {
            format!("Replayed block of size {len} from {from} to {to}\n")
        };
        runs.iter().map(line).collect()
    }

    /// Number of bytes in front of the volume.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the header of the file as `e2undo -h` prints it.
    pub fn lines(&self) -> String {
        let head = &self.head;
        let mut text = format!("nr keys:\t{}\n", self.keys());
        for (name, at) in [("super block", 16), ("key block", 24)] {
            text.push_str(&format!("{name}:\t{}\n", long(head, at)));
        }
        for (name, at) in [("block size", 32), ("fs block size", 36)] {
            text.push_str(&format!("{name}:\t{}\n", word(head, at)));
        }
        let numbers = [
            ("super crc", 40),
            ("state", 44),
            ("compat", 48),
            ("incompat", 52),
            ("rocompat", 56),
        ];
        for (name, at) in numbers {
            let tabs = if ["state", "compat"].contains(&name) {
                "\t\t"
            } else {
                "\t"
            };
            text.push_str(&format!("{name}:{tabs}{:#x}\n", word(head, at)));
        }
        if word(head, 48) & HAS_OFFSET != 0 {
            text.push_str(&format!("fs offset:\t{}\n", self.offset));
        }
        text.push_str(&format!("header crc:\t{:#x}\n", word(head, HEAD - 4)));
        text
    }

    /// Returns the undo record that restores the volume from its current state. With `force`, the volume may have been
    /// changed after the change that this file belongs to.
    ///
    /// # Errors
    /// [`Error::Undo`] if the superblock of the volume is not the one that the change wrote; [`Error::Io`].
    pub fn undo(&self, image: &dyn BlockDevice, force: bool) -> Result<Undo, Error> {
        self.check(image, force)?;
        let mut records = Vec::new();
        for (&at, old) in &self.old {
            // The first sector of the superblock needs a separate record, because it is restored last.
            for (start, part) in around_first_sector(at, old) {
                let mut there = vec![0; part.len()];
                image.read_at(start, &mut there)?;
                records.push(UndoRecord::new(start, part.to_vec(), &there));
            }
        }
        records.sort_by_key(UndoRecord::is_first_sector);
        Ok(Undo::of_records(
            self.restored_len(image)?,
            image.len(),
            records,
        ))
    }

    /// Restores the old bytes and the old length of the image, and returns the number of bytes written when they are
    /// durable. The writes are a change with a separate undo record: the file `beside`, or a record in the image. So
    /// after a crash, [`ImageFile::take_back`](crate::ImageFile::take_back) reverts a part of them, and a second call
    /// completes them. The image must not carry a mark.
    ///
    /// # Errors
    /// As [`Self::undo`], and those of [`Changes::write`].
    pub fn take_back(
        &self,
        image: &dyn BlockDevice,
        force: bool,
        beside: Option<&Path>,
    ) -> Result<u64, Error> {
        self.check(image, force)?;
        let len = self.restored_len(image)?;
        let (changes, zeros) = self.changes_and_zeros(image)?;
        let bytes = changes.bytes();
        if !changes.is_empty() {
            changes.write_with_holes(image, &zeros, beside)?;
        }
        in_place::shorten(image, len)?;
        Ok(bytes)
    }

    /// Fails if the old bytes do not apply to the image in its current state.
    fn check(&self, image: &dyn BlockDevice, force: bool) -> Result<(), Error> {
        let mut now = vec![0; SUPERBLOCK_SIZE];
        image.read_at(SUPERBLOCK_OFFSET, &mut now)?;
        let end = self.old.iter().map(|(at, old)| at + old.len() as u64).max();
        let end = end.unwrap_or_default();
        let is_short = end > image.len();
        let applies = force || now == self.superblock;
        if !applies && (is_short || !self.is_reverted(image)?) {
            return Err(bad(
                "the superblock of the image is not the one that the change wrote: the image is another one, or was changed since: use --force to undo anyway",
            ));
        }
        if is_short {
            return Err(Error::Undo(format!(
                "the old bytes end at byte {end}, the image ends at byte {}: make the image longer first",
                image.len()
            )));
        }
        Ok(())
    }

    /// Returns whether the image has all old bytes. This is the state after a crash between the last write and the
    /// truncation of the image.
    fn is_reverted(&self, image: &dyn BlockDevice) -> Result<bool, Error> {
        Ok(!self.old.is_empty() && self.changes(image)?.is_empty())
    }

    /// Returns the old bytes that differ from those of the image.
    fn changes(&self, image: &dyn BlockDevice) -> Result<Changes, Error> {
        let mut changes = BTreeMap::new();
        let mut end = 0;
        for (&start, old) in &self.old {
            if start < end {
                return Err(bad("the keys overlap"));
            }
            end = start + old.len() as u64;
            let mut now = vec![0; old.len()];
            image.read_at(start, &mut now)?;
            let mut at = start;
            while at < end {
                let next = end.min(at - at % HOLE + HOLE);
                let range = (at - start) as usize..(next - start) as usize;
                let old = old.get(range.clone()).unwrap_or_default();
                if now.get(range) != Some(old) {
                    changes.insert(at, old.to_vec());
                }
                at = next;
            }
        }
        Ok(Changes(changes))
    }

    /// Returns the old bytes that differ from those of the image, and the ranges of 4096 bytes among them that had only zeros, by their
    /// offsets. Such a range is whole in the changes, so that the undo record in the image is not placed there.
    fn changes_and_zeros(
        &self,
        image: &dyn BlockDevice,
    ) -> Result<(Changes, BTreeSet<u64>), Error> {
        let Changes(mut changes) = self.changes(image)?;
        let parts = self.old.iter();
        let parts = parts.flat_map(|(&at, old)| around_first_sector(at, old));
        let rest = parts.filter(|(at, part)| *at != SUPERBLOCK_OFFSET || part.len() != MARK_SIZE);
        let mut zeros = zero_grains(rest, image.len());
        zeros.retain(|&start| changes.range(start..start + HOLE).next().is_some());
        changes.retain(|at, _| !zeros.contains(&(at - at % HOLE)));
        changes.extend(zeros.iter().map(|&start| (start, vec![0; HOLE as usize])));
        Ok((Changes(changes), zeros))
    }

    /// Returns the length of the image after the change is reverted. The image gets its old length only if it still has
    /// the length that the change gave it, and if no volume was there before that ends behind the old length. A longer image
    /// may have other data behind the volume.
    fn restored_len(&self, image: &dyn BlockDevice) -> io::Result<u64> {
        let (old, new) = (long(&self.head, OLD_LENGTH), long(&self.head, NEW_LENGTH));
        let now = image.len();
        if new != now || old >= now {
            return Ok(now);
        }
        let end = self.end_of_old_volume(image)?;
        Ok(if end.is_none_or(|end| end <= old) {
            old
        } else {
            now
        })
    }

    /// Returns the offset of the end of the volume before the change. Returns `None` if the old superblock is not valid.
    fn end_of_old_volume(&self, image: &dyn BlockDevice) -> io::Result<Option<u64>> {
        let mut superblock = vec![0; SUPERBLOCK_SIZE];
        image.read_at(SUPERBLOCK_OFFSET, &mut superblock)?;
        for (&at, old) in &self.old {
            let into = at.saturating_sub(SUPERBLOCK_OFFSET) as usize;
            let skip = SUPERBLOCK_OFFSET.saturating_sub(at) as usize;
            let to = superblock.iter_mut().skip(into);
            let from = old.iter().skip(skip);
            to.zip(from).for_each(|(to, from)| *to = *from);
        }
        let superblock = RawSuperblock::parse(&superblock).ok();
        Ok(superblock.and_then(|sb| sb.volume_len()))
    }
}

/// Checks the header of a file of `size` bytes.
fn check_head(head: &[u8], size: u64) -> Result<(), Error> {
    if head.len() < HEAD {
        return Err(bad("the file is truncated"));
    }
    let summed = head.get(..HEAD - 4).unwrap_or_default();
    if crc32c(!0, summed) != word(head, HEAD - 4) {
        return Err(bad("the header is damaged"));
    }
    if word(head, 44) & FINISHED == 0 {
        return Err(bad(
            "the file is unfinished: the program that wrote it was interrupted",
        ));
    }
    if word(head, 48) & !HAS_OFFSET != 0 || word(head, 52) != 0 || word(head, 56) != 0 {
        return Err(bad("the file has unknown features"));
    }
    let sound = |size: u32| size >= 512 && size.is_power_of_two() && size <= LARGEST_BLOCK;
    if !sound(word(head, 32)) || !sound(word(head, 36)) {
        return Err(bad("the block size is not valid"));
    }
    if size > E2Undo::LARGEST_FILE {
        return Err(bad(
            "the file is larger than 16 GiB, the limit: use e2undo of e2fsprogs",
        ));
    }
    if long(head, 8).saturating_mul(KEY as u64) > size {
        return Err(bad("the file is too short for its number of keys"));
    }
    Ok(())
}

/// Splits the bytes at offset `at` of the volume so that the first sector of the superblock is a separate part.
fn around_first_sector(at: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let cut = |place: u64| place.saturating_sub(at).min(bytes.len() as u64) as usize;
    let (first, second) = (
        cut(SUPERBLOCK_OFFSET),
        cut(SUPERBLOCK_OFFSET + MARK_SIZE as u64),
    );
    let parts = [(0, first), (first, second), (second, bytes.len())];
    parts.into_iter().filter_map(move |(start, end)| {
        let part = bytes.get(start..end).filter(|part| !part.is_empty())?;
        Some((at + start as u64, part))
    })
}

struct Reader<'b> {
    bytes: &'b [u8],
    block: u64,
    /// The next block of the file.
    at: u64,
    /// The runs read, as in [`E2Undo`].
    runs: Vec<(u32, u64, u64)>,
}

impl<'b> Reader<'b> {
    /// Returns `len` bytes from the start of the next block, and advances to the block after them.
    fn take(&mut self, len: u64) -> Option<&'b [u8]> {
        let start = self.at.checked_mul(self.block)?;
        let end = start.checked_add(len)?;
        self.at = self.at.checked_add(len.div_ceil(self.block))?;
        let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
        self.bytes.get(range)
    }

    fn keys(&mut self, count: u64, unit: u64) -> Result<BTreeMap<u64, Vec<u8>>, Error> {
        let damaged = || bad("the keys are damaged");
        let mut old = BTreeMap::new();
        let mut left = count;
        while left > 0 {
            let keys = self.take(self.block).ok_or_else(damaged)?;
            let mut summed = keys.to_vec();
            summed.iter_mut().skip(4).take(4).for_each(|byte| *byte = 0);
            if word(keys, 0) != KEYS_MAGIC || crc32c(!0, &summed) != word(keys, 4) {
                return Err(damaged());
            }
            let (keys, _) = keys.get(KEYS_HEAD..).unwrap_or_default().as_chunks::<KEY>();
            for key in keys {
                if left == 0 {
                    break;
                }
                left -= 1;
                let at = long(key, 0).checked_mul(unit).ok_or_else(damaged)?;
                let (sum, len) = (word(key, 8), word(key, 12));
                self.runs.push((len, self.at, long(key, 0)));
                let bytes = self
                    .take(len.into())
                    .ok_or_else(|| bad("the file is truncated"))?;
                at.checked_add(len.into()).ok_or_else(damaged)?;
                // The sum of a superblock of 1 KiB may be 0, as every sum with a checksum in its bytes.
                if crc32c(!0, bytes) != sum {
                    return Err(bad("the old bytes are damaged"));
                }
                // If several keys have the same block, the first one has the oldest bytes.
                old.entry(at).or_insert_with(|| bytes.to_vec());
            }
        }
        Ok(old)
    }
}

impl Undo {
    /// Reads an undo file in the format of this crate or of e2fsprogs, for the current state of the image. Returns
    /// `None` if the file is unfinished, because the change then wrote nothing to the image.
    ///
    /// # Errors
    /// The errors of [`Self::read`] and of [`E2Undo::undo`].
    pub fn of_file(
        mut file: File,
        image: &dyn BlockDevice,
        force: bool,
    ) -> Result<Option<Self>, Error> {
        match E2Undo::read(file.try_clone()?)? {
            Some(theirs) => theirs.undo(image, force).map(Some),
            None => {
                file.rewind()?;
                Self::read_from(file)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoggedDevice, UndoLog, take_back_interrupted};
    use blockdev::{Event, FaultDevice, MemDevice, Op, RecordingDevice};
    use std::io::Write;
    use std::sync::Arc;

    fn read(bytes: &[u8]) -> Result<Option<E2Undo>, Error> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        E2Undo::read(file)
    }

    /// Works on an image, and returns the undo file of the change.
    fn logged(image: &Arc<MemDevice>, work: impl FnOnce(&LoggedDevice)) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("undo");
        let log = Arc::new(UndoLog::create(&path).unwrap());
        work(&LoggedDevice::new(image.clone(), Arc::clone(&log)));
        log.finish(image, 0).unwrap();
        std::fs::read(path).unwrap()
    }

    fn changed(image: &Arc<MemDevice>) -> Vec<u8> {
        logged(image, |device| {
            let far = vec![4; 600 << 10];
            for (at, new) in [(0, &[2; 3000][..]), (5000, &[3; 100]), (700 << 10, &far)] {
                device.write_at(at, new).unwrap();
            }
        })
    }

    #[test]
    fn an_undo_file_reverts_its_change() {
        let old: Vec<u8> = (0..2_000_000_u32).map(|n| (n / 7) as u8).collect();
        let image = Arc::new(MemDevice::from_bytes(&old));
        let file = read(&changed(&image)).unwrap().unwrap();
        assert_eq!(file.offset(), 0);
        file.undo(&image, false).unwrap().take_back(&image).unwrap();
        assert!(image.to_bytes().unwrap() == old);
        // A second undo has nothing to write.
        assert_eq!(file.take_back(&image, false, None).unwrap(), 0);
        // After another change, the superblock is not the one that the change wrote.
        image.write_at(5000, &[9]).unwrap();
        assert!(file.undo(&image, false).is_err());
        file.undo(&image, true).unwrap().take_back(&image).unwrap();
        assert!(image.to_bytes().unwrap() == old);
        let short = MemDevice::from_bytes(&old[..1 << 20]);
        let error = file.undo(&short, true).unwrap_err();
        assert!(error.to_string().contains("longer first"), "{error}");
    }

    #[test]
    fn an_undo_that_is_cut_at_any_write_is_completed_by_the_next_one() {
        let mut old: Vec<u8> = (0..2_000_000_u32).map(|n| (n / 7) as u8).collect();
        old[800 << 10..900 << 10].fill(0);
        let image = Arc::new(MemDevice::from_bytes(&old));
        let file = read(&changed(&image)).unwrap().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let beside = dir.path().join("undo");
        let (mut marked, mut cut_at) = (0, 0);
        loop {
            let cut = FaultDevice::new(image.snapshot());
            cut.fail_after(Op::Write, cut_at);
            let done = file.take_back(&cut, false, Some(&beside));
            cut.heal();
            let cut = cut.inner();
            marked += u64::from(crate::mark(cut).unwrap().is_some());
            take_back_interrupted(cut, &beside).unwrap();
            file.take_back(cut, false, Some(&beside)).unwrap();
            assert!(cut.to_bytes().unwrap() == old, "cut at write {cut_at}");
            assert!(!beside.exists());
            if done.is_ok() {
                break;
            }
            cut_at += 1;
        }
        assert!(marked > 1, "{marked}");
    }

    /// The keys are of blocks of 1 KiB, and the image has zeros, data and zeros.
    #[test]
    fn zeros_are_freed() {
        let image = Arc::new(MemDevice::new(16384));
        image.write_at(8192, &[1; 1024]).unwrap();
        let old = image.to_bytes().unwrap();
        let file = logged(&image, |device| {
            for block in (0..16u64).filter(|block| *block != 6) {
                device.write_at(block * 1024, &[2; 1024]).unwrap();
            }
        });
        let file = read(&file).unwrap().unwrap();
        // A part of the last range has its old bytes again.
        image.write_at(13312, &[0; 2048]).unwrap();
        let (changes, _) = file.changes_and_zeros(&*image).unwrap();
        assert_eq!(changes.0.get(&12288).map(Vec::len), Some(4096));
        let dir = tempfile::tempdir().unwrap();
        let recorder = RecordingDevice::new(image.snapshot());
        let beside = dir.path().join("undo");
        file.take_back(&recorder, false, Some(&beside)).unwrap();
        assert!(recorder.inner().to_bytes().unwrap() == old);
        let log = recorder.log();
        let discards = log.events().iter().filter_map(|event| match event {
            Event::Discard { offset, len } => Some((*offset, *len)),
            _ => None,
        });
        // The file does not cover the whole of the second 4096 bytes, and the first ones hold the mark.
        assert_eq!(discards.collect::<Vec<_>>(), [(12288, 4096)]);
    }

    #[test]
    fn damage_to_a_file_is_found() {
        let image = Arc::new(MemDevice::from_bytes(&vec![1; 2_000_000]));
        let whole = changed(&image);
        assert!(read(b"EXTUNDO\n").unwrap().is_none());
        let used = (0..0x60).chain(508..512).chain(2048..2048 + 64);
        for at in used.chain([whole.len() - 1, 1 << 19]) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            let read = read(&bytes);
            assert!(!matches!(read, Ok(Some(_))), "byte {at}");
        }
        for len in [600, 1024, 2000, 3000, whole.len() - 1024] {
            assert!(read(&whole[..len]).is_err(), "cut at {len}");
        }
        // A file that is too large, and a number of keys that is too large, are found in the header.
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&whole).unwrap();
        file.rewind().unwrap();
        file.set_len(E2Undo::LARGEST_FILE + 1).unwrap();
        let error = E2Undo::read(file).unwrap_err().to_string();
        assert!(error.contains("larger than 16 GiB"), "{error}");
        let mut head = whole[..HEAD - 4].to_vec();
        head[8..16].fill(0xff);
        let sum = crc32c(!0, &head).to_le_bytes();
        let error = read(&[&head[..], &sum].concat()).unwrap_err().to_string();
        assert!(error.contains("number of keys"), "{error}");
    }

    /// Makes a superblock of a volume with blocks of 1 KiB.
    fn superblock(blocks: u32) -> Vec<u8> {
        let mut superblock = vec![0; SUPERBLOCK_SIZE];
        for (at, number) in [(0, 16), (4, blocks), (32, 8192), (40, 16), (56, 0xef53)] {
            superblock[at..at + 4].copy_from_slice(&u32::to_le_bytes(number));
        }
        superblock
    }

    #[test]
    fn only_the_length_that_the_change_set_is_reverted() {
        let (before, after) = (40 << 10, 64 << 10);
        // The old volume of 40 KiB ends at the end of the old image. One of 41 KiB does not fit.
        for (blocks, appended, expected) in [
            (40, 0, before),
            (40, 512, after + 512),
            (41, 0, after),
            // The old file had no volume.
            (0, 0, before),
        ] {
            let image = Arc::new(MemDevice::new(before));
            let start = SUPERBLOCK_OFFSET;
            image.write_at(start, &superblock(blocks)).unwrap();
            let file = logged(&image, |device| {
                device.extend(after).unwrap();
                device.write_at(start, &superblock(64)).unwrap();
            });
            let file = read(&file).unwrap().unwrap();
            image.set_len(after + appended);
            file.undo(&image, false).unwrap().take_back(&image).unwrap();
            assert_eq!(image.len(), expected, "{blocks} blocks");
            let mut now = superblock(0);
            image.read_at(start, &mut now).unwrap();
            assert_eq!(now, superblock(blocks));
        }
    }
}
