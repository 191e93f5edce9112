//! Allocators: the in-core bitmaps are the truth for allocating; the formatter writes their images.

pub mod block;
mod bound;
pub mod buddy;
mod charged;
mod contention;
mod goals;
pub mod inode;
mod ranks;
pub mod search;
pub mod window;
