//! When an inode leaves memory, and when it ends.

pub mod evict;
pub mod handles;
pub mod reap;
