//! Snapshots: a moment of the volume for readers, while changes continue.

use crate::base::error::{Error, Result};
use crate::store::Store;
use crate::volume::engine::Engine;
use blockdev::{BlockDevice, Snapshot, SnapshotOptions};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc};
use ext4_format::{BlockNr, GroupNr, bitmap};
use extant_formatter::groups::Groups;
use std::io;

/// Bytes of blocks that are kept for a snapshot at most.
const MOST: u64 = 256 << 20;

impl Engine {
    /// Makes the device that of a closed volume, and keeps this moment.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        // Write back before changes have to wait.
        self.data.sync_formatted()?;
        self.freeze()?;
        let taken = self.snapshot_frozen();
        self.thaw();
        taken
    }

    /// Takes a snapshot of a volume that is frozen.
    pub(crate) fn snapshot_frozen(&self) -> Result<Snapshot> {
        let used = UsedBlocks::read(&self.store)?;
        let size = self.store.geometry.block_size;
        // Blocks that were not in use are written without being kept, because a reader has no use for them.
        let options = SnapshotOptions::new(size)
            .most(MOST)
            .only(move |at| used.has(at / u64::from(size)));
        let taken = self.store.snapshots.take(options);
        taken.map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => Error::Busy("there is another snapshot of the volume"),
            _ => Error::Io {
                context: "snapshot".into(),
                source,
            },
        })
    }
}

/// The blocks in use.
struct UsedBlocks {
    geometry: Geometry,
    /// Bitmaps of the groups. Volumes with clusters have no bitmaps here, and all their blocks count as used.
    groups: Vec<Box<[u8]>>,
}

impl UsedBlocks {
    fn read(store: &Store) -> Result<Self> {
        let geometry = store.geometry.clone();
        let groups = match geometry.cluster_ratio {
            1 => (0..geometry.groups)
                .map(|group| block_bitmap(store, &geometry, GroupNr(group)))
                .collect::<Result<_>>()?,
            _ => Vec::new(),
        };
        Ok(Self { geometry, groups })
    }

    fn has(&self, block: u64) -> bool {
        // Blocks before the first group and behind the last are not in a bitmap.
        let Some((group, bit)) = self.geometry.group_of_block(BlockNr(block)) else {
            return true;
        };
        let map = self.groups.get(group.0 as usize);
        map.is_none_or(|map| bitmap::test(map, bit))
    }
}

fn block_bitmap(store: &Store, geometry: &Geometry, group: GroupNr) -> Result<Box<[u8]>> {
    // Read the descriptor as it is now, because the store remembers it as it was when it was first read.
    let groups = Groups::lazy(geometry);
    let desc: &GroupDesc = groups.get(geometry, &store.buffers, group)?;
    let mut map = vec![0; geometry.block_size as usize];
    if geometry.features.has_group_csum() && desc.flags & BLOCK_UNINIT != 0 {
        bitmap::init_block_bitmap(&mut map, geometry, group, desc);
    } else {
        let at = desc.block_bitmap.offset(geometry.block_size);
        store
            .device
            .read_at(at, &mut map)
            .map_err(|e| Error::block_io("read", desc.block_bitmap, e))?;
    }
    Ok(map.into())
}
