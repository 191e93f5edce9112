//! Compares the checksums of extant-checksum with those of another crate.

use extant_checksum::{RECORD, crc32c, crc32c_record};
use proptest::prelude::*;

/// Computes the checksum by the crate `crc32c`, which inverts seed and result.
fn portable(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

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
