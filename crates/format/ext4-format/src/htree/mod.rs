//! The index of a large directory: a tree of (hash, block) entries over linear leaf blocks.
//!
//! Block 0 is the root; it holds "." and ".." in front of its entries. Nodes below it look like one unused directory
//! record. The first entry of a root or node has no hash: its place holds the limit and the count, and the entry
//! covers all hashes below the second entry's. A hash with its low bit set means that names of the preceding even
//! hash continue in this block.

mod edit;
mod read;

pub use edit::{RootInit, insert_after, set_levels, set_parent, write_node, write_root};
use read::limit_and_count;
pub use read::{Index, Root, parse_node, parse_root};

use crate::checksum::crc32c;
use crate::dir_entry::{HEAD_LEN, decode_rec_len};
use crate::error::{FormatError, Result, Where};
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The bytes in front of a root's entries.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawRootHead {
    dot_inode: U32,
    dot_rec_len: U16,
    dot_name_len: u8,
    dot_type: u8,
    dot_name: [u8; 4],
    dotdot_inode: U32,
    dotdot_rec_len: U16,
    dotdot_name_len: u8,
    dotdot_type: u8,
    dotdot_name: [u8; 4],
    reserved_zero: U32,
    hash_version: u8,
    info_length: u8,
    indirect_levels: u8,
    unused_flags: u8,
}

/// An entry; in the first one the hash is `limit | count << 16`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    hash: U32,
    block: U32,
}

/// Behind the last possible entry, with `metadata_csum`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawTail {
    reserved: U32,
    checksum: U32,
}

const ENTRY_LEN: usize = size_of::<RawEntry>();
const ROOT_HEAD_LEN: usize = size_of::<RawRootHead>();
/// An unused record over the whole block is in front of a node's entries.
const NODE_HEAD_LEN: usize = HEAD_LEN;
const TAIL_LEN: usize = size_of::<RawTail>();
const INFO_LENGTH: u8 = 8;
/// A block number is 28 bits wide; the rest was once meant for a fill count.
const BLOCK_MASK: u32 = 0x0fff_ffff;

const _: () = {
    assert!(ROOT_HEAD_LEN == 32 && NODE_HEAD_LEN == 8 && ENTRY_LEN == 8 && TAIL_LEN == 8);
    assert!(offset_of!(RawRootHead, dotdot_inode) == 12);
    assert!(offset_of!(RawRootHead, reserved_zero) == 24);
    assert!(offset_of!(RawRootHead, indirect_levels) == 30);
};

/// Returns the maximum of levels of nodes between root and leaves: one, or two with `large_dir`.
pub const fn max_levels(large_dir: bool) -> u8 {
    if large_dir { 2 } else { 1 }
}

/// The two shapes of an index block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexBlockKind {
    /// Block 0 of the directory.
    Root,
    /// Any index block below it.
    Node,
}

impl IndexBlockKind {
    /// Returns the kind of a block of a directory that has an index, by its number in the directory and its bytes; `None` for a leaf. A node
    /// begins with one unused record over the whole block, which in a leaf ends before its checksum.
    ///
    /// ```
    /// use ext4_format::htree::IndexBlockKind;
    /// assert_eq!(IndexBlockKind::of(0, &[]), Some(IndexBlockKind::Root));
    /// assert_eq!(IndexBlockKind::of(1, &[12, 0, 0, 0, 12, 0, 1, 2]), None);
    /// ```
    pub fn of(logical: u64, bytes: &[u8]) -> Option<Self> {
        if logical == 0 {
            return Some(Self::Root);
        }
        let [a, b, c, d, low, high, name_len, _] = *bytes.first_chunk()?;
        let len = decode_rec_len(u16::from_le_bytes([low, high]), bytes.len());
        let is_node = [a, b, c, d, name_len] == [0; 5] && len == bytes.len();
        is_node.then_some(Self::Node)
    }

    const fn head_len(self) -> usize {
        match self {
            Self::Root => ROOT_HEAD_LEN,
            Self::Node => NODE_HEAD_LEN,
        }
    }

    /// Returns the number of entries that a block holds, the first included.
    ///
    /// ```
    /// use ext4_format::htree::IndexBlockKind;
    /// assert_eq!(IndexBlockKind::Root.capacity(4096, false), 508);
    /// assert_eq!(IndexBlockKind::Node.capacity(4096, true), 510);
    /// ```
    pub const fn capacity(self, block_len: usize, has_csum: bool) -> usize {
        let tail = if has_csum { TAIL_LEN } else { 0 };
        let entries = block_len.saturating_sub(self.head_len() + tail) / ENTRY_LEN;
        // The limit is stored in 16 bits; a 64 KiB block stays far below.
        if entries > 0xffff { 0xffff } else { entries }
    }
}

/// An index entry: names of `hash` and above are in (or below) logical block `block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DxEntry {
    /// Least hash; 0 for a block's first entry, whatever its parent says.
    pub hash: u32,
    /// Logical block of the directory.
    pub block: u32,
}

const fn corrupt(what: &'static str, offset: usize) -> FormatError {
    FormatError::corrupt(what, Where::Buffer(offset as u32))
}

/// Returns the offset of the tail and the checksum: over head, entries in use, and the tail without its sum.
fn tail(block: &[u8], kind: IndexBlockKind, inode_seed: u32) -> Result<(usize, u32)> {
    let (limit, count) = limit_and_count(block, kind)?;
    let head = kind.head_len();
    let offset = head + usize::from(limit) * ENTRY_LEN;
    let used = block.get(..head + usize::from(count) * ENTRY_LEN);
    let (Some(used), Some(reserved)) = (used, block.get(offset..offset + 4)) else {
        return Err(corrupt("htree block without room for its checksum", head));
    };
    if block.len() < offset + TAIL_LEN {
        return Err(corrupt("htree block without room for its checksum", head));
    }
    Ok((
        offset,
        crc32c(crc32c(crc32c(inode_seed, used), reserved), &[0; 4]),
    ))
}

/// Writes the checksum. `inode_seed` is the directory's.
///
/// # Errors
/// `Corrupt` if limit or count leave no room for the checksum.
pub fn set_checksum(block: &mut [u8], kind: IndexBlockKind, inode_seed: u32) -> Result<()> {
    let (offset, sum) = tail(block, kind, inode_seed)?;
    if let Some(bytes) = block.get_mut(offset + 4..offset + TAIL_LEN) {
        bytes.copy_from_slice(&sum.to_le_bytes());
    }
    Ok(())
}

/// Checks the checksum.
///
/// # Errors
/// `Checksum`, or `Corrupt` if the block lacks room for one.
pub fn verify_checksum(block: &[u8], kind: IndexBlockKind, inode_seed: u32) -> Result<()> {
    let (offset, computed) = tail(block, kind, inode_seed)?;
    let stored = block
        .get(offset..)
        .and_then(|b| RawTail::ref_from_prefix(b).ok())
        .map_or(!computed, |(t, _)| t.checksum.get());
    if stored == computed {
        return Ok(());
    }
    let at = Where::Buffer(offset as u32 + 4);
    Err(FormatError::Checksum {
        what: "htree block",
        at,
        stored,
        computed,
    })
}

#[cfg(test)]
mod tests;
