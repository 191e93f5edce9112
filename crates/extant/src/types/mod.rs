//! Values: no locks, no I/O.

pub mod access_times;
pub mod chunks;
pub mod credentials;
pub mod dentry;
pub mod extent_map;
pub mod item;
pub mod name;
pub mod no_key;
