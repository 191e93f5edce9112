//! The source of metadata: the device, its geometry, block images in memory, group descriptors, the superblock.

pub mod buffers;
pub mod damage;
pub mod flushes;
pub mod gate;
pub mod groups;
pub mod health;
pub mod limits;
pub mod mapping;
pub mod superblock;
pub mod system_zone;

use crate::base::locks::{self, Mutex};
use blockdev::BlockDevice;
use buffers::Buffers;
use ext4_format::geometry::Geometry;
use ext4_format::hash::DirHasher;
use flushes::Flushes;
use gate::Gate;
use groups::Groups;
use health::Health;
use limits::Limits;
use std::sync::Arc;
use system_zone::SystemZone;

/// The lowest layer of an open volume.
pub(crate) struct Store {
    pub(crate) geometry: Geometry,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) buffers: Buffers,
    pub(crate) groups: Groups,
    pub(crate) hasher: DirHasher,
    /// The volume's own blocks.
    pub(crate) zone: Arc<SystemZone>,
    /// Held while the superblock is written to its place on the device.
    pub(crate) superblock_io: Mutex<(), locks::SuperblockPlace>,
    /// Holds changes back while the volume is frozen.
    pub(crate) gate: Gate,
    pub(crate) flushes: Flushes,
    pub(crate) health: Health,
    pub(crate) limits: Limits,
}
