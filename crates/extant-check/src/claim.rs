//! Blocks in use according to the inodes and descriptors that claim them. A block that is claimed twice is a finding.

use crate::bits::GroupBits;
use crate::report::{FindingPlace, Findings, Rule};
use ext4_format::BlockNr;
use ext4_format::features::RoCompat;
use ext4_format::geometry::Geometry;
use std::sync::atomic::{AtomicU64, Ordering};

/// Clusters in use; without `bigalloc` a cluster is a block.
pub(crate) struct Claims {
    bits: GroupBits,
    /// Blocks of the groups' own structures.
    metadata: GroupBits,
    ratio: u64,
    first: u64,
    blocks_count: u64,
    per_group: u64,
    /// With the feature `shared_blocks` of Android's images, several files may share a block.
    shared: bool,
    /// Clusters claimed more than once. Beyond as many as the volume has, claims are not looked at any more: the verdict is
    /// clear, and a hostile image could have the same blocks claimed for ever.
    twice: AtomicU64,
}

impl Claims {
    pub(crate) fn new(geo: &Geometry) -> Self {
        let ratio = u64::from(geo.cluster_ratio);
        let per_group = geo.blocks_per_group / geo.cluster_ratio;
        Self {
            bits: GroupBits::new(geo.groups, per_group),
            metadata: GroupBits::new(geo.groups, per_group),
            ratio,
            first: geo.first_data_block,
            blocks_count: geo.blocks_count,
            per_group: per_group.into(),
            shared: geo.features.ro_compat.contains(RoCompat::SHARED_BLOCKS),
            twice: AtomicU64::new(0),
        }
    }

    /// Calls `f` with group, first bit and length of each part of a range of clusters.
    fn parts(&self, first: u64, end: u64, mut f: impl FnMut(u32, u32, u32)) {
        let mut at = first;
        while at < end {
            let (group, bit) = (at / self.per_group, at % self.per_group);
            let n = (self.per_group - bit).min(end - at);
            // Numbers of groups, and of clusters in a group, fit 32 bits.
            f(group as u32, bit as u32, n as u32);
            at += n;
        }
    }

    /// Marks the blocks of the groups' own structures as in use, without a check for earlier claims.
    pub(crate) fn mark(&self, start: BlockNr, len: u64) {
        let end = start.0.saturating_add(len).min(self.blocks_count);
        if start.0 < self.first || start.0 >= end {
            return;
        }
        let cluster = |block: u64| (block - self.first) / self.ratio;
        self.parts(cluster(start.0), cluster(end - 1) + 1, |group, bit, n| {
            self.bits.set(group, bit, n);
            self.metadata.set(group, bit, n);
        });
    }

    /// Claims clusters for the owner at `place`; returns whether all of them were unclaimed.
    pub(crate) fn claim(
        &self,
        first: u64,
        end: u64,
        place: FindingPlace,
        findings: &Findings,
    ) -> bool {
        if self.twice.load(Ordering::Relaxed) > self.blocks_count {
            return false;
        }
        let mut fresh = true;
        self.parts(first, end, |group, bit, n| {
            let (hit, twice) = self.bits.set(group, bit, n);
            let Some(hit) = hit.filter(|_| !self.shared) else {
                return;
            };
            fresh = false;
            self.twice.fetch_add(twice.into(), Ordering::Relaxed);
            let cluster = u64::from(group) * self.per_group + u64::from(hit);
            let block = BlockNr(self.first + cluster * self.ratio);
            findings.add(Rule::BlockTwice, place.block(block), || match twice {
                1 => String::new(),
                n => format!("and {} after it", n - 1),
            });
        });
        fresh
    }

    /// Writes the expected bitmap of a group, without its padding.
    pub(crate) fn write(&self, group: u32, map: &mut [u8]) {
        self.bits.write(group, map);
    }

    /// Writes a bitmap of a group in which only the groups' own structures are in use, without its padding.
    pub(crate) fn write_metadata(&self, group: u32, map: &mut [u8]) {
        self.metadata.write(group, map);
    }
}
