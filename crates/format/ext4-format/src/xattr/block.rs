//! The block that may be shared: reference count, hash, checksum.

use super::{MAGIC, MAX_REFCOUNT, RawHeader, corrupt};
use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};
use crate::types::BlockNr;
use core::mem::offset_of;
use zerocopy::FromBytes;

/// Returns the number of inodes that share a block. Checks its header.
///
/// # Errors
/// `Corrupt` for a bad magic, block count or reference count.
pub fn refcount(block: &[u8]) -> Result<u32> {
    let Ok((header, _)) = RawHeader::ref_from_prefix(block) else {
        return Err(corrupt("extended attribute block length", 0));
    };
    let count = header.refcount.get();
    if header.magic != MAGIC {
        Err(corrupt("extended attribute block magic", 0))
    } else if header.blocks != 1 {
        Err(corrupt(
            "extended attribute block count",
            offset_of!(RawHeader, blocks),
        ))
    } else if count == 0 || count > MAX_REFCOUNT {
        Err(corrupt(
            "extended attribute reference count",
            offset_of!(RawHeader, refcount),
        ))
    } else {
        Ok(count)
    }
}

/// Returns the hash by which blocks that can be shared are found.
pub fn stored_block_hash(block: &[u8]) -> Option<u32> {
    Some(RawHeader::ref_from_prefix(block).ok()?.0.hash.get())
}

/// Changes how many inodes share a block. The checksum must be set again.
///
/// # Errors
/// `Unrepresentable` for 0 or more than [`MAX_REFCOUNT`].
pub fn set_refcount(block: &mut [u8], count: u32) -> Result<()> {
    match RawHeader::mut_from_prefix(block) {
        Ok((header, _)) if (1..=MAX_REFCOUNT).contains(&count) => {
            header.refcount = count.into();
            Ok(())
        }
        _ => Err(FormatError::Unrepresentable(
            "extended attribute reference count",
        )),
    }
}

/// Computes the checksum of the block's number and the block, with the checksum's field as zero.
fn checksum(block: &[u8], fs_seed: u32, nr: BlockNr) -> u32 {
    let field = offset_of!(RawHeader, checksum);
    let (before, rest) = block.split_at_checked(field).unwrap_or((block, &[]));
    let sum = crc32c(crc32c(fs_seed, &nr.0.to_le_bytes()), before);
    crc32c(crc32c(sum, &[0; 4]), rest.get(4..).unwrap_or(&[]))
}

/// Writes the checksum of a block for the place `nr`. `fs_seed` is the volume's.
pub fn set_checksum(block: &mut [u8], fs_seed: u32, nr: BlockNr) {
    let sum = checksum(block, fs_seed, nr);
    if let Ok((header, _)) = RawHeader::mut_from_prefix(block) {
        header.checksum = sum.into();
    }
}

/// Checks the checksum of a block read from `nr`.
///
/// # Errors
/// `Checksum` when it does not match.
pub fn verify_checksum(block: &[u8], fs_seed: u32, nr: BlockNr) -> Result<()> {
    let Ok((header, _)) = RawHeader::ref_from_prefix(block) else {
        return Err(corrupt("extended attribute block length", 0));
    };
    let (stored, computed) = (header.checksum.get(), checksum(block, fs_seed, nr));
    if stored == computed {
        return Ok(());
    }
    Err(FormatError::Checksum {
        what: "extended attribute block",
        at: Where::Block(nr, 0),
        stored,
        computed,
    })
}
