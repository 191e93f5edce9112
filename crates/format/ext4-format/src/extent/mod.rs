//! Extent trees: the map from a file's logical blocks to blocks of the volume.
//!
//! A node is a 12-byte header and up to `max` 12-byte entries, extents in a leaf, child pointers
//! in an index node. The root is the 60 bytes of `i_block`; other nodes are blocks, whose last
//! bytes hold a checksum when `metadata_csum` is on. The key of a child pointer equals the first
//! key of the child: the kernel refuses anything else.
//!
//! [`Node::parse`] checks everything and costs a pass over the entries; [`Node::view`] checks the header only, for a
//! node that was parsed before; [`Node::salvage`] also takes a node of a tree that is too deep. These functions do
//! not allocate. Writing is in place.

mod edit;
mod view;

pub use edit::{insert_extent, insert_index, remove_entry, set_extent, write_index, write_leaf};
pub use view::{IndexNode, Leaf, Node, NodeRules};

use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};
use crate::types::BlockNr;
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The deepest tree: a root of depth 5 covers 2^32 blocks at the smallest block size.
pub const MAX_DEPTH: u16 = 5;
/// The deepest tree that is salvaged. Linux refuses a tree deeper than [`MAX_DEPTH`], e2fsck reads it.
pub const MAX_SALVAGED_DEPTH: u16 = 32;
/// The longest initialised extent, in blocks.
pub const MAX_INIT_LEN: u32 = 1 << 15;
/// The longest unwritten extent, in blocks.
pub const MAX_UNWRITTEN_LEN: u32 = MAX_INIT_LEN - 1;
/// Bytes of a root node in an inode.
pub const ROOT_LEN: usize = 60;
/// A root without extents, as in a new file: the result of [`write_leaf`] without extents.
pub const EMPTY_ROOT: [u8; ROOT_LEN] = {
    let ([magic, magic_high], mut root) = (MAGIC.to_le_bytes(), [0; ROOT_LEN]);
    (root[0], root[1]) = (magic, magic_high);
    root[4] = capacity(ROOT_LEN) as u8;
    root
};
/// End of the logical blocks of a file (the last number itself is reserved).
pub const LOGICAL_END: u64 = u32::MAX as u64;

const MAGIC: u16 = 0xf30a;
const HEADER_LEN: usize = size_of::<RawHeader>();
const ENTRY_LEN: usize = size_of::<RawExtent>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: U16,
    entries: U16,
    max: U16,
    depth: U16,
    generation: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawExtent {
    logical: U32,
    len: U16,
    start_hi: U16,
    start_lo: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawIndex {
    logical: U32,
    leaf_lo: U32,
    leaf_hi: U16,
    unused: U16,
}

const _: () = {
    assert!(HEADER_LEN == 12 && ENTRY_LEN == 12 && size_of::<RawIndex>() == 12);
    assert!(offset_of!(RawHeader, depth) == 6 && offset_of!(RawHeader, generation) == 8);
    assert!(offset_of!(RawExtent, start_hi) == 6 && offset_of!(RawExtent, start_lo) == 8);
    assert!(offset_of!(RawIndex, leaf_lo) == 4 && offset_of!(RawIndex, leaf_hi) == 8);
};

/// A run of logical blocks on a run of physical ones.
///
/// ```
/// use ext4_format::{BlockNr, extent::Extent};
/// let a = Extent { logical: 0, len: 8, physical: BlockNr(100), unwritten: false };
/// let b = Extent { logical: 8, len: 2, physical: BlockNr(108), unwritten: false };
/// assert_eq!(a.merge(&b).unwrap().len, 10);
/// assert_eq!(a.map(3), Some(BlockNr(103)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First logical block.
    pub logical: u32,
    /// Length in blocks: 1 to 32768, to 32767 when unwritten.
    pub len: u32,
    /// First physical block.
    pub physical: BlockNr,
    /// Allocated but reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// Creates the extent of one written block.
    ///
    /// ```
    /// use ext4_format::{BlockNr, extent::Extent};
    /// assert_eq!(Extent::block(3, BlockNr(40)).end(), 4);
    /// ```
    pub const fn block(logical: u32, physical: BlockNr) -> Self {
        Self {
            logical,
            len: 1,
            physical,
            unwritten: false,
        }
    }

    /// Returns the end of the logical blocks: the last one plus one.
    pub const fn end(&self) -> u64 {
        self.logical as u64 + self.len as u64
    }

    /// Reads an entry of a leaf.
    pub fn from_bytes(bytes: &[u8; 12]) -> Self {
        let raw: &RawExtent = zerocopy::transmute_ref!(bytes);
        raw.decode()
    }

    /// Writes an entry of a leaf.
    ///
    /// # Errors
    /// `Unrepresentable` for a length or a block number beyond the format.
    pub fn to_bytes(&self) -> Result<[u8; 12]> {
        Ok(zerocopy::transmute!(self.encode()?))
    }

    /// Returns the physical block of a logical one in this extent.
    pub fn map(&self, logical: u32) -> Option<BlockNr> {
        let within = logical.checked_sub(self.logical)?;
        (within < self.len).then(|| BlockNr(self.physical.0.saturating_add(within.into())))
    }

    /// Returns both as one extent, if `next` follows this logically and physically, in the same state, and the sum is
    /// not too long.
    pub fn merge(&self, next: &Self) -> Option<Self> {
        let len = self.len.checked_add(next.len)?;
        let adjacent = self.end() == u64::from(next.logical)
            && self.physical.0.checked_add(self.len.into()) == Some(next.physical.0)
            && self.unwritten == next.unwritten;
        (adjacent && len <= self.max_len()).then_some(Self { len, ..*self })
    }

    /// Splits the extent into extents of one block each.
    pub fn blocks(self) -> impl Iterator<Item = Self> {
        (0..self.len).map(move |i| Self {
            logical: self.logical.saturating_add(i),
            len: 1,
            physical: BlockNr(self.physical.0.saturating_add(i.into())),
            ..self
        })
    }

    /// Returns the maximum length of an extent of this state.
    pub const fn max_len(&self) -> u32 {
        if self.unwritten {
            MAX_UNWRITTEN_LEN
        } else {
            MAX_INIT_LEN
        }
    }

    fn encode(&self) -> Result<RawExtent> {
        if self.len == 0 || self.len > self.max_len() || self.end() > LOGICAL_END {
            return Err(FormatError::Unrepresentable("extent length"));
        }
        let (start_hi, start_lo) = split(self.physical)?;
        // At most 0x8000, or 0x7fff with the marker added: 16 bits.
        let len = (self.len + if self.unwritten { MAX_INIT_LEN } else { 0 }) as u16;
        Ok(RawExtent {
            logical: self.logical.into(),
            len: len.into(),
            start_hi,
            start_lo,
        })
    }
}

impl RawExtent {
    fn decode(&self) -> Extent {
        let stored = u32::from(self.len.get());
        let unwritten = stored > MAX_INIT_LEN;
        Extent {
            logical: self.logical.get(),
            len: if unwritten {
                stored - MAX_INIT_LEN
            } else {
                stored
            },
            physical: join(self.start_hi, self.start_lo),
            unwritten,
        }
    }
}

/// A child pointer: logical blocks from `logical` on are below node `child`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentIndex {
    /// First key of the child.
    pub logical: u32,
    /// The child's block.
    pub child: BlockNr,
}

impl ExtentIndex {
    fn encode(&self) -> Result<RawIndex> {
        let (leaf_hi, leaf_lo) = split(self.child)?;
        Ok(RawIndex {
            logical: self.logical.into(),
            leaf_lo,
            leaf_hi,
            unused: 0.into(),
        })
    }
}

impl RawIndex {
    fn decode(&self) -> ExtentIndex {
        ExtentIndex {
            logical: self.logical.get(),
            child: join(self.leaf_hi, self.leaf_lo),
        }
    }
}

fn join(hi: U16, lo: U32) -> BlockNr {
    BlockNr(u64::from(hi.get()) << 32 | u64::from(lo.get()))
}

fn split(block: BlockNr) -> Result<(U16, U32)> {
    let hi = u16::try_from(block.0 >> 32)
        .map_err(|_| FormatError::Unrepresentable("extent block above 48 bits"))?;
    Ok((hi.into(), (block.0 as u32).into()))
}

const fn corrupt(what: &'static str, offset: usize) -> FormatError {
    FormatError::corrupt(what, Where::Buffer(offset as u32))
}

/// Returns the number of entries that a node of `bytes_len` bytes holds: 4 in an inode, 340 in 4 KiB. Room for the
/// checksum is left by the division at every block size.
pub const fn capacity(bytes_len: usize) -> usize {
    bytes_len.saturating_sub(HEADER_LEN) / ENTRY_LEN
}

/// A node's header, bounds checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentHeader {
    /// Entries in use.
    pub entries: u16,
    /// Entries there is room for.
    pub max: u16,
    /// Levels below: 0 for a leaf.
    pub depth: u16,
    /// Unused by the kernel, kept.
    pub generation: u32,
}

impl ExtentHeader {
    /// Reads and checks a header against the buffer it heads.
    ///
    /// # Errors
    /// `Corrupt` for a bad magic, depth or count.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        Self::parse_within(bytes, MAX_DEPTH)
    }

    /// Returns whether the declared maximum of entries fills a node of this length, or nearly so.
    pub const fn fills(&self, bytes_len: usize) -> bool {
        self.max as usize + 2 >= capacity(bytes_len)
    }

    fn parse_within(bytes: &[u8], deepest: u16) -> Result<Self> {
        let Ok((raw, _)) = RawHeader::ref_from_prefix(bytes) else {
            return Err(corrupt("extent header length", 0));
        };
        let header = Self {
            entries: raw.entries.get(),
            max: raw.max.get(),
            depth: raw.depth.get(),
            generation: raw.generation.get(),
        };
        if raw.magic != MAGIC {
            Err(corrupt("extent header magic", 0))
        } else if header.depth > deepest {
            Err(corrupt("extent tree depth", offset_of!(RawHeader, depth)))
        } else if header.max == 0 || usize::from(header.max) > capacity(bytes.len()) {
            Err(corrupt("extent node capacity", offset_of!(RawHeader, max)))
        } else if header.entries > header.max {
            Err(corrupt(
                "extent entry count above capacity",
                offset_of!(RawHeader, entries),
            ))
        } else {
            Ok(header)
        }
    }
}

/// Returns the offset of a block's checksum, behind the last possible entry, and its value.
fn tail(bytes: &[u8], inode_seed: u32) -> Result<(usize, u32)> {
    let header = ExtentHeader::parse_within(bytes, MAX_SALVAGED_DEPTH)?;
    let offset = HEADER_LEN + usize::from(header.max) * ENTRY_LEN;
    match bytes.get(..offset) {
        Some(covered) if offset + 4 <= bytes.len() => Ok((offset, crc32c(inode_seed, covered))),
        _ => Err(corrupt(
            "extent block without room for its checksum",
            offset,
        )),
    }
}

/// Writes the checksum of a node in a block. A root is covered by the inode's checksum instead.
///
/// # Errors
/// `Corrupt` for a bad header.
pub fn set_tail(bytes: &mut [u8], inode_seed: u32) -> Result<()> {
    let (offset, sum) = tail(bytes, inode_seed)?;
    if let Some(slot) = bytes.get_mut(offset..offset + 4) {
        slot.copy_from_slice(&sum.to_le_bytes());
    }
    Ok(())
}

/// Checks the checksum of a node in a block.
///
/// # Errors
/// `Checksum`, or `Corrupt` for a bad header.
pub fn verify_tail(bytes: &[u8], inode_seed: u32) -> Result<()> {
    let (offset, computed) = tail(bytes, inode_seed)?;
    let stored = bytes
        .get(offset..)
        .and_then(<[u8]>::first_chunk)
        .map_or(!computed, |b| u32::from_le_bytes(*b));
    if stored == computed {
        return Ok(());
    }
    let at = Where::Buffer(offset as u32);
    Err(FormatError::Checksum {
        what: "extent block",
        at,
        stored,
        computed,
    })
}

#[cfg(test)]
mod tests;
