//! The places of attributes, and writing them there.

use super::{
    END_LEN, ENTRY_LEN, HEADER_LEN, INODE_HEADER_LEN, MAGIC, RawEntry, RawHeader, XattrSet,
    corrupt, pad4, split_name,
};
use crate::error::{FormatError, Result};
use zerocopy::IntoBytes;

/// Returns the hash of one entry over the stored part of its name and its value. Kernels on machines whose `char` is
/// signed used to take name bytes as signed; both are valid, new ones are unsigned.
pub fn entry_hash(name: &[u8], value: &[u8], signed: bool) -> u32 {
    let named = name.iter().fold(0_u32, |h, &b| {
        h.rotate_left(5)
            ^ if signed {
                b as i8 as i32 as u32
            } else {
                b.into()
            }
    });
    value.chunks(4).fold(named, |h, chunk| {
        let mut word = [0; 4];
        for (w, b) in word.iter_mut().zip(chunk) {
            *w = *b;
        }
        h.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// An attribute on its way to disk.
struct Item<'a> {
    index: u8,
    rest: &'a [u8],
    value: &'a [u8],
}

impl Item<'_> {
    const fn space(&self) -> usize {
        pad4(ENTRY_LEN + self.rest.len()) + pad4(self.value.len())
    }
}

/// Writes entries upwards from `first` and values downwards from the end of `base`. The items fit.
fn write(base: &mut [u8], first: usize, items: &[Item<'_>], hashed: bool) -> Result<()> {
    let overflow = || FormatError::Unrepresentable("extended attributes larger than their space");
    let (mut at, mut top) = (first, base.len() & !3);
    for item in items {
        let from = top
            .checked_sub(pad4(item.value.len()))
            .ok_or_else(overflow)?;
        let raw = RawEntry {
            name_len: item.rest.len() as u8,
            name_index: item.index,
            value_offs: if item.value.is_empty() {
                0
            } else {
                from as u16
            }
            .into(),
            value_inum: 0.into(),
            value_size: (item.value.len() as u32).into(),
            hash: if hashed {
                entry_hash(item.rest, item.value, false)
            } else {
                0
            }
            .into(),
        };
        let behind_head = at + ENTRY_LEN;
        let parts = [
            (at, raw.as_bytes()),
            (behind_head, item.rest),
            (from, item.value),
        ];
        for (offset, bytes) in parts {
            let slot = base
                .get_mut(offset..offset + bytes.len())
                .ok_or_else(overflow)?;
            slot.copy_from_slice(bytes);
        }
        at += pad4(ENTRY_LEN + item.rest.len());
        top = from;
    }
    if at + END_LEN > top {
        Err(overflow())
    } else {
        Ok(())
    }
}

/// Picks, in the given order, the items that fit into `room`; returns (picked, left over).
fn pick<'a>(items: Vec<Item<'a>>, mut room: usize) -> (Vec<Item<'a>>, Vec<Item<'a>>) {
    items
        .into_iter()
        .partition(|item| match room.checked_sub(item.space()) {
            Some(rest) => {
                room = rest;
                true
            }
            None => false,
        })
}

/// In-inode space and block of a set, where it needs them.
pub type Placed = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Places a set as the kernel does: as many attributes as fit go into the inode, the rest into one block.
/// `inode_area_len` is the length of the space behind the inode's fixed part, possibly 0. The first vector is exactly
/// that long, the second a whole block with a reference count of 1 and no checksum yet
/// ([`set_checksum`](super::set_checksum)). `None` for an empty part.
///
/// # Errors
/// `Unrepresentable` when the set is too large for both: the caller's ENOSPC. Also for values in inodes (`ea_inode`).
pub fn place(set: &XattrSet, inode_area_len: usize, block_size: usize) -> Result<Placed> {
    if set.has_outside() {
        return Err(FormatError::Unrepresentable(
            "extended attributes with values in inodes",
        ));
    }
    let items = || -> Result<Vec<Item<'_>>> {
        set.iter()
            .map(|(name, value)| split_name(name).map(|(index, rest)| Item { index, rest, value }))
            .collect()
    };
    let inode_room = (inode_area_len & !3).saturating_sub(INODE_HEADER_LEN + END_LEN);
    let block_room = block_size.saturating_sub(HEADER_LEN + END_LEN);
    let space = |items: &[Item<'_>]| items.iter().map(Item::space).sum::<usize>();

    let (mut inner, mut outer) = pick(items()?, inode_room);
    if space(&outer) > block_room {
        // Short names first may waste the inode's room; try the largest first.
        let mut by_size = items()?;
        by_size.sort_by_key(|item| core::cmp::Reverse(item.space()));
        (inner, outer) = pick(by_size, inode_room);
        if space(&outer) > block_room {
            return Err(FormatError::Unrepresentable(
                "extended attributes larger than their space",
            ));
        }
    }
    let mut area = None;
    if !inner.is_empty() {
        let mut bytes = vec![0; inode_area_len];
        let (magic, body) = bytes.split_at_mut(INODE_HEADER_LEN);
        magic.copy_from_slice(&MAGIC.to_le_bytes());
        // The kernel hashes only the block, which may be shared.
        write(body, 0, &inner, false)?;
        area = Some(bytes);
    }
    let mut block = None;
    if !outer.is_empty() {
        // The kernel finds names in a block by this order.
        outer.sort_by_key(|item| (item.index, item.rest.len(), item.rest));
        let mut bytes = vec![0; block_size];
        write(&mut bytes, HEADER_LEN, &outer, true)?;
        let header = RawHeader {
            magic: MAGIC.into(),
            refcount: 1.into(),
            blocks: 1.into(),
            hash: block_hash(&outer).into(),
            checksum: 0.into(),
            reserved: [0.into(); 3],
        };
        // write has checked that the block is longer than its header.
        header
            .write_to_prefix(&mut bytes)
            .map_err(|_| corrupt("block length", 0))?;
        block = Some(bytes);
    }
    Ok((area, block))
}

/// Returns the hash of a whole block, by which equal blocks are found; 0 (an entry's hash is 0) means "do not share".
fn block_hash(items: &[Item<'_>]) -> u32 {
    let mut hash = 0_u32;
    for item in items {
        match entry_hash(item.rest, item.value, false) {
            0 => return 0,
            h => hash = hash.rotate_left(16) ^ h,
        }
    }
    hash
}
