//! Free clusters for moving data, allocated once and in order.

use ext4_format::geometry::Geometry;
use ext4_format::{GroupNr, bitmap};
use ext4_image::ClusterSet;

/// Clusters of one volume that are free in the new shape: first those that the old one has free too, then those that only its groups
/// had for themselves.
pub(crate) struct Room {
    geo: Geometry,
    group: u32,
    at: u32,
    early: bool,
    busy: Option<Vec<u8>>,
    used: ClusterSet,
    files: ClusterSet,
    fixed: ClusterSet,
}

impl Room {
    pub(crate) fn new(
        geo: &Geometry,
        used: &ClusterSet,
        files: &ClusterSet,
        fixed: &ClusterSet,
    ) -> Self {
        Self {
            geo: geo.clone(),
            group: 0,
            at: 0,
            early: true,
            busy: None,
            used: used.clone(),
            files: files.clone(),
            fixed: fixed.clone(),
        }
    }

    fn busy(&self) -> Vec<u8> {
        let group = self.group;
        let bits = self.geo.bits_in_group(GroupNr(group));
        let mut map = vec![0; bits.div_ceil(8) as usize];
        self.fixed.add_to(group, &mut map);
        if self.early {
            self.used.add_to(group, &mut map);
            return map;
        }
        // Clusters that were free before are allocated already, and clusters of a file are not free.
        self.files.add_to(group, &mut map);
        let mut given_up = vec![0; map.len()];
        self.used.add_to(group, &mut given_up);
        for (to, old) in map.iter_mut().zip(given_up) {
            *to |= !old;
        }
        map
    }

    /// Takes a run of at most `want` clusters; returns its start, its length, and whether it is free in the old volume.
    pub(crate) fn take(&mut self, want: u64) -> Option<(u64, u64, bool)> {
        loop {
            if self.group >= self.geo.groups {
                if !self.early {
                    return None;
                }
                (self.early, self.group, self.at, self.busy) = (false, 0, 0, None);
                continue;
            }
            // A short last cluster is not taken.
            let bits = self.geo.blocks_in_group(GroupNr(self.group)) / self.geo.cluster_ratio;
            let map = match self.busy.take() {
                Some(map) => map,
                None => self.busy(),
            };
            if let Some(start) = bitmap::find_zero(&map, self.at, bits) {
                let most = start
                    .saturating_add(want.min(u64::from(u32::MAX)) as u32)
                    .min(bits);
                let end = bitmap::find_one(&map, start, most).unwrap_or(most);
                self.at = end;
                self.busy = Some(map);
                let first = self.geo.group_first_block(GroupNr(self.group));
                let first = self.geo.cluster_of(first);
                return Some((first + u64::from(start), u64::from(end - start), self.early));
            }
            self.group += 1;
            self.at = 0;
        }
    }
}
