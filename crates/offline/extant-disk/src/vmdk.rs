//! VMDK, the format of VMware, with the disk in one file: grains in tables, compressed or not. All numbers are little
//! endian.

use crate::mapped::{Map, Stretch, damaged};
use blockdev::{BlockDevice, FileDevice};
use flate2::{Decompress, FlushDecompress, Status};
use std::io;

/// Magic number of a file with grains.
pub const MAGIC: &[u8; 4] = b"KDMV";
/// First bytes of a description of files that contain the disk.
pub const DESCRIPTION: &[u8] = b"# Disk DescriptorFile";
pub const SECTOR: u64 = 512;
/// Flags: entries of 1 mean zeros; grains are compressed.
const ZERO_GRAINS: u32 = 1 << 2;
const COMPRESSED: u32 = 1 << 16;
/// The directory is at the end, after which come another header and the end marker.
const AT_END: u64 = u64::MAX;
const FROM_END: u64 = 2 * SECTOR;
/// Sectors of the largest grain: 16 MiB.
const LONGEST: u64 = 1 << 15;
/// Entries of the largest table, and tables of the largest disk.
const MOST_ENTRIES: u32 = 1 << 16;
const MOST_TABLES: u64 = 1 << 20;
/// Size limit of a description in bytes.
const MOST_TEXT: u64 = 64 << 10;

/// Table of the grains.
pub struct Grains {
    /// The sector of each table.
    directory: Vec<u32>,
    entries: u64,
    grain: u64,
    has_zero_grains: bool,
    compressed: bool,
    len: u64,
}

fn broken(what: impl std::fmt::Display) -> io::Error {
    damaged("VMDK", what)
}

fn unsupported(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, what)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk());
    four.map_or(0, |four| u32::from_le_bytes(*four))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..).and_then(|rest| rest.first_chunk());
    eight.map_or(0, |eight| u64::from_le_bytes(*eight))
}

/// Reads bytes of the file at a sector number.
fn read(file: &dyn BlockDevice, sector: u64, len: u64) -> io::Result<Vec<u8>> {
    let start = sector.checked_mul(SECTOR);
    let end = start.and_then(|start| start.checked_add(len));
    let end = end.filter(|end| *end <= file.len());
    let end = end.ok_or_else(|| broken(format_args!("sector {sector} is beyond its end")))?;
    let mut bytes = vec![0; len as usize]; // in the file, and bounded by the callers
    file.read_at(end - len, &mut bytes)?;
    Ok(bytes)
}

impl Grains {
    /// Reads the headers of a file.
    pub fn read(file: &dyn BlockDevice) -> io::Result<Self> {
        let first = read(file, 0, SECTOR)?;
        is_whole(file, &first)?;
        let header = match long(&first, 56) {
            AT_END => {
                let last = (file.len() / SECTOR).saturating_sub(FROM_END / SECTOR);
                read(file, last, SECTOR)?
            }
            _ => first,
        };
        if !header.starts_with(MAGIC) {
            return Err(broken("it has no header at its end"));
        }
        let (version, flags) = (word(&header, 4), word(&header, 8));
        if !(1..=3).contains(&version) {
            return Err(unsupported("is a VMDK of a version that is not read"));
        }
        let (sectors, grain, entries) = (long(&header, 12), long(&header, 20), word(&header, 44));
        if !grain.is_power_of_two() || grain > LONGEST {
            return Err(broken(format_args!("grains of {grain} sectors")));
        }
        if !(1..=MOST_ENTRIES).contains(&entries) {
            return Err(broken(format_args!("tables of {entries} entries")));
        }
        let tables = sectors.div_ceil(grain).div_ceil(entries.into());
        if tables > MOST_TABLES {
            let what = format!("{tables} tables, and at most {MOST_TABLES} are read");
            return Err(broken(what));
        }
        let directory = read(file, long(&header, 56), tables * 4)?;
        Ok(Self {
            directory: directory
                .chunks_exact(4)
                .map(|four| word(four, 0))
                .collect(),
            entries: entries.into(),
            grain: grain * SECTOR,
            has_zero_grains: flags & ZERO_GRAINS != 0,
            compressed: flags & COMPRESSED != 0,
            // At most 2^20 tables of 2^16 grains of 2^24 bytes.
            len: sectors * SECTOR,
        })
    }
}

/// Fails for a file that contains only a part of a disk, or the changes to another file.
fn is_whole(file: &dyn BlockDevice, header: &[u8]) -> io::Result<()> {
    let (start, sectors) = (long(header, 28), long(header, 36));
    let len = sectors.saturating_mul(SECTOR).min(MOST_TEXT);
    let text = read(file, start, len)?;
    let text = String::from_utf8_lossy(&text);
    let value = |key: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='))
    };
    if value("createType").is_none() {
        return Err(unsupported("is a part of a VMDK, which is not read"));
    }
    let parent = value("parentCID").map(str::trim);
    if parent.is_none_or(|cid| cid.eq_ignore_ascii_case("ffffffff")) {
        Ok(())
    } else {
        Err(unsupported("is a VMDK over another one, which is not read"))
    }
}

impl Map for Grains {
    fn len(&self) -> u64 {
        self.len
    }

    fn at(&self, file: &FileDevice, offset: u64) -> io::Result<(Stretch, u64)> {
        let (number, within) = (offset / self.grain, offset % self.grain);
        let left = self.grain - within;
        let (table, entry) = (number / self.entries, number % self.entries);
        let table = usize::try_from(table)
            .ok()
            .and_then(|t| self.directory.get(t));
        let table = u64::from(*table.ok_or(io::ErrorKind::UnexpectedEof)?);
        if table == 0 {
            return Ok((Stretch::Zeros, left));
        }
        // A 32-bit number times 512, and a small number.
        let place = table * SECTOR + entry * 4;
        if place + 4 > file.len() {
            return Err(broken(format_args!(
                "the table at sector {table} is beyond its end"
            )));
        }
        let mut four = [0; 4];
        file.read_at(place, &mut four)?;
        let sector = u32::from_le_bytes(four);
        if sector == 0 || (sector == 1 && self.has_zero_grains) {
            return Ok((Stretch::Zeros, left));
        }
        if self.compressed {
            return Ok((Stretch::Made(sector.into(), within as usize), left));
        }
        let place = u64::from(sector) * SECTOR;
        let used = self.grain.min(self.len - number * self.grain);
        if place + used > file.len() {
            return Err(broken(format_args!("grain {number} is beyond its end")));
        }
        Ok((Stretch::File(place + within), left))
    }

    /// Decompresses a grain: its position on the disk in 8 bytes, its length in 4, and a stream of zlib.
    fn make(&self, file: &FileDevice, sector: u64) -> io::Result<Vec<u8>> {
        const HEAD: u64 = 12;
        let head = read(file, sector, HEAD)?;
        let len = u64::from(word(&head, 8));
        if len > 2 * self.grain {
            return Err(broken(format_args!("a grain of {len} bytes, compressed")));
        }
        let packed = read(file, sector, HEAD + len)?;
        let mut grain = Vec::with_capacity(self.grain as usize); // at most 16 MiB
        let packed = packed.get(HEAD as usize..).unwrap_or_default();
        let done =
            Decompress::new(true).decompress_vec(packed, &mut grain, FlushDecompress::Finish);
        match done {
            Ok(Status::StreamEnd) => Ok(grain),
            _ => Err(broken(format_args!("the grain at sector {sector}"))),
        }
    }
}
