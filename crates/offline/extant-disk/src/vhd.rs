//! VHD, the format of Virtual PC and Azure: a raw disk followed by a footer, or blocks in a table. All numbers are big
//! endian.

use crate::mapped::{Map, Stretch, damaged};
use blockdev::{BlockDevice, FileDevice};
use std::io;

pub const SECTOR: u64 = 512;
/// Magic number of the footer, and of its copy at the beginning of a file with a table.
pub const MAGIC: &[u8; 8] = b"conectix";
const TABLE_MAGIC: &[u8; 8] = b"cxsparse";
/// Size of the header that refers to the table.
const HEADER: usize = 1024;
/// Table entry of an unallocated block.
const NOWHERE: u32 = u32::MAX;
/// Largest number of blocks, which take 64 MiB of memory.
const MOST_BLOCKS: u64 = 16 << 20;

/// Kind of a VHD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VhdKind {
    Fixed,
    Dynamic,
    /// A difference to another file.
    Difference,
}

/// Contents of a footer.
#[derive(Clone, Copy, Debug)]
pub struct Footer {
    pub kind: VhdKind,
    /// Bytes of the disk.
    pub size: u64,
    /// Offset of the table's header.
    header: u64,
}

fn broken(what: impl std::fmt::Display) -> io::Error {
    damaged("VHD", what)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk());
    four.map_or(0, |four| u32::from_be_bytes(*four))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..).and_then(|rest| rest.first_chunk());
    eight.map_or(0, |eight| u64::from_be_bytes(*eight))
}

/// Returns whether the checksum at an offset is that of the other bytes.
fn is_sound(bytes: &[u8], at: usize) -> bool {
    let sum = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0_u32, |sum, b| sum.wrapping_add((*b).into()))
    };
    let own = bytes.get(at..at + 4).unwrap_or_default();
    !sum(bytes).wrapping_sub(sum(own)) == word(bytes, at)
}

impl Footer {
    fn parse(bytes: &[u8; SECTOR as usize]) -> Option<Self> {
        if !bytes.starts_with(MAGIC) || !is_sound(bytes, 64) {
            return None;
        }
        let kind = match word(bytes, 60) {
            2 => VhdKind::Fixed,
            3 => VhdKind::Dynamic,
            4 => VhdKind::Difference,
            _ => return None,
        };
        Some(Self {
            kind,
            size: long(bytes, 48),
            header: long(bytes, 16),
        })
    }

    /// Reads the footer of a file; for a file with a table, also its copy at the beginning.
    pub fn read(file: &dyn BlockDevice) -> Option<Self> {
        let end = file.len().checked_sub(SECTOR)?;
        let at = |place| {
            let mut bytes = [0; SECTOR as usize];
            file.read_at(place, &mut bytes).ok()?;
            Self::parse(&bytes)
        };
        let fits =
            |footer: &Self| footer.kind != VhdKind::Fixed || (1..=end).contains(&footer.size);
        at(end)
            .filter(fits)
            .or_else(|| at(0).filter(|footer| footer.kind != VhdKind::Fixed))
    }
}

/// Table of the blocks.
pub struct Blocks {
    /// The sector of each block.
    table: Vec<u32>,
    block: u64,
    /// Bytes before a block's data: a bitmap of the written sectors. Unwritten sectors are zeros in the file, too.
    bitmap: u64,
    len: u64,
}

impl Blocks {
    /// Reads the table of a file with this footer.
    pub fn read(file: &dyn BlockDevice, footer: &Footer) -> io::Result<Self> {
        if footer.kind == VhdKind::Difference {
            let text = "is a VHD over another one, which is not read";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let inside = |start: u64, len: u64| {
            let end = start.checked_add(len);
            end.is_some_and(|end| end <= file.len())
        };
        if !inside(footer.header, HEADER as u64) {
            return Err(broken("the header of its table is beyond its end"));
        }
        let mut header = [0; HEADER];
        file.read_at(footer.header, &mut header)?;
        if !header.starts_with(TABLE_MAGIC) || !is_sound(&header, 36) {
            return Err(broken("the header of its table has a wrong checksum"));
        }
        let (start, entries, block) = (long(&header, 16), word(&header, 28), word(&header, 32));
        if !block.is_power_of_two() || u64::from(block) < SECTOR {
            return Err(broken(format_args!("blocks of {block} bytes")));
        }
        let block = u64::from(block);
        let needed = footer.size.div_ceil(block);
        if needed > u64::from(entries) {
            return Err(broken(format_args!(
                "{needed} blocks, and a table of {entries}"
            )));
        }
        if needed > MOST_BLOCKS {
            let what = format!("{needed} blocks, and at most {MOST_BLOCKS} are read");
            return Err(broken(what));
        }
        if !inside(start, needed * 4) {
            return Err(broken("its table is beyond its end"));
        }
        let mut bytes = vec![0; needed as usize * 4]; // at most 64 MiB
        file.read_at(start, &mut bytes)?;
        Ok(Self {
            table: bytes.chunks_exact(4).map(|four| word(four, 0)).collect(),
            block,
            bitmap: (block / SECTOR).div_ceil(8).next_multiple_of(SECTOR),
            len: footer.size,
        })
    }
}

impl Map for Blocks {
    fn len(&self) -> u64 {
        self.len
    }

    fn at(&self, file: &FileDevice, offset: u64) -> io::Result<(Stretch, u64)> {
        let (number, within) = (offset / self.block, offset % self.block);
        let left = self.block - within;
        let sector = usize::try_from(number).ok().and_then(|n| self.table.get(n));
        let sector = *sector.ok_or(io::ErrorKind::UnexpectedEof)?;
        if sector == NOWHERE {
            return Ok((Stretch::Zeros, left));
        }
        // A 32-bit number times 512, and blocks below 2^32.
        let place = u64::from(sector) * SECTOR + self.bitmap;
        let used = self.block.min(self.len - number * self.block);
        if place + used > file.len() {
            return Err(broken(format_args!("block {number} is beyond its end")));
        }
        Ok((Stretch::File(place + within), left))
    }
}
