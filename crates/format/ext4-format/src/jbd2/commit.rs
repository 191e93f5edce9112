//! Commit blocks: a transaction counts if its commit block has a valid checksum.

use super::{BlockType, Checksums, Format, Header, Tid, corrupt};
use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};
use core::mem::{offset_of, size_of};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Raw {
    header: Header,
    checksum_type: u8,
    checksum_size: u8,
    padding: [u8; 2],
    checksum: [U32; 8],
    secs: U64,
    nanos: U32,
}

const _: () = {
    assert!(size_of::<Raw>() == 60 && offset_of!(Raw, checksum) == 16);
    assert!(offset_of!(Raw, secs) == 48 && offset_of!(Raw, nanos) == 56);
};

const CRC32: u8 = 1;
/// The unit that a medium writes whole.
const SECTOR: usize = 512;

/// The fields of a commit block.
///
/// ```
/// use ext4_format::jbd2::{Checksums, Commit, Format, Tid};
/// let f = Format { block_size: 1024, is_64bit: true, checksums: Checksums::V3, seed: 5, uuid: [1; 16] };
/// let commit = Commit { tid: Tid(4), secs: 1_700_000_000, nanos: 5, transaction_crc: None };
/// let mut block = [0; 1024];
/// commit.write(&f, &mut block)?;
/// assert_eq!(Commit::parse(&f, &block)?, commit);
/// Commit::verify(&f, &block)?;
/// # Ok::<(), ext4_format::FormatError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The transaction it ends.
    pub tid: Tid,
    /// Time of the commit, seconds since 1970.
    pub secs: u64,
    /// Time of the commit, nanoseconds.
    pub nanos: u32,
    /// CRC-32 of the whole transaction, for journals with v1 checksums.
    pub transaction_crc: Option<u32>,
}

impl Commit {
    /// Reads a commit block; its checksum is a matter of [`Self::verify`].
    ///
    /// # Errors
    /// `Corrupt` if the block is not a commit block.
    pub fn parse(format: &Format, block: &[u8]) -> Result<Self> {
        let raw = match Raw::ref_from_prefix(block) {
            Ok((raw, _)) if raw.header.kind == BlockType::Commit as u32 => raw,
            _ => return Err(corrupt("journal commit block", 0)),
        };
        let crc = (format.checksums == Checksums::V1 && raw.checksum_type == CRC32)
            .then(|| raw.checksum.first().map_or(0, |c| c.get()));
        Ok(Self {
            tid: Tid(raw.header.sequence.get()),
            secs: raw.secs.get(),
            nanos: raw.nanos.get(),
            transaction_crc: crc,
        })
    }

    /// Makes a block this commit block, checksum included.
    ///
    /// # Errors
    /// `Corrupt` for a buffer that is not a block.
    pub fn write(&self, format: &Format, block: &mut [u8]) -> Result<()> {
        format.payload_end(block)?;
        block.fill(0);
        let v1 = self
            .transaction_crc
            .filter(|_| format.checksums == Checksums::V1);
        let mut raw = Raw {
            header: Header::new(BlockType::Commit, self.tid),
            checksum_type: if v1.is_some() { CRC32 } else { 0 },
            checksum_size: if v1.is_some() { 4 } else { 0 },
            padding: [0; 2],
            checksum: [0.into(); 8],
            secs: self.secs.into(),
            nanos: self.nanos.into(),
        };
        raw.checksum[0] = v1.unwrap_or(0).into();
        // payload_end has checked the length.
        let _ = raw.write_to_prefix(block);
        if format.checksums.in_blocks() {
            raw.checksum[0] = sum(format, block).into();
            let _ = raw.write_to_prefix(block);
        }
        Ok(())
    }

    /// Checks a commit block's own checksum (v2 and v3).
    ///
    /// # Errors
    /// `Checksum` when it does not match, `Corrupt` for a short block.
    pub fn verify(format: &Format, block: &[u8]) -> Result<()> {
        let Ok((raw, _)) = Raw::ref_from_prefix(block) else {
            return Err(corrupt("journal commit block", 0));
        };
        let (stored, computed) = (raw.checksum[0].get(), sum(format, block));
        if !format.checksums.in_blocks() || stored == computed {
            return Ok(());
        }
        // All of its fields are in its first sector. A cut may leave that sector new and the
        // sectors behind it, which are zeros, as they were.
        let mut first = vec![0; block.len()];
        if let (Some(to), Some(from)) = (first.get_mut(..SECTOR), block.get(..SECTOR)) {
            to.copy_from_slice(from);
            if sum(format, &first) == stored {
                return Ok(());
            }
        }
        let at = Where::Buffer(offset_of!(Raw, checksum) as u32);
        Err(FormatError::Checksum {
            what: "journal commit block",
            at,
            stored,
            computed,
        })
    }
}

/// Computes the checksum of the whole block, with the checksum's field as zero.
fn sum(format: &Format, block: &[u8]) -> u32 {
    let (before, rest) = block
        .split_at_checked(offset_of!(Raw, checksum))
        .unwrap_or((block, &[]));
    let start = crc32c(crc32c(format.seed, before), &[0; 4]);
    crc32c(start, rest.get(4..).unwrap_or(&[]))
}

/// Returns the CRC-32 (big-endian, polynomial 0x04c11db7, no inversion), as v1 checksums chain it over a
/// transaction's descriptors and images, from all ones.
pub fn crc32_be(seed: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut v = (i as u32) << 24;
            let mut bit = 0;
            while bit < 8 {
                v = if v & 0x8000_0000 != 0 {
                    (v << 1) ^ 0x04c1_1db7
                } else {
                    v << 1
                };
                bit += 1;
            }
            table[i] = v;
            i += 1;
        }
        table
    };
    // The index is a byte, the table has 256 entries.
    bytes.iter().fold(seed, |crc, &b| {
        (crc << 8) ^ TABLE[usize::from((crc >> 24) as u8 ^ b)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_be_check_value() {
        // CRC-32/MPEG-2 of the usual check string.
        assert_eq!(crc32_be(!0, b"123456789"), 0x0376_e6e7);
    }

    #[test]
    fn every_byte_of_the_first_sector_is_covered() {
        let f = Format {
            block_size: 1024,
            is_64bit: true,
            checksums: Checksums::V3,
            seed: 5,
            uuid: [1; 16],
        };
        let mut block = [0; 1024];
        Commit {
            tid: Tid(4),
            secs: 7,
            nanos: 5,
            transaction_crc: None,
        }
        .write(&f, &mut block)
        .unwrap();
        for i in [0, 8, 16, 19, 20, 48, 59, 60, 511] {
            block[i] ^= 4;
            assert!(Commit::verify(&f, &block).is_err());
            block[i] ^= 4;
        }
        // Torn behind its content.
        block[512..].fill(0xa5);
        Commit::verify(&f, &block).unwrap();
    }
}
