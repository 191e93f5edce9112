//! Inodes in memory and their contents: names, pages, mappings. These modules hold objects and their locks, and do no
//! I/O.

pub mod bucket;
pub mod directory;
pub mod file;
pub mod handles;
pub mod index_room;
pub mod inode;
pub mod inode_index;
pub mod name_table;
pub mod noted_time;
pub mod pages;
