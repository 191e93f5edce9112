//! Extent trees: which blocks a file's logical blocks are.
//!
//! A node is a 12-byte header and up to `max` 12-byte entries, extents in a leaf, child pointers
//! in an index node. The root is the 60 bytes of `i_block`; other nodes are blocks, whose last
//! bytes hold a checksum when `metadata_csum` is on. The key of a child pointer equals the first
//! key of the child: the kernel refuses anything else.
//!
//! [`Node::parse`] checks everything and costs a pass over the entries; [`Node::view`] checks the
//! header only, for a node that was parsed before. Neither allocates. Writing is in place.

use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};
use crate::types::BlockNr;
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The deepest tree: a root of depth 5 covers 2^32 blocks at the smallest block size.
pub const MAX_DEPTH: u16 = 5;
/// The longest initialised extent, in blocks.
pub const MAX_INIT_LEN: u32 = 1 << 15;
/// The longest unwritten extent, in blocks.
pub const MAX_UNWRITTEN_LEN: u32 = MAX_INIT_LEN - 1;
/// Bytes of a root node in an inode.
pub const ROOT_LEN: usize = 60;
/// One past the last logical block a file can have (the last number itself is reserved).
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
    /// One past the last logical block.
    pub const fn end(&self) -> u64 {
        self.logical as u64 + self.len as u64
    }

    /// The physical block of a logical one in this extent.
    pub fn map(&self, logical: u32) -> Option<BlockNr> {
        let within = logical.checked_sub(self.logical)?;
        (within < self.len).then(|| BlockNr(self.physical.0.saturating_add(within.into())))
    }

    /// Both as one, when `next` follows this logically and physically, in the same state, and the
    /// sum is not too long.
    pub fn merge(&self, next: &Self) -> Option<Self> {
        let len = self.len.checked_add(next.len)?;
        let adjacent = self.end() == u64::from(next.logical)
            && self.physical.0.checked_add(self.len.into()) == Some(next.physical.0)
            && self.unwritten == next.unwritten;
        (adjacent && len <= self.max_len()).then_some(Self { len, ..*self })
    }

    /// The longest extent of this state.
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

/// How many entries a node of `bytes_len` bytes holds: 4 in an inode, 340 in 4 KiB. Room for the
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
        } else if header.depth > MAX_DEPTH {
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

/// What a node must satisfy because of where it stands.
///
/// ```
/// use ext4_format::extent::NodeRules;
/// let root = NodeRules::root(1 << 20);
/// let child = root.child(5, 1000, Some(2000));
/// assert_eq!((child.depth, child.first, child.end), (Some(5), Some(1000), 2000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRules {
    /// The depth it must have: one less than its parent's. `None` for a root.
    pub depth: Option<u16>,
    /// Its first key: the parent's key for it. `None` for a root.
    pub first: Option<u32>,
    /// No logical block at or after this: the next sibling's key.
    pub end: u64,
    /// Blocks of the volume.
    pub blocks_count: u64,
}

impl NodeRules {
    /// Rules of a root.
    pub const fn root(blocks_count: u64) -> Self {
        Self {
            depth: None,
            first: None,
            end: LOGICAL_END,
            blocks_count,
        }
    }

    /// Rules of a child of depth `depth` under key `first`; `next` is the key after it in the same
    /// node, if there is one.
    #[must_use]
    pub fn child(&self, depth: u16, first: u32, next: Option<u32>) -> Self {
        let end = next.map_or(self.end, u64::from);
        Self {
            depth: Some(depth),
            first: Some(first),
            end,
            ..*self
        }
    }
}

/// The extents of a leaf; a view of its bytes.
#[derive(Clone, Copy)]
pub struct Leaf<'a> {
    raw: &'a [RawExtent],
}

/// The child pointers of an index node; a view of its bytes.
#[derive(Clone, Copy)]
pub struct IndexNode<'a> {
    raw: &'a [RawIndex],
    depth: u16,
}

/// A node of an extent tree.
///
/// ```
/// use ext4_format::{BlockNr, extent::{self, Extent, Node, NodeRules}};
/// let mut root = [0; 60];
/// let e = Extent { logical: 4, len: 2, physical: BlockNr(900), unwritten: false };
/// extent::write_leaf(&mut root, 0, [e])?;
/// let Node::Leaf(leaf) = Node::parse(&root, &NodeRules::root(1000))? else { panic!() };
/// assert_eq!(leaf.find(5), Some(e));
/// assert_eq!(leaf.find(6), None);
/// # Ok::<(), ext4_format::FormatError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Node<'a> {
    /// Depth 0.
    Leaf(Leaf<'a>),
    /// Depth 1 and more.
    Index(IndexNode<'a>),
}

impl<'a> Node<'a> {
    /// A view with only the header checked: for bytes that passed [`Self::parse`] before.
    ///
    /// # Errors
    /// `Corrupt` for a bad header.
    pub fn view(bytes: &'a [u8]) -> Result<Self> {
        let header = ExtentHeader::parse(bytes)?;
        let (body, count) = (
            bytes.get(HEADER_LEN..).unwrap_or(&[]),
            usize::from(header.entries),
        );
        let short = corrupt("extent node length", HEADER_LEN);
        Ok(if header.depth == 0 {
            let (raw, _) =
                <[RawExtent]>::ref_from_prefix_with_elems(body, count).map_err(|_| short)?;
            Self::Leaf(Leaf { raw })
        } else {
            let (raw, _) =
                <[RawIndex]>::ref_from_prefix_with_elems(body, count).map_err(|_| short)?;
            Self::Index(IndexNode {
                raw,
                depth: header.depth,
            })
        })
    }

    /// A view with every entry checked: order, overlap, range, and that the node fits its place.
    ///
    /// # Errors
    /// `Corrupt` for a broken rule.
    pub fn parse(bytes: &'a [u8], rules: &NodeRules) -> Result<Self> {
        let node = Self::view(bytes)?;
        if rules.depth.is_some_and(|d| d != node.depth()) {
            return Err(corrupt(
                "extent node depth against its parent",
                offset_of!(RawHeader, depth),
            ));
        }
        let first = match node {
            Self::Leaf(leaf) => {
                leaf.check(rules)?;
                leaf.get(0).map(|e| e.logical)
            }
            Self::Index(index) => {
                index.check(rules)?;
                index.get(0).map(|e| e.logical)
            }
        };
        if first.is_some() && rules.first.is_some() && first != rules.first {
            return Err(corrupt(
                "extent node's first key against its parent",
                HEADER_LEN,
            ));
        }
        Ok(node)
    }

    /// Levels below this node.
    pub const fn depth(&self) -> u16 {
        match self {
            Self::Leaf(_) => 0,
            Self::Index(index) => index.depth,
        }
    }
}

impl<'a> Leaf<'a> {
    fn check(&self, rules: &NodeRules) -> Result<()> {
        let mut free_from = 0;
        for (i, e) in self.iter().enumerate() {
            let last = e.physical.0.saturating_add(e.len.into());
            let what = if e.len == 0 {
                "extent length"
            } else if u64::from(e.logical) < free_from {
                "extent order or overlap"
            } else if e.end() > rules.end {
                "extent beyond its node's range"
            } else if e.physical.0 == 0 || last > rules.blocks_count {
                "extent beyond the volume"
            } else {
                free_from = e.end();
                continue;
            };
            return Err(corrupt(what, HEADER_LEN + i * ENTRY_LEN));
        }
        Ok(())
    }

    /// Number of extents.
    pub const fn len(&self) -> usize {
        self.raw.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The `i`th extent.
    pub fn get(&self, i: usize) -> Option<Extent> {
        self.raw.get(i).map(RawExtent::decode)
    }

    /// All extents in logical order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Extent> + DoubleEndedIterator + 'a {
        self.raw.iter().map(RawExtent::decode)
    }

    /// How many extents begin at or before `logical`: the one that may hold it is the last of
    /// these, and this is where an extent beginning there would be inserted.
    pub fn search(&self, logical: u32) -> usize {
        self.raw.partition_point(|e| e.logical.get() <= logical)
    }

    /// The extent that holds a logical block.
    pub fn find(&self, logical: u32) -> Option<Extent> {
        let e = self.get(self.search(logical).checked_sub(1)?)?;
        (u64::from(logical) < e.end()).then_some(e)
    }
}

impl<'a> IndexNode<'a> {
    fn check(&self, rules: &NodeRules) -> Result<()> {
        if self.raw.is_empty() {
            return Err(corrupt(
                "extent index node without entries",
                offset_of!(RawHeader, entries),
            ));
        }
        let mut last = None;
        for (i, e) in self.iter().enumerate() {
            let what = if last.is_some_and(|l| e.logical <= l) {
                "extent index order"
            } else if u64::from(e.logical) >= rules.end {
                "extent index beyond its node's range"
            } else if e.child.0 == 0 || e.child.0 >= rules.blocks_count {
                "extent index beyond the volume"
            } else {
                last = Some(e.logical);
                continue;
            };
            return Err(corrupt(what, HEADER_LEN + i * ENTRY_LEN));
        }
        Ok(())
    }

    /// Number of children.
    pub const fn len(&self) -> usize {
        self.raw.len()
    }

    /// Whether there is none (never after [`Node::parse`]).
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Levels below this node, at least 1.
    pub const fn depth(&self) -> u16 {
        self.depth
    }

    /// The `i`th child pointer.
    pub fn get(&self, i: usize) -> Option<ExtentIndex> {
        self.raw.get(i).map(RawIndex::decode)
    }

    /// All child pointers in logical order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ExtentIndex> + DoubleEndedIterator + 'a {
        self.raw.iter().map(RawIndex::decode)
    }

    /// Position of the child that may hold `logical`; the first one when all keys are above it.
    pub fn search(&self, logical: u32) -> usize {
        self.raw
            .partition_point(|e| e.logical.get() <= logical)
            .saturating_sub(1)
    }

    /// The rules of the `i`th child.
    pub fn child_rules(&self, i: usize, rules: &NodeRules) -> Option<NodeRules> {
        let next = self.get(i + 1).map(|e| e.logical);
        Some(rules.child(self.depth.checked_sub(1)?, self.get(i)?.logical, next))
    }
}

impl core::fmt::Debug for Leaf<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl core::fmt::Debug for IndexNode<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

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
/// caller's: use [`Leaf::search`].
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

/// Offset of a block's checksum, behind the last possible entry, and its value.
fn tail(bytes: &[u8], inode_seed: u32) -> Result<(usize, u32)> {
    let header = ExtentHeader::parse(bytes)?;
    let offset = HEADER_LEN + usize::from(header.max) * ENTRY_LEN;
    match bytes.get(..offset) {
        Some(covered) if offset + 4 <= bytes.len() => Ok((offset, crc32c(inode_seed, covered))),
        _ => Err(corrupt(
            "extent block without room for its checksum",
            offset,
        )),
    }
}

/// Writes the checksum of a node in a block (a root has none: the inode's covers it).
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extent(logical: u32, len: u32, physical: u64) -> Extent {
        Extent {
            logical,
            len,
            physical: BlockNr(physical),
            unwritten: false,
        }
    }

    fn rule(bytes: &[u8], rules: &NodeRules) -> &'static str {
        match Node::parse(bytes, rules) {
            Err(FormatError::Corrupt { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn room_for_the_checksum_at_every_block_size() {
        for size in (10..=16).map(|b| 1_usize << b) {
            assert!(HEADER_LEN + capacity(size) * ENTRY_LEN + 4 <= size);
        }
        assert_eq!((capacity(ROOT_LEN), capacity(4096)), (4, 340));
    }

    #[test]
    fn rules_are_named() {
        let root = NodeRules::root(1000);
        let mut n = [0; ROOT_LEN];
        write_leaf(&mut n, 0, [extent(0, 4, 10), extent(3, 1, 20)]).unwrap();
        assert_eq!(rule(&n, &root), "extent order or overlap");
        write_leaf(&mut n, 0, [extent(0, 4, 997)]).unwrap();
        assert_eq!(rule(&n, &root), "extent beyond the volume");
        assert_eq!(
            rule(&n, &root.child(1, 0, None)),
            "extent node depth against its parent"
        );
        write_leaf(&mut n, 0, [extent(8, 4, 10)]).unwrap();
        assert_eq!(
            rule(&n, &root.child(0, 8, Some(10))),
            "extent beyond its node's range"
        );
        assert_eq!(
            rule(&n, &root.child(0, 7, None)),
            "extent node's first key against its parent"
        );
        write_index(
            &mut n,
            1,
            0,
            [ExtentIndex {
                logical: 0,
                child: BlockNr(1000),
            }],
        )
        .unwrap();
        assert_eq!(rule(&n, &root), "extent index beyond the volume");
        write_index(&mut n, 1, 0, []).unwrap();
        assert_eq!(rule(&n, &root), "extent index node without entries");
        n[6] = 6;
        assert_eq!(rule(&n, &root), "extent tree depth");
        assert!(write_leaf(&mut n, 0, (0..5).map(|i| extent(i * 9, 1, 10))).is_err());
        assert!(write_leaf(&mut n, 0, [extent(0, 32_769, 10)]).is_err());
        assert!(write_leaf(&mut n, 0, [extent(0, 1, 1 << 48)]).is_err());
    }

    fn tree_leaf() -> impl Strategy<Value = Vec<Extent>> {
        let one = (0..50_u32, 1..40_000_u32, 1..1_u64 << 40, any::<bool>());
        proptest::collection::vec(one, 0..80).prop_map(|parts| {
            let mut next = 0;
            let mut out = Vec::new();
            for (gap, len, physical, unwritten) in parts {
                let e = Extent {
                    logical: next + gap,
                    len: 1,
                    physical: BlockNr(physical),
                    unwritten,
                };
                let e = Extent {
                    len: len.min(e.max_len()),
                    ..e
                };
                next = e.end() as u32;
                out.push(e);
            }
            out
        })
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), magic: bool, at in 0..20_usize) {
            if let (true, Some(m)) = (magic, bytes.get_mut(..8)) {
                m.copy_from_slice(&[0x0a, 0xf3, m[2] & 7, 0, 12, 0, m[6] & 3, 0]);
            }
            let _ = Node::parse(&bytes, &NodeRules::root(1 << 40));
            let _ = verify_tail(&bytes, 1);
            let _ = remove_entry(&mut bytes.clone(), at);
            let _ = insert_extent(&mut bytes.clone(), at, &extent(1, 1, 1));
            let _ = set_extent(&mut bytes.clone(), at, &extent(1, 1, 1));
            let _ = set_tail(&mut bytes, 1);
        }

        #[test]
        fn leaf_round_trip(extents in tree_leaf(), probe in any::<u32>(), pick in any::<proptest::sample::Index>()) {
            let mut block = [0xff; 1024];
            prop_assert_eq!(write_leaf(&mut block, 7, extents.iter().copied()).unwrap(), extents.len());
            set_tail(&mut block, 3).unwrap();
            verify_tail(&block, 3).unwrap();
            let Node::Leaf(leaf) = Node::parse(&block, &NodeRules::root(1 << 48)).unwrap() else { panic!() };
            prop_assert_eq!(&leaf.iter().collect::<Vec<_>>(), &extents);
            for probe in extents.iter().flat_map(|e| [e.logical, e.end() as u32]).chain([probe]) {
                let slow = extents.iter().find(|e| e.map(probe).is_some()).copied();
                prop_assert_eq!(leaf.find(probe), slow);
            }
            if !extents.is_empty() {
                // Taken out and put back, the block is the same.
                let (at, before) = (pick.index(extents.len()), block);
                remove_entry(&mut block, at).unwrap();
                prop_assert!(insert_extent(&mut block, at, &extents[at]).unwrap());
                prop_assert_eq!(block, before);
            }
        }
    }
}
