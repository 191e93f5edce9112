//! Keeping memory bounded. A walk of the per-slot inode list (mechanism P2, P3) finds clean pages and clean inodes,
//! which are evicted. The walk tolerates inodes added and removed meanwhile.

use crate::incore::inode::Inode;
use crate::lifecycle::Lifecycle;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Lifecycle {
    /// Drops inodes when there are more than the limit. Called now and then when inodes are added. After a walk that
    /// found too few to drop, the next walk waits until there are many more.
    pub(super) fn bound_inodes(&self) {
        let most = self
            .store
            .limits
            .inodes
            .max(self.inodes.inodes_left.load(Ordering::Relaxed));
        if self.inodes.in_core.len() as u64 > most.saturating_add(most / 8) {
            self.shrink_inodes();
            let left = self.inodes.in_core.len() as u64;
            self.inodes.inodes_left.store(left, Ordering::Relaxed);
        }
    }

    /// Drops clean inodes without handles, if there are more in core than the limit.
    pub(crate) fn shrink_inodes(&self) {
        let mut over = self.inodes.in_core.len() as i64 - self.store.limits.inodes as i64;
        if over <= 0 {
            return;
        }
        // Inodes with times to write can leave after the next write-back.
        self.inodes.make_all_times_due();
        let durable = self.log.durable();
        self.inodes.walks.clear();
        self.inodes.forget_open_files();
        for inode in self.inodes.in_core.iter() {
            if over <= 0 {
                return;
            }
            if self.evict(&inode, durable) {
                over -= 1;
            }
        }
    }

    /// Drops every clean page and inode.
    pub(crate) fn drop_clean(&self) {
        let durable = self.log.durable();
        self.inodes.walks.clear();
        self.inodes.forget_open_files();
        let bs = i64::from(self.store.geometry.block_size);
        for inode in self.inodes.in_core.iter() {
            if let Some(file) = inode.touched_file() {
                let dropped = file.pages.sweep(true);
                self.data.cached_bytes.add(-i64::from(dropped) * bs);
            }
            self.evict(&inode, durable);
        }
        self.store.buffers.drop_clean();
    }

    /// Ends the volume in memory: only inodes with handles stay, and watchers of an inode are notified. Data that are
    /// not written are lost.
    pub(crate) fn evict_all(&self) {
        self.watch.tell_unmounted(None);
        self.inodes.walks.clear();
        self.inodes.forget_open_files();
        for inode in self.inodes.in_core.iter() {
            self.watch.tell_unmounted(Some(&inode));
            if let Some(file) = inode.touched_file() {
                // A thread that writes this file's data back holds its mapping.
                let _map = file.map.write();
                self.data.drop_pages(&inode, 0, u32::MAX);
            }
            self.inodes.index.remove(&inode);
            self.inodes.delist(&inode);
        }
        self.store.buffers.clear();
    }

    fn evict(&self, inode: &Arc<Inode>, durable: u64) -> bool {
        crate::base::jitter::point();
        // Held by: the index (counted there), the per-slot list, and the caller's clone.
        let gone = self.inodes.index.evict(inode, 2, |i| {
            i.ino != ext4_format::InodeNr::ROOT
                && i.handles.count() == 0
                && i.last_context.load(Ordering::Acquire) <= durable
                && !i.listed.is_on()
                && i.touched_file().is_none_or(|f| f.pages.is_empty())
                && i.state
                    .try_lock()
                    .is_some_and(|s| !s.core_dirty && !s.lazy_times && !s.orphan)
        });
        if gone {
            self.data.discard_preallocation_of(inode);
            self.inodes.delist(inode);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use crate::VolumeOptions;
    use crate::mkfs::{self, MkfsOptions};
    use blockdev::MemDevice;
    use std::sync::Arc;

    /// Makes a volume of this size in memory.
    fn made(size: u64, options: MkfsOptions) -> Arc<MemDevice> {
        let device = Arc::new(MemDevice::new(size));
        let options = MkfsOptions {
            size: Some(size),
            zeroed_device: true,
            ..options
        };
        mkfs::format(&*device, &options).unwrap();
        device
    }

    /// A volume without a background thread that is only read keeps to its limit of inodes.
    #[test]
    fn inodes_that_were_looked_up_leave() {
        let device = made(64 << 20, MkfsOptions::default());
        let volume = VolumeOptions::new()
            .open_device(Arc::clone(&device) as _)
            .unwrap();
        for n in 0..3000 {
            volume.write(format!("/f{n}"), b"").unwrap();
        }
        volume.close().unwrap();
        let volume = VolumeOptions::new()
            .read_only(true)
            .inodes_in_core(500)
            .open_device(device)
            .unwrap();
        for n in (0..3000).chain(0..3000) {
            volume.metadata(format!("/f{n}")).unwrap();
        }
        let count = volume.guard_engine().inodes.in_core.len();
        assert!(count <= 500 + 500 / 8 + 64, "{count} inodes");
    }

    /// A volume of a million groups many of which are used keeps to a share of its cache.
    #[test]
    fn bitmaps_of_groups_leave() {
        let size = 128 << 40;
        let options = MkfsOptions {
            inodes: Some(ext4_format::layout::Inodes::Count(1 << 27)),
            journal_size: Some(16 << 20),
            features: "sparse_super2,^resize_inode".into(),
            flex_bg_size: 1024,
            ..Default::default()
        };
        let device = made(size, options);
        // An eighth holds 256 bitmaps.
        let volume = VolumeOptions::new()
            .cache_bytes(16 << 20)
            .open_device(Arc::clone(&device) as _)
            .unwrap();
        let free = volume.statfs().unwrap().free_blocks;
        let mut most = 0;
        for n in 0..40 {
            // 128 groups for each file.
            let file = volume.create_new_file(format!("/f{n}")).unwrap();
            file.fallocate(crate::Fallocate::default(), 0, 16 << 30)
                .unwrap();
            most = most.max(volume.guard_engine().space.blocks.loaded());
        }
        // Of 5,120 bitmaps: the limit, and the bitmaps that contexts may touch until they are pushed.
        assert!(most < 256 * 6, "{most} bitmaps in memory");
        // Bitmaps of freed blocks are loaded again, and stay until the blocks can be taken again.
        for n in 0..40 {
            volume.remove_file(format!("/f{n}")).unwrap();
        }
        volume.close().unwrap();
        let volume = VolumeOptions::new().open_device(device).unwrap();
        assert!(free - volume.statfs().unwrap().free_blocks < 50);
        volume.close().unwrap();
    }

    /// Blocks that become free at once in many groups: their bitmaps can leave only after the push after next, which
    /// does not make room for more of them before that.
    #[test]
    fn bitmaps_of_freed_blocks_do_not_add_up() {
        let size = 128 << 40;
        let options = MkfsOptions {
            inodes: Some(ext4_format::layout::Inodes::Count(1 << 27)),
            // The journal is large, so that contexts are.
            journal_size: Some(256 << 20),
            features: "sparse_super2,^resize_inode".into(),
            flex_bg_size: 1024,
            ..Default::default()
        };
        // An eighth holds 256 bitmaps. Only callers that must push do so.
        let volume = VolumeOptions::new()
            .background(false)
            .cache_bytes(16 << 20)
            .open_device(made(size, options))
            .unwrap();
        for n in 0..48 {
            let file = volume.create_new_file(format!("/f{n}")).unwrap();
            file.fallocate(crate::Fallocate::default(), 0, 16 << 30)
                .unwrap();
        }
        let mut most = 0;
        for n in 0..48 {
            volume.remove_file(format!("/f{n}")).unwrap();
            most = most.max(volume.guard_engine().space.blocks.loaded());
        }
        // Bitmaps loaded before the last two pushes and since, each time up to the limit and the 128 groups of an
        // operation.
        assert!(most <= 3 * (256 + 128), "{most} bitmaps in memory");
        volume.close().unwrap();
    }

    /// Inodes are made in thousands of groups and removed again by many threads: the bitmaps in memory are a few, and
    /// no number is lost.
    #[test]
    fn inode_bitmaps_of_groups_leave() {
        let size = 64 << 30;
        let options = MkfsOptions {
            inodes: Some(ext4_format::layout::Inodes::Count(4096 * 256)),
            journal_size: Some(64 << 20),
            features: "^resize_inode".into(),
            blocks_per_group: Some(4096),
            ..Default::default()
        };
        let device = made(size, options);
        let volume = VolumeOptions::new()
            .cache_bytes(2 << 20)
            .inodes_in_core(500)
            .open_device(Arc::clone(&device) as _)
            .unwrap();
        assert!(volume.geometry().groups >= 4096);
        let free = volume.statfs().unwrap().free_inodes;
        let loaded = || volume.guard_engine().space.inodes.loaded();
        let most = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|s| {
            for thread in 0..4 {
                let (volume, most) = (&volume, &most);
                s.spawn(move || {
                    let name = |n: u32| format!("/d{thread}-{n}");
                    let remove = |n: u32| {
                        volume.remove_file(format!("{}/f", name(n))).unwrap();
                        volume.remove_dir(name(n)).unwrap();
                    };
                    for n in 0..2000 {
                        volume.create_dir(name(n)).unwrap();
                        volume.create_new_file(format!("{}/f", name(n))).unwrap();
                        most.fetch_max(loaded(), std::sync::atomic::Ordering::Relaxed);
                        // Some numbers are freed at once, some in a later context.
                        match n % 3 {
                            0 => remove(n),
                            1 if n > 300 => remove(n - 300),
                            _ => {}
                        }
                    }
                });
            }
        });
        let most = most.into_inner();
        // The limit is 186, and sixteen bitmaps of each slot may be in use. Bitmaps that a context changed stay until it is pushed: on a
        // busy machine they are more. Without eviction, those of all groups would stay.
        assert!(
            most <= volume.geometry().groups / 2 && volume.guard_engine().space.inodes.has_shrunk(),
            "{most} bitmaps in memory"
        );
        for entry in volume.read_dir("/").unwrap() {
            let name = entry.unwrap().file_name().to_str().unwrap().to_owned();
            if name.starts_with('d') {
                volume.remove_file(format!("/{name}/f")).unwrap();
                volume.remove_dir(format!("/{name}")).unwrap();
            }
        }
        volume.sync().unwrap();
        assert_eq!(volume.statfs().unwrap().free_inodes, free);
        volume.close().unwrap();
        let volume = VolumeOptions::new().open_device(device).unwrap();
        assert_eq!(volume.statfs().unwrap().free_inodes, free);
        volume.close().unwrap();
    }

    /// Pages loaded by reading are bounded like written ones.
    #[test]
    fn pages_that_were_read_leave() {
        let device = made(64 << 20, MkfsOptions::default());
        let limit = 1 << 20;
        let volume = VolumeOptions::new()
            .cache_bytes(limit)
            .open_device(device)
            .unwrap();
        for n in 0..400 {
            volume.write(format!("/f{n}"), [7; 20_000]).unwrap();
        }
        volume.sync().unwrap();
        for n in 0..400 {
            assert_eq!(volume.read(format!("/f{n}")).unwrap().len(), 20_000);
        }
        let cached = volume.guard_engine().data.cached_bytes.sum();
        assert!(cached <= limit as i64 + (64 << 10), "{cached} bytes cached");
    }
}
