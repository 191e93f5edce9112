//! The blocks of an inode: extent trees and block maps, walked whole, each block claimed once.

use crate::claim::Claims;
use crate::prefetch;
use crate::report::{FindingPlace, Findings, Rule};
use crate::volume::{Piece, Volume};
use ext4_format::extent::{self, Extent, ExtentHeader};
use ext4_format::inode::{flags, reserved};
use ext4_format::map_walk::{self, MapNode, MapVisitor, OnDamage};
use ext4_format::{BlockNr, FormatError, InodeNr, indirect};

/// A run of blocks of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) logical: u32,
    pub(crate) len: u32,
    pub(crate) physical: BlockNr,
}

impl Run {
    /// Returns the place of a logical block.
    pub(crate) fn map(&self, logical: u32) -> Option<BlockNr> {
        let within = logical.checked_sub(self.logical)?;
        (within < self.len).then_some(BlockNr(self.physical.0 + u64::from(within)))
    }
}

/// Returns the place of a logical block; the runs are in logical order.
pub(crate) fn block_of(runs: &[Run], logical: u32) -> Option<BlockNr> {
    let next = runs.partition_point(|run| run.logical <= logical);
    runs.get(next.checked_sub(1)?)?.map(logical)
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
    /// A node of the tree or block of the map.
    Node(MapNode),
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
    /// The rule that a damaged mapping of this kind breaks.
    rule: Rule,
    /// Whether blocks are at their offset in their clusters.
    aligned: bool,
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
            rule: Rule::Extents,
            // Bad blocks lie where they are.
            aligned: ino != reserved::BAD_BLOCKS,
            last_cluster: None,
            last_logical: None,
            mapped: Mapped::default(),
        }
    }

    /// Keeps the runs if `yes`.
    pub(crate) fn with_runs(mut self, yes: bool) -> Self {
        self.with_runs = yes;
        self
    }

    /// Passes each step to `watch`.
    pub(crate) fn watched(mut self, watch: Watch<'c>) -> Self {
        self.watch = Some(watch);
        self
    }

    fn step(&mut self, step: Step) -> Result<(), Ended> {
        let go_on = self.watch.as_mut().is_none_or(|watch| watch(step));
        if go_on { Ok(()) } else { Err(Ended) }
    }

    /// Checks that the blocks of a logical cluster are in one cluster, each at its offset there.
    fn check_alignment(&mut self, extent: &Extent, cluster: u64) {
        let geo = &self.volume.geo;
        let continued = self.last_logical == Some(u64::from(extent.logical / geo.cluster_ratio));
        if !self.aligned
            || geo.is_aligned(extent.logical, extent.physical)
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
    pub(crate) fn walk(mut self, flags: u32, root: &[u8]) -> Mapped {
        if flags & flags::EXTENTS == 0 {
            self.rule = Rule::BlockMap;
        } else if ExtentHeader::parse(root).is_ok_and(|header| !header.fills(root.len())) {
            // Linux reads such a tree, and e2fsck removes the file.
            self.findings.add(self.rule, self.place, || NO_ROOM.into());
        }
        let geo = &self.volume.geo;
        // The watch ends the walk when it has found enough.
        let _ = map_walk::walk(&mut self, geo, flags, root);
        self.mapped
    }

    /// Claims a block of the mapping itself; returns whether it was unclaimed.
    fn claim_node(&self, block: BlockNr) -> bool {
        let Some(claims) = self.claims else {
            // Not more nodes than blocks: a loop ends.
            return self.mapped.nodes <= self.volume.geo.blocks_count;
        };
        let cluster = self.volume.geo.cluster_of(block);
        claims.claim(cluster, cluster + 1, self.place, self.findings)
    }
}

const NO_ROOM: &str = "a maximum of entries that is too small for the node";

/// The watch wants no more steps.
pub(crate) struct Ended;

impl MapVisitor for Walker<'_, '_> {
    type Error = Ended;
    type Block = Vec<u8>;

    fn node(&mut self, node: &MapNode) -> Result<Option<Vec<u8>>, Ended> {
        self.mapped.nodes += 1;
        self.step(Step::Node(*node))?;
        let volume = self.volume;
        // A node that is claimed twice is not walked twice.
        if !self.claim_node(node.block) {
            self.mapped.damaged = true;
            return Ok(None);
        }
        let mut bytes = vec![0; volume.block_size()];
        if !volume.read_or_tell(node.block, &mut bytes, self.place, self.findings) {
            self.mapped.damaged = true;
            return Ok(None);
        }
        if node.rules.is_none() && node.height > 1 && volume.is_slow() {
            let children = indirect::mapped(&bytes, volume.geo.blocks_count).flatten();
            let pieces = children.map(|(_, first)| Piece { first, blocks: 1 });
            prefetch::tell_all(volume, pieces);
        }
        Ok(Some(bytes))
    }

    fn parsed(&mut self, node: &MapNode, bytes: &[u8]) -> Result<bool, Ended> {
        let place = self.place.block(node.block);
        let problem = match ExtentHeader::parse(bytes) {
            Ok(header) if header.fills(bytes.len()) && header.entries > 0 => {
                if let Some(seed) = self.seed
                    && let Err(e) = extent::verify_tail(bytes, seed)
                {
                    self.findings.add_error(Rule::ExtentChecksum, place, &e);
                }
                return Ok(true);
            }
            Ok(header) if header.fills(bytes.len()) => "no entries",
            _ => NO_ROOM,
        };
        self.mapped.damaged = true;
        self.findings.add(Rule::Extents, place, || problem.into());
        Ok(false)
    }

    fn extent(&mut self, extent: Extent, _end: u64) -> Result<(), Ended> {
        self.step(Step::Run(extent))?;
        let geo = &self.volume.geo;
        let len = u64::from(extent.len);
        let clusters = geo.clusters_of(extent.physical, len);
        let (mut first, end) = (clusters.start, clusters.end);
        if geo.cluster_ratio > 1 && self.last_cluster == Some(first) {
            first += 1;
        }
        self.check_alignment(&extent, clusters.start);
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
        Ok(())
    }

    fn damage(&mut self, node: Option<&MapNode>, error: FormatError) -> Result<OnDamage, Ended> {
        self.mapped.damaged = true;
        let place = node.map_or(self.place, |node| self.place.block(node.block));
        self.findings.add_error(self.rule, place, &error);
        Ok(OnDamage::Skip)
    }
}
