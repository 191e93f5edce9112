//! The bound on pages in memory: when there are more, clean ones are dropped [P3].

use crate::data::Data;

impl Data {
    /// Drops clean pages when there are more than the limit. Called when pages were added.
    pub(super) fn bound_pages(&self) {
        if u64::try_from(self.cached_bytes.sum()).unwrap_or(0) > self.store.limits.cache_bytes {
            self.shrink_pages();
        }
    }

    /// Drops clean pages until the cache is a fifth below its limit: first those not used since the
    /// last walk, then any.
    pub(super) fn shrink_pages(&self) {
        let target = self.store.limits.cache_bytes / 5 * 4;
        let bs = i64::from(self.store.geometry.block_size);
        // Summed once, because the parts of other slots are on lines that they write. Pages added meanwhile are left to
        // the next caller.
        let mut cached = self.cached_bytes.sum();
        for force in [false, true] {
            for inode in self.inodes.in_core.iter() {
                if u64::try_from(cached).unwrap_or(0) <= target {
                    return;
                }
                if let Some(file) = inode.touched_file() {
                    let dropped = i64::from(file.pages.sweep(force)) * bs;
                    self.cached_bytes.add(-dropped);
                    cached -= dropped;
                }
            }
        }
    }
}
