//! CRC-32C, raw: functions take and return the running register, without an inversion at the end, so that a checksum
//! over several pieces is a fold over the pieces.
#![deny(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod sse42;

/// Returns the CRC-32C as stored by ext4: it starts from `seed`, without a final inversion.
///
/// ```
/// use extant_checksum::crc32c;
/// assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
/// assert_eq!(crc32c(crc32c(7, b"1234"), b"56789"), crc32c(7, b"123456789"));
/// ```
#[inline]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(crc) = sse42::crc32c(seed, bytes) {
        return crc;
    }
    portable(seed, bytes)
}

/// Bytes of most inode records.
pub const RECORD: usize = 256;

/// Returns [`crc32c()`] of eight bytes, in little-endian order, and a record behind them.
///
/// ```
/// use extant_checksum::{crc32c, crc32c_record};
/// let record = [7; 256];
/// assert_eq!(crc32c_record(1, 2, &record), crc32c(crc32c(1, &2u64.to_le_bytes()), &record));
/// ```
#[inline]
pub fn crc32c_record(seed: u32, key: u64, record: &[u8; RECORD]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(crc) = sse42::crc32c_record(seed, key, record) {
        return crc;
    }
    portable(portable(seed, &key.to_le_bytes()), record)
}

/// Computes the checksum by the crate `crc32c`, which inverts seed and result.
fn portable(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
