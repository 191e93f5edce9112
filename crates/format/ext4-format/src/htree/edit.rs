//! Index blocks written, and changed in place.

use super::read::limit_and_count;
use super::{BLOCK_MASK, DxEntry, INFO_LENGTH, IndexBlockKind, RawEntry, RawRootHead, corrupt};
use crate::dir_entry::{MIN_REC_LEN, RawHead, encode_rec_len};
use crate::error::{FormatError, Result};
use crate::types::{FileType, InodeNr};
use zerocopy::{FromBytes, IntoBytes};

/// The fields of a new root besides its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootInit {
    /// The directory itself.
    pub own: InodeNr,
    /// Its parent.
    pub parent: InodeNr,
    /// Whether the volume records types in directory entries.
    pub filetype: bool,
    /// Stored hash version, 0 to 2 ([`HashVersion::stored`](crate::hash::HashVersion::stored)).
    pub hash_version: u8,
    /// Levels of nodes between root and leaves.
    pub levels: u8,
}

fn entries_mut(block: &mut [u8], kind: IndexBlockKind, count: usize) -> Option<&mut [RawEntry]> {
    let bytes = block.get_mut(kind.head_len()..)?;
    Some(
        <[RawEntry]>::mut_from_prefix_with_elems(bytes, count)
            .ok()?
            .0,
    )
}

fn set_count(first: &mut RawEntry, limit: u16, count: usize) {
    // Every caller has count <= limit, a u16.
    first.hash = (u32::from(limit) | (count as u32) << 16).into();
}

/// Writes entries behind a head that is already there, and zeroes the rest.
fn write_entries(
    block: &mut [u8],
    kind: IndexBlockKind,
    has_csum: bool,
    entries: impl IntoIterator<Item = DxEntry>,
) -> Result<usize> {
    let limit = kind.capacity(block.len(), has_csum);
    if let Some(bytes) = block.get_mut(kind.head_len()..) {
        bytes.fill(0);
    }
    let raw = entries_mut(block, kind, limit).ok_or(corrupt("htree block length", 0))?;
    let mut count = 0;
    for entry in entries {
        let slot = raw.get_mut(count).ok_or(FormatError::Unrepresentable(
            "too many entries in an htree block",
        ))?;
        if entry.block > BLOCK_MASK {
            return Err(FormatError::Unrepresentable(
                "htree block number above 28 bits",
            ));
        }
        *slot = RawEntry {
            hash: entry.hash.into(),
            block: entry.block.into(),
        };
        count += 1;
    }
    match raw.first_mut() {
        Some(first) if count > 0 => set_count(first, limit as u16, count),
        _ => return Err(FormatError::Unrepresentable("htree block without entries")),
    }
    Ok(count)
}

/// Makes a block a root with these entries (the first one's hash is not stored) and returns their
/// number. The checksum is set by [`set_checksum`](super::set_checksum).
///
/// # Errors
/// `Unrepresentable` for no entries, too many, or a block number above 28 bits.
pub fn write_root(
    block: &mut [u8],
    init: &RootInit,
    has_csum: bool,
    entries: impl IntoIterator<Item = DxEntry>,
) -> Result<usize> {
    let kind = if init.filetype {
        FileType::Directory as u8
    } else {
        0
    };
    let dotdot_len = block.len().saturating_sub(MIN_REC_LEN);
    let head = RawRootHead {
        dot_inode: init.own.0.into(),
        dot_rec_len: (MIN_REC_LEN as u16).into(),
        dot_name_len: 1,
        dot_type: kind,
        dot_name: *b".\0\0\0",
        dotdot_inode: init.parent.0.into(),
        dotdot_rec_len: encode_rec_len(dotdot_len, block.len()).into(),
        dotdot_name_len: 2,
        dotdot_type: kind,
        dotdot_name: *b"..\0\0",
        reserved_zero: 0.into(),
        hash_version: init.hash_version,
        info_length: INFO_LENGTH,
        indirect_levels: init.levels,
        unused_flags: 0,
    };
    head.write_to_prefix(block)
        .map_err(|_| corrupt("htree root length", 0))?;
    write_entries(block, IndexBlockKind::Root, has_csum, entries)
}

/// Makes a block a node with these entries and returns their number.
///
/// # Errors
/// As [`write_root`].
pub fn write_node(
    block: &mut [u8],
    has_csum: bool,
    entries: impl IntoIterator<Item = DxEntry>,
) -> Result<usize> {
    let rec_len = encode_rec_len(block.len(), block.len()).into();
    let head = RawHead {
        inode: 0.into(),
        rec_len,
        name_len: 0,
        file_type: 0,
    };
    head.write_to_prefix(block)
        .map_err(|_| corrupt("htree node length", 0))?;
    write_entries(block, IndexBlockKind::Node, has_csum, entries)
}

/// Inserts an entry behind position `after`; `Ok(false)` when the block is full.
///
/// # Errors
/// `Corrupt` for an impossible count, `Unrepresentable` for an entry out of order or range.
pub fn insert_after(
    block: &mut [u8],
    kind: IndexBlockKind,
    after: usize,
    entry: DxEntry,
) -> Result<bool> {
    let (limit, count) = limit_and_count(block, kind)?;
    if count == limit {
        return Ok(false);
    }
    let (at, count) = (after + 1, usize::from(count) + 1);
    let raw = entries_mut(block, kind, count).ok_or(corrupt("htree block length", 0))?;
    let ordered = at < count
        && (after == 0 || raw.get(after).is_some_and(|e| e.hash.get() <= entry.hash))
        && (at == count - 1 || raw.get(at).is_some_and(|e| entry.hash <= e.hash.get()));
    if !ordered || entry.block > BLOCK_MASK {
        return Err(FormatError::Unrepresentable(
            "htree entry out of order or range",
        ));
    }
    // `ordered` says at < count, and raw has count elements.
    raw.copy_within(at..count - 1, at + 1);
    if let Some(slot) = raw.get_mut(at) {
        *slot = RawEntry {
            hash: entry.hash.into(),
            block: entry.block.into(),
        };
    }
    if let Some(first) = raw.first_mut() {
        set_count(first, limit, count);
    }
    Ok(true)
}

/// Changes the number of levels a root states (when the tree grows).
pub fn set_levels(root: &mut [u8], levels: u8) {
    if let Ok((head, _)) = RawRootHead::mut_from_prefix(root) {
        head.indirect_levels = levels;
    }
}

/// Changes the parent a root's ".." names (when the directory moves).
pub fn set_parent(root: &mut [u8], parent: InodeNr) {
    if let Ok((head, _)) = RawRootHead::mut_from_prefix(root) {
        head.dotdot_inode = parent.0.into();
    }
}
