//! The source of metadata: the device, its geometry, block images in memory, group descriptors, the superblock.

pub mod buffers;
pub mod damage;
pub mod flushes;
pub mod gate;
pub mod health;
pub mod limits;
pub mod superblock;

use crate::base::error::{Error, Result};
use crate::base::grown::Grown;
use crate::base::locks::{self, Mutex};
use crate::base::unsynced::Unsynced;
use crate::types::settings::Settings;
use blockdev::{BlockDevice, SnapshotDevice};
use buffers::Buffers;
use crossbeam_utils::CachePadded;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::hash::DirHasher;
use ext4_format::{BlockNr, GroupNr};
use extant_formatter::groups::Groups;
use extant_formatter::system_zone::SystemZone;
use flushes::Flushes;
use gate::Gate;
use health::Health;
use limits::Limits;
use std::sync::Arc;

/// The lowest layer of an open volume.
pub(crate) struct Store {
    pub(crate) geometry: Grown<Geometry>,
    pub(crate) device: Arc<dyn BlockDevice>,
    /// The device again, to take snapshots of.
    pub(crate) snapshots: Arc<SnapshotDevice>,
    pub(crate) buffers: Buffers,
    pub(crate) groups: Grown<Groups>,
    pub(crate) hasher: DirHasher,
    /// The volume's own blocks.
    pub(crate) zone: Grown<Arc<SystemZone>>,
    /// Held while the volume grows.
    pub(crate) growing: Mutex<(), locks::Growing>,
    /// Held while the superblock is written to its place on the device.
    pub(crate) superblock_io: Mutex<(), locks::SuperblockPlace>,
    /// Holds changes back while the volume is frozen.
    pub(crate) gate: Gate,
    /// On separate cache lines, because an fsync writes it, and every operation reads the gate.
    pub(crate) flushes: CachePadded<Flushes>,
    /// Whether a sync has anything to do.
    pub(crate) unsynced: Unsynced,
    pub(crate) health: Health,
    pub(crate) limits: Limits,
    pub(crate) settings: Settings,
}

impl Store {
    /// Returns the descriptor of a group, as it was when it was first read.
    pub(crate) fn desc(&self, group: GroupNr) -> Result<&GroupDesc> {
        Ok(self.groups.get(&self.geometry, &self.buffers, group)?)
    }

    /// Reads data from a block on, and from a byte within it. Linux also logs data (`data=journal`) and the targets of
    /// links. On a read-only volume these are replayed in memory alone, where they are newer than on the device.
    pub(crate) fn read_data(&self, block: BlockNr, within: usize, buf: &mut [u8]) -> Result<()> {
        let at = block.offset(self.geometry.first().block_size) + within as u64;
        let read = self.device.read_at(at, buf);
        read.map_err(|e| Error::block_io("read", block, e))?;
        if self.health.read_only.is_some() && self.buffers.dirty_count() != 0 {
            self.buffers.overlay_dirty(block, within, buf);
        }
        Ok(())
    }
}

#[cfg(test)]
impl Store {
    /// Makes a store over a new volume of 16 MiB in memory, for layers that are tested alone.
    pub(crate) fn in_memory() -> Arc<Self> {
        let device = Arc::new(blockdev::MemDevice::new(16 << 20));
        let options = extant_mkfs::MkfsOptions {
            size: Some(16 << 20),
            zeroed_device: true,
            ..Default::default()
        };
        extant_mkfs::format(&*device, &options).unwrap();
        let geometry = superblock::find(&*device).unwrap().geometry;
        let snapshots = Arc::new(SnapshotDevice::new(device));
        let device: Arc<dyn BlockDevice> = Arc::clone(&snapshots) as _;
        let buffers = Buffers::new(Arc::clone(&device), geometry.block_size, 1000);
        Arc::new(Self {
            groups: Grown::new(Groups::load(&geometry, &buffers).unwrap()),
            hasher: DirHasher::new(
                geometry.def_hash_version,
                geometry.unsigned_hash,
                geometry.hash_seed,
            )
            .unwrap(),
            zone: Grown::new(Arc::new(SystemZone::new(&geometry, &[]))),
            growing: Mutex::new(()),
            superblock_io: Mutex::new(()),
            gate: Default::default(),
            flushes: Default::default(),
            unsynced: Default::default(),
            health: Health::sound(),
            limits: Limits::small(),
            settings: Settings::default(),
            geometry: Grown::new(geometry),
            device,
            snapshots,
            buffers,
        })
    }
}
