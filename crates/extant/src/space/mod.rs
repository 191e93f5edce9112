//! Space: how many blocks and inode numbers are free, for whom, and which of them are handed out. The in-core bitmaps are the
//! truth for allocating; the formatter writes their images.

pub mod bitmaps;
pub mod block;
mod bound;
pub mod buddy;
mod charged;
mod contention;
pub mod counts;
mod goals;
pub mod inode;
mod ranks;
pub mod search;
pub mod window;
