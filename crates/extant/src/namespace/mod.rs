//! The namespace: in-core inodes and directories, extent maps, page cache. Everything concurrent is
//! here; nothing here sees a metadata block image, except the loader.
//!
//! # Lock order
//! 1. `Engine::rename` (moves of directories between parents)
//!    then that of who adds a name to a directory whose index is full ([`index_room`])
//! 2. directory buckets, by inode number of the directory, then by bucket
//! 3. a file's map ([`file::FileData::map`]), then its page index, then a chunk
//! 4. inode states, by inode number
//! 5. the slot's commit lists
//!
//! A push takes none of these, so opening a transaction may wait for a push under any of them but 5.

pub mod access_times;
pub mod attributes;
pub mod bucket;
pub mod copy;
pub mod create;
pub mod credentials;
pub mod directory;
pub mod evict;
pub mod extent_map;
pub mod extents;
pub mod fallocate;
pub mod file;
pub mod index_room;
pub mod inode;
pub mod inode_index;
pub mod load;
pub mod lookup;
pub mod name;
pub mod name_table;
mod no_key;
mod noted_time;
pub mod observe;
pub mod open_files;
pub mod pages;
mod pass_on;
mod placement;
pub mod read_write;
pub mod remove;
pub mod rename;
pub mod shift;
pub mod steps;
pub mod truncate;
pub mod unnamed;
pub mod walk_cache;
pub mod watch;
pub mod whiteout;
pub mod write_back;
pub mod xattrs;

use ext4_format::timestamp::Timestamp;

/// The time of what is done now.
pub(crate) fn now() -> Timestamp {
    let (seconds, nanoseconds) = crate::system::now();
    Timestamp::new(seconds, nanoseconds)
}
