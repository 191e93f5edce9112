//! The mapping of an inode of a sound image.

use ext4_format::extent::Extent;
use ext4_format::geometry::Geometry;
use ext4_format::map_walk::{MapNode, MapVisitor, OnDamage, walk};
use ext4_format::{BlockNr, FormatError, Where};

/// The mapping of an inode: its extents, and its own blocks.
///
/// ```
/// use ext4_format::extent::{self, Extent};
/// use ext4_format::layout::{Layout, LayoutParams};
/// use ext4_format::{BlockNr, FormatError, inode::flags};
/// use ext4_image::Mapping;
/// let geo = Layout::new(&LayoutParams::for_size(64 << 20))?.geometry;
/// let mut root = [0; 60];
/// extent::write_leaf(&mut root, 0, [Extent { logical: 4, len: 2, physical: BlockNr(900), unwritten: false }])?;
/// let no_nodes = |_| Err(FormatError::Unrepresentable("the root has no children"));
/// let mapping = Mapping::read(&geo, flags::EXTENTS, &root, no_nodes)?;
/// assert_eq!(mapping.places().last(), Some((5, BlockNr(901))));
/// # Ok::<(), FormatError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    /// The extents in logical order. Adjacent ones are joined.
    pub extents: Vec<Extent>,
    /// Blocks of the mapping itself.
    pub nodes: Vec<BlockNr>,
}

impl Mapping {
    /// Reads the mapping of an inode, given its flags and the 60 bytes of its root; `read` returns the bytes of a block.
    ///
    /// # Errors
    /// The errors of `read`, and of a mapping that breaks a rule.
    pub fn read<E: From<FormatError>>(
        geo: &Geometry,
        inode_flags: u32,
        root: &[u8],
        read: impl FnMut(BlockNr) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        let mut reader = Reader {
            mapping: Self::default(),
            blocks_count: geo.blocks_count,
            read,
        };
        walk(&mut reader, geo, inode_flags, root)?;
        Ok(reader.mapping)
    }

    /// Appends an extent, or makes the last one longer.
    pub fn push(&mut self, next: Extent) {
        match self.extents.last_mut() {
            Some(last) if last.merge(&next).is_some() => last.len += next.len,
            _ => self.extents.push(next),
        }
    }

    /// Returns the number of mapped blocks.
    pub fn blocks(&self) -> u64 {
        self.extents
            .iter()
            .map(|extent| u64::from(extent.len))
            .sum()
    }

    /// Returns the logical number and the place of each block, in logical order.
    pub fn places(&self) -> impl Iterator<Item = (u32, BlockNr)> + '_ {
        let blocks = self.extents.iter().flat_map(|extent| extent.blocks());
        blocks.map(|block| (block.logical, block.physical))
    }
}

struct Reader<R> {
    mapping: Mapping,
    blocks_count: u64,
    read: R,
}

impl<E: From<FormatError>, R: FnMut(BlockNr) -> Result<Vec<u8>, E>> MapVisitor for Reader<R> {
    type Error = E;
    type Block = Vec<u8>;

    fn node(&mut self, node: &MapNode) -> Result<Option<Vec<u8>>, E> {
        self.mapping.nodes.push(node.block);
        // A mapping that leads to itself ends here.
        if self.mapping.nodes.len() as u64 > self.blocks_count {
            let place = Where::Block(node.block, 0);
            return Err(FormatError::corrupt("a mapping without end", place).into());
        }
        (self.read)(node.block).map(Some)
    }

    fn extent(&mut self, extent: Extent, _end: u64) -> Result<(), E> {
        self.mapping.push(extent);
        Ok(())
    }

    fn damage(&mut self, _: Option<&MapNode>, error: FormatError) -> Result<OnDamage, E> {
        Err(error.into())
    }
}

/// Returns the place of a written block of a file whose extents are in logical order; `None` in a hole and in an unwritten extent.
///
/// ```
/// use ext4_format::{BlockNr, extent::Extent};
/// let extents = [Extent { logical: 4, len: 2, physical: BlockNr(900), unwritten: false }];
/// assert_eq!(ext4_image::place_of(&extents, 5), Some(BlockNr(901)));
/// assert_eq!(ext4_image::place_of(&extents, 6), None);
/// ```
pub fn place_of(extents: &[Extent], logical: u32) -> Option<BlockNr> {
    let next = extents.partition_point(|extent| extent.logical <= logical);
    let extent = extents.get(next.checked_sub(1)?)?;
    let within = logical - extent.logical;
    let there = within < extent.len && !extent.unwritten;
    there.then(|| BlockNr(extent.physical.0 + u64::from(within)))
}
