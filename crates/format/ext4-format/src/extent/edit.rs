//! Nodes written, and changed in place.

use super::{
    ENTRY_LEN, Extent, ExtentHeader, ExtentIndex, HEADER_LEN, MAGIC, MAX_DEPTH, RawHeader,
    capacity, corrupt,
};
use crate::error::{FormatError, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Writes header and entries into `bytes` and zeroes the rest.
fn write_node<T: IntoBytes + Immutable>(
    bytes: &mut [u8],
    depth: u16,
    generation: u32,
    entries: impl Iterator<Item = Result<T>>,
) -> Result<usize> {
    // 64 KiB hold 5460 entries: 16 bits.
    let max = capacity(bytes.len());
    let Some((head, body)) = bytes.split_at_mut_checked(HEADER_LEN) else {
        return Err(corrupt("extent node length", 0));
    };
    let mut count = 0;
    for entry in entries {
        let slot = body.get_mut(count * ENTRY_LEN..(count + 1) * ENTRY_LEN);
        let (Some(slot), true) = (slot, count < max) else {
            return Err(FormatError::Unrepresentable(
                "too many entries in an extent node",
            ));
        };
        slot.copy_from_slice(entry?.as_bytes());
        count += 1;
    }
    if let Some(rest) = body.get_mut(count * ENTRY_LEN..) {
        rest.fill(0);
    }
    let header = RawHeader {
        magic: MAGIC.into(),
        entries: (count as u16).into(),
        max: (max as u16).into(),
        depth: depth.into(),
        generation: generation.into(),
    };
    head.copy_from_slice(header.as_bytes());
    Ok(count)
}

/// Makes `bytes` (a block, or the 60 bytes of a root) a leaf with these extents, in the order
/// given, and returns their number.
///
/// # Errors
/// `Unrepresentable` for too many extents or one with an impossible length or block.
pub fn write_leaf(
    bytes: &mut [u8],
    generation: u32,
    extents: impl IntoIterator<Item = Extent>,
) -> Result<usize> {
    write_node(
        bytes,
        0,
        generation,
        extents.into_iter().map(|e| e.encode()),
    )
}

/// Makes `bytes` an index node of depth `depth` (1 to 5) with these children.
///
/// # Errors
/// `Unrepresentable` for too many children, an impossible block or depth.
pub fn write_index(
    bytes: &mut [u8],
    depth: u16,
    generation: u32,
    children: impl IntoIterator<Item = ExtentIndex>,
) -> Result<usize> {
    if depth == 0 || depth > MAX_DEPTH {
        return Err(FormatError::Unrepresentable("extent tree depth"));
    }
    write_node(
        bytes,
        depth,
        generation,
        children.into_iter().map(|e| e.encode()),
    )
}

/// Makes room for (`grow`) or closes the gap of entry `at`, and counts it.
fn shift(bytes: &mut [u8], at: usize, grow: bool) -> Result<bool> {
    let header = ExtentHeader::parse(bytes)?;
    let count = usize::from(header.entries);
    if (grow && at > count) || (!grow && at >= count) {
        return Err(FormatError::Unrepresentable(
            "position beyond an extent node's entries",
        ));
    }
    if grow && header.entries == header.max {
        return Ok(false);
    }
    // parse has checked that `max` entries fit into the buffer, and count < max when growing.
    let offset = |i: usize| HEADER_LEN + i * ENTRY_LEN;
    if grow {
        bytes.copy_within(offset(at)..offset(count), offset(at + 1));
    } else {
        bytes.copy_within(offset(at + 1)..offset(count), offset(at));
        if let Some(last) = bytes.get_mut(offset(count - 1)..offset(count)) {
            last.fill(0);
        }
    }
    if let Ok((raw, _)) = RawHeader::mut_from_prefix(bytes) {
        raw.entries = if grow {
            header.entries + 1
        } else {
            header.entries - 1
        }
        .into();
    }
    Ok(true)
}

fn put(bytes: &mut [u8], at: usize, raw: &[u8]) {
    let offset = HEADER_LEN + at * ENTRY_LEN;
    if let Some(slot) = bytes.get_mut(offset..offset + ENTRY_LEN) {
        slot.copy_from_slice(raw);
    }
}

/// Inserts an extent at position `at`; `Ok(false)` when the leaf is full. The order is the
/// caller's: use [`Leaf::search`](super::Leaf::search).
///
/// # Errors
/// `Corrupt` for a bad header, `Unrepresentable` for an impossible extent or position.
pub fn insert_extent(bytes: &mut [u8], at: usize, extent: &Extent) -> Result<bool> {
    let raw = extent.encode()?;
    let done = shift(bytes, at, true)?;
    if done {
        put(bytes, at, raw.as_bytes());
    }
    Ok(done)
}

/// Inserts a child pointer at position `at`; `Ok(false)` when the node is full.
///
/// # Errors
/// As [`insert_extent`].
pub fn insert_index(bytes: &mut [u8], at: usize, child: &ExtentIndex) -> Result<bool> {
    let raw = child.encode()?;
    let done = shift(bytes, at, true)?;
    if done {
        put(bytes, at, raw.as_bytes());
    }
    Ok(done)
}

/// Replaces the extent at position `at`.
///
/// # Errors
/// As [`insert_extent`].
pub fn set_extent(bytes: &mut [u8], at: usize, extent: &Extent) -> Result<()> {
    let raw = extent.encode()?;
    if at >= usize::from(ExtentHeader::parse(bytes)?.entries) {
        return Err(FormatError::Unrepresentable(
            "position beyond an extent node's entries",
        ));
    }
    put(bytes, at, raw.as_bytes());
    Ok(())
}

/// Takes the entry at position `at` out of a leaf or an index node.
///
/// # Errors
/// `Corrupt` for a bad header, `Unrepresentable` for a position not in use.
pub fn remove_entry(bytes: &mut [u8], at: usize) -> Result<()> {
    shift(bytes, at, false).map(drop)
}
