//! Inodes in memory, and what they hold: names, pages, mappings. Objects and their locks; nothing here does I/O.

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
