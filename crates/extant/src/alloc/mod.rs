//! Allocators: the in-core bitmaps are the truth for allocating; the formatter writes their images.

pub mod block;
pub mod inode;
