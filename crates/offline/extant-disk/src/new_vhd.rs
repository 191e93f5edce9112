//! Writes dynamic VHDs. All numbers are big-endian. Zeros of a block are holes of the file.
//!
//! | in the file | contents |
//! |---|---|
//! | footer | one sector; another one ends the file |
//! | header | two sectors, which refer to the table |
//! | table | the sector of each block, or all ones for a block of zeros |
//! | blocks | a sector of ones, a bit for each sector of the block, and the block |
//!
//! | offset | bytes | footer |
//! |---|---|---|
//! | 0, 8, 12 | 8, 4, 4 | magic; features, 2; version, 1.0 |
//! | 16, 24 | 8, 4 | offset of the header; time of creation, always zero |
//! | 28, 32, 36 | 4, 4, 4 | program, its version, its system |
//! | 40, 48 | 8 | original and present size of the disk |
//! | 56 | 2, 1, 1 | cylinders, heads, sectors per track |
//! | 60, 64 | 4 | kind, 3; inverted sum of the other bytes |
//! | 68 | 16 | UUID |

use crate::packing::{self, CLUSTER, Packing};
use crate::scratch::Scratch;
use crate::vhd::{MAGIC, SECTOR};
use blockdev::BlockDevice;
use std::io::{self, Seek, SeekFrom, Write};

/// Size of the largest disk that QEMU and Hyper-V open.
const LARGEST: u64 = 2040 << 30;
/// Without a known program in the footer, QEMU computes the size from cylinders, heads and sectors, and loses the last
/// sectors. This is the name of `qemu-img` itself.
const PROGRAM: &[u8; 4] = b"qem2";

/// Size of a block.
const BLOCK: u64 = 2 << 20;
/// Offset of the table.
const TABLE: u64 = 3 * SECTOR;

/// Writes a device as a VHD.
pub fn pack(
    scratch: &Scratch,
    out: &mut (impl Write + Seek),
    packing: &Packing<'_>,
) -> io::Result<()> {
    let len = scratch.len();
    if !len.is_multiple_of(SECTOR) || len > LARGEST {
        let text = "the size of a VHD must be whole sectors of 512 bytes, and at most 2040 GiB";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let filled = packing::filled(scratch)?;
    let mut blocks: Vec<u64> = filled.iter().map(|at| at * CLUSTER / BLOCK).collect();
    blocks.dedup();
    let entries = len.div_ceil(BLOCK);
    let first = TABLE + (entries * 4).next_multiple_of(SECTOR);
    // The offset of the n-th block in the file.
    let place = |n: usize| first + n as u64 * (SECTOR + BLOCK);
    let footer = footer(len, packing::identity(scratch)?);
    out.write_all(&footer)?;
    out.write_all(&header(entries))?;
    let mut table = vec![0xff; (first - TABLE) as usize]; // at most 4 MiB
    for (n, block) in blocks.iter().enumerate() {
        let entry = table.get_mut(*block as usize * 4..);
        if let Some(entry) = entry.and_then(|rest| rest.first_chunk_mut()) {
            *entry = ((place(n) / SECTOR) as u32).to_be_bytes(); // LARGEST bounds it
        }
    }
    out.write_all(&table)?;
    let (mut n, mut now) = (0, None);
    packing::copy(scratch, &filled, packing, |at, bytes| {
        let block = at / BLOCK;
        if now != Some(block) {
            n += usize::from(now.is_some());
            now = Some(block);
            out.seek(SeekFrom::Start(place(n)))?;
            out.write_all(&[0xff; SECTOR as usize])?;
        }
        let to = place(n) + SECTOR + at % BLOCK;
        if out.stream_position()? != to {
            out.seek(SeekFrom::Start(to))?;
        }
        out.write_all(bytes)
    })?;
    out.seek(SeekFrom::Start(place(blocks.len())))?;
    out.write_all(&footer)
}

/// Sets the inverted sum of all other bytes.
fn seal(bytes: &mut [u8], at: usize) {
    let sum: u32 = bytes.iter().map(|byte| u32::from(*byte)).sum();
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = (!sum).to_be_bytes();
    }
}

fn header(entries: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024);
    bytes.extend(b"cxsparse");
    bytes.extend([0xff; 8]);
    bytes.extend(TABLE.to_be_bytes());
    for number in [0x1_0000, entries as u32, BLOCK as u32] {
        bytes.extend(number.to_be_bytes()); // LARGEST bounds the entries
    }
    bytes.resize(1024, 0);
    seal(&mut bytes, 36);
    bytes
}

fn footer(len: u64, id: [u8; 16]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SECTOR as usize);
    bytes.extend(MAGIC);
    bytes.extend(2_u32.to_be_bytes());
    bytes.extend(0x1_0000_u32.to_be_bytes());
    bytes.extend(SECTOR.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(PROGRAM);
    bytes.extend(0x5_0003_u32.to_be_bytes());
    bytes.extend(b"Wi2k");
    bytes.extend(len.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend(geometry(len / SECTOR));
    bytes.extend(3_u32.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(id);
    bytes.resize(SECTOR as usize, 0);
    seal(&mut bytes, 64);
    bytes
}

/// Returns the geometry that the specification of VHD assigns to a number of sectors: cylinders in two bytes, heads,
/// sectors per track.
fn geometry(sectors: u64) -> [u8; 4] {
    let sectors = sectors.min(65535 * 16 * 255);
    let (track, heads) = if sectors >= 65535 * 16 * 63 {
        (255, 16)
    } else {
        let heads = (sectors / 17).div_ceil(1024).max(4);
        if heads <= 16 && sectors / 17 < heads * 1024 {
            (17, heads)
        } else if sectors / 31 < 16 * 1024 {
            (31, 16)
        } else {
            (63, 16)
        }
    };
    let [.., high, low] = (sectors / track / heads).to_be_bytes();
    [high, low, heads as u8, track as u8] // at most 16 and 255
}

#[cfg(test)]
mod tests {
    use super::geometry;

    #[test]
    fn geometries_grow_with_the_disk() {
        let of = |sectors| {
            let [high, low, heads, track] = geometry(sectors);
            (u16::from_be_bytes([high, low]), heads, track)
        };
        // 64 MiB, 200 MiB, 10 GiB and 2 TiB.
        assert_eq!(of(64 << 11), (963, 8, 17));
        assert_eq!(of(200 << 11), (825, 16, 31));
        assert_eq!(of(10 << 21), (20805, 16, 63));
        assert_eq!(of(1 << 32), (65535, 16, 255));
        for sectors in (0..65535 * 16 * 255).step_by(99_991) {
            let (cylinders, heads, track) = of(sectors);
            let chs = u64::from(cylinders) * u64::from(heads) * u64::from(track);
            assert!(
                chs <= sectors && sectors - chs < 16 * 255,
                "{sectors}: {chs}"
            );
        }
    }
}
