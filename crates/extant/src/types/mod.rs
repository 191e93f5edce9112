//! Values: no locks, no I/O.

pub mod chunks;
pub mod credentials;
pub mod extent_map;
pub mod item;
pub mod name;
pub mod no_key;
