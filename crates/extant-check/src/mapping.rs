//! The blocks of an inode: extent trees and block maps, walked whole, each block claimed once.

use crate::ahead::{self, Piece};
use crate::claim::Claims;
use crate::report::{FindingPlace, Findings, Rule};
use crate::volume::Volume;
use ext4_format::extent::{self, Extent, ExtentHeader, IndexNode, Node, NodeRules};
use ext4_format::indirect;
use ext4_format::inode::flags;
use ext4_format::{BlockNr, FormatError, InodeNr};

/// A run of blocks of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) logical: u32,
    pub(crate) len: u32,
    pub(crate) physical: BlockNr,
}

/// Result of a walk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapped {
    /// Blocks that hold data.
    pub(crate) data: u64,
    /// Clusters that hold data; blocks, without `bigalloc`.
    pub(crate) clusters: u64,
    /// Blocks of the mapping itself.
    pub(crate) nodes: u64,
    /// End of the mapped blocks: the last one plus one.
    pub(crate) end: u64,
    /// Blocks that were allocated and not written.
    pub(crate) unwritten: u64,
    /// End of the written blocks: the last one plus one.
    pub(crate) written_end: u64,
    /// Whether the walk met damage, so that the counts above mean nothing.
    pub(crate) damaged: bool,
    /// The runs in logical order, if requested.
    pub(crate) runs: Vec<Run>,
}

/// A step of a mapping walk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A node of the tree or block of the map: its place, its height above the data, the first logical block below
    /// it.
    Node {
        block: BlockNr,
        height: u32,
        logical: u64,
    },
    /// Data.
    Run(Extent),
}

/// Told each step; the walk ends when it returns false.
type Watch<'c> = &'c mut dyn FnMut(Step) -> bool;

/// A walk through the mapping of one inode.
pub(crate) struct Walker<'c, 'd> {
    volume: &'c Volume<'d>,
    findings: &'c Findings,
    /// `None` for a walk that only reads.
    claims: Option<&'c Claims>,
    place: FindingPlace,
    /// Seed of the checksums of the inode's blocks; `None` without checksums.
    seed: Option<u32>,
    with_runs: bool,
    watch: Option<Watch<'c>>,
    /// Whether the watch wants no more.
    ended: bool,
    /// The last claimed cluster, because two extents of one file may share it.
    last_cluster: Option<u64>,
    /// The last logical cluster that is mapped.
    last_logical: Option<u64>,
    mapped: Mapped,
}

impl<'c, 'd> Walker<'c, 'd> {
    pub(crate) fn new(
        volume: &'c Volume<'d>,
        findings: &'c Findings,
        claims: Option<&'c Claims>,
        ino: InodeNr,
        seed: Option<u32>,
    ) -> Self {
        Self {
            volume,
            findings,
            claims,
            place: FindingPlace::inode(ino),
            seed,
            with_runs: false,
            watch: None,
            ended: false,
            last_cluster: None,
            last_logical: None,
            mapped: Mapped::default(),
        }
    }

    /// Has the runs kept.
    pub(crate) fn with_runs(mut self, yes: bool) -> Self {
        self.with_runs = yes;
        self
    }

    /// Has each step told.
    pub(crate) fn watched(mut self, watch: Watch<'c>) -> Self {
        self.watch = Some(watch);
        self
    }

    fn step(&mut self, step: Step) {
        if let Some(watch) = &mut self.watch
            && !self.ended
        {
            self.ended = !watch(step);
        }
    }

    fn tell(&mut self, rule: Rule, place: FindingPlace, error: &FormatError) {
        self.mapped.damaged = true;
        self.findings.add_error(rule, place, error);
    }

    /// Claims a block of the mapping itself.
    fn claim_node(&mut self, block: BlockNr, height: u32, logical: u64) -> bool {
        self.mapped.nodes += 1;
        self.step(Step::Node {
            block,
            height,
            logical,
        });
        if self.ended {
            return false;
        }
        let Some(claims) = self.claims else {
            // Not more nodes than blocks: a loop ends.
            return self.mapped.nodes <= self.volume.geo.blocks_count;
        };
        let cluster = self.volume.geo.cluster_of(block);
        claims.claim(cluster, cluster + 1, self.place, self.findings)
    }

    fn claim_data(&mut self, extent: &Extent) {
        self.step(Step::Run(*extent));
        let geo = &self.volume.geo;
        let len = u64::from(extent.len);
        let mut first = geo.cluster_of(extent.physical);
        let end = geo.cluster_of(BlockNr(extent.physical.0 + len - 1)) + 1;
        if geo.cluster_ratio > 1 && self.last_cluster == Some(first) {
            first += 1;
        }
        self.check_alignment(extent, geo.cluster_of(extent.physical));
        self.last_cluster = Some(end - 1);
        self.last_logical = Some((extent.end() - 1) / u64::from(geo.cluster_ratio));
        self.mapped.data += len;
        self.mapped.clusters += end - first;
        self.mapped.end = self.mapped.end.max(extent.end());
        if extent.unwritten {
            self.mapped.unwritten += len;
        } else {
            self.mapped.written_end = self.mapped.written_end.max(extent.end());
        }
        if let Some(claims) = self.claims.filter(|_| first < end) {
            let place = self.place.logical(extent.logical.into());
            claims.claim(first, end, place, self.findings);
        }
        if self.with_runs {
            self.mapped.runs.push(Run {
                logical: extent.logical,
                len: extent.len,
                physical: extent.physical,
            });
        }
    }

    /// Checks that the blocks of a logical cluster are in one cluster, each at its offset there.
    fn check_alignment(&mut self, extent: &Extent, cluster: u64) {
        let geo = &self.volume.geo;
        let continued = self.last_logical == Some(u64::from(extent.logical / geo.cluster_ratio));
        if geo.is_aligned(extent.logical, extent.physical)
            && (!continued || self.last_cluster == Some(cluster))
        {
            return;
        }
        let place = self.place.logical(extent.logical.into());
        self.findings
            .add(Rule::Extents, place.block(extent.physical), || {
                "not in the place of its cluster".into()
            });
    }

    /// Walks the mapping that an inode with `flags` has, from its root, which is in the inode.
    pub(crate) fn walk(self, flags: u32, root: &[u8]) -> Mapped {
        if flags & flags::EXTENTS != 0 {
            self.extents(root)
        } else {
            self.block_map(root)
        }
    }

    /// Walks an extent tree from its root.
    fn extents(mut self, root: &[u8]) -> Mapped {
        let rules = NodeRules::root(self.volume.geo.blocks_count);
        match Node::parse(root, &rules) {
            Ok(Node::Leaf(leaf)) => leaf.iter().for_each(|e| self.claim_data(&e)),
            Ok(Node::Index(index)) => self.children(index, &rules),
            Err(e) => self.tell(Rule::Extents, self.place, &e),
        }
        self.mapped
    }

    fn children(&mut self, index: IndexNode<'_>, rules: &NodeRules) {
        let volume = self.volume;
        let mut bytes = vec![0; volume.block_size()];
        for (i, child) in index.iter().enumerate() {
            let place = self.place.block(child.child);
            // A node that is claimed twice is not walked twice.
            if !self.claim_node(child.child, index.depth().into(), child.logical.into()) {
                self.mapped.damaged = true;
                continue;
            }
            if !volume.read_or_tell(child.child, &mut bytes, self.place, self.findings) {
                self.mapped.damaged = true;
                continue;
            }
            let Some(rules) = index.child_rules(i, rules) else {
                continue;
            };
            match Node::parse(&bytes, &rules) {
                Ok(_) if !has_room(&bytes) => {
                    self.mapped.damaged = true;
                    self.findings.add(Rule::Extents, place, || {
                        "room for fewer entries than there is".into()
                    });
                }
                Ok(_) if ExtentHeader::parse(&bytes).is_ok_and(|header| header.entries == 0) => {
                    self.mapped.damaged = true;
                    self.findings
                        .add(Rule::Extents, place, || "no entries".into());
                }
                Ok(node) => {
                    if let Some(seed) = self.seed
                        && let Err(e) = extent::verify_tail(&bytes, seed)
                    {
                        self.findings.add_error(Rule::ExtentChecksum, place, &e);
                    }
                    match node {
                        Node::Leaf(leaf) => leaf.iter().for_each(|e| self.claim_data(&e)),
                        Node::Index(index) => self.children(index, &rules),
                    }
                }
                Err(e) => self.tell(Rule::Extents, place, &e),
            }
        }
    }

    /// Walks a block map from its root.
    fn block_map(mut self, root: &[u8]) -> Mapped {
        let per = u64::from(indirect::per_block(self.volume.geo.block_size));
        self.direct(root, indirect::DIRECT, 0, self.place);
        let mut logical = u64::from(indirect::DIRECT);
        for depth in 1..=3 {
            let slot = indirect::DIRECT + depth - 1;
            match indirect::get(root, slot, self.volume.geo.blocks_count) {
                Ok(Some(block)) => self.address_block(block, depth, logical),
                Ok(None) => {}
                Err(e) => self.tell(Rule::BlockMap, self.place, &e),
            }
            logical += per.pow(depth);
        }
        self.mapped
    }

    /// Walks the numbers of data blocks: the first `count` of `bytes`, from a logical block on.
    fn direct(&mut self, bytes: &[u8], count: u32, first: u64, place: FindingPlace) {
        let blocks_count = self.volume.geo.blocks_count;
        let mut run: Option<Extent> = None;
        for i in 0..count {
            let nr = match indirect::get(bytes, i, blocks_count) {
                Ok(Some(nr)) => nr,
                Ok(None) => continue,
                Err(e) => {
                    self.tell(Rule::BlockMap, place, &e);
                    continue;
                }
            };
            // The last number of three levels of 64 KiB is beyond 32 bits; no such file can be.
            let Ok(logical) = u32::try_from(first + u64::from(i)) else {
                break;
            };
            let here = Extent {
                logical,
                len: 1,
                physical: nr,
                unwritten: false,
            };
            run = Some(match run.map(|r| (r, r.merge(&here))) {
                Some((_, Some(longer))) => longer,
                Some((done, None)) => {
                    self.claim_data(&done);
                    here
                }
                None => here,
            });
        }
        if let Some(run) = run {
            self.claim_data(&run);
        }
    }

    fn address_block(&mut self, block: BlockNr, depth: u32, first: u64) {
        let volume = self.volume;
        if !self.claim_node(block, depth, first) {
            self.mapped.damaged = true;
            return;
        }
        let mut bytes = vec![0; volume.block_size()];
        let place = self.place.block(block);
        if !volume.read_or_tell(block, &mut bytes, self.place, self.findings) {
            self.mapped.damaged = true;
            return;
        }
        let per = indirect::per_block(volume.geo.block_size);
        if depth == 1 {
            self.direct(&bytes, per, first, place);
            return;
        }
        if volume.is_slow() {
            let children = (0..per).map(|i| indirect::get(&bytes, i, volume.geo.blocks_count));
            let children = children.filter_map(|child| child.ok().flatten());
            ahead::tell_all(volume, children.map(|first| Piece { first, blocks: 1 }));
        }
        let covered = u64::from(per).pow(depth - 1);
        for i in 0..per {
            match indirect::get(&bytes, i, volume.geo.blocks_count) {
                Ok(Some(child)) => {
                    self.address_block(child, depth - 1, first + u64::from(i) * covered);
                }
                Ok(None) => {}
                Err(e) => self.tell(Rule::BlockMap, place, &e),
            }
        }
    }
}

/// Returns whether a node's declared maximum of entries fills its block, or nearly so.
fn has_room(bytes: &[u8]) -> bool {
    let room = extent::capacity(bytes.len());
    let header = ExtentHeader::parse(bytes);
    header.is_ok_and(|header| usize::from(header.max) + 2 >= room)
}
