//! Where metadata comes from: the device, its geometry, block images in memory, group descriptors, the superblock.

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
