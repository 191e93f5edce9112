//! Blocks of the orphan file: inode numbers of files that were unlinked or being truncated, to be
//! finished after a crash. 0 is a free slot; the last eight bytes are magic and checksum.

use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};
use crate::types::{BlockNr, InodeNr};
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: u32 = 0x0b10_ca04;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawTail {
    magic: U32,
    checksum: U32,
}

const TAIL_LEN: usize = size_of::<RawTail>();
const _: () = assert!(TAIL_LEN == 8 && offset_of!(RawTail, checksum) == 4);

/// Slots of one block.
///
/// ```
/// assert_eq!(ext4_format::orphan_file::slots(4096), 1022);
/// ```
pub const fn slots(block_size: usize) -> usize {
    block_size.saturating_sub(TAIL_LEN) / 4
}

/// Returns the inode-scoped checksums of the orphan file: over the block's place and its slots.
fn checksum(block: &[u8], inode_seed: u32, nr: BlockNr) -> u32 {
    let covered = block.get(..slots(block.len()) * 4).unwrap_or(&[]);
    crc32c(crc32c(inode_seed, &nr.0.to_le_bytes()), covered)
}

/// Makes a block an empty block of the orphan file, checksum not set.
pub fn init_block(block: &mut [u8]) {
    block.fill(0);
    if let Ok((_, tail)) = RawTail::mut_from_suffix(block) {
        tail.magic = MAGIC.into();
    }
}

/// Returns an empty block of the orphan file for block `nr`. If `inode_seed` is given, sets the checksum of the block.
pub fn empty_block(size: usize, inode_seed: Option<u32>, nr: BlockNr) -> Vec<u8> {
    let mut block = vec![0; size];
    init_block(&mut block);
    if let Some(seed) = inode_seed {
        set_checksum(&mut block, seed, nr);
    }
    block
}

/// Checks the magic and, when `inode_seed` is given, the checksum of a block read from `nr`.
///
/// # Errors
/// `Corrupt` or `Checksum`.
pub fn verify(block: &[u8], inode_seed: Option<u32>, nr: BlockNr) -> Result<()> {
    let at = Where::Block(nr, slots(block.len()) as u32 * 4);
    let tail = match RawTail::ref_from_suffix(block) {
        Ok((_, tail)) if tail.magic == MAGIC => tail,
        _ => return Err(FormatError::corrupt("orphan file block magic", at)),
    };
    let (stored, computed) = (
        tail.checksum.get(),
        inode_seed.map(|s| checksum(block, s, nr)),
    );
    match computed {
        Some(computed) if computed != stored => Err(FormatError::Checksum {
            what: "orphan file block",
            at,
            stored,
            computed,
        }),
        _ => Ok(()),
    }
}

/// Writes the checksum of a block for the place `nr`.
pub fn set_checksum(block: &mut [u8], inode_seed: u32, nr: BlockNr) {
    let sum = checksum(block, inode_seed, nr);
    if let Ok((_, tail)) = RawTail::mut_from_suffix(block) {
        tail.checksum = sum.into();
    }
}

/// Returns the orphans of a block, with their slots. Not checked against the volume's inode count.
///
/// ```
/// use ext4_format::{orphan_file, InodeNr};
/// let mut block = [0; 1024];
/// orphan_file::init_block(&mut block);
/// assert_eq!(orphan_file::insert(&mut block, InodeNr(12)), Some(0));
/// assert_eq!(orphan_file::orphans(&block).collect::<Vec<_>>(), [(0, InodeNr(12))]);
/// assert!(orphan_file::clear(&mut block, 0));
/// ```
pub fn orphans(block: &[u8]) -> impl Iterator<Item = (usize, InodeNr)> + '_ {
    /// Slots that are looked at together: nearly all are free.
    const TOGETHER: usize = 64;
    let slots = block.get(..4 * slots(block.len())).unwrap_or(&[]);
    let parts = slots.chunks(4 * TOGETHER).enumerate();
    let used = parts.filter(|(_, part)| part.iter().any(|&b| b != 0));
    used.flat_map(|(nth, part)| {
        let slots = part.chunks_exact(4).enumerate();
        slots.filter_map(move |(i, slot)| {
            let ino = slot.first_chunk().map_or(0, |s| u32::from_le_bytes(*s));
            (ino != 0).then_some((nth * TOGETHER + i, InodeNr(ino)))
        })
    })
}

fn put(block: &mut [u8], slot: usize, ino: u32) -> bool {
    let end = slots(block.len());
    match block.get_mut(slot * 4..).and_then(<[u8]>::first_chunk_mut) {
        Some(bytes) if slot < end => {
            *bytes = ino.to_le_bytes();
            true
        }
        _ => false,
    }
}

/// Puts an orphan into the first free slot and returns it; `None` when the block is full.
pub fn insert(block: &mut [u8], ino: InodeNr) -> Option<usize> {
    let free = block
        .chunks_exact(4)
        .take(slots(block.len()))
        .position(|s| s == [0; 4])?;
    put(block, free, ino.0).then_some(free)
}

/// Frees a slot; `false` when the block has no such slot.
pub fn clear(block: &mut [u8], slot: usize) -> bool {
    put(block, slot, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fills_up_and_is_covered() {
        let mut block = [0; 1024];
        init_block(&mut block);
        for i in 0..254 {
            assert_eq!(insert(&mut block, InodeNr(i + 11)), Some(i as usize));
        }
        assert_eq!(insert(&mut block, InodeNr(9)), None);
        assert!(!clear(&mut block, 254));
        assert!(clear(&mut block, 7));
        assert_eq!(insert(&mut block, InodeNr(9)), Some(7));
        set_checksum(&mut block, 5, BlockNr(88));
        verify(&block, Some(5), BlockNr(88)).unwrap();
        assert!(verify(&block, Some(5), BlockNr(89)).is_err());
        assert!(verify(&block, Some(6), BlockNr(88)).is_err());
        verify(&block, None, BlockNr(0)).unwrap();
        block[1016] ^= 1;
        assert!(matches!(
            verify(&block, None, BlockNr(0)),
            Err(FormatError::Corrupt { .. })
        ));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut block in proptest::collection::vec(any::<u8>(), 0..64), slot in 0..20_usize) {
            let _ = (verify(&block, Some(1), BlockNr(1)), orphans(&block).count(), clear(&mut block, slot));
            let _ = insert(&mut block, InodeNr(3));
            set_checksum(&mut block, 1, BlockNr(1));
            init_block(&mut block);
        }
    }
}
