//! Reading index blocks.

use super::{
    BLOCK_MASK, DxEntry, ENTRY_LEN, INFO_LENGTH, IndexBlockKind, RawEntry, RawRootHead, corrupt,
    max_levels,
};
use crate::dir_entry::{MIN_REC_LEN, RawHead, decode_rec_len};
use crate::error::{FormatError, Result};
use crate::types::InodeNr;
use core::mem::offset_of;
use zerocopy::FromBytes;

/// The checked entries of a root or node; a view of the block.
#[derive(Clone, Copy)]
pub struct Index<'a> {
    raw: &'a [RawEntry],
    limit: u16,
}

impl core::fmt::Debug for Index<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Index<'a> {
    /// Reads limit and count, then checks order and block numbers in one pass.
    fn parse(
        block: &'a [u8],
        kind: IndexBlockKind,
        has_csum: bool,
        dir_blocks: u32,
    ) -> Result<Self> {
        let head = kind.head_len();
        let (limit, count) = limit_and_count(block, kind)?;
        if usize::from(limit) != kind.capacity(block.len(), has_csum) {
            return Err(corrupt("htree limit against block size", head));
        }
        let raw = block
            .get(head..)
            .and_then(|b| <[RawEntry]>::ref_from_prefix_with_elems(b, count.into()).ok())
            .ok_or(corrupt("htree count against block size", head))?
            .0;
        let index = Self { raw, limit };
        let mut last = 0;
        for (i, entry) in index.iter().enumerate() {
            if entry.hash < last {
                return Err(corrupt("htree hash order", head + i * ENTRY_LEN));
            }
            if entry.block == 0 || entry.block >= dir_blocks {
                return Err(corrupt(
                    "htree block beyond the directory",
                    head + i * ENTRY_LEN + 4,
                ));
            }
            last = entry.hash;
        }
        Ok(index)
    }

    /// Returns the number of entries, at least 1.
    pub const fn len(&self) -> usize {
        self.raw.len()
    }

    /// Returns false: a parsed index has at least its first entry.
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Returns whether another entry would not fit.
    pub const fn is_full(&self) -> bool {
        self.raw.len() >= self.limit as usize
    }

    /// Returns the `i`th entry.
    pub fn get(&self, i: usize) -> Option<DxEntry> {
        let raw = self.raw.get(i)?;
        let hash = if i == 0 { 0 } else { raw.hash.get() };
        Some(DxEntry {
            hash,
            block: raw.block.get() & BLOCK_MASK,
        })
    }

    /// Returns all entries, in hash order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = DxEntry> + DoubleEndedIterator + 'a {
        self.raw.iter().enumerate().map(|(i, raw)| DxEntry {
            hash: if i == 0 { 0 } else { raw.hash.get() },
            block: raw.block.get() & BLOCK_MASK,
        })
    }

    /// Returns each entry with the hashes that it covers: from the first number to below the second. The index covers those from `low` to
    /// below `end`. Entries that are out of order exceed these bounds.
    pub fn ranges(&self, low: u32, end: u64) -> impl Iterator<Item = (DxEntry, u32, u64)> + 'a {
        let starts = self.iter().skip(1).map(|next| next.hash.into());
        let ends = starts.chain([end]);
        let entries = self.iter().zip(ends).enumerate();
        entries.map(move |(i, (entry, to))| (entry, if i == 0 { low } else { entry.hash }, to))
    }

    /// Returns the position of the entry under which names of `hash` begin: the last whose hash is not above.
    pub fn search(&self, hash: u32) -> usize {
        let above_first = self.raw.get(1..).unwrap_or(&[]);
        above_first.partition_point(|e| e.hash.get() <= hash)
    }

    /// Returns whether names of `hash` may continue in the entry after `i`.
    pub fn continues(&self, i: usize, hash: u32) -> bool {
        self.get(i + 1)
            .is_some_and(|next| next.hash & !1 == hash & !1)
    }
}

/// A checked root block.
///
/// ```
/// use ext4_format::{InodeNr, htree::{self, DxEntry, RootInit}};
/// let mut block = [0; 1024];
/// let init = RootInit { own: InodeNr(12), parent: InodeNr(2), filetype: true, hash_version: 1, levels: 0 };
/// let leaves = [DxEntry { hash: 0, block: 1 }, DxEntry { hash: 0x8000_0000, block: 2 }];
/// htree::write_root(&mut block, &init, false, leaves)?;
/// let root = htree::parse_root(&block, false, false, 3)?;
/// assert_eq!(root.index.get(root.index.search(0x9000_0000)).unwrap().block, 2);
/// # Ok::<(), ext4_format::FormatError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Root<'a> {
    /// The directory itself, as "." says.
    pub own: InodeNr,
    /// Its parent, as ".." says.
    pub parent: InodeNr,
    /// Stored hash version, for [`DirHasher::new`](crate::hash::DirHasher::new).
    pub hash_version: u8,
    /// Levels of nodes between root and leaves.
    pub levels: u8,
    /// The entries.
    pub index: Index<'a>,
}

/// Reads and checks a root. `dir_blocks` is the directory's size in blocks.
///
/// # Errors
/// `Corrupt` for a broken rule, `Incompatible` for a hash version not known.
pub fn parse_root(
    block: &[u8],
    has_csum: bool,
    large_dir: bool,
    dir_blocks: u32,
) -> Result<Root<'_>> {
    let Ok((head, _)) = RawRootHead::ref_from_prefix(block) else {
        return Err(corrupt("htree root length", 0));
    };
    let dot_ok = head.dot_inode != 0
        && usize::from(head.dot_rec_len.get()) == MIN_REC_LEN
        && head.dot_name_len == 1
        && head.dot_name[0] == b'.';
    let dotdot_len = decode_rec_len(head.dotdot_rec_len.get(), block.len());
    let dotdot_ok = head.dotdot_inode != 0
        && dotdot_len == block.len() - MIN_REC_LEN
        && head.dotdot_name_len == 2
        && head.dotdot_name.starts_with(b"..");
    let broken = if !dot_ok {
        Some(("htree root's \".\"", 0))
    } else if !dotdot_ok {
        Some(("htree root's \"..\"", MIN_REC_LEN))
    } else if head.reserved_zero != 0 || head.info_length != INFO_LENGTH {
        Some(("htree root info", offset_of!(RawRootHead, reserved_zero)))
    } else if head.unused_flags & 1 != 0 {
        Some(("htree root flags", offset_of!(RawRootHead, unused_flags)))
    } else if head.indirect_levels > max_levels(large_dir) {
        Some(("htree depth", offset_of!(RawRootHead, indirect_levels)))
    } else {
        None
    };
    if let Some((what, offset)) = broken {
        return Err(corrupt(what, offset));
    }
    match head.hash_version {
        0..=2 => {}
        // Unsigned hashes have separate numbers in memory only. With another hash, existing names would not be found,
        // and could be created twice.
        3..=5 => {
            let offset = offset_of!(RawRootHead, hash_version);
            return Err(corrupt("htree root's hash version", offset));
        }
        other => {
            return Err(FormatError::Incompatible(format!(
                "directory hash version {other}"
            )));
        }
    }
    Ok(Root {
        own: InodeNr(head.dot_inode.get()),
        parent: InodeNr(head.dotdot_inode.get()),
        hash_version: head.hash_version,
        levels: head.indirect_levels,
        index: Index::parse(block, IndexBlockKind::Root, has_csum, dir_blocks)?,
    })
}

/// Reads and checks a node below the root.
///
/// # Errors
/// `Corrupt` for a broken rule.
pub fn parse_node(block: &[u8], has_csum: bool, dir_blocks: u32) -> Result<Index<'_>> {
    match RawHead::ref_from_prefix(block) {
        Ok((head, _))
            if head.inode == 0
                && head.name_len == 0
                && decode_rec_len(head.rec_len.get(), block.len()) == block.len() =>
        {
            Index::parse(block, IndexBlockKind::Node, has_csum, dir_blocks)
        }
        _ => Err(corrupt("htree node head", 0)),
    }
}

/// Returns the limit and count, with the count inside the limit and both inside the block.
pub(super) fn limit_and_count(block: &[u8], kind: IndexBlockKind) -> Result<(u16, u16)> {
    let head = kind.head_len();
    let Some(Ok((first, _))) = block.get(head..).map(RawEntry::ref_from_prefix) else {
        return Err(corrupt("htree block length", head));
    };
    let (limit, count) = (first.hash.get() as u16, (first.hash.get() >> 16) as u16);
    if count == 0 || count > limit {
        return Err(corrupt("htree count against its limit", head));
    }
    if usize::from(limit) > kind.capacity(block.len(), false) {
        return Err(corrupt("htree limit against block size", head));
    }
    Ok((limit, count))
}
