//! Undo files: the old bytes of the parts of an image that a change writes.
//!
//! All numbers are little-endian. The file begins with a head of 64 bytes, and the records follow. A record holds the
//! offset (8 bytes) and the length (4 bytes) of a part of the image, the CRC-32C of the new bytes of each of its
//! sectors, and the old bytes. The first sector of the superblock has a separate record, the last one. The head is
//! written last, behind a flush: a file with zeros for a head belongs to an image that was not written to.
//!
//! | offset | bytes | head |
//! |---|---|---|
//! | 0 | 8 | magic, `EXTUNDO\n` |
//! | 8 | 4 | version, 2 |
//! | 12 | 4 | CRC-32C of the records |
//! | 16 | 8 | length of the image |
//! | 24 | 8 | count of records |
//! | 32 | 8 | length of all records in bytes |
//! | 40 | 8 | length of the image while it is changed: the length after growth |
//! | 48 | 8 | inode number of the image's file, or 0 |
//! | 56 | 4 | low half of the time of birth of that file, in nanoseconds |
//! | 60 | 4 | CRC-32C of the head before it |

use crate::error::Error;
use crate::file_id::FileId;
use crate::in_place::{self, HOLE};
use crate::split_change::Pieces;
use blockdev::{BlockDevice, SECTOR};
use ext4_format::change_mark::{ChangeMark, MARK_SIZE};
use ext4_format::checksum::crc32c;
use ext4_format::superblock::SUPERBLOCK_OFFSET;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const MAGIC: &[u8; 8] = b"EXTUNDO\n";
const VERSION: u32 = 2;
const HEAD: usize = 64;
/// Largest file that is written and read, because all old bytes are kept in memory.
const LARGEST_FILE: u64 = 64 << 30;
/// No repair writes longer pieces.
const LONGEST: usize = 1 << 20;

/// A part of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UndoRecord {
    offset: u64,
    old: Vec<u8>,
    /// Checksums of the new bytes of each sector of 512 bytes.
    new: Vec<u32>,
}

impl UndoRecord {
    /// Reads the bytes of the image that `new` will replace.
    fn before(image: &dyn BlockDevice, offset: u64, new: &[u8]) -> io::Result<Self> {
        let mut old = vec![0; new.len()];
        image.read_at(offset, &mut old)?;
        Ok(Self::new(offset, old, new))
    }

    pub(crate) fn new(offset: u64, old: Vec<u8>, new: &[u8]) -> Self {
        let new = new.chunks(SECTOR as usize).map(sum).collect();
        Self { offset, old, new }
    }

    /// Returns whether the record is the first sector of the superblock, which the mark of a change replaces.
    pub(crate) fn is_first_sector(&self) -> bool {
        self.offset == SUPERBLOCK_OFFSET && self.old.len() == MARK_SIZE
    }
}

/// The old bytes of the parts of an image that a change writes.
///
/// ```
/// use ext4_image::{Undo, blockdev::{BlockDevice, MemDevice}};
/// let image = MemDevice::from_bytes(&[1; 8192]);
/// let undo = Undo::before(&image, &[(4096, vec![2; 512])].into())?;
/// image.write_at(4096, &[2; 512])?;
/// undo.take_back(&image)?;
/// assert_eq!(image.to_bytes()?, [1; 8192]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    len: u64,
    grown: u64,
    file: FileId,
    records: Vec<UndoRecord>,
}

impl Undo {
    /// Reads the bytes of the image that `changes`, by their offset in bytes, will replace.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn before(image: &dyn BlockDevice, changes: &BTreeMap<u64, Vec<u8>>) -> io::Result<Self> {
        Self::of_pieces(image, &Pieces::of(image, changes)?, image.len())
    }

    /// Reads the old bytes from an image that had `len` bytes before it was extended for the change.
    pub(crate) fn of_pieces(
        image: &dyn BlockDevice,
        pieces: &Pieces<'_>,
        len: u64,
    ) -> io::Result<Self> {
        let rest = pieces.rest.iter().copied();
        let first = pieces.first.as_ref();
        let first = first.map(|sector| (SUPERBLOCK_OFFSET, &sector[..]));
        let records = rest.chain(first);
        let records = records.map(|(offset, new)| UndoRecord::before(image, offset, new));
        Ok(Self {
            len,
            grown: image.len(),
            file: FileId::default(),
            records: records.collect::<io::Result<_>>()?,
        })
    }

    /// Creates the undo record of a change that made an image of `len` bytes `grown` bytes long. In `records`, the first
    /// sector of the superblock must be the last one.
    pub(crate) fn of_records(len: u64, grown: u64, records: Vec<UndoRecord>) -> Self {
        Self {
            len,
            grown,
            file: FileId::default(),
            records,
        }
    }

    /// Records the identity of the image file.
    pub(crate) fn set_file(&mut self, file: FileId) {
        self.file = file;
    }

    /// Returns whether the undo record belongs to this file, not to another one with the same name or bytes.
    pub(crate) fn is_of(&self, file: FileId) -> bool {
        self.file == file && file != FileId::default()
    }

    /// Returns the identity of the change, a hash of all records. The mark in the image contains it.
    pub fn id(&self) -> u64 {
        let mut id = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |number: u64| {
            for byte in number.to_le_bytes() {
                id = (id ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        };
        add(self.len);
        add(self.grown);
        for record in &self.records {
            add(record.offset);
            add(sum(&record.old).into());
            record.new.iter().for_each(|&sum| add(sum.into()));
        }
        id
    }

    /// Writes a new undo file that only its owner can read, and returns when it is durable. If writing fails, the file is removed.
    ///
    /// # Errors
    /// The errors of the file system; the file must not exist.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let named = |e: io::Error| match e.kind() {
            io::ErrorKind::AlreadyExists => {
                let text = format!("{}: the file exists: name a new undo file", path.display());
                io::Error::new(e.kind(), text)
            }
            kind => io::Error::new(kind, format!("{}: {e}", path.display())),
        };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(path).map_err(named)?;
        // Nobody removes the file as a left-over before its head is there. Some file systems have no locks.
        let _ = file.try_lock();
        self.fill(&mut file, path).map_err(|e| {
            // The file was created above, and cannot be used.
            let _ = std::fs::remove_file(path);
            named(e)
        })
    }

    fn fill(&self, file: &mut File, path: &Path) -> io::Result<()> {
        let (head, body) = self.parts();
        if (HEAD + body.len()) as u64 > LARGEST_FILE {
            let text = "an undo file has at most 64 GiB: make the change in several steps";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        file.write_all(&[0; HEAD])?;
        file.write_all(&body)?;
        file.sync_all()?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&head)?;
        file.sync_all()?;
        in_place::sync_folder(path)
    }

    /// Returns all bytes of a file with this record.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (mut bytes, body) = self.parts();
        bytes.extend(body);
        bytes
    }

    /// Returns the head and the records.
    fn parts(&self) -> (Vec<u8>, Vec<u8>) {
        let mut body = Vec::new();
        for record in &self.records {
            body.extend(record.offset.to_le_bytes());
            body.extend((record.old.len() as u32).to_le_bytes());
            body.extend(record.new.iter().flat_map(|sum| sum.to_le_bytes()));
            body.extend(&record.old);
        }
        let mut head = Vec::with_capacity(HEAD);
        head.extend(MAGIC);
        head.extend(VERSION.to_le_bytes());
        head.extend(sum(&body).to_le_bytes());
        head.extend(self.len.to_le_bytes());
        head.extend((self.records.len() as u64).to_le_bytes());
        head.extend((body.len() as u64).to_le_bytes());
        head.extend(self.grown.to_le_bytes());
        head.extend(self.file.ino.to_le_bytes());
        head.extend(self.file.born.to_le_bytes());
        head.extend(sum(&head).to_le_bytes());
        (head, body)
    }

    /// Reads an undo file of any owner. `None` if the file is unfinished; then the image was not written to.
    ///
    /// # Errors
    /// [`Error::Undo`] for a file that is not an undo file, or is damaged; [`Error::Io`].
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        Self::read_from(File::open(path)?)
    }

    pub(crate) fn read_from(mut file: File) -> Result<Option<Self>, Error> {
        let bad = |what: &str| Error::Undo(what.to_owned());
        let mut bytes = Vec::new();
        Read::by_ref(&mut file)
            .take(HEAD as u64)
            .read_to_end(&mut bytes)?;
        // An image that is taken for an undo file is not read whole.
        if bytes.iter().any(|&b| b != 0) && !bytes.starts_with(MAGIC) {
            return Err(bad("it is not an undo file"));
        }
        // Compare the length in the head with that of the file before the records are read.
        if bytes.starts_with(MAGIC) {
            let body = bytes.get(32..40).and_then(<[u8]>::first_chunk);
            let body = body.map_or(0, |len| u64::from_le_bytes(*len));
            let size = body.saturating_add(HEAD as u64);
            if size > LARGEST_FILE || size != file.metadata()?.len() {
                return Err(bad("it is damaged"));
            }
            file.take(body).read_to_end(&mut bytes)?;
        }
        Self::parse(&bytes)
    }

    /// Reads the record that a change has left in its image at an offset.
    ///
    /// # Errors
    /// [`Error::Undo`] if the record is missing or damaged; [`Error::Io`].
    pub(crate) fn read_in(image: &dyn BlockDevice, offset: u64) -> Result<Self, Error> {
        let none = || Error::Undo("there is no record at its place".to_owned());
        let mut head = [0; HEAD];
        image.read_at(offset, &mut head)?;
        if !head.starts_with(MAGIC) {
            return Err(none());
        }
        let size = head.get(32..40).and_then(|b| b.first_chunk::<8>());
        let size = size.map_or(0, |b| u64::from_le_bytes(*b));
        let left = image.len().saturating_sub(offset + HEAD as u64);
        let size = usize::try_from(size).ok().filter(|_| size <= left);
        let mut bytes = vec![0; size.and_then(|n| n.checked_add(HEAD)).ok_or_else(none)?];
        image.read_at(offset, &mut bytes)?;
        Self::parse(&bytes)?.ok_or_else(none)
    }

    fn parse(bytes: &[u8]) -> Result<Option<Self>, Error> {
        let bad = |what: &str| Error::Undo(what.to_owned());
        let Some((head, body)) = bytes.split_first_chunk::<HEAD>() else {
            return if blockdev::is_zero(bytes) {
                Ok(None)
            } else {
                Err(bad("it is not an undo file"))
            };
        };
        if blockdev::is_zero(head) {
            return Ok(None);
        }
        let word = |at: usize| {
            head.get(at..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |b| u32::from_le_bytes(*b))
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if word(8) != VERSION {
            return Err(bad("it is of another version"));
        }
        let summed = head.get(..HEAD - 4).map_or(0, sum);
        if summed != word(HEAD - 4) || sum(body) != word(12) || body.len() as u64 != long(32) {
            return Err(bad("it is damaged"));
        }
        let records = records_of(body, long(24)).ok_or_else(|| bad("its records are damaged"))?;
        Ok(Some(Self {
            len: long(16),
            grown: long(40),
            file: FileId {
                ino: long(48),
                born: word(56),
            },
            records,
        }))
    }

    /// Checks that each sector of the image has its old or its new bytes, or is the mark of this change. An image
    /// that was changed since, one with the mark of another change, or another image, fails the check.
    ///
    /// # Errors
    /// [`Error::Undo`] if the check fails; [`Error::Io`].
    pub fn check(&self, image: &dyn BlockDevice) -> Result<(), Error> {
        if in_place::mark(image)?.is_some_and(|mark| mark.id() != self.id()) {
            return Err(Error::Undo(
                "another change of the image was interrupted: `extant undo IMAGE` reverts it first"
                    .to_owned(),
            ));
        }
        // A crash may leave the old length. Then nothing beyond it was written, or those writes are lost.
        if !(self.len..=self.grown.max(self.len)).contains(&image.len()) {
            return Err(Error::Undo(format!(
                "it is of an image of {} bytes, and this one has {}",
                self.len,
                image.len()
            )));
        }
        let id = self.id();
        for record in &self.records {
            let now = there(image, record)?;
            if record.is_first_sector() && is_marked(&now, id) {
                continue;
            }
            let sectors = now
                .chunks(SECTOR as usize)
                .zip(record.old.chunks(SECTOR as usize));
            for (i, ((now, old), new)) in sectors.zip(&record.new).enumerate() {
                if !old.starts_with(now) && sum(now) != *new {
                    let at = record.offset + i as u64 * SECTOR;
                    return Err(Error::Undo(format!(
                        "the image has changed since, at byte {at}: --force restores it anyway"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Restores the old bytes and the old length of the image, and returns the number of bytes written when they are
    /// durable. Meanwhile the image carries the mark of the change, so a crash does no harm, and the call can be
    /// repeated.
    ///
    /// # Errors
    /// As [`Self::check`], before anything is written; those of the device.
    pub fn take_back(&self, image: &dyn BlockDevice) -> Result<u64, Error> {
        self.take_back_by(image, Path::new(""))
    }

    /// Restores the image as [`take_back`](Self::take_back) does, under a mark with the path of this undo file, so that the next opening
    /// after a crash finds the undo file.
    ///
    /// # Errors
    /// The same.
    pub fn take_back_by(&self, image: &dyn BlockDevice, file: &Path) -> Result<u64, Error> {
        self.check(image)?;
        Ok(self.force_back(image, file)?)
    }

    /// Restores the old bytes without the check. Bytes that another program has written there since are lost. Only sectors that
    /// differ are written, so restoring needs no space on the host.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn force_back(&self, image: &dyn BlockDevice, file: &Path) -> io::Result<u64> {
        let mut pieces: Vec<(u64, &[u8])> = Vec::new();
        let mut holes = Vec::new();
        let mut first = None;
        let records = self.records.iter().filter(|r| !r.is_first_sector());
        let old = records.map(|record| (record.offset, &record.old[..]));
        let zeros = zero_grains(old, image.len());
        for record in &self.records {
            let now = there(image, record)?;
            if record.is_first_sector() {
                let old = record.old.first_chunk::<MARK_SIZE>();
                first = old.map(|old| (old, now.starts_with(old)));
                continue;
            }
            differing(record, &now, &zeros, &mut pieces, &mut holes);
        }
        let mut bytes: u64 = pieces.iter().map(|(_, old)| old.len() as u64).sum();
        bytes += holes.len() as u64 * HOLE;
        match first {
            Some((_, true)) if pieces.is_empty() && holes.is_empty() => {}
            _ => {
                bytes += first.map_or(0, |(old, _)| old.len() as u64);
                let mark = in_place::new_mark(self.id(), file);
                let change = in_place::Writes {
                    pieces: &pieces,
                    holes: &holes,
                    first: first.map(|(old, _)| old),
                };
                change.make(image, &mark)?;
            }
        }
        in_place::shorten(image, self.len)?;
        Ok(bytes)
    }

    /// Parts of the image.
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether the change was empty.
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// Reads the present bytes of a record, up to the end of the image.
fn there(image: &dyn BlockDevice, record: &UndoRecord) -> io::Result<Vec<u8>> {
    let len = image.len().saturating_sub(record.offset);
    let mut now = vec![0; len.min(record.old.len() as u64) as usize];
    if !now.is_empty() {
        image.read_at(record.offset, &mut now)?;
    }
    Ok(now)
}

fn is_marked(sector: &[u8], id: u64) -> bool {
    ChangeMark::read(sector).is_some_and(|mark| mark.id() == id)
}

/// Returns the ranges of 4096 bytes in an image of `len` bytes that held only zeros, by their offsets. `parts` are the old bytes by
/// their offset, without the first sector of the superblock. With small blocks, several parts make up a range.
pub(crate) fn zero_grains<'p>(
    parts: impl Iterator<Item = (u64, &'p [u8])>,
    len: u64,
) -> BTreeSet<u64> {
    let mut grains = BTreeSet::new();
    let (mut start, mut end) = (0, 0);
    for (offset, part) in parts {
        let sectors = part.chunks(SECTOR as usize);
        for (old, at) in sectors.zip((offset..).step_by(SECTOR as usize)) {
            if at != end {
                start = at;
            }
            end = at + old.len() as u64;
            if old.iter().any(|&b| b != 0) {
                start = end;
            }
            if end.is_multiple_of(HOLE) && end - start >= HOLE && end <= len {
                grains.insert(end - HOLE);
            }
        }
    }
    grains
}

/// Adds the old bytes of the sectors that differ. Where the image had only zeros, space is freed and none is
/// allocated.
fn differing<'u>(
    record: &'u UndoRecord,
    now: &[u8],
    zeros: &BTreeSet<u64>,
    pieces: &mut Vec<(u64, &'u [u8])>,
    holes: &mut Vec<u64>,
) {
    let mut at = 0;
    while at < now.len() {
        let place = record.offset + at as u64;
        let begin = place - place % HOLE;
        let end = now.len().min(at + (begin + HOLE - place) as usize);
        let old = record.old.get(at..end).unwrap_or_default();
        let now = now.get(at..end).unwrap_or_default();
        if !zeros.contains(&begin) {
            sectors(place, old, now, pieces);
        } else if old != now && holes.last() != Some(&begin) {
            holes.push(begin);
        }
        at = end;
    }
}

/// Adds the sectors of one grain that differ.
fn sectors<'u>(place: u64, old: &'u [u8], now: &[u8], pieces: &mut Vec<(u64, &'u [u8])>) {
    let size = SECTOR as usize;
    let pairs = old.chunks(size).zip(now.chunks(size));
    for ((old, now), at) in pairs.zip((place..).step_by(size)) {
        if old != now {
            pieces.push((at, old));
        }
    }
}

fn sum(bytes: &[u8]) -> u32 {
    crc32c(!0, bytes)
}

fn records_of(mut body: &[u8], count: u64) -> Option<Vec<UndoRecord>> {
    let mut records = Vec::new();
    for _ in 0..count {
        let (offset, rest) = body.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(*len) as usize;
        if len == 0 || len > LONGEST {
            return None;
        }
        let sectors = len.div_ceil(SECTOR as usize);
        let (sums, rest) = rest.split_at_checked(sectors * 4)?;
        let (old, rest) = rest.split_at_checked(len)?;
        let new = sums.chunks_exact(4).filter_map(<[u8]>::first_chunk);
        let offset = u64::from_le_bytes(*offset);
        offset.checked_add(len as u64)?;
        records.push(UndoRecord {
            offset,
            old: old.to_vec(),
            new: new.map(|b| u32::from_le_bytes(*b)).collect(),
        });
        body = rest;
    }
    body.is_empty().then_some(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::{Event, MemDevice, RecordingDevice};

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("undo");
        let image = MemDevice::from_bytes(&[1; 8192]);
        let changes: BTreeMap<_, _> = [(0, vec![2; 4096]), (4096, vec![3; 100])].into();
        let undo = Undo::before(&image, &changes).unwrap();
        undo.write(&path).unwrap();
        assert!(
            undo.write(&path).is_err(),
            "an undo file is not written over"
        );
        assert_eq!(Undo::read(&path).unwrap().unwrap(), undo);
        for (at, new) in &changes {
            image.write_at(*at, new).unwrap();
        }
        undo.take_back(&image).unwrap();
        assert_eq!(image.to_bytes().unwrap(), [1; 8192]);
        image.write_at(600, &[9]).unwrap();
        assert!(
            undo.take_back(&image).is_err(),
            "the image was changed since"
        );
        undo.force_back(&image, Path::new("")).unwrap();
        assert_eq!(image.to_bytes().unwrap(), [1; 8192]);
        let other = MemDevice::from_bytes(&[1; 4096]);
        assert!(undo.take_back(&other).is_err());
    }

    /// Records of blocks of 1 KiB, as those of a resize.
    #[test]
    fn zeros_in_small_records_are_freed() {
        let image = MemDevice::new(16384);
        image.write_at(8192, &[1; 1024]).unwrap();
        let blocks = (4..16u64).map(|block| (block * 1024, vec![2; 1024]));
        let changes: BTreeMap<_, _> = blocks.collect();
        let old = image.to_bytes().unwrap();
        let undo = Undo::before(&image, &changes).unwrap();
        for (at, new) in &changes {
            image.write_at(*at, new).unwrap();
        }
        let recorder = RecordingDevice::new(image);
        undo.take_back(&recorder).unwrap();
        assert!(recorder.inner().to_bytes().unwrap() == old);
        let log = recorder.log();
        let discards = log.events().iter().filter_map(|event| match event {
            Event::Discard { offset, len } => Some((*offset, *len)),
            _ => None,
        });
        // The blocks around the one with data share its 4096 bytes.
        assert_eq!(discards.collect::<Vec<_>>(), [(4096, 4096), (12288, 4096)]);
        let written = log.events().iter().map(|event| match event {
            Event::Write { data, .. } => data.len(),
            _ => 0,
        });
        assert_eq!(written.sum::<usize>(), 4096 + MARK_SIZE * 2);
    }

    #[test]
    fn damage_to_a_file_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("undo");
        let image = MemDevice::from_bytes(&[1; 8192]);
        let undo = Undo::before(&image, &[(512, vec![2; 1024])].into()).unwrap();
        undo.write(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert!(Undo::read(&path).is_err(), "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(!matches!(Undo::read(&path), Ok(Some(_))), "cut at {at}");
        }
        // Bytes behind the records are not read.
        std::fs::write(&path, &whole).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(LARGEST_FILE * 2).unwrap();
        assert!(Undo::read(&path).is_err());
        std::fs::write(&path, [0; 100]).unwrap();
        assert_eq!(Undo::read(&path).unwrap(), None);
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let image = MemDevice::from_bytes(&[1; 8192]);
        let undo = Undo::before(&image, &[(512, vec![2; 1024])].into()).unwrap();
        let error = undo.write(&dir.path().join("no folder/undo")).unwrap_err();
        assert!(error.to_string().contains("no folder/undo"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
