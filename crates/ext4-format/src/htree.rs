//! The index of a large directory: a tree of (hash, block) entries over linear leaf blocks.
//!
//! Block 0 is the root; it holds "." and ".." in front of its entries. Nodes below it look like
//! one unused directory record. The first entry of a root or node has no hash: its place holds the
//! limit and the count, and it stands for "everything below the second entry's hash". A hash with
//! its low bit set says that names of the even hash before it continue in this block.

use crate::checksum::crc32c;
use crate::dir_entry::{MIN_REC_LEN, decode_rec_len, encode_rec_len};
use crate::error::{FormatError, Result, Where};
use crate::types::{FileType, InodeNr};
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What stands in front of a root's entries.
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

/// What stands in front of a node's entries: an unused record over the whole block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawNodeHead {
    inode: U32,
    rec_len: U16,
    name_len: u8,
    file_type: u8,
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
const NODE_HEAD_LEN: usize = size_of::<RawNodeHead>();
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

/// The most levels of nodes between root and leaves: one, or two with `large_dir`.
pub const fn max_levels(large_dir: bool) -> u8 {
    if large_dir { 2 } else { 1 }
}

/// Which of the two block shapes a buffer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Block 0 of the directory.
    Root,
    /// Any index block below it.
    Node,
}

impl Kind {
    const fn head_len(self) -> usize {
        match self {
            Self::Root => ROOT_HEAD_LEN,
            Self::Node => NODE_HEAD_LEN,
        }
    }

    /// How many entries a block holds, the first included.
    ///
    /// ```
    /// use ext4_format::htree::Kind;
    /// assert_eq!(Kind::Root.capacity(4096, false), 508);
    /// assert_eq!(Kind::Node.capacity(4096, true), 510);
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
    fn parse(block: &'a [u8], kind: Kind, has_csum: bool, dir_blocks: u32) -> Result<Self> {
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

    /// Number of entries, at least 1.
    pub const fn len(&self) -> usize {
        self.raw.len()
    }

    /// Never: a parsed index has at least its first entry.
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Whether another entry would not fit.
    pub const fn is_full(&self) -> bool {
        self.raw.len() >= self.limit as usize
    }

    /// The `i`th entry.
    pub fn get(&self, i: usize) -> Option<DxEntry> {
        let raw = self.raw.get(i)?;
        let hash = if i == 0 { 0 } else { raw.hash.get() };
        Some(DxEntry {
            hash,
            block: raw.block.get() & BLOCK_MASK,
        })
    }

    /// All entries, in hash order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = DxEntry> + DoubleEndedIterator + 'a {
        self.raw.iter().enumerate().map(|(i, raw)| DxEntry {
            hash: if i == 0 { 0 } else { raw.hash.get() },
            block: raw.block.get() & BLOCK_MASK,
        })
    }

    /// Position of the entry under which names of `hash` begin: the last whose hash is not above.
    pub fn search(&self, hash: u32) -> usize {
        let above_first = self.raw.get(1..).unwrap_or(&[]);
        above_first.partition_point(|e| e.hash.get() <= hash)
    }

    /// Whether names of `hash` may go on in the entry after `i`.
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

/// What a new root says besides its entries.
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
    if head.hash_version > 5 {
        return Err(FormatError::Incompatible(format!(
            "directory hash version {}",
            head.hash_version
        )));
    }
    Ok(Root {
        own: InodeNr(head.dot_inode.get()),
        parent: InodeNr(head.dotdot_inode.get()),
        hash_version: head.hash_version,
        levels: head.indirect_levels,
        index: Index::parse(block, Kind::Root, has_csum, dir_blocks)?,
    })
}

/// Reads and checks a node below the root.
///
/// # Errors
/// `Corrupt` for a broken rule.
pub fn parse_node(block: &[u8], has_csum: bool, dir_blocks: u32) -> Result<Index<'_>> {
    match RawNodeHead::ref_from_prefix(block) {
        Ok((head, _))
            if head.inode == 0
                && head.name_len == 0
                && decode_rec_len(head.rec_len.get(), block.len()) == block.len() =>
        {
            Index::parse(block, Kind::Node, has_csum, dir_blocks)
        }
        _ => Err(corrupt("htree node head", 0)),
    }
}

/// Limit and count, with the count inside the limit and both inside the block.
fn limit_and_count(block: &[u8], kind: Kind) -> Result<(u16, u16)> {
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

fn entries_mut(block: &mut [u8], kind: Kind, count: usize) -> Option<&mut [RawEntry]> {
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
    kind: Kind,
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
/// number. The checksum is set by [`set_checksum`].
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
    write_entries(block, Kind::Root, has_csum, entries)
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
    let head = RawNodeHead {
        inode: 0.into(),
        rec_len,
        name_len: 0,
        file_type: 0,
    };
    head.write_to_prefix(block)
        .map_err(|_| corrupt("htree node length", 0))?;
    write_entries(block, Kind::Node, has_csum, entries)
}

/// Inserts an entry behind position `after`; `Ok(false)` when the block is full.
///
/// # Errors
/// `Corrupt` for an impossible count, `Unrepresentable` for an entry out of order or range.
pub fn insert_after(block: &mut [u8], kind: Kind, after: usize, entry: DxEntry) -> Result<bool> {
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

/// Offset of the tail and the checksum: over head, entries in use, and the tail without its sum.
fn tail(block: &[u8], kind: Kind, inode_seed: u32) -> Result<(usize, u32)> {
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
/// `Corrupt` when limit or count leave no room for it.
pub fn set_checksum(block: &mut [u8], kind: Kind, inode_seed: u32) -> Result<()> {
    let (offset, sum) = tail(block, kind, inode_seed)?;
    if let Some(bytes) = block.get_mut(offset + 4..offset + TAIL_LEN) {
        bytes.copy_from_slice(&sum.to_le_bytes());
    }
    Ok(())
}

/// Checks the checksum.
///
/// # Errors
/// `Checksum`, or `Corrupt` when there is no room for one.
pub fn verify_checksum(block: &[u8], kind: Kind, inode_seed: u32) -> Result<()> {
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INIT: RootInit = RootInit {
        own: InodeNr(12),
        parent: InodeNr(2),
        filetype: true,
        hash_version: 1,
        levels: 1,
    };

    fn dx(hash: u32, block: u32) -> DxEntry {
        DxEntry { hash, block }
    }

    #[test]
    fn a_root_is_also_a_linear_block() {
        let mut block = [0xee; 1024];
        write_root(&mut block, &INIT, true, [dx(0, 1)]).unwrap();
        let names: Vec<_> = crate::dir_entry::entries(&block)
            .map(|e| e.unwrap().name.to_vec())
            .collect();
        assert_eq!(names, [b".".to_vec(), b"..".to_vec()]);
        write_node(&mut block, true, [dx(0, 1)]).unwrap();
        assert_eq!(crate::dir_entry::entries(&block).count(), 0);
    }

    #[test]
    fn rules_are_named() {
        let mut good = [0; 1024];
        write_root(&mut good, &INIT, true, [dx(0, 1), dx(8, 2), dx(6, 3)]).unwrap();
        let rule = |b: &[u8], blocks| match parse_root(b, true, false, blocks) {
            Err(FormatError::Corrupt { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(rule(&good, 9), "htree hash order");
        write_root(&mut good, &INIT, true, [dx(0, 1), dx(6, 2)]).unwrap();
        assert_eq!(rule(&good, 2), "htree block beyond the directory");
        for (offset, value, what) in [
            (0, 0, "htree root's \".\""),
            (17, 0, "htree root's \"..\""),
            (24, 1, "htree root info"),
            (30, 2, "htree depth"),
            (31, 1, "htree root flags"),
            (32, 1, "htree count against its limit"),
            (32, 100, "htree limit against block size"),
        ] {
            let mut bad = good;
            bad[offset] = value;
            assert_eq!(rule(&bad, 9), what);
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(
            mut block in proptest::collection::vec(any::<u8>(), 0..128),
            csum: bool, after in 0..20_usize, fix: bool,
        ) {
            if fix && block.len() == 127 {
                block.push(0);
                let _ = write_node(&mut block, csum, [dx(0, 1)]);
            }
            for kind in [Kind::Root, Kind::Node] {
                let _ = verify_checksum(&block, kind, 1);
                let _ = set_checksum(&mut block.clone(), kind, 1);
                let _ = insert_after(&mut block.clone(), kind, after, dx(5, 1));
            }
            let _ = parse_root(&block, csum, true, 100);
            let _ = parse_node(&block, csum, 100);
        }

        #[test]
        fn inserts_keep_order(
            hashes in proptest::collection::vec(any::<u32>(), 1..80),
            csum: bool, root: bool,
        ) {
            let mut block = [0; 512];
            let kind = if root { Kind::Root } else { Kind::Node };
            if root {
                write_root(&mut block, &INIT, csum, [dx(0, 1)]).unwrap();
            } else {
                write_node(&mut block, csum, [dx(0, 1)]).unwrap();
            }
            let view = |block: &[u8; 512]| -> Vec<DxEntry> {
                if root {
                    parse_root(block, csum, false, 1000).unwrap().index.iter().collect()
                } else {
                    parse_node(block, csum, 1000).unwrap().iter().collect()
                }
            };
            let mut model = vec![dx(0, 1)];
            for (i, hash) in hashes.into_iter().enumerate() {
                let after = model.iter().rposition(|e| e.hash <= hash).unwrap();
                let entry = dx(hash, i as u32 + 2);
                let done = insert_after(&mut block, kind, after, entry).unwrap();
                prop_assert_eq!(done, model.len() < kind.capacity(512, csum));
                if done {
                    model.insert(after + 1, entry);
                }
                prop_assert_eq!(&view(&block), &model);
            }
            if csum {
                set_checksum(&mut block, kind, 5).unwrap();
                verify_checksum(&block, kind, 5).unwrap();
                prop_assert!(verify_checksum(&block, kind, 6).is_err());
            }
        }
    }
}
