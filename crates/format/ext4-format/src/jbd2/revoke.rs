//! Revoke blocks: images of these blocks in this transaction or older ones must not be replayed.

use super::{BlockType, Format, HEADER_LEN, Header, Tid, corrupt};
use crate::error::Result;
use crate::types::BlockNr;
use core::mem::{offset_of, size_of};
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHead {
    header: Header,
    /// Bytes in use, this head included.
    used: U32,
}

const HEAD_LEN: usize = size_of::<RawHead>();
const _: () = assert!(HEAD_LEN == 16 && offset_of!(RawHead, used) == HEADER_LEN);

impl Format {
    const fn record_len(&self) -> usize {
        if self.is_64bit { 8 } else { 4 }
    }

    /// Returns the number of blocks that a revoke block can list.
    pub const fn revokes_per_block(&self) -> usize {
        (self.block_size as usize).saturating_sub(HEAD_LEN + self.tail_len()) / self.record_len()
    }

    /// Returns the blocks a revoke block lists.
    ///
    /// # Errors
    /// `Corrupt` for a block of wrong length or an impossible count.
    pub fn revokes<'a>(
        &self,
        block: &'a [u8],
    ) -> Result<impl ExactSizeIterator<Item = BlockNr> + use<'a>> {
        let end = self.payload_end(block)?;
        let used = RawHead::ref_from_prefix(block).map_or(0, |(head, _)| head.used.get() as usize);
        let list = block
            .get(HEAD_LEN..used)
            .filter(|list| used <= end && list.len() % self.record_len() == 0)
            .ok_or(corrupt("journal revoke count", HEADER_LEN))?;
        Ok(list
            .chunks(self.record_len())
            .map(|r| BlockNr(r.iter().fold(0, |nr, byte| nr << 8 | u64::from(*byte)))))
    }
}

/// Fills a revoke block.
///
/// ```
/// use ext4_format::{BlockNr, jbd2::{Checksums, Format, RevokeWriter, Tid}};
/// let f = Format { block_size: 1024, is_64bit: true, checksums: Checksums::V3, seed: 5, uuid: [1; 16] };
/// let mut block = [0; 1024];
/// let mut r = RevokeWriter::new(&f, &mut block, Tid(9))?;
/// assert!(r.push(BlockNr(77))?);
/// r.finish();
/// assert_eq!(f.revokes(&block)?.next(), Some(BlockNr(77)));
/// # Ok::<(), ext4_format::FormatError>(())
/// ```
#[derive(Debug)]
pub struct RevokeWriter<'a> {
    format: &'a Format,
    block: &'a mut [u8],
    end: usize,
    next: usize,
}

impl<'a> RevokeWriter<'a> {
    /// Starts a revoke block, whatever the buffer held.
    ///
    /// # Errors
    /// `Corrupt` for a buffer that is not a block.
    pub fn new(format: &'a Format, block: &'a mut [u8], tid: Tid) -> Result<Self> {
        let end = format.start_block(block, BlockType::Revoke, tid)?;
        Ok(Self {
            format,
            block,
            end,
            next: HEAD_LEN,
        })
    }

    /// Adds a block to the list; `Ok(false)` if the list is full.
    ///
    /// # Errors
    /// `Unrepresentable` for a block number this journal cannot hold.
    pub fn push(&mut self, block: BlockNr) -> Result<bool> {
        self.format.check_block(block)?;
        let len = self.format.record_len();
        if self.next + len > self.end {
            return Ok(false);
        }
        let bytes = block.0.to_be_bytes();
        if let (Some(slot), Some(value)) = (
            self.block.get_mut(self.next..self.next + len),
            bytes.get(8 - len..),
        ) {
            slot.copy_from_slice(value);
        }
        self.next += len;
        Ok(true)
    }

    /// Writes the count and the checksum.
    pub fn finish(self) {
        if let Ok((head, _)) = RawHead::mut_from_prefix(self.block) {
            head.used = (self.next as u32).into();
        }
        self.format.set_tail(self.block);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Checksums;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(blocks in proptest::collection::vec(any::<u64>(), 0..300), csum: bool, wide: bool) {
            let checksums = if csum { Checksums::V2 } else { Checksums::None };
            let f = Format { block_size: 1024, is_64bit: wide, checksums, seed: 1, uuid: [0; 16] };
            let blocks: Vec<_> = blocks.into_iter().map(|b| BlockNr(if wide { b } else { b >> 32 })).collect();
            let mut block = [0xee; 1024];
            let mut r = RevokeWriter::new(&f, &mut block, Tid(8)).unwrap();
            let taken = blocks.iter().take_while(|b| r.push(**b).unwrap()).count();
            r.finish();
            prop_assert_eq!(taken, blocks.len().min(f.revokes_per_block()));
            f.verify_tail(&block).unwrap();
            prop_assert_eq!(&f.revokes(&block).unwrap().collect::<Vec<_>>()[..], &blocks[..taken]);
        }

        #[test]
        fn impossible_counts_are_refused(used in any::<u32>(), wide: bool) {
            let f = Format { block_size: 1024, is_64bit: wide, checksums: Checksums::V3, seed: 1, uuid: [0; 16] };
            let mut block = [0; 1024];
            RevokeWriter::new(&f, &mut block, Tid(8)).unwrap().finish();
            block[12..16].copy_from_slice(&used.to_be_bytes());
            let fine = (16..=1020).contains(&used) && (used - 16) % if wide { 8 } else { 4 } == 0;
            prop_assert_eq!(f.revokes(&block).is_ok(), fine);
        }
    }
}
