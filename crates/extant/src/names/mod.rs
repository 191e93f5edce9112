//! Names: looked up, made, removed, moved.
//!
//! # Lock order
//! 1. `Engine::rename` (moves of directories between parents)
//!    then that of who adds a name to a directory whose index is full ([`index_room`])
//! 2. directory buckets, by inode number of the directory, then by bucket
//! 3. a file's map ([`FileData::map`](crate::incore::file::FileData::map)), then its page index, then a chunk
//! 4. inode states, by inode number
//! 5. the slot's commit lists
//!
//! A push takes none of these, so opening a transaction may wait for a push under any of them but 5.

pub mod create;
pub mod index_room;
pub mod load;
pub mod lookup;
pub mod remove;
pub mod rename;
pub mod unnamed;
pub mod walk_cache;
pub mod whiteout;
