//! ext4 and jbd2 bytes: parse, check, build. No I/O, no threads, no clock.
#![forbid(unsafe_code)]

#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;

pub mod error;
pub mod types;

// superblock family
pub mod bitmap;
pub mod change_mark;
pub mod checksum;
pub mod features;
pub mod geometry;
pub mod group_desc;
pub mod growth;
pub mod inode;
pub mod layout;
pub mod mount_options;
pub mod resize_inode;
pub mod superblock;
pub mod timestamp;

// what inodes hold
pub mod acl;
pub mod dir_entry;
pub mod directory;
pub mod extent;
pub mod fold;
pub mod hash;
pub mod htree;
pub mod indirect;
pub mod jbd2;
pub mod map_walk;
pub mod mapping;
pub mod mmp;
pub mod orphan_file;
pub mod quota;
pub mod remapping;
pub mod xattr;

pub use error::{FormatError, Result, Where};
pub use types::{BlockNr, FileType, GroupNr, InodeNr};

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
