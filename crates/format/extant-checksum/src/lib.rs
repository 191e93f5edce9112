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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns bytes without repetition, so that any wrong order of pieces changes the checksum.
    fn bytes(len: usize) -> Vec<u8> {
        let mut state = 1u64;
        let next = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(next).collect()
    }

    #[test]
    fn every_length_up_to_some_blocks() {
        let bytes = bytes(9000);
        // Miri takes its time.
        let step = if cfg!(miri) { 97 } else { 1 };
        let lens = (0..1100).chain(4000..4200).chain(8100..9000);
        for len in lens.step_by(step) {
            let piece = &bytes[..len];
            assert_eq!(
                crc32c(0xdead_beef, piece),
                portable(0xdead_beef, piece),
                "{len}"
            );
        }
    }

    proptest! {
        #[test]
        fn of_records(seed: u32, key: u64, from in 0usize..16) {
            let bytes = bytes(from + RECORD);
            let record = bytes[from..].first_chunk().unwrap();
            let sum = portable(portable(seed, &key.to_le_bytes()), record);
            prop_assert_eq!(crc32c_record(seed, key, record), sum);
        }

        /// Any place in memory, any seed, long pieces too; and in two pieces.
        #[test]
        fn as_the_other_crate(seed: u32, len in 0usize..70_000, from in 0usize..16, cut: prop::sample::Index) {
            let all = bytes(from + len);
            let bytes = &all[from..];
            let sum = portable(seed, bytes);
            prop_assert_eq!(crc32c(seed, bytes), sum);
            let (first, rest) = bytes.split_at(cut.index(len + 1));
            prop_assert_eq!(crc32c(crc32c(seed, first), rest), sum);
        }
    }
}
