//! Names, modes, sizes, times and flags as people read and write them.

pub mod attr_flags;
pub mod clock;
pub mod mode;
pub mod owners;
pub mod show;
pub mod superblock;
pub mod times;
pub mod tune_values;
