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
mod index;
mod leaf;
mod linear;
mod lookup;
mod pages;
mod room;
#[cfg(test)]
mod tests;
mod wanted;

pub use lookup::DirReader;
pub use room::Allowance;

use super::units::Crew;
use super::workspace::Workspace;
use crate::error::Result;
use ext4_format::hash::DirHasher;
use ext4_format::{BlockNr, FileType, InodeNr};

/// The blocks of one directory.
pub trait DirBlocks {
    /// Returns the size in blocks.
    fn blocks(&self) -> u32;
    /// Returns the physical block of a logical one. Fails for a hole.
    fn get(&mut self, ws: &mut Workspace<'_>, logical: u32) -> Result<BlockNr>;
    /// Adds a block at the end and returns both its numbers. Its image is made by the caller.
    fn append(&mut self, ws: &mut Workspace<'_>) -> Result<(u32, BlockNr)>;
}

/// The net change of a name in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetChange {
    /// The name leads to this inode, whether it existed or not.
    Add(InodeNr),
    /// The name is gone, whether it existed or not.
    Remove,
}

/// A change of one name. A batch has at most one for each name; never for "." or "..".
#[derive(Clone, Copy, Debug)]
pub struct NetName<'a> {
    /// Directory hash by the volume's hasher, low bit clear.
    pub hash: u32,
    /// Minor hash; only orders.
    pub minor: u32,
    /// The name.
    pub name: &'a [u8],
    /// Type of the inode added.
    pub ftype: FileType,
    /// The change.
    pub change: NetChange,
    /// The directory has no such name: the change needs no search for one.
    pub is_new: bool,
}

/// All changes of one directory in a batch.
#[derive(Clone, Copy, Debug)]
pub struct DirUpdate<'a> {
    /// The directory.
    pub ino: InodeNr,
    /// Checksum seed of the inode.
    pub seed: u32,
    /// Whether the inode has the INDEX flag now.
    pub indexed: bool,
    /// The directory is new and has no blocks yet: its parent.
    pub init: Option<InodeNr>,
    /// ".." now leads here.
    pub new_parent: Option<InodeNr>,
    /// Changes, sorted by (hash, minor, name).
    pub names: &'a [NetName<'a>],
    /// The directory's hasher, which made the hashes of `names`: the volume's but for folding.
    pub hasher: &'a DirHasher,
    /// Threads that may help.
    pub crew: &'a Crew,
}

/// The fields of the inode after the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirOutcome {
    /// Whether the INDEX flag is set.
    pub indexed: bool,
}

/// Applies a batch to one directory.
///
/// # Errors
/// `Format` when the directory is found corrupt, `NoSpace` when its index has no level left to
/// grow. Blocks may have been changed in `ws` then: the batch cannot be used.
pub fn apply(
    ws: &mut Workspace<'_>,
    blocks: &mut dyn DirBlocks,
    update: &DirUpdate<'_>,
) -> Result<DirOutcome> {
    let mut dir = pages::Dir::new(ws, blocks, update);
    let indexed = if update.indexed && update.init.is_none() {
        dir.apply_to_index()?;
        true
    } else {
        dir.apply_to_linear()?
    };
    Ok(DirOutcome { indexed })
}
