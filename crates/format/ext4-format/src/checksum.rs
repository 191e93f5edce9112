//! The two checksums of ext4: CRC-32C (`metadata_csum`) and CRC-16 (`uninit_bg`).
//!
//! Both are *raw*: they take and return the running register, without an inversion at the end, so a checksum over
//! several pieces is a fold over the pieces.

use crate::types::InodeNr;

pub use extant_checksum::crc32c;

/// Table of the reflected polynomial 0xA001 (CRC-16/ARC).
static CRC16: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut i = 0;
    while i < 256 {
        let mut v = i as u16;
        let mut bit = 0;
        while bit < 8 {
            v = if v & 1 != 0 {
                (v >> 1) ^ 0xa001
            } else {
                v >> 1
            };
            bit += 1;
        }
        table[i] = v;
        i += 1;
    }
    table
};

/// Returns the CRC-16 (polynomial 0x8005 reflected) of group descriptors with `uninit_bg`.
///
/// ```
/// assert_eq!(ext4_format::checksum::crc16(0, b"123456789"), 0xbb3d);
/// ```
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |crc, &b| {
        // The index is a byte, the table has 256 entries.
        (crc >> 8) ^ CRC16[usize::from((crc as u8) ^ b)]
    })
}

/// Returns the seed of every checksum that belongs to one inode: its record, extent blocks, directory blocks.
///
/// ```
/// use ext4_format::{InodeNr, checksum};
/// let seed = checksum::inode_seed(1, InodeNr(2), 3);
/// assert_eq!(seed, checksum::crc32c(1, &[2, 0, 0, 0, 3, 0, 0, 0]));
/// ```
pub fn inode_seed(fs_seed: u32, ino: InodeNr, generation: u32) -> u32 {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&ino.0.to_le_bytes());
    key[4..].copy_from_slice(&generation.to_le_bytes());
    crc32c(fs_seed, &key)
}

/// Returns the four bytes at `at` in `bytes` for which [`crc32c()`] of all bytes from `seed` is `target`. The present
/// bytes there do not matter. `None` if four bytes do not fit there.
///
/// CRC is linear. Running it backwards from the target over the later bytes gives the state after the four bytes.
/// Running it forwards over the earlier bytes gives the state before them. Four bytes lead from any state to any
/// other in exactly one way.
///
/// ```
/// use ext4_format::checksum::{compensate, crc32c};
/// let mut bytes = *b"state: new, fix: ????, rest";
/// let fix = compensate(!0, &bytes, 17, 0xdead_beef).unwrap();
/// bytes[17..21].copy_from_slice(&fix);
/// assert_eq!(crc32c(!0, &bytes), 0xdead_beef);
/// ```
pub fn compensate(seed: u32, bytes: &[u8], at: usize, target: u32) -> Option<[u8; 4]> {
    /// CRC-32C, bits reversed; its top bit is set, so a step back knows the bit that was shifted out.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    /// The effect of eight steps back on a top byte; the other bits are only shifted.
    const BACK: [u32; 256] = {
        let mut table = [0; 256];
        let mut top = 0;
        while top < 256 {
            let (mut state, mut steps) = ((top as u32) << 24, 0);
            while steps < 8 {
                state = if state & 0x8000_0000 != 0 {
                    (state ^ POLYNOMIAL) << 1 | 1
                } else {
                    state << 1
                };
                steps += 1;
            }
            table[top] = state;
            top += 1;
        }
        table
    };
    fn back(state: u32, byte: u8) -> u32 {
        BACK[(state >> 24) as usize] ^ (state << 8) ^ u32::from(byte)
    }
    let after = bytes.get(at.checked_add(4)?..)?;
    let before = crc32c(seed, bytes.get(..at)?);
    let needed = after.iter().rev().fold(target, |c, &b| back(c, b));
    let from_zero = (0..4).fold(needed, |c, _| back(c, 0));
    Some((from_zero ^ before).to_le_bytes())
}
