//! Undo files: what the parts of an image were before they were changed.
//!
//! All numbers are little-endian. The file begins with a head of 64 bytes: the magic, the version, the length of the image, the
//! count of records, the checksum of all that follows the head, and at the end the checksum of the head. Each record is the
//! place and the length of a part of the image, for each 512 bytes of it the checksum of what they are to become, and the old
//! bytes. The head is written last, behind a flush: a file without it belongs to an image that was not touched yet.

use crate::Error;
use blockdev::{BlockDevice, SECTOR};
use ext4_format::checksum::crc32c;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

const MAGIC: &[u8; 8] = b"EXTUNDO\n";
const VERSION: u32 = 1;
const HEAD: usize = 64;
/// No repair writes longer pieces.
const LONGEST: usize = 1 << 20;

/// A part of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UndoRecord {
    offset: u64,
    old: Vec<u8>,
    /// Checksums of what each 512 bytes are to become.
    new: Vec<u32>,
}

/// What an image was before it was changed.
///
/// ```
/// use extant_repair::{Undo, blockdev::{BlockDevice, MemDevice}};
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
    records: Vec<UndoRecord>,
}

impl Undo {
    /// Reads from the image what `changes`, by their place in bytes, will replace.
    ///
    /// # Errors
    /// Those of the device.
    pub fn before(image: &dyn BlockDevice, changes: &BTreeMap<u64, Vec<u8>>) -> io::Result<Self> {
        let records = changes.iter().map(|(&offset, new)| {
            let mut old = vec![0; new.len()];
            image.read_at(offset, &mut old)?;
            let new = new.chunks(SECTOR as usize).map(sum).collect();
            Ok(UndoRecord { offset, old, new })
        });
        let records = records.collect::<io::Result<_>>()?;
        Ok(Self {
            len: image.len(),
            records,
        })
    }

    /// Writes a new undo file, and returns when it is durable.
    ///
    /// # Errors
    /// Those of the file system; the file must not exist.
    pub fn write(&self, path: &Path) -> io::Result<()> {
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
        head.resize(HEAD - 4, 0);
        head.extend(sum(&head).to_le_bytes());
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(&[0; HEAD])?;
        file.write_all(&body)?;
        file.sync_all()?;
        let mut file = file;
        io::Seek::seek(&mut file, io::SeekFrom::Start(0))?;
        file.write_all(&head)?;
        file.sync_all()?;
        sync_folder(path)
    }

    /// Reads an undo file; `None` if it was not finished, so that the image was not touched.
    ///
    /// # Errors
    /// [`Error::Undo`] for a file that is none, or is damaged; [`Error::Io`].
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        let bad = |what: &str| Error::Undo(what.to_owned());
        let mut file = File::open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let Some((head, body)) = bytes.split_first_chunk::<HEAD>() else {
            return match bytes.iter().all(|&b| b == 0) {
                true => Ok(None),
                false => Err(bad("it is no undo file")),
            };
        };
        if head.iter().all(|&b| b == 0) {
            return Ok(None);
        }
        let word = |at: usize| {
            head.get(at..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |b| u32::from_le_bytes(*b))
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if !head.starts_with(MAGIC) {
            return Err(bad("it is no undo file"));
        }
        if word(8) != VERSION {
            return Err(bad("it is of another version"));
        }
        let summed = head.get(..HEAD - 4).map_or(0, sum);
        if summed != word(HEAD - 4) || sum(body) != word(12) || body.len() as u64 != long(32) {
            return Err(bad("it is damaged"));
        }
        let records = parse(body, long(24)).ok_or_else(|| bad("its records are damaged"))?;
        Ok(Some(Self {
            len: long(16),
            records,
        }))
    }

    /// Whether each part of the image is what it was or what it was to become. Another image, or one that was changed
    /// since, is not.
    ///
    /// # Errors
    /// [`Error::Undo`] if it is not; [`Error::Io`].
    pub fn check(&self, image: &dyn BlockDevice) -> Result<(), Error> {
        if image.len() != self.len {
            return Err(Error::Undo(format!(
                "it is of an image of {} bytes, and this one has {}",
                self.len,
                image.len()
            )));
        }
        for record in &self.records {
            let mut now = vec![0; record.old.len()];
            image.read_at(record.offset, &mut now)?;
            let sectors = now
                .chunks(SECTOR as usize)
                .zip(record.old.chunks(SECTOR as usize));
            for (i, ((now, old), new)) in sectors.zip(&record.new).enumerate() {
                if now != old && sum(now) != *new {
                    let at = record.offset + i as u64 * SECTOR;
                    return Err(Error::Undo(format!(
                        "the image was changed since, at byte {at}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Makes the image what it was, and returns when that is durable. It may be repeated.
    ///
    /// # Errors
    /// As [`Self::check`], before anything is written; those of the device.
    pub fn take_back(&self, image: &dyn BlockDevice) -> Result<(), Error> {
        self.check(image)?;
        for record in &self.records {
            image.write_at(record.offset, &record.old)?;
        }
        Ok(image.flush()?)
    }

    /// Parts of the image.
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing was to be changed.
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

fn sum(bytes: &[u8]) -> u32 {
    crc32c(!0, bytes)
}

fn parse(mut body: &[u8], count: u64) -> Option<Vec<UndoRecord>> {
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
        records.push(UndoRecord {
            offset: u64::from_le_bytes(*offset),
            old: old.to_vec(),
            new: new.map(|b| u32::from_le_bytes(*b)).collect(),
        });
        body = rest;
    }
    body.is_empty().then_some(records)
}

/// Makes the name of a new file durable, where a folder can be flushed.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    match File::open(folder.unwrap_or_else(|| Path::new("."))) {
        Ok(folder) => folder.sync_all(),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::MemDevice;

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
        let other = MemDevice::from_bytes(&[1; 4096]);
        assert!(undo.take_back(&other).is_err());
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
        std::fs::write(&path, [0; 100]).unwrap();
        assert_eq!(Undo::read(&path).unwrap(), None);
    }
}
