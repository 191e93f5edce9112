//! The directory part of the formatter: from one directory's net changes to its changed blocks.
//!
//! A batch comes sorted by hash, so an indexed directory is walked leaf by leaf in one sweep: the names of a leaf and
//! the changes that fall into its hash interval are merged and written once. A leaf that overflows is split into the
//! number of leaves that the names need, and their index entries go into the parent together. Leaves are always written
//! packed. The end of a leaf's records is known while its image is in memory, so that new names are appended without
//! reading the others. Nothing is patched in place. The new leaves depend only on the old block and its changes, so
//! idle threads compute them ahead of the sweep.
//!
//! Shapes: one linear block; several linear blocks (no `dir_index`, or made by a tool that does not index); an htree.
//! Changes of names that are not known to be new are upserts: adding a name that exists replaces its inode and type,
//! and removing a name that does not exist does nothing.

mod ahead;
mod apply;
mod index;
mod leaf;
mod linear;
mod lookup;
mod pages;
mod room;
mod shape;
#[cfg(test)]
mod tests;
mod update;
mod wanted;

pub use apply::apply;
pub use lookup::DirReader;
pub use room::Allowance;
pub use update::{DirBlocks, DirUpdate, NetChange, NetName};
