//! The mapping of an inode: read as far as possible, and rewritten if it is damaged.

use crate::error::Error;
use crate::session::Session;
use ext4_format::extent::{self, Extent, ExtentHeader, Node, NodeRules};
use ext4_format::geometry::Geometry;
use ext4_format::inode::flags;
use ext4_format::map_walk::{self, MapNode, MapVisitor, OnDamage};
use ext4_format::remapping::MapSink;
use ext4_format::{BlockNr, FormatError, InodeNr, indirect};
use ext4_image::ExtentOrder;
use std::collections::BTreeSet;
use std::ops::Range;

/// Count of invalid numbers up to which a block of addresses is accepted even if they outnumber the valid ones, as in
/// e2fsck for an inode.
const MOST_WILD: u32 = 11;

/// Place of the depth in a node's header.
const DEPTH: Range<usize> = 6..8;

/// Result of reading a mapping.
#[derive(Debug, Default)]
pub(crate) struct MapRead {
    /// The runs that obey the rules, in logical order.
    pub(crate) extents: Vec<Extent>,
    /// Blocks of the mapping itself.
    pub(crate) nodes: Vec<BlockNr>,
    /// Nodes whose checksum alone is wrong.
    pub(crate) unsealed: Vec<BlockNr>,
    /// The first other damage: the mapping must be rewritten.
    pub(crate) problem: Option<String>,
}

impl MapRead {
    fn tell(&mut self, what: impl Into<String>) {
        self.problem.get_or_insert_with(|| what.into());
    }

    /// Returns the end of the mapped blocks: the last one plus one.
    pub(crate) fn end(&self) -> u64 {
        self.extents.last().map_or(0, Extent::end)
    }

    /// Returns the place of a block.
    pub(crate) fn at(&self, block: u32) -> Option<BlockNr> {
        self.extents.iter().find_map(|extent| extent.map(block))
    }

    /// Removes the blocks from a logical one on; returns their runs.
    pub(crate) fn cut(&mut self, end: u64) -> Vec<(BlockNr, u64)> {
        let mut gone = Vec::new();
        for extent in &mut self.extents {
            let keep = end.saturating_sub(extent.logical.into());
            let keep = keep.min(extent.len.into()) as u32; // at most the length
            if keep < extent.len {
                let first = BlockNr(extent.physical.0 + u64::from(keep));
                gone.push((first, u64::from(extent.len - keep)));
            }
            extent.len = keep;
        }
        self.extents.retain(|extent| extent.len > 0);
        gone
    }

    /// Returns the number of mapped blocks, as a journal's superblock has it.
    pub(crate) fn log_len(&self) -> u32 {
        self.blocks().min(u32::MAX.into()) as u32
    }

    /// Returns the number of mapped blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.extents.iter().map(|e| u64::from(e.len)).sum()
    }
}

/// Reads the mapping of an inode.
pub(crate) fn read(
    session: &Session<'_, '_>,
    inode_flags: u32,
    root: &[u8],
    seed: Option<u32>,
) -> Result<MapRead, Error> {
    let mut reader = Reader {
        session,
        seed,
        tree: inode_flags & flags::EXTENTS != 0,
        seen: BTreeSet::new(),
        map: MapRead::default(),
        order: ExtentOrder::default(),
    };
    if let Ok(header) = ExtentHeader::parse(root)
        && reader.tree
    {
        reader.check_room(&header, root.len());
    }
    map_walk::walk(&mut reader, &session.geo, inode_flags, root)?;
    Ok(reader.map)
}

/// Returns whether a run is inside the volume.
fn is_within(geo: &Geometry, run: &Extent) -> bool {
    let end = run.physical.0.checked_add(run.len.into());
    run.physical.0 >= geo.first_data_block && end.is_some_and(|end| end <= geo.blocks_count)
}

struct Reader<'s, 'a, 'd> {
    session: &'s Session<'a, 'd>,
    /// Seed of the checksums of the nodes; `None` without checksums.
    seed: Option<u32>,
    /// Whether the mapping is an extent tree.
    tree: bool,
    seen: BTreeSet<BlockNr>,
    map: MapRead,
    order: ExtentOrder,
}

impl Reader<'_, '_, '_> {
    /// Keeps a run inside the volume. If it meets structures of the groups, only those blocks are shared, and get copies.
    fn keep(&mut self, extent: Extent, end: u64) {
        let valid = extent.len > 0 && extent.end() <= end && is_within(&self.session.geo, &extent);
        if !valid || !self.order.push(&mut self.map.extents, extent) {
            self.map.tell("an extent out of order or beyond the volume");
        }
    }

    /// Notes a header whose maximum of entries leaves much of its node unused: e2fsck takes it for no header.
    fn check_room(&mut self, header: &ExtentHeader, len: usize) {
        if !header.fills(len) {
            self.map.tell("a node with too small a maximum of entries");
        }
    }

    /// Sets the depth of a node whose other bytes obey the rules of its place: e2fsck reads such a node, and Linux refuses it.
    fn mend_depth(&mut self, bytes: &mut [u8], rules: &NodeRules) {
        let Some(depth) = rules.depth else {
            return;
        };
        let right = depth.to_le_bytes();
        if bytes.get(DEPTH).is_none_or(|had| had == right) {
            return;
        }
        let mut mended = bytes.to_vec();
        mended[DEPTH].copy_from_slice(&right);
        if Node::parse(&mended, rules).is_ok() {
            bytes.copy_from_slice(&mended);
            self.map.tell("a node of another depth");
        }
    }

    /// Returns whether a node is one: a node of a tree with a right checksum, or one that obeys the rules.
    fn is_tree_node(&mut self, block: BlockNr, bytes: &[u8], rules: &NodeRules) -> bool {
        let sealed = |seed| extent::verify_tail(bytes, seed).is_ok();
        if self.seed.is_none_or(sealed) {
            return true;
        }
        if Node::parse(bytes, rules).is_ok() {
            self.map.unsealed.push(block);
            return true;
        }
        let known = self.is_mostly_sound(bytes, rules);
        self.map.tell(if known {
            "a node with damaged entries"
        } else {
            "a node that cannot be read"
        });
        known
    }

    /// Returns whether more than half of the entries of a node are in order and lead into the volume.
    fn is_mostly_sound(&self, bytes: &[u8], rules: &NodeRules) -> bool {
        let Ok(node) = Node::salvage(bytes) else {
            return false;
        };
        let geo = &self.session.geo;
        let (mut at, mut all, mut sound) = (u64::from(rules.first.unwrap_or(0)), 0, 0);
        let mut count = |logical: u32, end: u64, inside: bool| {
            all += 1;
            if inside && at <= logical.into() && end <= rules.end {
                (at, sound) = (end, sound + 1);
            }
        };
        match node {
            Node::Leaf(leaf) => leaf
                .iter()
                .for_each(|run| count(run.logical, run.end(), run.len > 0 && is_within(geo, &run))),
            Node::Index(index) => index.iter().for_each(|entry| {
                let inside = geo.is_valid_data_range(entry.child, 1);
                count(entry.logical, u64::from(entry.logical) + 1, inside);
            }),
        }
        rules.depth.is_none_or(|depth| depth == node.depth()) && sound * 2 > all
    }

    /// Returns whether an address block is one: a block of wild numbers was something else.
    fn is_address_block(&mut self, bytes: &[u8]) -> bool {
        let (mut good, mut wild) = (0, 0);
        for number in indirect::mapped(bytes, self.session.geo.blocks_count) {
            *if number.is_ok() { &mut good } else { &mut wild } += 1;
        }
        let known = wild <= good || wild <= MOST_WILD;
        if !known {
            self.map.tell("a block that is not a valid indirect block");
        }
        known
    }
}

impl MapVisitor for Reader<'_, '_, '_> {
    type Error = Error;
    type Block = Vec<u8>;

    fn node(&mut self, node: &MapNode) -> Result<Option<Vec<u8>>, Error> {
        let block = node.block;
        if !self.session.geo.is_valid_data_range(block, 1) || !self.seen.insert(block) {
            self.map.tell(match node.rules {
                Some(_) => "an extent index that leads astray",
                None => "an address block that leads astray",
            });
            return Ok(None);
        }
        let mut bytes = self.session.read(block)?;
        if let Some(rules) = &node.rules {
            self.mend_depth(&mut bytes, rules);
        }
        let known = match &node.rules {
            Some(rules) => self.is_tree_node(block, &bytes, rules),
            None => self.is_address_block(&bytes),
        };
        if known {
            self.map.nodes.push(block);
        }
        Ok(known.then_some(bytes))
    }

    fn parsed(&mut self, _: &MapNode, bytes: &[u8]) -> Result<bool, Error> {
        let header = ExtentHeader::parse(bytes)?;
        self.check_room(&header, bytes.len());
        if header.entries == 0 {
            self.map.tell("a node without entries");
        }
        Ok(true)
    }

    fn extent(&mut self, extent: Extent, end: u64) -> Result<(), Error> {
        if self.tree {
            self.keep(extent, end);
            return Ok(());
        }
        for here in extent.blocks() {
            let longer = self.map.extents.last().and_then(|last| last.merge(&here));
            match (longer, self.map.extents.last_mut()) {
                (Some(longer), Some(last)) if is_within(&self.session.geo, &here) => *last = longer,
                _ => self.keep(here, end),
            }
        }
        Ok(())
    }

    fn damage(&mut self, _: Option<&MapNode>, error: FormatError) -> Result<OnDamage, Error> {
        self.map.tell(error.to_string());
        Ok(OnDamage::Salvage)
    }
}

/// Blocks for the nodes of a rewritten mapping: those of the old one first.
pub(crate) struct NodePool {
    pub(crate) blocks: Vec<BlockNr>,
    used: u64,
    fresh: Vec<BlockNr>,
}

impl NodePool {
    pub(crate) const fn new(blocks: Vec<BlockNr>) -> Self {
        Self {
            blocks,
            used: 0,
            fresh: Vec::new(),
        }
    }

    fn take(&mut self, session: &mut Session<'_, '_>) -> Option<BlockNr> {
        let block = match self.blocks.pop() {
            Some(block) => block,
            None => {
                let block = session.allocate()?;
                self.fresh.push(block);
                block
            }
        };
        self.used += 1;
        Some(block)
    }
}

/// Writes a mapping of these extents into `root`; returns its blocks without the data, or `None` if there is not
/// enough room. Unused blocks of the pool are free.
pub(crate) fn build(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    generation: u32,
    with_extents: bool,
    extents: &[Extent],
    mut pool: NodePool,
    root: &mut [u8],
) -> Result<Option<u64>, Error> {
    let seed = session.seed(ino, generation);
    let block_size = session.geo.block_size;
    let tree = with_extents.then_some(seed);
    let mut sink = Sink {
        session,
        pool: &mut pool,
    };
    let built = ext4_format::remapping::build(&mut sink, block_size, tree, extents, root)?;
    for block in pool.blocks.drain(..) {
        session.free(block);
    }
    if !built {
        for block in pool.fresh {
            session.free(block);
        }
        return Ok(None);
    }
    Ok(Some(pool.used))
}

/// Gives a mapping its blocks, and writes them.
struct Sink<'s, 'a, 'd> {
    session: &'s mut Session<'a, 'd>,
    pool: &'s mut NodePool,
}

impl MapSink for Sink<'_, '_, '_> {
    type Error = Error;

    fn take(&mut self) -> Option<BlockNr> {
        self.pool.take(self.session)
    }

    fn write(&mut self, block: BlockNr, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.session.write(block, bytes)?)
    }
}
