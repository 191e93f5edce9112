//! Errors with advice, and progress of long work.

pub mod advised;
pub mod check_progress;
pub mod mkfs_progress;
