//! The formatter of extant, ext4 in user space: the only code that changes metadata blocks. Its input is a batch of
//! logical changes, its output the images of blocks.
//!
//! Operations of a file system describe their changes as small [items](item): an inode's new state, a name added, a run
//! mapped. [`Formatter::format`] sorts a batch of them, drops changes that cancel out inside it, and returns each
//! changed block once, with its new bytes ([`Output`]). A journal can log these, or they can be written to their
//! places.
//!
//! The crate has no device, no clock and no thread that outlives a call. Old blocks come through
//! [`image::BlockImages`], and blocks for directories, extent trees and attributes through [`MetaSpace`]; the caller
//! implements both. The bytes do not depend on the number of threads, except for attribute blocks that inodes of
//! several groups share: the group that is formatted first makes them.
//!
//! | module | contents |
//! |---|---|
//! | [`item`], [`name`], [`chunks`] | the input: log items, checked names, long lists |
//! | [`image`], [`block_memory`] | block images, and the memory of dropped ones |
//! | [`groups`], [`system_zone`] | group descriptors and bitmaps; the blocks that are the volume's own |
//! | [`extent_map`], [`mapping_reader`] | the mapping of a file in memory, and reading it from its tree |
//! | `formatter`, `superblock`, `superblock_update` | the formatter's state between batches; the primary superblock |
//! | `batch`, `spread_sort`, `threads`, `unit`, `units` | a batch in order, and in units that threads format side by side |
//! | `inode_phase`, `record` | the changes of one inode, and of its record |
//! | `directory` | the changes of one directory; looking a name up on disk; room in an index |
//! | `map_changes`, `mapping`, `owner`, `extent_tree`, `indirect_map` | the changes of one mapping |
//! | [`fast_commit`] | a batch as a fast commit, and the batch that replays fast commits |
//! | `xattrs`, `orphans`, `gaps` | attribute blocks that inodes share; orphans; inode tables never written |
//! | `bits`, `group_images`, `ledger` | bitmaps and descriptors; the blocks taken and freed |
//! | `workspace` | the blocks that a batch works on |
//!
//! Bytes of a volume are hostile: they are checked where they are parsed, arithmetic on them is checked, and the worst
//! outcome is an error.

#![forbid(unsafe_code)]

mod batch;
mod bits;
pub mod block_memory;
pub mod chunks;
mod directory;
mod error;
pub mod extent_map;
mod extent_tree;
pub mod fast_commit;
mod formatter;
mod gaps;
mod group_images;
pub mod groups;
mod growth;
pub mod image;
mod indirect_map;
mod inode_phase;
pub mod item;
mod ledger;
mod locks;
mod map_changes;
mod mapping;
pub mod mapping_reader;
pub mod name;
mod orphans;
mod owner;
mod record;
mod spread_sort;
mod superblock;
mod superblock_update;
pub mod system_zone;
#[cfg(test)]
mod tests;
mod threads;
mod unit;
mod units;
mod workspace;
mod xattrs;

pub use directory::{Allowance, DirReader};
pub use error::{Error, Result, SpaceError};
pub use formatter::{Formatter, Output};
pub use ledger::MetaSpace;
pub use superblock::{location as superblock_location, read as read_superblock};
pub use superblock_update::Moment;
pub use unit::Published;

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
