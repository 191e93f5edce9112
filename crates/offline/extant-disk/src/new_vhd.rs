//! Writes VHDs of fixed size: the disk, in which zeros are holes, and a footer. All numbers are big-endian.
//!
//! | offset | bytes | footer |
//! |---|---|---|
//! | 0, 8, 12 | 8, 4, 4 | magic; features, 2; version, 1.0 |
//! | 16, 24 | 8, 4 | all ones, because there is no table; time of creation, always zero |
//! | 28, 32, 36 | 4, 4, 4 | program, its version, its system |
//! | 40, 48 | 8 | original and present size of the disk |
//! | 56 | 2, 1, 1 | cylinders, heads, sectors per track |
//! | 60, 64 | 4 | kind, 2; inverted sum of the other bytes |
//! | 68 | 16 | UUID |

use crate::packing::{self, Packing};
use crate::scratch::Scratch;
use crate::vhd::{MAGIC, SECTOR};
use blockdev::BlockDevice;
use std::io::{self, Seek, SeekFrom, Write};

/// Size of the largest disk that QEMU and Hyper-V open.
const LARGEST: u64 = 2040 << 30;
/// Without a known program in the footer, QEMU computes the size from cylinders, heads and sectors, and loses the last
/// sectors. This is the name of `qemu-img` itself.
const PROGRAM: &[u8; 4] = b"qem2";

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
    packing::copy(scratch, &filled, packing, |at, bytes| {
        if out.stream_position()? != at {
            out.seek(SeekFrom::Start(at))?;
        }
        let used = bytes.len().min((len - at) as usize); // at most a cluster
        out.write_all(bytes.get(..used).unwrap_or_default())
    })?;
    out.seek(SeekFrom::Start(len))?;
    out.write_all(&footer(len, packing::identity(scratch)?))
}

fn footer(len: u64, id: [u8; 16]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SECTOR as usize);
    bytes.extend(MAGIC);
    bytes.extend(2_u32.to_be_bytes());
    bytes.extend(0x1_0000_u32.to_be_bytes());
    bytes.extend([0xff; 8]);
    bytes.extend([0; 4]);
    bytes.extend(PROGRAM);
    bytes.extend(0x5_0003_u32.to_be_bytes());
    bytes.extend(b"Wi2k");
    bytes.extend(len.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend(geometry(len / SECTOR));
    bytes.extend(2_u32.to_be_bytes());
    let sum: u32 = bytes.iter().chain(&id).map(|byte| u32::from(*byte)).sum();
    bytes.extend((!sum).to_be_bytes());
    bytes.extend(id);
    bytes.resize(SECTOR as usize, 0);
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
        for sectors in (0..1 << 28).step_by(99_991) {
            let (cylinders, heads, track) = of(sectors);
            let chs = u64::from(cylinders) * u64::from(heads) * u64::from(track);
            assert!(
                chs <= sectors && sectors - chs < 16 * 255,
                "{sectors}: {chs}"
            );
        }
    }
}
