//! Sums by the instruction of SSE 4.2, which takes eight bytes. Its latency is three cycles and one can start per
//! cycle, so long pieces are summed in three parallel strands, which are joined by carry-less multiplication.
#![allow(unsafe_code)] // calls of two functions with instructions whose support is checked before

use crate::RECORD;
use core::arch::x86_64::{
    _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
};
use std::arch::is_x86_feature_detected;

/// CRC-32C's polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Words that are summed without a look at how many are left.
const STEP: usize = 10;
/// Bytes of a strand of the short and the long kind: three short ones are most of an inode's record, three long ones most
/// of a block of 4 KiB.
const SHORT: usize = 8 * STEP;
const LONG: usize = 17 * SHORT;

/// Returns the checksum, or `None` if the processor lacks the instructions.
#[inline]
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> Option<u32> {
    if is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has both features.
        return Some(unsafe { summed(seed, bytes) });
    }
    None
}

/// Like [`crate::crc32c_record`]; `None` if the processor lacks the instructions.
#[inline]
pub(crate) fn crc32c_record(seed: u32, key: u64, record: &[u8; RECORD]) -> Option<u32> {
    if is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has both features.
        return Some(unsafe { summed_record(seed, key, record) });
    }
    None
}

/// Words of a strand of a record: three strands are the key and the record.
const RECORD_STRAND: usize = 11;
const _: () = assert!(3 * RECORD_STRAND == 1 + RECORD / 8);

#[target_feature(enable = "sse4.2,pclmulqdq")]
fn summed_record(seed: u32, key: u64, record: &[u8; RECORD]) -> u32 {
    // Of known length, so that no step asks how many words are left.
    let (words, _) = record.as_chunks::<8>();
    let word = |i: usize| words.get(i).map_or(0, |word| u64::from_le_bytes(*word));
    let mut crcs = [_mm_crc32_u64(seed.into(), key), 0, 0];
    for i in 0..RECORD_STRAND {
        if i > 0 {
            crcs[0] = _mm_crc32_u64(crcs[0], word(i - 1));
        }
        crcs[1] = _mm_crc32_u64(crcs[1], word(RECORD_STRAND - 1 + i));
        crcs[2] = _mm_crc32_u64(crcs[2], word(2 * RECORD_STRAND - 1 + i));
    }
    joined::<{ 8 * RECORD_STRAND }>(crcs) as u32
}

#[target_feature(enable = "sse4.2,pclmulqdq")]
fn summed(seed: u32, bytes: &[u8]) -> u32 {
    let (crc, rest) = strands::<{ 3 * LONG }, LONG>(seed.into(), bytes);
    let (crc, rest) = strands::<{ 3 * SHORT }, SHORT>(crc, rest);
    let mut crc = crc;
    let (words, rest) = rest.as_chunks();
    for word in words {
        crc = add(crc, word);
    }
    let mut crc = crc as u32;
    for byte in rest {
        crc = _mm_crc32_u8(crc, *byte);
    }
    crc
}

#[target_feature(enable = "sse4.2")]
#[inline]
fn add(crc: u64, word: &[u8; 8]) -> u64 {
    _mm_crc32_u64(crc, u64::from_le_bytes(*word))
}

/// Adds pieces of three strands of `STRAND` bytes, `ALL` together, while there are that many; returns the rest.
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
fn strands<const ALL: usize, const STRAND: usize>(mut crc: u64, mut bytes: &[u8]) -> (u64, &[u8]) {
    const {
        assert!(ALL == 3 * STRAND && STRAND.is_multiple_of(SHORT));
    }
    while let Some((piece, rest)) = bytes.split_first_chunk::<ALL>() {
        let (a, rest_of_piece) = piece.split_at(STRAND);
        let (b, c) = rest_of_piece.split_at(STRAND);
        // Loops, as a closure would not have the instructions.
        let (a, b, c) = (steps(a), steps(b), steps(c));
        let mut crcs = [crc, 0, 0];
        for ((a, b), c) in a.iter().zip(b).zip(c) {
            for i in 0..STEP {
                crcs = [
                    add(crcs[0], &a[i]),
                    add(crcs[1], &b[i]),
                    add(crcs[2], &c[i]),
                ];
            }
        }
        crc = joined::<STRAND>(crcs);
        bytes = rest;
    }
    (crc, bytes)
}

/// Returns the checksum of three strands of `STRAND` bytes that follow each other.
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
fn joined<const STRAND: usize>(crcs: [u64; 3]) -> u64 {
    let two_strands = const { power(8 * 2 * STRAND - 33) };
    let one_strand = const { power(8 * STRAND - 33) };
    let joined = times(crcs[0], two_strands) ^ times(crcs[1], one_strand);
    _mm_crc32_u64(0, joined) ^ crcs[2]
}

/// Splits a strand into steps.
#[inline]
fn steps(strand: &[u8]) -> &[[[u8; 8]; STEP]] {
    strand.as_chunks().0.as_chunks().0
}

/// Returns the product of two polynomials. As their bits are reversed it is one place too low, and the reduction by
/// the checksum's instruction multiplies by x³²: hence the 33 that exponents lack.
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
fn times(crc: u64, factor: u32) -> u64 {
    let crc = _mm_cvtsi64_si128(crc as i64);
    let factor = _mm_cvtsi64_si128(factor.into());
    _mm_cvtsi128_si64(_mm_clmulepi64_si128(crc, factor, 0)) as u64
}

/// Returns x to the `n`, modulo the polynomial.
const fn power(n: usize) -> u32 {
    let (mut power, mut i) = (1 << 31, 0);
    while i < n {
        power = (power >> 1) ^ ((power & 1) * POLYNOMIAL);
        i += 1;
    }
    power
}
