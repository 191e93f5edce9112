//! File data: read, written, placed, written back, cut off.

pub mod attributes;
pub mod copy;
pub mod extents;
pub mod fallocate;
mod pass_on;
mod placement;
pub mod read_write;
pub mod shift;
pub mod steps;
pub mod truncate;
pub mod write_back;
