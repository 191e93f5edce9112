//! Blocks in use according to the inodes and descriptors that claim them. A block that is claimed twice is a finding.

use crate::report::{FindingPlace, Findings, Rule};
use ext4_format::features::RoCompat;
use ext4_format::geometry::Geometry;
use ext4_format::{BlockNr, GroupNr};
use ext4_image::ClusterSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Clusters in use; without `bigalloc` a cluster is a block.
pub(crate) struct Claims {
    clusters: ClusterSet,
    geo: Geometry,
    /// With the feature `shared_blocks` of Android's images, several files may share a block.
    shared: bool,
    /// Clusters claimed more than once. Beyond as many as the volume has, claims are not looked at any more: the verdict is
    /// clear, and a hostile image could have the same blocks claimed for ever.
    twice: AtomicU64,
}

impl Claims {
    pub(crate) fn new(geo: &Geometry) -> Self {
        Self {
            clusters: ClusterSet::new(geo),
            geo: geo.clone(),
            shared: geo.features.ro_compat.contains(RoCompat::SHARED_BLOCKS),
            twice: AtomicU64::new(0),
        }
    }

    /// Marks the blocks of the groups' own structures as in use, without a check for earlier claims.
    pub(crate) fn mark(&self, start: BlockNr, len: u64) {
        let end = start.0.saturating_add(len).min(self.geo.blocks_count);
        if start.0 < self.geo.first_data_block || start.0 >= end {
            return;
        }
        self.clusters
            .insert(self.geo.clusters_of(start, end - start.0));
    }

    /// Claims clusters for the owner at `place`; returns whether all of them were unclaimed.
    pub(crate) fn claim(
        &self,
        first: u64,
        end: u64,
        place: FindingPlace,
        findings: &Findings,
    ) -> bool {
        if self.twice.load(Ordering::Relaxed) > self.geo.blocks_count {
            return false;
        }
        let mut fresh = true;
        for part in self.clusters.parts(first..end) {
            let (hit, twice) = self.clusters.insert_part(part);
            let Some(hit) = hit.filter(|_| !self.shared) else {
                continue;
            };
            fresh = false;
            self.twice.fetch_add(twice.into(), Ordering::Relaxed);
            let start = self.geo.group_first_block(GroupNr(part.group)).0;
            let block = BlockNr(start + u64::from(hit) * u64::from(self.geo.cluster_ratio));
            findings.add(Rule::BlockTwice, place.block(block), || match twice {
                1 => String::new(),
                n => format!("and {} after it", n - 1),
            });
        }
        fresh
    }

    /// Writes the expected bitmap of a group, without its padding.
    pub(crate) fn write(&self, group: u32, map: &mut [u8]) {
        self.clusters.write(group, map);
    }
}
