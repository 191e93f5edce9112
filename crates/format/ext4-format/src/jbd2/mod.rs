//! jbd2, the journal: a ring of blocks behind its own superblock, big-endian throughout.
//!
//! A transaction is one or more descriptor blocks, each followed by the images it lists, any number of revoke blocks,
//! and a commit block, all with the transaction's sequence number. Only a commit block makes it count. [`Format`] has
//! the properties of a journal for writer and parser; [`recovery`] finds the blocks to write home after a crash.

pub mod commit;
pub mod descriptor;
pub mod fast_commit;
pub mod features;
pub mod recovery;
pub mod revoke;
pub mod superblock;

pub use commit::Commit;
pub use descriptor::{DescriptorWriter, Tag};
pub use fast_commit::{FastChange, FastName, FastPiece, FastWriter, fast_changes};
pub use features::Features;
pub use recovery::{LogEnd, Plan, Replay, Salvage, plan, salvage};
pub use revoke::RevokeWriter;
pub use superblock::Superblock;

use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};
use crate::types::BlockNr;
use core::cmp::Ordering;
use core::mem::size_of;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first four bytes of every block of the journal that is not an image. Images that begin with
/// it are escaped.
pub const MAGIC: u32 = 0xc03b_3998;
/// Fewer blocks make no journal.
pub const MIN_BLOCKS: u32 = 1024;
const HEADER_LEN: usize = size_of::<Header>();
/// Length of the checksum at the end of descriptor and revoke blocks.
const TAIL_LEN: usize = 4;

/// The types of the journal's own blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum BlockType {
    /// Lists the images behind it.
    Descriptor = 1,
    /// Ends a transaction.
    Commit = 2,
    /// Superblock without features.
    SuperblockV1 = 3,
    /// Superblock.
    SuperblockV2 = 4,
    /// Lists blocks whose older images must not be replayed.
    Revoke = 5,
}

/// The header of every block of the journal that is not an image.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Header {
    magic: U32,
    kind: U32,
    sequence: U32,
}

const _: () = assert!(HEADER_LEN == 12);

impl Header {
    fn new(kind: BlockType, tid: Tid) -> Self {
        Self {
            magic: MAGIC.into(),
            kind: (kind as u32).into(),
            sequence: tid.0.into(),
        }
    }
}

/// Reads a block's header: `None` when it is not a block of the journal's own.
pub fn header(block: &[u8]) -> Option<(BlockType, Tid)> {
    let (h, _) = Header::ref_from_prefix(block).ok()?;
    let kind = match h.kind.get() {
        1 => BlockType::Descriptor,
        2 => BlockType::Commit,
        3 => BlockType::SuperblockV1,
        4 => BlockType::SuperblockV2,
        5 => BlockType::Revoke,
        _ => return None,
    };
    (h.magic == MAGIC).then(|| (kind, Tid(h.sequence.get())))
}

/// A transaction's sequence number. It wraps: the order is that of the shorter way round.
///
/// ```
/// use ext4_format::jbd2::Tid;
/// assert!(Tid(u32::MAX).is_before(Tid(3)));
/// assert_eq!(Tid(u32::MAX).next(), Tid(0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tid(pub u32);

impl Tid {
    /// Returns the next number.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Compares two numbers, wrapping.
    pub fn order(self, other: Self) -> Ordering {
        (self.0.wrapping_sub(other.0) as i32).cmp(&0)
    }

    /// Returns whether `self` came before `other`.
    pub fn is_before(self, other: Self) -> bool {
        self.order(other).is_lt()
    }
}

/// How the journal protects its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// No checksums.
    None,
    /// A CRC-32 of the whole transaction in its commit block (as in ext3).
    V1,
    /// CRC-32C of the journal's own blocks, and 16 bits of it per image.
    V2,
    /// CRC-32C of the journal's own blocks and of each image.
    V3,
}

impl Checksums {
    /// Returns whether the journal's own blocks have checksums: V2 or V3.
    pub const fn in_blocks(self) -> bool {
        matches!(self, Self::V2 | Self::V3)
    }
}

/// The format of one journal's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bytes per block.
    pub block_size: u32,
    /// Block numbers have 64 bits.
    pub is_64bit: bool,
    /// Protection.
    pub checksums: Checksums,
    /// CRC-32C of the journal's UUID; seeds the others.
    pub seed: u32,
    /// The journal's UUID, repeated in descriptor blocks.
    pub uuid: [u8; 16],
}

impl Format {
    /// Returns the number of bytes at the end of a descriptor or revoke block that are not payload.
    const fn tail_len(&self) -> usize {
        if self.checksums.in_blocks() {
            TAIL_LEN
        } else {
            0
        }
    }

    /// Returns the end of a descriptor or revoke block's payload, once its size is known to be right.
    fn payload_end(&self, block: &[u8]) -> Result<usize> {
        if block.len() != self.block_size as usize || block.len() < HEADER_LEN + TAIL_LEN + 16 {
            return Err(corrupt("journal block length", 0));
        }
        Ok(block.len() - self.tail_len())
    }

    /// Overwrites a buffer with an empty descriptor or revoke block; returns the end of its payload.
    fn start_block(&self, block: &mut [u8], kind: BlockType, tid: Tid) -> Result<usize> {
        let end = self.payload_end(block)?;
        block.fill(0);
        Header::new(kind, tid)
            .write_to_prefix(block)
            .map_err(|_| corrupt("journal block length", 0))?;
        Ok(end)
    }

    /// Checks that this journal can name a block.
    fn check_block(&self, block: BlockNr) -> Result<()> {
        if self.is_64bit || block.0 <= u32::MAX.into() {
            Ok(())
        } else {
            Err(FormatError::Unrepresentable(
                "block above 32 bits in a 32-bit journal",
            ))
        }
    }

    /// Writes the checksum at the end of a descriptor or revoke block.
    fn set_tail(&self, block: &mut [u8]) {
        if let (true, Some((body, tail))) = (
            self.checksums.in_blocks(),
            block.split_last_chunk_mut::<4>(),
        ) {
            *tail = crc32c(crc32c(self.seed, body), &[0; 4]).to_be_bytes();
        }
    }

    /// Checks the checksum at the end of a descriptor or revoke block.
    ///
    /// # Errors
    /// `Checksum` when it does not match.
    pub fn verify_tail(&self, block: &[u8]) -> Result<()> {
        let Some((body, tail)) = block.split_last_chunk::<4>() else {
            return Err(corrupt("journal block length", 0));
        };
        let (stored, computed) = (
            u32::from_be_bytes(*tail),
            crc32c(crc32c(self.seed, body), &[0; 4]),
        );
        if !self.checksums.in_blocks() || stored == computed {
            return Ok(());
        }
        let at = Where::Buffer(body.len() as u32);
        Err(FormatError::Checksum {
            what: "journal block",
            at,
            stored,
            computed,
        })
    }

    /// Returns the checksum of an image in the log (escaped), in the form of its tag.
    pub fn image_checksum(&self, tid: Tid, image: &[u8]) -> u32 {
        let full = || crc32c(crc32c(self.seed, &tid.0.to_be_bytes()), image);
        match self.checksums {
            Checksums::None | Checksums::V1 => 0,
            Checksums::V2 => full() & 0xffff,
            Checksums::V3 => full(),
        }
    }
}

const fn corrupt(what: &'static str, offset: usize) -> FormatError {
    FormatError::corrupt(what, Where::Buffer(offset as u32))
}

/// Prepares an image for the log: if it begins with the journal's magic, these bytes are zeroed and the tag must have
/// the flag `ESCAPE`.
///
/// ```
/// let mut image = [0xc0, 0x3b, 0x39, 0x98, 7];
/// assert!(ext4_format::jbd2::escape(&mut image));
/// assert_eq!(image, [0, 0, 0, 0, 7]);
/// ext4_format::jbd2::unescape(&mut image);
/// assert!(ext4_format::jbd2::needs_escape(&image));
/// ```
pub fn escape(image: &mut [u8]) -> bool {
    let needed = needs_escape(image);
    if let (true, Some(first)) = (needed, image.first_chunk_mut::<4>()) {
        *first = [0; 4];
    }
    needed
}

/// Returns whether an image begins with the journal's magic.
pub fn needs_escape(image: &[u8]) -> bool {
    image.starts_with(&MAGIC.to_be_bytes())
}

/// Gives an escaped image its first four bytes back.
pub fn unescape(image: &mut [u8]) {
    if let Some(first) = image.first_chunk_mut::<4>() {
        *first = MAGIC.to_be_bytes();
    }
}
