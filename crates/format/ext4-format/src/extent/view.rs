//! Reading nodes: views of their bytes, checked now or before.

use super::{
    ENTRY_LEN, Extent, ExtentHeader, ExtentIndex, HEADER_LEN, LOGICAL_END, MAX_SALVAGED_DEPTH,
    RawExtent, RawHeader, RawIndex, corrupt,
};
use crate::error::Result;
use core::mem::offset_of;
use zerocopy::FromBytes;

/// Rules that follow from a node's place in its tree.
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
    /// Returns a view with only the header checked: for bytes that passed [`Self::parse`] before.
    ///
    /// # Errors
    /// `Corrupt` for a bad header.
    pub fn view(bytes: &'a [u8]) -> Result<Self> {
        Self::below(bytes, ExtentHeader::parse(bytes)?)
    }

    /// Returns a view with only the header checked, also of a tree of up to [`MAX_SALVAGED_DEPTH`] levels.
    ///
    /// # Errors
    /// `Corrupt` for a bad header.
    pub fn salvage(bytes: &'a [u8]) -> Result<Self> {
        Self::below(
            bytes,
            ExtentHeader::parse_within(bytes, MAX_SALVAGED_DEPTH)?,
        )
    }

    fn below(bytes: &'a [u8], header: ExtentHeader) -> Result<Self> {
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

    /// Returns a view with every entry checked: order, overlap, range, and that the node fits its place.
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

    /// Returns the number of extents.
    pub const fn len(&self) -> usize {
        self.raw.len()
    }

    /// Returns whether the leaf has no extents.
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Returns the `i`th extent.
    pub fn get(&self, i: usize) -> Option<Extent> {
        self.raw.get(i).map(RawExtent::decode)
    }

    /// Returns all extents in logical order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Extent> + DoubleEndedIterator + 'a {
        self.raw.iter().map(RawExtent::decode)
    }

    /// Returns the number of extents that begin at or before `logical`: the one that may hold it is the last of
    /// these, and a new extent at `logical` would be inserted behind it.
    pub fn search(&self, logical: u32) -> usize {
        self.raw.partition_point(|e| e.logical.get() <= logical)
    }

    /// Returns the extent that holds a logical block.
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

    /// Returns the number of children.
    pub const fn len(&self) -> usize {
        self.raw.len()
    }

    /// Returns whether the node has no entries (never after [`Node::parse`]).
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Levels below this node, at least 1.
    pub const fn depth(&self) -> u16 {
        self.depth
    }

    /// Returns the `i`th child pointer.
    pub fn get(&self, i: usize) -> Option<ExtentIndex> {
        self.raw.get(i).map(RawIndex::decode)
    }

    /// Returns all child pointers in logical order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ExtentIndex> + DoubleEndedIterator + 'a {
        self.raw.iter().map(RawIndex::decode)
    }

    /// Returns the position of the child that may hold `logical`; the first one when all keys are above it.
    pub fn search(&self, logical: u32) -> usize {
        self.raw
            .partition_point(|e| e.logical.get() <= logical)
            .saturating_sub(1)
    }

    /// Returns the rules of the `i`th child.
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
